"""Data Movement and Conversion Instructions (PTX ISA 9.1): tensor copies."""

from typing import Any

from mmulator.isa.effects import MemoryEffect
from mmulator.isa.pieces import (
    BULK_COPIES,
    BULK_GROUP,
    BULK_PREFETCHES,
    CACHE_HINT,
    COMPLETE_TX,
    CTA_MASK,
    MBARRIER,
    MOVES,
    MULTICAST,
    MULTICAST_NEEDS,
    POLICY,
    addr,
    maybe,
    one,
    row,
)
from mmulator.isa.row import OperandSpec, Row, Slot

# Targets that have what sm_100 brought for pairs of blocks and rows: one per family.
_PAIRS: dict[str, Any] = {"ptx": (8, 6), "sm": 100, "specific": True, "families": (110, 101, 100)}
_SM_100: dict[str, Any] = {"ptx": (8, 6), "sm": 100}
_CTA_8_6: dict[str, Any] = {"ptx": (8, 6), "sm": 90}
_SM_90: dict[str, Any] = {"ptx": (8, 0), "sm": 90}

_ANY_RANK, _OF_IMAGES = one("dim", "1d", "2d", "3d", "4d", "5d"), one("dim", "3d", "4d", "5d")
_ROWS_OF_MATRIX = one("dim", "2d")
_TILE = Slot("mode", ("tile",), optional=True, default="tile", tacit=True)
_CTA_GROUP = one("cta_group", "cta_group::1", "cta_group::2")
_GROUP_MAYBE = maybe("cta_group", "cta_group::1", "cta_group::2")
_TO_CLUSTER, _TO_CTA = one("dst", "shared::cluster"), one("dst", "shared::cta")
_FROM_GLOBAL, _FROM_CTA, _TO_GLOBAL = one("src", "global"), one("src", "shared::cta"), one("dst", "global")

_DST, _SRC = addr("dstMem", space="dst"), addr("srcMem", space="src")
# [tensorMap, {c0, c1, ...}]: as many coordinates as dimensions; a column and four rows
_COORDINATES = OperandSpec("tensorMap", "tensor", "s32", per="dim", home="global")
_FOUR_ROWS = OperandSpec("tensorMap", "tensor", "s32", count=5, home="global")
# What im2col adds to the coordinates of height, width, depth; and what im2col::w takes instead
_OFFSETS = OperandSpec("im2colOffsets", "vector", "u16", per="dim", fewer=2)
_HALO = OperandSpec("im2colInfo", "vector", "u16", count=2)


def _load(dim: Slot, to: Slot, mode: Slot, *slots: Slot, at: OperandSpec = _COORDINATES,
          info: tuple[OperandSpec, ...] = (), **requires: Any) -> Row:  # fmt: skip
    mask = (CTA_MASK,) if MULTICAST in slots else ()
    return row(
        "cp.async.bulk.tensor", (dim, to, _FROM_GLOBAL, mode, COMPLETE_TX, *slots, CACHE_HINT),
        (_DST, at, MBARRIER, *info, *mask, POLICY), f"{MOVES}: cp.async.bulk.tensor", effects=BULK_COPIES,
        needs=MULTICAST_NEEDS if mask else (), **requires,
    )  # fmt: skip


def _store(dim: Slot, mode: Slot, at: OperandSpec = _COORDINATES, **requires: Any) -> Row:
    return row(
        "cp.async.bulk.tensor", (dim, _TO_GLOBAL, _FROM_CTA, mode, BULK_GROUP, CACHE_HINT), (at, _SRC, POLICY),
        f"{MOVES}: cp.async.bulk.tensor", effects=BULK_COPIES, **requires,
    )  # fmt: skip


def _reduce(dim: Slot, mode: Slot) -> Row:
    op = one("op", "add", "min", "max", "inc", "dec", "and", "or", "xor")
    return row(
        "cp.reduce.async.bulk.tensor", (dim, _TO_GLOBAL, _FROM_CTA, op, mode, BULK_GROUP, CACHE_HINT),
        (_COORDINATES, _SRC, POLICY), f"{MOVES}: cp.reduce.async.bulk.tensor",
        effects=BULK_COPIES.but(memory=MemoryEffect.REDUCE), **_SM_90,
    )  # fmt: skip


