"""Data Movement and Conversion Instructions (PTX ISA 9.1, 9.4): bulk copies and reductions, and stores by the same engines.

Copies of tensors have a file of their own, tensor.py.
"""

from collections.abc import Mapping
from typing import Any

from mmulator.isa.effects import ACTS, MemoryEffect, Queue, Step, Stored
from mmulator.isa.pieces import (
    BULK_COPIES,
    BULK_GROUP,
    BULK_PREFETCHES,
    BULK_SIZE,
    CACHE_HINT,
    COMPLETE_TX,
    CTA_MASK,
    MBARRIER,
    MOVES,
    MULTICAST,
    MULTICAST_NEEDS,
    POLICY,
    SYNC,
    addr,
    imm,
    maybe,
    need,
    one,
    row,
    src,
    type_,
)
from mmulator.isa.row import OperandSpec, Row, Slot
from mmulator.isa.types import type_bits

_COMBINES = BULK_COPIES.but(memory=MemoryEffect.REDUCE)
_COMMIT = ACTS.but(queue=Queue.BULK, step=Step.COMMIT, counted_as="bulk")
_WAIT = ACTS.but(queue=Queue.BULK, step=Step.WAIT, counted_as="bulk")

_DST, _SRC = addr("dstMem", space="dst"), addr("srcMem", space="src")
_MASK = src("byteMask", "u16", when="cp_mask")


def _space(name: str, space: str) -> Slot:
    return one(name, space)


# How strong the accesses are, since PTX 9.3: weak, or each element of .type atomic in a scope.
_CLUSTER_SCOPES: tuple[str, ...] = ("cta", "cluster")
_SCOPES: tuple[str, ...] = (*_CLUSTER_SCOPES, "gpu", "sys")
_RELAXED = maybe("sem", "relaxed")


def _copies(
    to: str, source: str, *slots: Slot, operands: tuple[OperandSpec, ...], ptx: tuple[int, int] = (8, 0),
    scopes: tuple[str, ...] = _SCOPES, **relaxed: Any,
) -> tuple[Row, Row]:  # fmt: skip
    """Rows of weak and of relaxed copies between two state spaces. relaxed: requirements of the relaxed copies, which some
    targets lack.
    """

    def written(*order: Slot, type: tuple[Slot, ...] = (), since: tuple[int, int], **requires: Any) -> Row:
        return row(
            "cp.async.bulk", (*order, _space("dst", to), _space("src", source), *slots, *type),
            (_DST, _SRC, BULK_SIZE, *operands), f"{MOVES}: cp.async.bulk", since, 90, _COPY_NEEDS, effects=BULK_COPIES,
            **requires,
        )  # fmt: skip

    return (
        written(maybe("sem", "weak"), since=ptx),
        written(one("sem", "relaxed"), one("scope", *scopes), type=(type_("b128"),), since=(9, 3), **relaxed),
    )


_COPY_NEEDS = (
    *need("cp_mask", (8, 6), 100), *need("ignore_oob", (9, 2), 90), *need("weak", (9, 3), 90), *MULTICAST_NEEDS,
)  # fmt: skip


def _scoped(m: Mapping[str, str]) -> str | None:
    """The error of a memory order without a scope, or of a scope without an order; None if both are legal."""
    if ("sem" in m) != ("scope" in m):
        return f".{m['sem']} needs a scope" if "sem" in m else f".{m['scope']} needs a memory order: .relaxed"
    return None


_RELAXED_NEEDS = need("relaxed", (9, 3), 90)
# Bytes at the ends of what is copied that may lie outside of all memory.
_LEFT, _RIGHT = (src(f"ignoreBytes{end}", "u32", lo=0, hi=15, when="ignore_oob") for end in ("Left", "Right"))


# Operations and types of a bulk reduction into another block's shared memory, and into global memory.
_SHARED_OPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("and", "or", "xor"), ("b32",)), (("add",), ("u32", "s32", "u64")), (("inc", "dec"), ("u32",)),
    (("min", "max"), ("u32", "s32")),
)  # fmt: skip
_GLOBAL_OPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("and", "or", "xor"), ("b32", "b64")), (("add",), ("u32", "s32", "u64", "f32", "f64")), (("inc", "dec"), ("u32",)),
    (("min", "max"), ("u32", "s32", "u64", "s64", "f16", "bf16")),
)  # fmt: skip


def _reduce_shared(ops: tuple[str, ...], types: tuple[str, ...]) -> Row:
    return row(
        "cp.reduce.async.bulk",
        (_RELAXED, maybe("scope", *_CLUSTER_SCOPES), _space("dst", "shared::cluster"), _space("src", "shared::cta"), COMPLETE_TX,
         one("op", *ops), type_(*types)),
        (_DST, _SRC, BULK_SIZE, MBARRIER), f"{MOVES}: cp.reduce.async.bulk", (8, 0), 90, _RELAXED_NEEDS, rule=_scoped,
        effects=_COMBINES,
    )  # fmt: skip


def _reduce_global(ops: tuple[str, ...], types: tuple[str, ...], *more: Slot, ptx: tuple[int, int] = (8, 0)) -> Row:
    return row(
        "cp.reduce.async.bulk",
        (_RELAXED, maybe("scope", *_SCOPES), _space("dst", "global"), _space("src", "shared::cta"), BULK_GROUP, CACHE_HINT,
         one("op", *ops), *more, type_(*types)),
        (_DST, _SRC, BULK_SIZE, POLICY), f"{MOVES}: cp.reduce.async.bulk", ptx, 90, _RELAXED_NEEDS, rule=_scoped,
        effects=_COMBINES,
    )  # fmt: skip


