"""Asynchronous operations that no path commits to a group, or waits for (rules/accumulators.py, rules/text.py)."""

from collections.abc import Iterator
from dataclasses import dataclass

from mmulator.findings import Finding
from mmulator.isa.effects import Ends, Queue, Step
from mmulator.program.blocks import Program, instructions
from mmulator.program.static.flow import found, reachable
from mmulator.ptx.tree import Instruction
from mmulator.rules.accumulators import NOT_COMMITTED, NOT_WAITED
from mmulator.rules.rule import Rule
from mmulator.rules.text import COPY_NOT_COMMITTED, COPY_NOT_WAITED


@dataclass(frozen=True)
class QueueRules:
    """The operations of one queue, and the rules about them.

    queue: the queue.
    uncommitted, unwaited: the rules.
    group, wait: instructions that commit and wait.
    alone: instructions that also wait for uncommitted operations.
    """

    queue: Queue
    uncommitted: Rule
    unwaited: Rule
    group: str
    wait: str
    alone: tuple[str, ...] = ()


KINDS = (
    QueueRules(Queue.WGMMA, NOT_COMMITTED, NOT_WAITED, "wgmma.commit_group", "wgmma.wait_group"),
    QueueRules(Queue.COPIES, COPY_NOT_COMMITTED, COPY_NOT_WAITED, "cp.async.commit_group", "cp.async.wait_group", ("wait_all",)),
)


def left(program: Program) -> Iterator[Finding]:
    """For each kind the last operation in the kernel's text that no commit or wait can follow. Kernels with calls are skipped,
    since a callee may wait.
    """
    blocks = program.entry.blocks
    first = blocks[0].index
    if any(b.ending is Ends.CALL for b in blocks):
        return
    matter = [[i for i in instructions(b) if _matters(i)] for b in blocks]
    for kind in KINDS:
        last: dict[str, Finding] = {}
        for block, every in zip(blocks, matter):
            behind: list[Instruction] | None = None
            for n, ins in enumerate(every):
                if ins.effects.queue is kind.queue and ins.effects.step is Step.ISSUE:
                    if behind is None:
                        behind = [i for b in sorted(reachable(program.entry, block)) for i in matter[b - first]]
                    finding = _left(kind, ins, [*every[n + 1 :], *behind])
                    if finding is not None:
                        last[finding.rule] = finding
        yield from last.values()


def _matters(ins: Instruction) -> bool:
    return ins.effects.queue is not Queue.NONE or ins.effects.ends in (Ends.EXIT, Ends.RETURN)


def _left(kind: QueueRules, ins: Instruction, behind: list[Instruction]) -> Finding | None:
    """The breach of an operation that these instructions may follow; None if they commit and wait."""
    if not any(i.effects.ends in (Ends.EXIT, Ends.RETURN) for i in behind):
        return None
    steps = {i.effects.step for i in behind if i.effects.queue is kind.queue}
    ends = Step.SIGNAL in steps or any(a in i.modifiers for i in behind for a in kind.alone)
    if ends:
        return None
    if Step.COMMIT not in steps:
        return found(kind.uncommitted, ins, f"no {kind.group} follows this {_short(ins)} on any path")
    if Step.WAIT not in steps:
        return found(kind.unwaited, ins, f"no {kind.wait} follows this {_short(ins)} on any path")
    return None


def _short(ins: Instruction) -> str:
    return "wgmma" if ins.effects.queue is Queue.WGMMA else ins.mnemonic
