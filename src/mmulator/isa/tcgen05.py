"""TensorCore 5th Generation Family Instructions (PTX ISA 9.1, 9.4): tensor memory, and the products in it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mmulator.isa.effects import ACTS, Effects, Ends, Flow, MemoryEffect, Queue, Step, Together
from mmulator.isa.pieces import CTA_MASK, MULTICAST, MULTICAST_NEEDS, addr, dst, imm, maybe, need, one, pred, row, src, type_
from mmulator.isa.row import Need, OperandSpec, Requirement, Row, Slot
from mmulator.isa.shapes import REGISTERS_ANY32

_FAMILIES = (110, 101, 100)
# ld.red came with chips behind sm_100; .shift and some modifiers are for one chip, not for its family
_AFTER_100: dict[str, Any] = {"families": (110, 101, 103), "ptx": (8, 8)}
_CHIP: dict[str, Any] = {"chip": True}
_INTEGERS: dict[str, Any] = {"chips": (100, 101, 110)}

_SYNC, _ALIGNED = Slot("sync", ("sync",), twice=True), one("aligned")
_GROUP = one("cta_group", "cta_group::1", "cta_group::2")
_B32, _B64 = type_("b32"), type_("b64")

# An address in tensor memory: a register with lane and column, and an offset. mma takes .b32 registers alone.
_INTEGER32, _EXACT = ("b32", "u32", "s32"), ("b32",)


def _at(name: str, types: tuple[str, ...] = _INTEGER32, **more: Any) -> OperandSpec:
    return OperandSpec(name, "addr", "b32", space="tensor", types=types, **more)


# What is inferred, by a modifier or the last operand (docs/explanation/tensor-memory.md).
_INFERRED = {
    "down": "tcgen05.shift moves 8 columns of the quarter of its address",
    "4x256b": "tcgen05.cp.4x256b writes a row in each quarter, in the address's lane of it",
    "unpack::16b": ".unpack::16b clears the upper halves of cells",
    "ashift": ".ashift moves A behind the product, which has the sums without it",
    "scale-input-d": "scale-input-d divides D before the sum; subnormal numbers are rounded to nearest",
    "zero-column-mask": "a zero-column mask has its lengths as in the specification's examples, not as in its table",
}


def _row(name: str, slots: tuple[Slot, ...], operands: tuple[OperandSpec, ...], effects: Effects, needs: tuple[Need, ...] = (),
         **more: Any) -> Row:  # fmt: skip
    section = f"TensorCore 5th Generation Family Instructions: tcgen05.{name.partition('::')[0]}"
    given = {"ptx": (8, 6), "sm": 100, "specific": True, "families": _FAMILIES, **more}
    parts = {choice for slot in slots for choice in slot.choices} | {spec.name for spec in operands}
    inferred = tuple((part, said) for part, said in _INFERRED.items() if part in parts)
    return replace(row(f"tcgen05.{name}", slots, operands, section, needs=needs, effects=effects, **given), inferred=inferred)


_ACTS = ACTS.but(counted_as="tcgen05", tensor=True)
_WARP = _ACTS.but(together=Together.WARP)
_ISSUES = _ACTS.but(queue=Queue.TENSOR, step=Step.ISSUE)

# alloc, dealloc, relinquish_alloc_permit -----------------------------------------------------------------------------
_ALLOCATES = _WARP.but(memory=MemoryEffect.WRITE, ends=Ends.WAIT, holds=True)


def _at_shared(name: str) -> OperandSpec:
    """An address in shared memory. ptxas takes the lower half of a generic one, so a register of 32 bits will do."""
    return addr(name, home="shared", types=("b64", "b32"))


def _allocation(
    values: tuple[int, ...] | range, *exclusive: Slot, ptx: tuple[int, int], unsupported: str = ""
) -> tuple[Row, Row]:
    """Rows of alloc and dealloc. values: numbers of columns. unsupported: why the machine does not run them."""
    columns, slots = src("nCols", "u32", values=values), (*exclusive, _GROUP, _SYNC, _ALIGNED)
    to = maybe("space", "shared::cta")
    return (
        _row("alloc", (*slots, to, _B32), (_at_shared("dst"), columns), _ALLOCATES, ptx=ptx,
             unsupported=unsupported),
        _row("dealloc", (*slots, _B32), (src("taddr", "u32"), columns), _WARP.but(frees=True), ptx=ptx, unsupported=unsupported),
    )  # fmt: skip


_ALLOCATION: tuple[Row, ...] = (
    *_allocation((32, 64, 128, 256, 512), ptx=(8, 6)),
    *_allocation(range(32, 577, 32), one("exclusive"), ptx=(9, 4),  # sm_107 has 576 columns
                 unsupported="exclusive allocations of PTX 9.4 are not modelled"),
    _row("relinquish_alloc_permit", (_GROUP, _SYNC, _ALIGNED), (), _WARP),
)  # fmt: skip

# ld, st, wait --------------------------------------------------------------------------------------------------------
# Registers of a thread for .x1, and the greatest repetition, by shape
_SHAPES = {"32x32b": (1, 128), "16x64b": (1, 128), "16x32bx2": (1, 128), "16x128b": (2, 64), "16x256b": (4, 32)}
_TADDR = _at("taddr")
_SPLIT = imm("immHalfSplitoff")
_LOADS = _WARP.but(memory=MemoryEffect.READ, queue=Queue.TENSOR_MOVES, step=Step.ISSUE, flow=Flow.DEFINED)
_STORES = _WARP.but(memory=MemoryEffect.WRITE, queue=Queue.TENSOR_MOVES, step=Step.ISSUE)
_WAITS = _WARP.but(queue=Queue.TENSOR_MOVES, step=Step.WAIT)


def _num(most: int, least: int = 1) -> Slot:
    return one("num", *(f"x{1 << n}" for n in range(8) if least <= 1 << n <= most))


def _registers(access: Any, each: int) -> OperandSpec:
    return OperandSpec("r", "registers", "b32", access, types=REGISTERS_ANY32, per="num", times=each)


def _split(shape: str) -> tuple[OperandSpec, ...]:
    return (_SPLIT,) if shape == "16x32bx2" else ()


def _moves(shape: str, each: int, most: int) -> tuple[Row, Row]:
    def slots(sixteen: str) -> tuple[Slot, ...]:
        return _SYNC, _ALIGNED, one("shape", shape), _num(most), maybe(sixteen.partition("::")[0], sixteen), _B32

    return (
        _row("ld", slots("pack::16b"), (_registers("w", each), _TADDR, *_split(shape)), _LOADS),
        _row("st", slots("unpack::16b"), (_TADDR, *_split(shape), _registers("r", each)), _STORES),
    )


def _reduces(shape: str, type: Slot, *modifiers: Slot) -> Row:
    """A row of loads that also give the least or greatest of a thread's values."""
    return _row(
        "ld.red", (_SYNC, _ALIGNED, one("shape", shape), _num(128, 2), one("op", "min", "max"), *modifiers, type),
        (_registers("w", 1), dst("b32", "redval"), _TADDR, *_split(shape)), _LOADS, **_AFTER_100,
    )  # fmt: skip