# Stores and reductions of single values -----------------------------------------------------------------------------
_STORE_TYPES = ("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
_MMIO, _RELEASE, _WIDE_SCOPE = maybe("mmio"), one("sem", "release"), one("scope", "gpu", "sys")
_TO_GLOBAL = maybe("space", "global")
_STORES = ACTS.but(memory=MemoryEffect.WRITE, queue=Queue.BULK, step=Step.ISSUE, counted_as="memory", stored=Stored.VALUES)
_ADDS = ACTS.but(memory=MemoryEffect.ATOMIC, queue=Queue.BULK, step=Step.ISSUE, counted_as="atomic", stored=Stored.COMBINED)
_RED_OPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("inc", "dec"), ("u32",)), (("min", "max"), ("u32", "s32")), (("and", "or", "xor"), ("b32",)),
    (("add",), ("u32", "s32", "u64", "s64")),
)  # fmt: skip


def _mapped(m: Mapping[str, str]) -> str | None:
    """The error of a store to memory-mapped registers without .sys; None if it is legal."""
    return ".mmio needs .sys" if "mmio" in m and m["scope"] != "sys" else None


def _at_most_128(m: Mapping[str, str]) -> str | None:
    bits = type_bits(m["type"]) * int(m.get("vec", "v1")[1:])
    return f".{m['vec']}.{m['type']} is {bits} bits wide; at most 128 are allowed" if bits > 128 else None


def _added(types: tuple[str, ...]) -> OperandSpec:
    """The operand that is combined: an integer register for bits, otherwise a register of the instruction's type."""
    return src("b", "u32" if types == ("b32",) else "type")


def _red_async(ops: tuple[str, ...], types: tuple[str, ...]) -> Row:
    return row(
        "red.async",
        (one("sem", "relaxed"), one("scope", "cluster"), maybe("space", "shared::cluster"), COMPLETE_TX, one("op", *ops),
         type_(*types)),
        (addr(), _added(types), MBARRIER), f"{SYNC}: red.async", (8, 1), 90, effects=_ADDS,
    )  # fmt: skip


def _red_global(ops: tuple[str, ...], types: tuple[str, ...]) -> Row:
    return row(
        "red.async", (_MMIO, _RELEASE, _WIDE_SCOPE, _TO_GLOBAL, one("op", *ops), type_(*types)), (addr(), _added(types)),
        f"{SYNC}: red.async", (8, 7), 100, rule=_mapped, effects=_ADDS,
    )  # fmt: skip


ROWS: tuple[Row, ...] = (
    *_copies("shared::cluster", "global", COMPLETE_TX, MULTICAST, CACHE_HINT, operands=(MBARRIER, CTA_MASK, POLICY),
             specific=True, families=(90, 100, 101, 110)),
    *_copies("shared::cta", "global", COMPLETE_TX, CACHE_HINT, maybe("ignore_oob"),
             operands=(_LEFT, _RIGHT, MBARRIER, POLICY), ptx=(8, 6)),
    *_copies("shared::cluster", "shared::cta", COMPLETE_TX, operands=(MBARRIER,), scopes=_CLUSTER_SCOPES),
    *_copies("global", "shared::cta", BULK_GROUP, CACHE_HINT, maybe("cp_mask"), operands=(POLICY, _MASK)),
    *(_reduce_shared(ops, types) for ops, types in _SHARED_OPS),
    *(_reduce_global(ops, types) for ops, types in _GLOBAL_OPS),
    _reduce_global(("add",), ("f16", "bf16"), one("noftz")),
    _reduce_global(("add",), ("f32",), one("noftz"), ptx=(9, 4)),
    row("cp.async.bulk.prefetch", (one("level", "L2"), _space("src", "global"), CACHE_HINT), (_SRC, BULK_SIZE, POLICY),
        f"{MOVES}: cp.async.bulk.prefetch", (8, 0), 90, effects=BULK_PREFETCHES),
    row("cp.async.bulk.commit_group", (), (), f"{MOVES}: cp.async.bulk.commit_group", (8, 0), 90,
        effects=_COMMIT),
    row("cp.async.bulk.wait_group", (maybe("read"),), (imm("N", 0, (1 << 31) - 1),), f"{MOVES}: cp.async.bulk.wait_group",
        (8, 0), 90, effects=_WAIT),
    row("st.async", (maybe("weak"), maybe("space", "shared::cluster", "shared::cta"), COMPLETE_TX, maybe("vec", "v2", "v4"),
                     type_(*_STORE_TYPES)),
        (addr(), src("b", per="vec"), MBARRIER), f"{MOVES}: st.async", (8, 1), 90, rule=_at_most_128, effects=_STORES),
    row("st.async", (maybe("weak"), maybe("space", "shared::cluster", "shared::cta"), COMPLETE_TX, type_("b128")),
        (addr(), src("b"), MBARRIER), f"{MOVES}: st.async", (9, 2), 90, effects=_STORES),
    row("st.async", (_MMIO, _RELEASE, _WIDE_SCOPE, _TO_GLOBAL, type_("b16", "u16", "s16", *_STORE_TYPES)), (addr(), src("b")),
        f"{MOVES}: st.async", (8, 7), 100, rule=_mapped, effects=_STORES),
    row("st.bulk", (maybe("weak"), maybe("space", "shared::cta")),
        (addr(), src("size", "u64", values=range(0, (1 << 24) + 1, 8)), imm("initval", values=(0,))), f"{MOVES}: st.bulk",
        (8, 6), 100, effects=ACTS.but(memory=MemoryEffect.WRITE, counted_as="memory")),
    *(_red_async(ops, types) for ops, types in _RED_OPS),
    *(_red_global(ops, types) for ops, types in _RED_OPS),
)  # fmt: skip
