"""Results that tell whether to continue, and that no instruction reads (rules/text.py)."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.errors import must_be
from mmulator.findings import Finding
from mmulator.isa.effects import Ends
from mmulator.program.blocks import Program
from mmulator.program.frames import liveness
from mmulator.program.static.flow import found
from mmulator.program.uses import registers_of
from mmulator.ptx.tree import Instruction
from mmulator.rules.text import WAIT_IGNORED


def ignored(program: Program) -> Iterator[Finding]:
    """Waits for mbarriers whose predicate is not read on any path before it is overwritten, or that discard it."""
    for item in program.functions.values():
        waits = [b for b in item.blocks if b.ending is Ends.WAIT and b.last is not None and _waits(b.last)]
        out = liveness(item).out if waits else []
        for block in waits:
            ins = must_be(block.last, Instruction)
            names = set(registers_of(ins.operands[0]))
            if not names & out[block.index - item.entry]:
                what = f"nothing reads {', '.join(sorted(names))} after it" if names else "its result is thrown away"
                yield found(WAIT_IGNORED, ins, f"nobody looks at what {ins.mnemonic} says: {what}")


def _waits(ins: Instruction) -> bool:
    return not {"try_wait", "test_wait"}.isdisjoint(ins.modifiers)
