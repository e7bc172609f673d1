"""Stack Manipulation Instructions (PTX ISA 9.1)."""

from mmulator.isa.effects import ACTS, Effects
from mmulator.isa.pieces import dst, imm, reg, row, src, type_
from mmulator.isa.row import Row

_SIZE = type_("u32", "u64")
_ALIGNMENTS = tuple(1 << n for n in range(24))

ROWS: tuple[Row, ...] = (
    row("alloca", (_SIZE,), (dst(name="ptr"), src("size"), imm("immAlign", values=_ALIGNMENTS, optional=True)),
        "Stack Manipulation Instructions: alloca", (7, 3), 52, effects=Effects(pure=False, allocates=True)),
    row("stacksave", (_SIZE,), (dst(),), "Stack Manipulation Instructions: stacksave", (7, 3), 52, effects=Effects(pure=False)),
    row("stackrestore", (_SIZE,), (reg("a"),), "Stack Manipulation Instructions: stackrestore", (7, 3), 52, effects=ACTS),
)  # fmt: skip