_MOVES: tuple[Row, ...] = (
    *(r for shape, (each, most) in _SHAPES.items() for r in _moves(shape, each, most)),
    *(r for shape in ("32x32b", "16x32bx2") for r in (
        _reduces(shape, type_("f32"), maybe("abs"), maybe("nan", "NaN")), _reduces(shape, type_("u32", "s32")),
    )),
    *(_row(f"wait::{which}", (_SYNC, _ALIGNED), (), _WAITS) for which in ("ld", "st")),
)  # fmt: skip

# cp, shift, commit, fence --------------------------------------------------------------------------------------------
# Shapes of cp, and the warps that get copies
_COPIED: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("128x256b", "4x256b", "128x128b"), ()), (("64x128b",), ("warpx2::02_13", "warpx2::01_23")), (("32x128b",), ("warpx4",)),
)  # fmt: skip
_COPIES = _ISSUES.but(memory=MemoryEffect.COPY)
_UNPACKED = (maybe("dst_fmt", "b8x16"), maybe("src_fmt", "b6x16_p32", "b4x16_p64"))


def _both_formats(m: Mapping[str, str]) -> str | None:
    """The error of one format without the other; None if both are given or none."""
    return ".b8x16 and the format in shared memory go together" if ("dst_fmt" in m) != ("src_fmt" in m) else None


_OTHERS: tuple[Row, ...] = (
    *(_row("cp", (_GROUP, one("shape", *shapes), *([one("multicast", *warps)] if warps else []), *_UNPACKED),
           (_TADDR, src("s-desc", "u64")), _COPIES, rule=_both_formats) for shapes, warps in _COPIED),
    _row("shift", (_GROUP, one("down")), (_TADDR,), _COPIES, **_CHIP),
    _row("commit", (_GROUP, one("completion", "mbarrier::arrive::one"), maybe("space", "shared::cluster"), MULTICAST, _B64),
         (_at_shared("mbar"), CTA_MASK), _ACTS.but(memory=MemoryEffect.ATOMIC, queue=Queue.TENSOR, step=Step.SIGNAL),
         MULTICAST_NEEDS),
    *(_row(f"fence::{when}_thread_sync", (), (), _ACTS.but(queue=Queue.TENSOR, step=Step.FENCE)) for when in ("before", "after")),
)  # fmt: skip

