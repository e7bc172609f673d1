"""PTX instructions to calls and vector code. `LOWER`: name of the instruction's row -> function(emitter, instruction).

Instructions without an entry are pure functions of their operands: machine/ops has those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from mmulator.machine.emitter import Emitter
    from mmulator.ptx.tree import Instruction

Lowering: TypeAlias = "Callable[[Emitter, Instruction], None]"
LOWER: dict[str, Lowering] = {}


def lower(*names: str) -> Callable[[Lowering], Lowering]:
    """Decorator: register a lowering for rows of these names."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            LOWER[name] = function
        return function

    return register


def load_all() -> None:
    """Import the files that fill LOWER."""
    from mmulator.machine.lower import lanes, matrix, memory, stack, video  # noqa: F401
