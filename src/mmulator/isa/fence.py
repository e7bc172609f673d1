"""Parallel Synchronization and Communication Instructions (PTX ISA 9.1): membar, fence."""

from collections.abc import Mapping

from mmulator.isa.effects import ACTS, Orders, Ptxas
from mmulator.isa.pieces import SYNC, chapter, imm, maybe, need, one
from mmulator.isa.row import OperandSpec, Row

_ORDERS = ACTS.but(counted_as="barrier")
_MEMORY = _ORDERS.but(orders=Orders.FENCE)
_EXPANDED = _MEMORY.but(ptxas=Ptxas.EXPANDED)


_sync = chapter(SYNC, effects=_ORDERS)


def _fence_proxy(m: Mapping[str, str]) -> str | None:
    return ".alias has no state space" if m["proxy"] == "alias" and "space" in m else None


_SHARED_CLUSTER = one("restrict", "sync_restrict::shared::cluster")
_SHARED_CTA = one("restrict", "sync_restrict::shared::cta")
_SCOPE = one("scope", "cta", "cluster", "gpu", "sys")

ROWS: tuple[Row, ...] = (
    _sync("membar", one("level", "cta", "gl", "sys"), effects=_EXPANDED),
    _sync("membar.proxy", one("proxy", "alias"), ptx=(7, 5), sm=70),
    _sync("fence", maybe("sem", "sc", "acq_rel", "acquire", "release"), _SCOPE, ptx=(6, 0), sm=70,
          needs=(*need("cluster", (7, 8), 90), *need("acquire release", (8, 6), 90)),
          effects=_EXPANDED.where("acquire release", ptxas=Ptxas.GUARDED)),
    _sync("fence", one("sem", "acquire"), _SHARED_CLUSTER, one("scope", "cluster"), ptx=(8, 6), sm=90,
          effects=_MEMORY),
    _sync("fence", one("sem", "release"), _SHARED_CTA, one("scope", "cluster"), ptx=(8, 6), sm=90,
          effects=_MEMORY),
    _sync("fence.mbarrier_init.release.cluster", ptx=(8, 0), sm=90, free=True, effects=_MEMORY),
    _sync("fence.proxy", one("proxy", "alias", "async"), maybe("space", "global", "shared::cta", "shared::cluster"),
          ptx=(7, 5), sm=70, rule=_fence_proxy, needs=need("async", (8, 0), 90)),
    _sync("fence.proxy.alias", one("sem", "acquire", "release"), one("scope", "sys"), ptx=(9, 4), sm=90),
    _sync("fence.proxy.tensormap::generic", one("sem", "release"), _SCOPE, ptx=(8, 3), sm=90, free=True),
    _sync("fence.proxy.tensormap::generic", one("sem", "acquire"), _SCOPE,
          operands=(OperandSpec("addr", "addr", "u64"), imm("size", 128, 128)), ptx=(8, 3), sm=90, free=True),
    _sync("fence.proxy.async::generic", one("sem", "acquire"), _SHARED_CLUSTER, one("scope", "cluster"),
          ptx=(8, 6), sm=90, free=True),
    _sync("fence.proxy.async::generic", one("sem", "release"), _SHARED_CTA, one("scope", "cluster"),
          ptx=(8, 6), sm=90, free=True),
    # for reads only; ptxas also accepts the scope .cta
    _sync("fence.proxy.async::generic", one("sem", "release"), one("restrict", "sync_restrict::shared::cluster::read"),
          one("scope", "cta", "cluster"), ptx=(9, 4), sm=90, free=True),
)  # fmt: skip
