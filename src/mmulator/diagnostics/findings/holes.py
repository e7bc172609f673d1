"""The origin of a register without a value: the register that some path to its first use does not write, found in the text."""

from collections import deque

from mmulator.diagnostics.findings.context import FindingContext, location
from mmulator.isa.effects import Flow
from mmulator.program.blocks import FunctionBlocks
from mmulator.program.frames import liveness
from mmulator.program.undefined import doubt
from mmulator.program.uses import CARRY, uses_and_defs
from mmulator.ptx.tree import Instruction


def hole(c: FindingContext) -> str:
    """Why a register has no value: `%f5 is an accumulator of wgmma.mma_async (k.ptx:19), which adds to it, and nothing writes
    it before`; "" if no reason is found.
    """
    ins = c.instruction
    function = next((f for f in c.grid.kernel.program.functions.values() for i in f.function.instructions
                     if i.original.span == ins.span), None)  # fmt: skip
    if function is None:
        return ""
    live = liveness(function)
    roots = {*live.into[0]} - {p.name for p in (*function.function.params, *function.function.returns)} - {CARRY}
    found = _way(function, ins, roots, doubt(function, live).unwritten)
    if found is None:
        return ""
    root, reader = found
    return _origin(root, reader, [i for i in function.function.instructions if root in uses_and_defs(i)[1]])


def _way(function: FunctionBlocks, ins: Instruction, roots: set[str], doubtful: frozenset[str]) -> tuple[str, Instruction] | None:
    """The nearest unwritten register from which an instruction's operands are computed, and the instruction that reads it.

    Breadth first from `ins`, through the instructions that write a register of `roots` or `doubtful`. roots: registers that no
    path writes. doubtful: registers that some path does not write.
    """
    writers: dict[str, list[Instruction]] = {}
    for i in function.function.instructions:
        for name in uses_and_defs(i)[1]:
            writers.setdefault(name, []).append(i)
    here = next(i for i in function.function.instructions if i.original.span == ins.span)
    waiting, seen = deque((name, here) for name in sorted(uses_and_defs(here)[0] & (doubtful | roots))), set[str]()
    while waiting:
        name, reader = waiting.popleft()
        if name in seen:
            continue
        seen.add(name)
        if name in roots:
            return name, reader
        for writer in writers.get(name, []):
            waiting.extend((n, writer) for n in sorted(uses_and_defs(writer)[0] & (doubtful | roots)))
    return None


def _origin(name: str, reader: Instruction, writers: list[Instruction]) -> str:
    if not writers:
        return f"no instruction writes {name}"
    first = writers[0]
    where = f"{first.mnemonic} ({location(first)})"
    if name in uses_and_defs(first)[0] and first.guard is None:
        if first.effects.flow is Flow.WGMMA:  # whose A and B lie in memory, too
            return (
                f"{name} is an accumulator of {where}: nothing writes it before, so scale-d must be 0 there, or bytes of A or B "
                "in shared memory have no value"
            )
        what = "an accumulator of" if first.effects.multiplies else "changed by"
        return f"{name} is {what} {where}, and nothing writes it before"
    if first.guard is not None and len(writers) == 1:
        guard, negated = first.guard
        return f"{name} is written by {where} alone, only where {guard.name} is {'false' if negated else 'true'}"
    return f"{name} is written by {where}, and not on every path to {reader.mnemonic} ({location(reader)})"
