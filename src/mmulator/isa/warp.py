"""Instructions between the lanes of a warp: shfl, vote, match, redux, elect, activemask (PTX ISA 9.1)."""


from mmulator.isa.effects import Effects, Flow, Ptxas, Together
from mmulator.isa.pieces import BITS32_64, INT32, MOVES, SYNC, chapter, dst, maybe, one, pred, row, src, type_
from mmulator.isa.row import OperandSpec, Row

_MASK = src("membermask", "b32")
_MEMBERS = src("membermask", "u32")


_TOGETHER = Effects(together=Together.MEMBERS, ptxas=Ptxas.GUARDED, counted_as="warp", flow=Flow.WARP)
_REDUCES = _TOGETHER.but(flow=Flow.REDUCED)
_ALONE = Effects(ptxas=Ptxas.GUARDED, counted_as="warp")


_sync = chapter(SYNC, effects=_TOGETHER)

ROWS: tuple[Row, ...] = (
    row("shfl.sync", (one("mode", "up", "down", "bfly", "idx"), type_("b32")),
        (OperandSpec("d", "dstpair", "type", "w"), src("a"), src("b"), src("c"), _MASK), f"{MOVES}: shfl.sync",
        (6, 0), 30, free=True, effects=_TOGETHER.but(flow=Flow.LANES)),
    _sync("vote.sync", one("mode", "all", "any", "uni"), type_("pred"),
          operands=(dst(), pred("a"), _MASK), ptx=(6, 0), sm=30, free=True),
    _sync("vote.sync", one("mode", "ballot"), type_("b32"),
          operands=(dst(), pred("a"), _MASK), ptx=(6, 0), sm=30, free=True),
    _sync("match.any.sync", type_(*BITS32_64), operands=(dst("b32"), src("a"), _MEMBERS),
          ptx=(6, 0), sm=70, free=True),
    _sync("match.all.sync", type_(*BITS32_64),
          operands=(OperandSpec("d", "dstpair", "b32", "w", sink=True), src("a"), _MEMBERS),
          ptx=(6, 0), sm=70, free=True),
    _sync("activemask", type_("b32"), operands=(dst(),), ptx=(6, 2), sm=30,
          effects=_ALONE.but(chooses="answers which lanes are together")),
    _sync("redux.sync", one("op", "add", "min", "max"), type_(*INT32), operands=(dst(), src("src"), _MEMBERS),
          ptx=(7, 0), sm=80, free=True, effects=_REDUCES),
    _sync("redux.sync", one("op", "and", "or", "xor"), type_("b32"), operands=(dst("u32"), src("src", "u32"), _MEMBERS),
          ptx=(7, 0), sm=80, free=True, effects=_REDUCES),
    _sync("redux.sync", one("op", "min", "max"), maybe("abs"), maybe("NaN"), type_("f32"),
          operands=(dst(), src("src"), _MEMBERS), ptx=(8, 6), sm=100, specific=True, families=(100,), free=True,
          effects=_REDUCES),
    _sync("elect.sync", operands=(OperandSpec("d", "pair", "b32", "w", sink=True), _MEMBERS), ptx=(8, 0), sm=90,
          effects=_TOGETHER.but(flow=Flow.DEFINED)),
)  # fmt: skip
