"""Data Movement and Conversion Instructions (PTX ISA 9.1) between registers, and of addresses: mov, prmt, cvta and others."""


from mmulator.isa.effects import Algebra, Effects, Flow, Pointer
from mmulator.isa.pieces import MOVES, chapter, dst, maybe, need, one, reg, src, type_
from mmulator.isa.row import OperandSpec, Row

_SIZE = type_("u32", "u64")
_COPIES = Effects(algebra=Algebra.COPY, counted_as="move", flow=Flow.BESIDE, pointer=Pointer.SAME)
_ADDRESS = Effects(counted_as="move", pointer=Pointer.SAME)
_MOV_TYPES = ("pred", "b16", "b32", "b64", "b128", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


_move = chapter(MOVES)
_SPACES = ("const", "global", "local", "shared", "shared::cta", "shared::cluster", "param", "param::entry")
_SPACE_NEEDS = (
    *need("param", (7, 7), 70),
    *need("shared::cta", (7, 8), 30),
    *need("shared::cluster", (7, 8), 90),
    *need("param::entry", (8, 3), 70),
)


ROWS: tuple[Row, ...] = (
    _move("mov", type_(*_MOV_TYPES), operands=(dst(), OperandSpec("a", "move", "type")), needs=need("b128", (8, 3), 70),
          effects=_COPIES.where("f32 f64", counted_as="")),
    _move("mov", one("vec", "v2", "v4"), type_("u32", "b32", "u16"),
          operands=(dst(per="vec"), OperandSpec("a", "move", "type", per="vec")), effects=_COPIES),
    _move("prmt", type_("b32"), maybe("mode", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"),
          operands=(dst(), src("a"), src("b"), src("c")), ptx=(2, 0), sm=20, effects=Effects(flow=Flow.PICKS)),
    _move("cvta", one("space", *_SPACES), _SIZE, operands=(dst(name="p"), OperandSpec("a", "symbol", "type")),
          ptx=(2, 0), sm=20, needs=_SPACE_NEEDS, effects=_ADDRESS),
    _move("cvta.to", one("space", *_SPACES), _SIZE, operands=(dst(name="p"), reg("a")), ptx=(2, 0), sm=20,
          needs=_SPACE_NEEDS, effects=_ADDRESS),
    _move("isspacep", one("space", *_SPACES),
          operands=(dst("pred", "p"), reg("a", "u32", wider=True)), ptx=(2, 0), sm=20, needs=_SPACE_NEEDS),
)  # fmt: skip
