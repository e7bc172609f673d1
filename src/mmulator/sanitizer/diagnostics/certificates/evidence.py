"""The evidence of one sanitized run for a certificate: what was found, what the text chooses by, what is
in doubt, what is taken for granted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mmulator.base.findings import Finding
from mmulator.base.rules import Severity
from mmulator.ptx.program.choices import Choice, choices, relied_on, takes_work
from mmulator.ptx.program.contents import contents_matter
from mmulator.ptx.program.waiting import all_of, shows_as_number
from mmulator.ptx.tree import Instruction
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.work import Work
from mmulator.sanitizer.diagnostics.findings.context import FindingContext, location
from mmulator.sanitizer.diagnostics.findings.shadows import are_idle, has_strayed
from mmulator.sanitizer.state import Doubt

# What a doubt says of {this}, an instruction, and {other}, another one.
DOUBTS: Mapping[Doubt, str] = {
    Doubt.SAME_STORE: "{this} and {other} write the same bytes, and nothing orders them; they are taken for one store",
    Doubt.MANY_WRITES: "{this} and many others write bytes, and nothing orders them: their values were not compared",
    Doubt.SUM_OF_LANES: "{this} stores values that differ among its lanes to the same bytes: which one stays is open",
    Doubt.UNSEEN_INIT: "{this} uses an mbarrier that another lane of its warp has made, and nothing orders the two",
    Doubt.EARLY_INVAL: "{this} may come before {other} is over in all lanes of its warp",
    Doubt.MANY_READERS: "{this} accesses bytes that too many threads have accessed: not all of them are remembered",
    Doubt.EARLY_ARRIVAL: "{this} may come in the phase before: nothing says that this thread knows that it is over",
    Doubt.EARLY_WAIT: "{this} may be let through by the phase before the one it waits for: nothing says that this one is over",
    Doubt.LAPPED: "{this} may be lapped: the next phase can be over before this thread has seen the end of this one",
    Doubt.OTHER_PHASE: "{this} is left out by an early answer, which may be about another phase",
    Doubt.LATE_EXPECT: "{this} may come too late: the arrivals of its phase do not wait for it, so the phase may end before",
    Doubt.OVERWRITTEN: "{this} and {other} write one value, and nothing orders them; what {other} has overwritten may come "
                       "after {this}",
    Doubt.ROUND: "{this} may come in the round before: nothing says that this warp knows that it is over",
}
PLACE = "reads where tcgen05.alloc found columns of tensor memory, which may be elsewhere, and does not only use them there"
# Doubts that leave the schedule no choice: other accesses are judged against all such writes.
HARMLESS: Mapping[Doubt, str] = {
    Doubt.SAME_VALUE: "writes of one value to one place are one, whatever their order",
    Doubt.UNSAID_WAIT: "waits at mbarriers without a scope see what other blocks wrote before their arrivals",
    Doubt.EXITED: "threads that have exited count as arrived at barriers",
    Doubt.EQUAL_LANES: "lanes of one store that write one value are one",
    Doubt.ONE_OF_LANES: "lanes of one store that write one value are one",
}
VALUES = frozenset((Doubt.SAME_VALUE, Doubt.ONE_OF_LANES, Doubt.EQUAL_LANES))  # true of the values in this run
# Notes that leave the schedule no choice: what chips keep, in words for what a certificate rests on.
KEPT: Mapping[str, str] = {
    "proxy-fence-missing-refill": "a copy may overwrite what threads have only read, with no proxy fence between",
    "proxy-fence-missing-copy": "wgmma sees what cp.async brought, with no proxy fence between",
    "bulk-pending-at-exit": "shared memory stays until the stores of a block that has ended have read it",
    "mbarrier-scope-unsaid": "arrivals without a scope at another block's mbarrier say that reads are over",
    "mbarrier-init-not-fenced": "a copy may complete an mbarrier with no fence after its mbarrier.init",
    "tensor-fence-missing": "barriers order accesses to tensor memory, with no tcgen05.fence between",
    "tensor-fence-missing-commit": "waits for tcgen05.commit order accesses to tensor memory, with no tcgen05.fence between",
    "tensor-quarter": "a warp may name lanes of tensor memory that are another's",
    "tensor-order-not-promised": "tcgen05 overwrites cells in the order of issue",
    "race-unread": "what is read in a race, and not used, has no effect",
    "wgmma-serialized": "ptxas waits for wgmma where registers in flight are used",
    "sparse-metadata-unlisted": "sparsity metadata in falling order means what it means here",
    "membermask-names-exited": "lanes that have exited are not waited for by bar.warp.sync",
    "uninitialized-bits-kept": "bits without a value that are put back have no effect",
    "uninitialized-global-operand": "tensor memory of rows without a value is not used",
    "nc-load-overwritten": "read-only loads have read before later stores of the launch overwrite what they read",
}  # fmt: skip
_REPLICAS, _IDLE = "race-replicated-read", "threads that hold copies of a value may read it early or late, and do nothing with it"


@dataclass(frozen=True)
class OpenPoint:
    """A reason why a launch is not certified: a sentence, and the line and source line that it is about."""

    why: str
    location: str = ""
    source: str = ""

    def __str__(self) -> str:
        place = self.location + (f" ({self.source})" if self.source else "")
        return f"{place}: {self.why}" if place else self.why


@dataclass(frozen=True)
class Evidence:
    """findings: of every severity. reasons: why another schedule may do something else. rests_on: what is taken for granted.
    contents: whether what was executed depends on the contents of the buffers. executed: where instructions of executed blocks
    begin in the text. beyond: of the reasons, those that stay when all orders of strong accesses have been run. turns: whether
    such orders are all that the schedule chooses, and there are some. takeovers: whether nothing is open but which block takes
    over whose work."""

    findings: tuple[Finding, ...]
    reasons: tuple[OpenPoint, ...]
    rests_on: tuple[str, ...]
    contents: bool = True
    executed: frozenset[int] = frozenset()
    beyond: tuple[OpenPoint, ...] = ()
    turns: bool = False
    takeovers: bool = False


def _at(ins: Instruction, why: str) -> OpenPoint:
    return OpenPoint(why, location(ins), ins.span.brief)


def evidence(grid: Grid, work: Work, findings: tuple[Finding, ...], doubts: np.ndarray, lost: Iterable[str]) -> Evidence:
    """The evidence of a launch that has run to its end.

    grid: the launch.
    work: what it executed.
    findings: all that the sanitizer found, notes too.
    doubts: entries of the table of findings that are doubts.
    lost: what was not looked at, in sentences.
    """
    reasons = [OpenPoint(f"the launch was not looked at as a whole: {text}") for text in lost]
    kept_rules = {**KEPT, **({_REPLICAS: _IDLE} if are_idle(grid, doubts[doubts["rule"] == Doubt.REPLICA]) else {})}
    reasons += _of_findings(findings, kept_rules)
    met = {("shared", "global")[int(entry["at"])] for entry in doubts if entry["rule"] == Doubt.MET}
    chosen, contents, relied, starts = _of_text(grid.kernel, (work.blocks != 0).tobytes())
    open_ = (c for c in chosen if c.spaces is None or c.spaces & met)
    found = {_at(c.instruction, f"{c.instruction.mnemonic} {c.why}"): c for c in open_}
    reasons += found
    kinds = [Doubt(int(entry["rule"])) for entry in doubts]
    reasons += [_of_doubt(FindingContext(grid, e), DOUBTS[kind]) for e, kind in zip(doubts, kinds) if kind in DOUBTS]
    places = {grid.kernel.executed[int(entry["site"])] for entry in doubts if entry["rule"] == Doubt.PLACE_READ}
    reasons += [_at(ins, PLACE) for ins in shows_as_number(grid.kernel.program, places)]
    if has_strayed(grid):
        reasons.append(OpenPoint("a store leads to memory that the text does not name: earlier reads of it were not recorded"))
    kept = [kept_rules[f.rule] for f in findings if f.rule in kept_rules]
    kept += [HARMLESS[kind] for kind in kinds if kind in HARMLESS]
    contents = contents or any(kind in VALUES for kind in kinds)
    rests_on = tuple(dict.fromkeys([*kept, *relied]))
    beyond = tuple(r for r in dict.fromkeys(reasons) if r not in found or not found[r].explored)
    asks = {takes_work(c.instruction) for c in found.values()}
    turns = asks == {False} and all(c.explored for c in found.values())
    takeovers = asks == {True} and not beyond
    return Evidence(findings, tuple(dict.fromkeys(reasons)), rests_on, contents, starts, beyond, turns, takeovers)


_OfText = tuple[list[Choice], bool, list[str], frozenset[int]]


def _of_text(kernel: CompiledKernel, executed: bytes) -> _OfText:
    """The choices among the blocks that a launch has executed, whether contents matter there, what they rely on, and where their
    instructions begin; kept for the next launch, which most often executes the same. executed: a byte for each block.
    """
    known: tuple[bytes, _OfText] | None = kernel.answers.get(_of_text)
    if known is None or known[0] != executed:
        blocks = [block for block in kernel.program.blocks if executed[block.index]]
        starts = frozenset(ins.span.start for block in blocks for ins in all_of(block))
        found = choices(kernel.program, blocks), contents_matter(kernel.program, blocks), relied_on(blocks), starts
        known = kernel.answers[_of_text] = executed, found
    return known[1]


def _of_findings(findings: Iterable[Finding], kept: Collection[str]) -> Iterator[OpenPoint]:
    for f in findings:
        if f.severity != Severity.ERROR and f.rule not in kept:
            yield OpenPoint(f"{f.message} [{f.rule}]", f.location, str(f.source or ""))


def _of_doubt(context: FindingContext, said: str) -> OpenPoint:
    return _at(context.instruction, said.format(this=context.name, other=context.against))

