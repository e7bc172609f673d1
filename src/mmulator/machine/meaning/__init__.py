"""PTX instructions to calls and vector code. `LOWER`: name of the instruction's row -> function(emitter, instruction).

Instructions without an entry are pure functions of their operands: vocabulary.py has those.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from mmulator.codegen.locks import no_fork

if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter
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


@cache
def load_all() -> None:
    """Import the files that fill LOWER, and what else is imported on the way to code: a forked child cannot wait for it."""
    with no_fork:
        from mmulator.machine.compile import control, special  # noqa: F401
        from mmulator.machine.meaning import (  # noqa: F401
            atomic,
            barrier,
            copies,
            fence,
            grid,
            matrix_move,
            memory,
            misc,
            mma,
            move,
            scalar,
            stack,
            video,
            vocabulary,
            warp,
            wgmma,
            wmma,
        )  # fmt: skip