def _prefetch(dim: Slot, mode: Slot, at: OperandSpec = _COORDINATES, info: tuple[OperandSpec, ...] = (), **requires: Any) -> Row:
    return row(
        "cp.async.bulk.prefetch.tensor", (dim, one("level", "L2"), _FROM_GLOBAL, mode, CACHE_HINT), (at, *info, POLICY),
        f"{MOVES}: cp.async.bulk.prefetch.tensor", effects=BULK_PREFETCHES, **requires,
    )  # fmt: skip


_IM2COL, _IM2COL_W, _IM2COL_W_128 = one("mode", "im2col"), one("mode", "im2col::w"), one("mode", "im2col::w::128")
_GATHER4, _SCATTER4 = one("mode", "tile::gather4"), one("mode", "tile::scatter4")
_NO_OFFSETS = one("mode", "im2col_no_offs")


ROWS: tuple[Row, ...] = (
    # loads of tiles
    _load(_ANY_RANK, _TO_CLUSTER, _TILE, MULTICAST, **_SM_90),
    _load(_ANY_RANK, _TO_CTA, _TILE, **_CTA_8_6),
    _load(_ANY_RANK, _TO_CLUSTER, _TILE, MULTICAST, _CTA_GROUP, **_PAIRS),
    _load(_ANY_RANK, _TO_CTA, _TILE, _CTA_GROUP, **_PAIRS),
    # of four rows
    _load(_ROWS_OF_MATRIX, _TO_CLUSTER, _GATHER4, MULTICAST, _GROUP_MAYBE, at=_FOUR_ROWS, **_PAIRS),
    _load(_ROWS_OF_MATRIX, _TO_CTA, _GATHER4, at=_FOUR_ROWS, **_SM_100),
    _load(_ROWS_OF_MATRIX, _TO_CTA, _GATHER4, _CTA_GROUP, at=_FOUR_ROWS, **_PAIRS),
    # of columns of images
    _load(_OF_IMAGES, _TO_CLUSTER, _IM2COL, MULTICAST, info=(_OFFSETS,), **_SM_90),
    _load(_OF_IMAGES, _TO_CTA, _IM2COL, info=(_OFFSETS,), **_CTA_8_6),
    _load(_OF_IMAGES, _TO_CLUSTER, _IM2COL, MULTICAST, _CTA_GROUP, info=(_OFFSETS,), **_PAIRS),
    _load(_OF_IMAGES, _TO_CTA, _IM2COL, _CTA_GROUP, info=(_OFFSETS,), **_PAIRS),
    _load(_OF_IMAGES, _TO_CLUSTER, _IM2COL_W, MULTICAST, _GROUP_MAYBE, info=(_HALO,), **_PAIRS),
    _load(_OF_IMAGES, _TO_CTA, _IM2COL_W, info=(_HALO,), **_SM_100),
    _load(_OF_IMAGES, _TO_CTA, _IM2COL_W, _CTA_GROUP, info=(_HALO,), **_PAIRS),
    _load(_OF_IMAGES, _TO_CLUSTER, _IM2COL_W_128, MULTICAST, _GROUP_MAYBE, info=(_HALO,), **_PAIRS),
    _load(_OF_IMAGES, _TO_CTA, _IM2COL_W_128, _GROUP_MAYBE, info=(_HALO,), **_PAIRS),
    # stores
    _store(_ANY_RANK, _TILE, **_SM_90),
    _store(_ROWS_OF_MATRIX, _SCATTER4, at=_FOUR_ROWS, **_PAIRS),
    _store(_OF_IMAGES, _NO_OFFSETS, **_SM_90),
    # reductions
    _reduce(_ANY_RANK, _TILE),
    _reduce(_OF_IMAGES, _NO_OFFSETS),
    # prefetches
    _prefetch(_ANY_RANK, _TILE, **_SM_90),
    _prefetch(_ROWS_OF_MATRIX, _GATHER4, at=_FOUR_ROWS, **_PAIRS),
    _prefetch(_OF_IMAGES, _IM2COL, info=(_OFFSETS,), **_SM_90),
    _prefetch(_OF_IMAGES, one("mode", "im2col::w", "im2col::w::128"), info=(_HALO,), **_PAIRS),
)  # fmt: skip
