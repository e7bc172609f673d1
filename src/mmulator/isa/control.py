"""Control Flow, Parallel Synchronization and Communication, and Miscellaneous Instructions (PTX ISA 9.1).

Last, what is recognised but not modelled: textures, surfaces, clusters, tcgen05.
"""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.isa.pieces import BITS32_64, INT32, dst, imm, maybe, need, one, pred, src, type_
from mmulator.isa.scalar import Group, OperandRule, Row

_SYNC = "Parallel Synchronization and Communication Instructions"
_MISC = "Miscellaneous Instructions"
_TEXTURES = "textures and surfaces are not modelled"
_CLUSTERS = "thread block clusters: later release"
_BLACKWELL = "fifth generation tensor cores: later release"
_MBARRIER = "mbarrier objects: later release"
_UNI = maybe("uni")
_CTA = maybe("cta")
_RESULTS = OperandRule("ret-param", "arguments", "", "w")
_ARGUMENTS = OperandRule("params", "arguments", "")
_BARRIER = src("a", "u32", lo=0, hi=15)
_WARPS = tuple(range(0, 1025, 32))
_COUNT = src("b", "u32", values=_WARPS)
_COUNT_MAYBE = src("b", "u32", values=_WARPS, optional=True)
_MASK = src("membermask", "b32")
_MEMBERS = src("membermask", "u32")
_BARRIER_NEEDS = need("cta", (7, 8), 30)


def _control(
    name: str, *groups: Group, operands: tuple[OperandRule, ...], ptx: tuple[int, int] = (1, 0), sm: int = 0
) -> Row:
    return Row(name, groups, operands, f"Control Flow Instructions: {name}", ptx, sm)


def _sync(name: str, *groups: Group, operands: tuple[OperandRule, ...], **more: object) -> Row:
    return Row(name, groups, operands, f"{_SYNC}: {name}", **more)  # type: ignore[arg-type]


def _barriers(name: str, *aligned: Group, ptx: tuple[int, int], sm: int) -> tuple[Row, ...]:
    more = {"ptx": ptx, "sm": sm, "needs": _BARRIER_NEEDS, "leading": "cta"}
    free = bool(aligned)
    red = (_BARRIER, _COUNT_MAYBE, pred("c"))
    return (
        _sync(f"{name}.sync", _CTA, *aligned, operands=(_BARRIER, _COUNT_MAYBE), free=free, **more),
        _sync(f"{name}.arrive", _CTA, *aligned, operands=(_BARRIER, _COUNT), free=free, **more),
        _sync(f"{name}.red.popc", _CTA, *aligned, type_("u32"), operands=(dst(), *red), **more),
        _sync(f"{name}.red", _CTA, *aligned, one("op", "and", "or"), type_("pred"),
              operands=(dst(name="p"), *red), **more),
    )  # fmt: skip


def _fence_proxy(m: Mapping[str, str]) -> str | None:
    return ".alias has no state space" if m["proxy"] == "alias" and "space" in m else None


def _open(names: str, reason: str, chapter: str, ptx: tuple[int, int] = (1, 0), sm: int = 0) -> tuple[Row, ...]:
    return tuple(
        Row(name, (), (), f"{chapter}: {name}", ptx, sm, unsupported=reason, open=True) for name in names.split()
    )


_SHARED_CLUSTER = one("restrict", "sync_restrict::shared::cluster")
_SHARED_CTA = one("restrict", "sync_restrict::shared::cta")
_SCOPE = one("scope", "cta", "cluster", "gpu", "sys")

