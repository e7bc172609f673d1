"""Parallel Synchronization and Communication Instructions: mbarrier (PTX ISA 9.1, 9.4), and cp.async.mbarrier.arrive."""

from collections.abc import Mapping
from typing import Any

from mmulator.isa.effects import ACTS, Effects, Ends, Flow, MemoryEffect, Queue, Step
from mmulator.isa.pieces import SINK, SYNC, addr, dst, maybe, need, one, row, src, type_
from mmulator.isa.row import OperandSpec, Requirement, Row, Slot

_B64 = type_("b64")
_AT = addr(home="shared")
_CTA = maybe("space", "shared", "shared::cta")
_ANY = maybe("space", "shared", "shared::cta", "shared::cluster")
_REMOTE = one("space", "shared::cluster")
_SCOPE = maybe("scope", "cta", "cluster")
_TX_ORDER = maybe("sem", "relaxed")
_ARRIVES, _WAITS_FOR = maybe("sem", "release", "relaxed"), maybe("sem", "acquire", "relaxed")
_STATE = dst("u64", "state", sink=True)
_COUNT = src("count", "u32", lo=1)
_COUNT_MAYBE = src("count", "u32", lo=1, optional=True, since=Requirement((7, 8), 90))
_TX = src("txCount", "u32")
_DONE = dst("pred", "waitComplete")
_HINT = src("suspendTimeHint", "u32", optional=True)
# Since PTX 9.3 an mbarrier has one of two layouts, and phases of two kinds: the conditional one stays behind where an
# asynchronous operation reports something, which those of sm_107 do.
_LAYOUT = maybe("layout", "layout::v0", "layout::v1")
_PRIMARY, _CONDITIONAL = one("phase", "phase_type::primary"), maybe("phase", "phase_type::conditional")
_REPORTED = OperandSpec("waitComplete", "dstpred", "pred", "w"), dst("b8", "reportValue", between=True)
_SINCE_9_3 = ((9, 3), 90)
_NEEDS = (
    *need("layout::v0 layout::v1 phase_type::conditional", *_SINCE_9_3),
    *need("shared::cta", (7, 8), 80),
    *need("release acquire cta", (8, 0), 80),
    *need("cluster shared::cluster", (8, 0), 90),
    *need("relaxed", (8, 6), 90),
)
_TX_NEEDS = need("shared::cta shared::cluster relaxed", (8, 0), 90)

_WRITES = ACTS.but(memory=MemoryEffect.WRITE, counted_as="barrier")
_CHANGES = ACTS.but(memory=MemoryEffect.ATOMIC, counted_as="barrier", flow=Flow.DEFINED)
_LOOKS = ACTS.but(memory=MemoryEffect.READ, ends=Ends.WAIT, counted_as="barrier", flow=Flow.DEFINED)
_COUNTS = Effects(counted_as="barrier", chooses="answers how many arrivals are pending")
_ASKS = ACTS.but(memory=MemoryEffect.READ, counted_as="barrier", flow=Flow.DEFINED)


def _ordered(m: Mapping[str, str]) -> str | None:
    """The error of a memory order without a scope, or of a scope without an order; None if both are legal."""
    if ("sem" in m) != ("scope" in m):
        return f".{m['sem']} needs a scope: .cta or .cluster" if "sem" in m else f".{m['scope']} needs a memory order"
    return None


def _row(name: str, *slots: Slot, operands: tuple[OperandSpec, ...], effects: Effects, ptx: tuple[int, int] = (7, 0),
         sm: int = 80, tx: bool = False) -> Row:  # fmt: skip
    """A row of mbarrier. tx: whether it counts transactions, which need sm_90."""
    ptx, sm = ((8, 0), 90) if tx else (ptx, sm)
    return row(
        f"mbarrier.{name}", slots, operands, f"{SYNC}: mbarrier.{name.partition('.')[0]}", ptx, sm,
        _TX_NEEDS if name in ("expect_tx", "complete_tx") else _NEEDS, rule=_ordered, effects=effects,
    )  # fmt: skip


_NO_COMPLETE = one("noComplete")
_BY_STATE, _BY_PARITY = src("state", "u64"), src("phaseParity", "u32", lo=0, hi=1)


