"""Instructions of thread block clusters (PTX ISA 9.1): mapa, getctarank, barrier.cluster, clusterlaunchcontrol."""

from mmulator.isa.effects import ACTS, Effects, Ends, Flow, MemoryEffect, Orders, Pointer, Ptxas, Queue, Step, Together
from mmulator.isa.pieces import COMPLETE_TX, MBARRIER, MOVES, SYNC, addr, dst, maybe, need, one, reg, row, src, type_
from mmulator.isa.row import OperandSpec, Row

_SIZE = type_("u32", "u64")
_PLACE = OperandSpec("a", "symbol", "type", home="shared")

_ARRIVES = ACTS.but(counted_as="barrier", orders=Orders.CLUSTER).where("aligned", together=Together.LIVE)
_WAITS = ACTS.but(ends=Ends.WAIT, counted_as="barrier", orders=Orders.CLUSTER).where("aligned", together=Together.LIVE)
_ASKS = ACTS.but(
    memory=MemoryEffect.WRITE, queue=Queue.BULK, step=Step.ISSUE, counted_as="cluster",
    chooses="answers whether another block has begun",
)  # fmt: skip
_READS = Effects(ptxas=Ptxas.GUARDED, counted_as="cluster")

_TRY_SPACE, _B128 = maybe("space", "shared::cta"), type_("b128")
_ALL = one("multicast", "multicast::cluster::all")
_RESPONSE = reg("try_cancel_response", "b128")

ROWS: tuple[Row, ...] = (
    row("mapa", (maybe("space", "shared::cluster"), _SIZE), (dst(), _PLACE, src("b", "u32")),
        f"{MOVES}: mapa", (7, 8), 90, effects=Effects(pointer=Pointer.MAPPED)),
    row("getctarank", (maybe("space", "shared::cluster"), _SIZE), (dst("u32"), _PLACE),
        f"{MOVES}: getctarank", (7, 8), 90),
    row("barrier.cluster.arrive", (maybe("sem", "release", "relaxed"), maybe("aligned")), (), f"{SYNC}: barrier.cluster", (7, 8),
        90, need("release relaxed", (8, 0), 90), effects=_ARRIVES),
    row("barrier.cluster.wait", (maybe("sem", "acquire"), maybe("aligned")), (), f"{SYNC}: barrier.cluster", (7, 8), 90,
        need("acquire", (8, 0), 90), effects=_WAITS),
    row("clusterlaunchcontrol.try_cancel.async", (_TRY_SPACE, COMPLETE_TX, _B128), (addr("addr"), MBARRIER),
        f"{SYNC}: clusterlaunchcontrol.try_cancel", (8, 6), 100, effects=_ASKS),
    row("clusterlaunchcontrol.try_cancel.async", (_TRY_SPACE, COMPLETE_TX, _ALL, _B128), (addr("addr"), MBARRIER),
        f"{SYNC}: clusterlaunchcontrol.try_cancel", (8, 6), 100, specific=True, effects=_ASKS),
    row("clusterlaunchcontrol.query_cancel", (one("query", "is_canceled"), type_("pred"), one("stype", "b128")),
        (dst(name="pred"), _RESPONSE), f"{SYNC}: clusterlaunchcontrol.query_cancel", (8, 6), 100,
        effects=_READS),
    row("clusterlaunchcontrol.query_cancel",
        (one("query", "get_first_ctaid"), one("vec", "v4"), type_("b32"), one("stype", "b128")), (dst(per="vec"), _RESPONSE),
        f"{SYNC}: clusterlaunchcontrol.query_cancel", (8, 6), 100, effects=_READS.but(flow=Flow.ANSWER)),
    row("clusterlaunchcontrol.query_cancel",
        (one("query", "get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"), type_("b32"), one("stype", "b128")),
        (dst(), _RESPONSE), f"{SYNC}: clusterlaunchcontrol.query_cancel", (8, 6), 100, effects=_READS.but(flow=Flow.ANSWER)),
)  # fmt: skip