# mma -----------------------------------------------------------------------------------------------------------------
_SPARSE = maybe("sparse", "sp")
_D, _A, _META = _at("d", _EXACT), _at("a", _EXACT, instead="a-desc"), _at("sp-meta", _EXACT, when="sparse")
_A_DESC, _B_DESC, _IDESC = src("a-desc", "u64"), src("b-desc", "u64"), src("idesc", "u32")
_MASKED = OperandSpec("disable-output-lane", "registers", "b32", types=REGISTERS_ANY32, per="cta_group", times=4, between=True)
_ENABLE = pred("enable-input-d")
_SCALES = _at("scale-a", _EXACT), _at("scale-b", _EXACT)
# Only chips of the family of sm_100 scale D, and floats alone.
_SCALE_D = imm("scale-input-d", 0, 15, optional=True, since=Requirement((8, 6), 100, families=(100,)))
_ZEROS = src("zero-column-mask", "u64", optional=True)
_USES = ("fill", "use", "lastuse", "discard")
_MULTIPLIES = _ISSUES.but(memory=MemoryEffect.REDUCE, multiplies=True)


def _collector(buffers: tuple[str, ...], uses: tuple[str, ...] = _USES) -> Slot:
    """Which buffers of the tensor core an operand is kept in: that saves time, and the products are the same."""
    return replace(maybe("collector", *(f"collector::{buffer}::{use}" for buffer in buffers for use in uses)), silent=True)


def _mma(name: str, *slots: Slot, given: tuple[OperandSpec, ...], needs: tuple[Need, ...] = (), **requires: Any) -> Row:
    """A row of mma. given: the operands behind the instruction descriptor."""
    a = (_A_DESC, _A) if all(slot.name != "ashift" for slot in slots) else (_A.but(instead=""),)
    return _row(name, (_SPARSE, *slots), (_D, *a, _B_DESC, _META, _IDESC, *given), _MULTIPLIES, needs, **requires)


def _plain(*kinds: str, scaled: tuple[OperandSpec, ...] = (), **requires: Any) -> tuple[Row, ...]:
    """Rows of kinds without scales. scaled: the operand that scales D, if the kinds have one."""
    kind, given = one("kind", *(f"kind::{k}" for k in kinds)), (_MASKED, _ENABLE, *scaled)
    ashift, kept = replace(one("ashift"), silent=True), _collector(("a",), _USES[2:])
    weights = one("cta_group", "cta_group::1"), kind, _collector(("b0", "b1", "b2", "b3"))
    return (
        _mma("mma", _GROUP, kind, _collector(("a",)), given=given, **requires),
        _mma("mma", _GROUP, kind, ashift, kept, given=given, **requires),
        _mma("mma.ws", *weights, given=(_ENABLE, _ZEROS), **requires),
    )


_OF_A_CHIP = tuple(Need(f"scale_vec::{n}X", (8, 6), 100, "a") for n in (1, 2, 4))
_BLOCKS = need("block16 block32", (8, 8), 100)


def _scaled(kind: str, vectors: Slot, sparse: str, ptx: tuple[int, int] = (8, 6)) -> Row:
    """A row of a kind with scales. sparse: suffixes of targets that have it with a sparse A, "a" or "af"."""
    slots = _GROUP, one("kind", f"kind::{kind}"), one("block_scale"), vectors, _collector(("a",))
    needs = (*_OF_A_CHIP, *_BLOCKS, Need("sp", (8, 6), 100, sparse))
    return _mma("mma", *slots, given=(*_SCALES, _ENABLE), needs=needs, ptx=ptx)


_PRODUCTS: tuple[Row, ...] = (
    *_plain("f16", "tf32", scaled=(_SCALE_D,)), *_plain("f8f6f4"), *_plain("i8", **_INTEGERS),
    _scaled("mxf8f6f4", maybe("scale_vec", "scale_vec::1X", "block32"), "af"),
    _scaled("mxf4", maybe("scale_vec", "scale_vec::2X", "block32"), "a"),
    _scaled("mxf4nvf4", one("scale_vec", "scale_vec::2X", "scale_vec::4X", "block16", "block32"), "a", (8, 7)),
)  # fmt: skip
_KEPT_B = replace(_collector(("b",)), name="collector_b", optional=False)


def _keeping_b(row: Row) -> Row:
    """The row of a product that keeps B, and may keep A: sm_107 has the room."""
    return replace(row, slots=(*row.slots, _KEPT_B), requires=replace(row.requires, ptx=(9, 4), families=(107,)))


ROWS: tuple[Row, ...] = (
    *_ALLOCATION, *_MOVES, *_OTHERS, *_PRODUCTS,
    *(_keeping_b(row) for row in _PRODUCTS if row.name == "tcgen05.mma" and not row.requires.chips),
)
