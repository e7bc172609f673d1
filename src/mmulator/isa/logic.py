"""Logic and Shift Instructions (PTX ISA 9.1)."""


from mmulator.isa.effects import PARTS, Algebra, Effects, Ptxas
from mmulator.isa.pieces import BITS16_64, D_A, D_A_B, INT16_64, chapter, dst, imm, one, pred, src, type_
from mmulator.isa.row import OperandSpec, Row

_logic = chapter("Logic and Shift Instructions")
_LUT = imm("immLut", 0, 255)

ROWS: tuple[Row, ...] = (
    *(
        _logic(name, type_("pred", *BITS16_64), operands=D_A_B, effects=Effects(algebra=algebra, cancels=name == "xor"))
        for name, algebra in (("and", Algebra.AND), ("or", Algebra.OR), ("xor", Algebra.XOR))
    ),
    _logic("not", type_("pred", *BITS16_64), operands=D_A, effects=Effects(algebra=Algebra.NOT)),
    _logic("cnot", type_(*BITS16_64), operands=D_A),
    _logic("lop3", type_("b32"), operands=(dst(), src("a"), src("b"), src("c"), _LUT), ptx=(4, 3), sm=50),
    _logic("lop3", one("boolop", "or", "and"), type_("b32"), ptx=(8, 2), sm=70, effects=Effects(ptxas=Ptxas.GUARDED),
           operands=(OperandSpec("d", "pair", "type", "w", sink=True), src("a"), src("b"), src("c"), _LUT, pred("q"))),
    _logic(
        "shf", one("direction", "l", "r"), one("mode", "clamp", "wrap"), type_("b32"),
        operands=(dst(), src("a"), src("b"), src("c", "u32")), ptx=(3, 1), sm=32, leading="direction", effects=PARTS,
    ),
    _logic("shl", type_(*BITS16_64), operands=(dst(), src("a"), src("b", "u32")), effects=Effects(algebra=Algebra.SHIFT)),
    _logic("shr", type_(*BITS16_64, *INT16_64), operands=(dst(), src("a"), src("b", "u32")),
           effects=Effects(algebra=Algebra.RIGHT)),
)  # fmt: skip