ROWS: tuple[Row, ...] = (
    _control("bra", _UNI, operands=(OperandRule("tgt", "label", ""),)),
    _control("brx.idx", _UNI, operands=(src("index", "u32"), OperandRule("tlist", "targets", "")), ptx=(6, 0), sm=30),
    _control("call", _UNI, operands=(_RESULTS, OperandRule("func", "callee", ""), _ARGUMENTS,
             OperandRule("fproto", "prototype", "", optional=True))),
    _control("ret", _UNI, operands=()),
    _control("exit", operands=()),
    *_barriers("bar", ptx=(1, 0), sm=0),
    *_barriers("barrier", maybe("aligned"), ptx=(6, 0), sm=30),
    _sync("bar.warp.sync", operands=(_MASK,), ptx=(6, 0), sm=30),
    _sync("membar", one("level", "cta", "gl", "sys"), operands=()),
    _sync("membar.proxy", one("proxy", "alias"), operands=(), ptx=(7, 5), sm=70),
    _sync("fence", maybe("sem", "sc", "acq_rel", "acquire", "release"), _SCOPE, operands=(), ptx=(6, 0), sm=70,
          needs=(*need("cluster", (7, 8), 90), *need("acquire release", (8, 6), 90))),
    _sync("fence", one("sem", "acquire"), _SHARED_CLUSTER, one("scope", "cluster"), operands=(), ptx=(8, 6), sm=90),
    _sync("fence", one("sem", "release"), _SHARED_CTA, one("scope", "cluster"), operands=(), ptx=(8, 6), sm=90),
    _sync("fence.mbarrier_init.release.cluster", operands=(), ptx=(8, 0), sm=90),
    _sync("fence.proxy", one("proxy", "alias", "async"), maybe("space", "global", "shared::cta", "shared::cluster"),
          operands=(), ptx=(7, 5), sm=70, rule=_fence_proxy, needs=need("async", (8, 0), 90)),
    _sync("fence.proxy.alias", one("sem", "acquire", "release"), one("scope", "sys"), operands=(), ptx=(9, 4), sm=90),
    _sync("fence.proxy.tensormap::generic", one("sem", "release"), _SCOPE, operands=(), ptx=(8, 3), sm=90),
    _sync("fence.proxy.tensormap::generic", one("sem", "acquire"), _SCOPE,
          operands=(OperandRule("addr", "addr", "u64"), imm("size", 128, 128)), ptx=(8, 3), sm=90),
    _sync("fence.proxy.async::generic", one("sem", "acquire"), _SHARED_CLUSTER, one("scope", "cluster"), operands=(),
          ptx=(8, 6), sm=90),
    _sync("fence.proxy.async::generic", one("sem", "release"), _SHARED_CTA, one("scope", "cluster"), operands=(),
          ptx=(8, 6), sm=90),
    _sync("vote.sync", one("mode", "all", "any", "uni"), type_("pred"),
          operands=(dst(), pred("a"), _MASK), ptx=(6, 0), sm=30, free=True),
    _sync("vote.sync", one("mode", "ballot"), type_("b32"),
          operands=(dst(), pred("a"), _MASK), ptx=(6, 0), sm=30, free=True),
    _sync("match.any.sync", type_(*BITS32_64), operands=(dst("b32"), src("a"), _MEMBERS),
          ptx=(6, 0), sm=70, free=True),
    _sync("match.all.sync", type_(*BITS32_64),
          operands=(OperandRule("d", "dstpair", "b32", "w", sink=True), src("a"), _MEMBERS),
          ptx=(6, 0), sm=70, free=True),
    _sync("activemask", type_("b32"), operands=(dst(),), ptx=(6, 2), sm=30),
    _sync("redux.sync", one("op", "add", "min", "max"), type_(*INT32), operands=(dst(), src("src"), _MEMBERS),
          ptx=(7, 0), sm=80, free=True),
    _sync("redux.sync", one("op", "and", "or", "xor"), type_("b32"), operands=(dst("u32"), src("src", "u32"), _MEMBERS),
          ptx=(7, 0), sm=80, free=True),
    _sync("redux.sync", one("op", "min", "max"), maybe("abs"), maybe("NaN"), type_("f32"),
          operands=(dst(), src("src"), _MEMBERS), ptx=(8, 6), sm=100, specific=True, families=(100,), free=True),
    _sync("elect.sync", operands=(OperandRule("d", "pair", "b32", "w", sink=True), _MASK), ptx=(8, 0), sm=90),
    _sync("griddepcontrol", one("action", "launch_dependents", "wait"), operands=(), ptx=(7, 8), sm=90),
    Row("nanosleep", (type_("u32"),), (src("t", "u32"),), f"{_MISC}: nanosleep", (6, 3), 70),
    Row("trap", (), (), f"{_MISC}: trap"),
    Row("brkpt", (), (), f"{_MISC}: brkpt"),
    Row("pmevent", (), (imm("a", 0, 15),), f"{_MISC}: pmevent", (1, 4)),
    Row("pmevent.mask", (), (imm("a", 0, 0xFFFF),), f"{_MISC}: pmevent", (3, 0), 20),
    Row("setmaxnreg", (one("action", "inc", "dec"), one("sync", "sync"), one("aligned", "aligned"), type_("u32")),
        (imm("imm-reg-count", values=tuple(range(24, 257, 8))),), f"{_MISC}: setmaxnreg", (8, 0), 90, specific=True),
    *_open("barrier.cluster", _CLUSTERS, _SYNC, (7, 8), 90),
    *_open("clusterlaunchcontrol", _CLUSTERS, _SYNC, (8, 6), 100),
    *_open("fabric", "fabric operations are not modelled", "Fabric Instructions", (9, 3), 100),
    *_open("mbarrier", _MBARRIER, _SYNC, (7, 0), 80),
    *_open("tcgen05", _BLACKWELL, "TensorCore 5th Generation Family Instructions", (8, 6), 100),
    *_open("tex tld4 txq", _TEXTURES, "Texture Instructions"),
    *_open("suld sust sured suq", _TEXTURES, "Surface Instructions"),
)  # fmt: skip
