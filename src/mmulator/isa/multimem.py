"""Data Movement and Conversion Instructions: multimem (PTX ISA 9.1): memory of several GPUs under one address."""

from collections.abc import Mapping

from mmulator.isa.effects import ACTS, Flow, MemoryEffect
from mmulator.isa.pieces import (
    BITS32_64,
    BULK_COPIES,
    BULK_GROUP,
    BULK_SIZE,
    MOVES,
    SCOPE,
    addr,
    dst,
    maybe,
    need,
    one,
    row,
    src,
    type_,
)
from mmulator.isa.row import OperandSpec, Row, Slot

_ONE_GPU = "multicast objects of several GPUs are not modelled"
_SECTION = f"{MOVES}: multimem"

_GLOBAL = maybe("space", "global")
_ORDERS = {"ld_reduce": ("weak", "relaxed", "acquire"), "st": ("weak", "relaxed", "release"), "red": ("relaxed", "release")}
_EFFECTS = {
    "ld_reduce": ACTS.but(memory=MemoryEffect.READ, counted_as="memory", flow=Flow.DEFINED),
    "st": ACTS.but(memory=MemoryEffect.WRITE, counted_as="memory"),
    "red": ACTS.but(memory=MemoryEffect.ATOMIC, counted_as="atomic"),
}  # fmt: skip
_EFFECTS = {name: effects.but(chooses="combines the memory of several GPUs") for name, effects in _EFFECTS.items()}
_HALVES, _PAIRS = ("f16", "bf16"), ("f16x2", "bf16x2")


def _ordered(m: Mapping[str, str]) -> str | None:
    sem = m.get("sem", "weak")
    if sem == "weak" and "scope" in m and "sem" in m:
        return f".{m['scope']} needs a memory order such as .relaxed"
    if ("scope" in m) != (sem != "weak"):
        return f".{sem} needs a scope" if sem != "weak" else f".{m['scope']} needs a memory order such as .relaxed"
    return None


def _row(name: str, *slots: Slot, types: tuple[str, ...], vec: tuple[str, ...] = (), specific: bool = False) -> Row:
    """A row of one of the three instructions. vec: its vector modifiers, if any. specific: whether only some targets have its
    types.
    """
    per = "vec" if vec else ""
    operands = (dst(per=per), addr()) if name == "ld_reduce" else (addr(), src("b", per=per))
    return row(
        f"multimem.{name}",
        (maybe("sem", *_ORDERS[name]), SCOPE, _GLOBAL, *slots, *((one("vec", *vec),) if vec else ()), type_(*types)),
        operands, f"{_SECTION}.{name}", (8, 6) if specific else (8, 1), 100 if specific else 90,
        need("acc::f32", (8, 2), 90), rule=_ordered, specific=specific,
        unsupported=_ONE_GPU, effects=_EFFECTS[name],
    )  # fmt: skip


def _vectors(name: str, *slots: Slot, single: bool, floats: bool) -> tuple[Row, ...]:
    """Rows for halves and floats. single: whether a pair of halves may stand without a vector. floats: whether there are
    vectors of .f32.
    """
    return (
        *((_row(name, *slots, types=_PAIRS),) if single else ()),
        _row(name, *slots, types=(*(("f32",) if floats else ()), *_HALVES, *_PAIRS), vec=("v2", "v4")),
        _row(name, *slots, types=_HALVES, vec=("v8",)),
    )


def _fp8(name: str, *slots: Slot) -> tuple[Row, ...]:
    return (
        _row(name, *slots, types=("e4m3x4", "e5m2x4"), specific=True),
        _row(name, *slots, types=("e4m3x4", "e5m2x4"), vec=("v2", "v4"), specific=True),
        _row(name, *slots, types=("e4m3", "e5m2"), vec=("v4", "v8"), specific=True),
    )


def _reductions(name: str) -> tuple[Row, ...]:
    add, extremes = one("op", "add"), one("op", "min", "max")
    return (
        _row(name, one("op", "and", "or", "xor"), types=BITS32_64),
        _row(name, add, types=("u32", "s32", "u64", "f32", "f64")),
        _row(name, extremes, types=("u32", "s32", "u64", "s64")),
        *_vectors(name, add, single=True, floats=True),
        *_vectors(name, extremes, single=name == "ld_reduce", floats=False),
    )


def _bulk_ordered(m: Mapping[str, str]) -> str | None:
    if (m.get("sem", "weak") == "weak") == ("scope" in m):
        return f".{m['scope']} needs .relaxed" if "scope" in m else f".{m['sem']} needs a scope"
    return None


_TO, _FROM = addr("dstMem", space="dst"), addr("srcMem", space="src")
_WAYS = (one("dst", "global"), one("src", "shared::cta"), BULK_GROUP)


def _bulk(name: str, *slots: Slot, operands: tuple[OperandSpec, ...] = (), memory: MemoryEffect = MemoryEffect.REDUCE,
          order: tuple[Slot, ...] = (maybe("sem", "relaxed"), SCOPE), ptx: tuple[int, int] = (9, 1)) -> Row:  # fmt: skip
    return row(
        f"multimem.{name}", (*order, *_WAYS, *slots), (_TO, _FROM, BULK_SIZE, *operands), f"{_SECTION}.{name}", ptx, 90,
        (*need("cp_mask", (9, 1), 100), *need("weak relaxed", (9, 3), 90)), rule=_bulk_ordered, unsupported=_ONE_GPU,
        effects=BULK_COPIES.but(memory=memory),
    )  # fmt: skip


_MASK = (src("byteMask", "u16", when="cp_mask"),)
_REDUCE = "cp.reduce.async.bulk"

ROWS: tuple[Row, ...] = (
    *_reductions("ld_reduce"),
    *_vectors("ld_reduce", one("op", "add"), one("acc", "acc::f32"), single=True, floats=False),
    *_fp8("ld_reduce", one("op", "add"), maybe("acc", "acc::f16")),
    *_fp8("ld_reduce", one("op", "min", "max")),
    _row("st", types=("b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64")),
    *_vectors("st", single=True, floats=True),
    *_fp8("st"),
    *_reductions("red"),
    _bulk("cp.async.bulk", maybe("cp_mask"), operands=_MASK, memory=MemoryEffect.COPY, order=(maybe("sem", "weak"),)),
    _bulk("cp.async.bulk", maybe("cp_mask"), type_("b128"), operands=_MASK, memory=MemoryEffect.COPY,
          order=(one("sem", "relaxed"), one("scope", "cta", "cluster", "gpu", "sys")), ptx=(9, 3)),
    _bulk(_REDUCE, one("op", "and", "or", "xor"), type_(*BITS32_64)),
    _bulk(_REDUCE, one("op", "add"), type_("u32", "s32", "u64", "f32", "f64")),
    _bulk(_REDUCE, one("op", "inc", "dec"), type_("u32")),
    _bulk(_REDUCE, one("op", "min", "max"), type_("u32", "s32", "u64", "s64", "f16", "bf16")),
    _bulk(_REDUCE, one("op", "add"), one("noftz"), type_("f16", "bf16")),
    _bulk(_REDUCE, one("op", "add"), one("noftz"), type_("f32"), ptx=(9, 4)),
)  # fmt: skip
