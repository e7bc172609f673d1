"""Data Movement and Conversion Instructions (PTX ISA 9.1): non-bulk asynchronous copies, cp.async."""

from mmulator.isa.effects import ACTS, MemoryEffect, Queue, Step
from mmulator.isa.pieces import CACHE_HINT, MOVES, POLICY, addr, imm, maybe, need, one, row
from mmulator.isa.row import OperandSpec, Row

_PREFETCH = maybe("prefetch", "L2::64B", "L2::128B", "L2::256B")
_COPY = (addr("dst", space="dst"), addr("src", space="src"))
_COPY_SIZE = OperandSpec("src-size", "size", "u32", optional=True)
_COPY_SHARED = one("dst", "shared", "shared::cta")
_QUEUE = ACTS.but(queue=Queue.COPIES, counted_as="cp.async")
_COMMIT, _WAIT = _QUEUE.but(step=Step.COMMIT), _QUEUE.but(step=Step.WAIT)


def _copy_async(op: str, sizes: tuple[int, ...]) -> Row:
    return row(
        "cp.async",
        (one("op", op), _COPY_SHARED, one("src", "global"), CACHE_HINT, _PREFETCH),
        (*_COPY, imm("cp-size", values=sizes), _COPY_SIZE, POLICY),
        f"{MOVES}: cp.async", (7, 0), 80, need("L2::cache_hint L2::64B L2::128B L2::256B", (7, 4), 80),
        effects=_QUEUE.but(step=Step.ISSUE, memory=MemoryEffect.COPY),
    )  # fmt: skip


ROWS: tuple[Row, ...] = (
    _copy_async("ca", (4, 8, 16)),
    _copy_async("cg", (16,)),
    row("cp.async.commit_group", (), (), f"{MOVES}: cp.async.commit_group", (7, 0), 80, effects=_COMMIT),
    row("cp.async.wait_group", (), (imm("N", 0, (1 << 31) - 1),), f"{MOVES}: cp.async.wait_group", (7, 0), 80, effects=_WAIT),
    row("cp.async.wait_all", (), (), f"{MOVES}: cp.async.wait_all", (7, 0), 80, effects=_WAIT),
)  # fmt: skip
