"""Results that nobody looks at and that say whether to go on (rules/text.py)."""

from __future__ import annotations

from collections.abc import Iterator

from mmulator.findings import Finding
from mmulator.isa.effects import Ends
from mmulator.program.blocks import Program
from mmulator.program.static.flow import found
from mmulator.program.uses import registers_of, uses_and_defs
from mmulator.ptx.tree import Instruction
from mmulator.rules.text import WAIT_IGNORED


def ignored(program: Program) -> Iterator[Finding]:
    """Waits for mbarriers whose predicate no instruction reads, or that have none."""
    for item in program.functions.values():
        every = list(item.function.instructions)
        waits = [i for i in every if _waits(i)]
        read = {name for i in every for name in uses_and_defs(i)[0]} if waits else set()
        for ins in waits:
            names = set(registers_of(ins.operands[0]))
            if not names & read:
                what = f"{', '.join(sorted(names))} is never read" if names else "its result is thrown away"
                yield found(WAIT_IGNORED, ins, f"nobody looks at what {ins.mnemonic} says: {what}")


def _waits(ins: Instruction) -> bool:
    return ins.effects.ends is Ends.WAIT and "try_wait" in ins.modifiers
