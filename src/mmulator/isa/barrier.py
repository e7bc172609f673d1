"""Parallel Synchronization and Communication Instructions (PTX ISA 9.1): bar, barrier."""


from mmulator.isa.effects import ACTS, Ends, Flow, Together
from mmulator.isa.pieces import SYNC, chapter, dst, maybe, need, one, pred, src, type_
from mmulator.isa.row import Row, Slot

_CTA = maybe("cta")
_BARRIER = src("a", "u32", lo=0, hi=15)
_WARPS = tuple(range(0, 1025, 32))
_COUNT = src("b", "u32", values=_WARPS)
_COUNT_MAYBE = src("b", "u32", values=_WARPS, optional=True)
_MASK = src("membermask", "u32")
_BARRIER_NEEDS = need("cta", (7, 8), 30)
_WAITS = ACTS.but(ends=Ends.BARRIER, counted_as="barrier", flow=Flow.DEFINED).where("aligned", together=Together.LIVE)
_ALIGNED = _WAITS.of(("aligned",))  # bar is barrier.aligned
_MEETS = ACTS.but(together=Together.MEETING, counted_as="barrier")


_sync = chapter(SYNC)


def _barriers(name: str, *aligned: Slot, ptx: tuple[int, int], sm: int) -> tuple[Row, ...]:
    more = {"ptx": ptx, "sm": sm, "needs": _BARRIER_NEEDS, "leading": "cta", "effects": _WAITS if aligned else _ALIGNED}
    red = (_BARRIER, _COUNT_MAYBE, pred("c"))
    return (
        _sync(f"{name}.sync", _CTA, *aligned, operands=(_BARRIER, _COUNT_MAYBE), free=bool(aligned), **more),
        _sync(f"{name}.arrive", _CTA, *aligned, operands=(_BARRIER, _COUNT.but(values=_WARPS[1:])), **more),
        _sync(f"{name}.red", _CTA, *aligned, one("op", "popc"), type_("u32"), operands=(dst(), *red), **more),
        _sync(f"{name}.red", _CTA, *aligned, one("op", "and", "or"), type_("pred"),
              operands=(dst(name="p"), *red), **more),
    )  # fmt: skip


ROWS: tuple[Row, ...] = (
    *_barriers("bar", ptx=(1, 0), sm=0),
    *_barriers("barrier", maybe("aligned"), ptx=(6, 0), sm=30),
    _sync("bar.warp.sync", operands=(_MASK,), ptx=(6, 0), sm=30, effects=_MEETS),
)  # fmt: skip