def _waits(name: str, *hint: OperandSpec, ptx: tuple[int, int], sm: int) -> tuple[Row, ...]:
    """Rows of test_wait or try_wait. The phase is given by a state or by a parity; the result is whether the phase is complete,
    or also what its operations reported.
    """
    since, later = {"ptx": ptx, "sm": sm}, {"ptx": (9, 3), "sm": 90}
    parity = {**since, "ptx": max(ptx, (7, 1))}

    def written(words: str, *slots: Slot, told: OperandSpec, heard: tuple[OperandSpec, ...], **requires: Any) -> Row:
        slots = (*slots, _WAITS_FOR, _SCOPE, _CTA, _B64)
        return _row(words, *slots, operands=(*heard, _AT, told, *hint), effects=_LOOKS, **requires)

    return (
        written(name, told=_BY_STATE, heard=(_DONE,), **since),
        written(f"{name}.parity", _CONDITIONAL, told=_BY_PARITY, heard=(_DONE,), **parity),
        written(name, _PRIMARY, told=_BY_STATE, heard=_REPORTED, **later),
        written(f"{name}.parity", _PRIMARY, told=_BY_PARITY, heard=_REPORTED, **later),
    )


ROWS: tuple[Row, ...] = (
    _row("init", _LAYOUT, _CTA, _B64, operands=(_AT, _COUNT.but(hi=(1 << 20) - 1)), effects=_WRITES),
    _row("inval", _CTA, _B64, operands=(_AT,), effects=_WRITES),
    _row("expect_tx", _TX_ORDER, _SCOPE, _ANY, _B64, operands=(_AT, _TX), effects=_CHANGES, tx=True),
    _row("complete_tx", _TX_ORDER, _SCOPE, _ANY, _B64, operands=(_AT, _TX), effects=_CHANGES, tx=True),
    # arrive: here, in another block of the cluster, with the transactions to expect, without completing the phase
    _row("arrive", _ARRIVES, _SCOPE, _CTA, _B64, operands=(_STATE, _AT, _COUNT_MAYBE), effects=_CHANGES),
    _row("arrive", _ARRIVES, _SCOPE, _REMOTE, _B64, operands=(SINK, _AT, _COUNT_MAYBE), effects=_CHANGES),
    _row("arrive.expect_tx", _ARRIVES, _SCOPE, _CTA, _B64, operands=(_STATE, _AT, _TX), effects=_CHANGES, tx=True),
    _row("arrive.expect_tx", _ARRIVES, _SCOPE, _REMOTE, _B64, operands=(SINK, _AT, _TX), effects=_CHANGES, tx=True),
    _row("arrive", _NO_COMPLETE, maybe("sem", "release"), maybe("scope", "cta"), _CTA, _B64, operands=(_STATE, _AT, _COUNT),
         effects=_CHANGES),
    _row("arrive_drop", _ARRIVES, _SCOPE, _CTA, _B64, operands=(_STATE, _AT, _COUNT_MAYBE), effects=_CHANGES),
    _row("arrive_drop", _ARRIVES, _SCOPE, _REMOTE, _B64, operands=(SINK, _AT, _COUNT_MAYBE), effects=_CHANGES),
    _row("arrive_drop.expect_tx", _ARRIVES, _SCOPE, _CTA, _B64, operands=(_STATE, _AT, _TX), effects=_CHANGES, tx=True),
    _row("arrive_drop.expect_tx", _ARRIVES, _SCOPE, _REMOTE, _B64, operands=(SINK, _AT, _TX), effects=_CHANGES, tx=True),
    _row("arrive_drop", _NO_COMPLETE, maybe("sem", "release"), maybe("scope", "cta"), _CTA, _B64,
         operands=(_STATE, _AT, _COUNT), effects=_CHANGES),
    # waits: test_wait may as well come back, so a thread that polls it sleeps as one at try_wait does
    *_waits("test_wait", ptx=(7, 0), sm=80),
    *_waits("try_wait", _HINT, ptx=(7, 8), sm=90),
    _row("pending_count", maybe("layout", "layout::v0"), _B64, operands=(dst("u32", "count"), src("state", "u64")),
         effects=_COUNTS),
    _row("check_layout", one("layout", "layout::v0", "layout::v1"), _CTA, _B64, operands=(dst("pred", "p"), _AT),
         effects=_ASKS, ptx=(9, 3), sm=90),
    row("cp.async.mbarrier.arrive", (maybe("noinc"), _CTA, _B64), (_AT,), f"{SYNC}: cp.async.mbarrier.arrive", (7, 0), 80,
        _NEEDS, effects=ACTS.but(memory=MemoryEffect.ATOMIC, queue=Queue.COPIES, step=Step.SIGNAL, counted_as="barrier")),
)  # fmt: skip
