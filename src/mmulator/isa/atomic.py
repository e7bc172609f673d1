"""Parallel Synchronization and Communication Instructions (PTX ISA 9.1) on memory: atom, red."""

from collections.abc import Mapping

from mmulator.isa.effects import ACTS, Flow, MemoryEffect, Stored
from mmulator.isa.pieces import BITS32_64, CACHE_HINT, INT32_64, POLICY, SCOPE, SYNC, addr, dst, maybe, need, one, row, src, type_
from mmulator.isa.row import OperandSpec, Row, Slot

_SHARED = ("shared", "shared::cta", "shared::cluster")
_SEM_ATOM, _SEM_RED = maybe("sem", "relaxed", "acquire", "release", "acq_rel"), maybe("sem", "relaxed", "release")
_ATOM_SPACE = maybe("space", "global", *_SHARED)
_ATOM_NEEDS = (
    *need("relaxed acquire release acq_rel", (6, 0), 70),
    *need("cluster shared::cluster shared::cta", (7, 8), 30),
    *need("cluster shared::cluster", (7, 8), 90),
    *need("f64", (5, 0), 60),
    *need("f16x2", (6, 2), 60),
    *need("f16", (6, 3), 70),
    *need("bf16 bf16x2", (7, 8), 90),
    *need("b16", (6, 3), 70),
    *need("b128", (8, 3), 90),
    *need("L2::cache_hint", (7, 4), 80),
)
# operation -> types (atom; red has all but exch and cas)
_ATOMIC_TYPES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("and", "or", "xor"), BITS32_64),
    (("add",), ("u32", "s32", "u64", "f32", "f64")),
    (("min", "max"), INT32_64),
    (("inc", "dec"), ("u32",)),
)
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def _atomic_vector(m: Mapping[str, str]) -> str | None:
    wide = m["type"].endswith("x2") or m["type"] == "f32"
    if m["vec"] == "v8" and wide:
        return f".v8 cannot stand with .{m['type']}"
    if m.get("space", "global") != "global":
        return "a vector needs .global"
    return None


def _atomic_hint(m: Mapping[str, str]) -> str | None:
    if "hint" in m and (m.get("space", "global") != "global" or m["op"] == "cas"):
        return f".{m['hint']} needs .global, and not .cas"
    return None


def _atomic(name: str, *slots: Slot, operands: tuple[OperandSpec, ...], ptx: tuple[int, int] = (1, 1), sm: int = 0,
            vector: bool = False) -> Row:  # fmt: skip
    sem = _SEM_ATOM if name == "atom" else _SEM_RED
    return row(
        name, (sem, SCOPE, _ATOM_SPACE, *slots[:-1], CACHE_HINT, slots[-1]), (*operands, POLICY), f"{SYNC}: {name}",
        ptx, sm, _ATOM_NEEDS, rule=_atomic_vector if vector else _atomic_hint,
        effects=ACTS.but(memory=MemoryEffect.ATOMIC, counted_as="atomic", flow=Flow.LOADED, stored=Stored.COMBINED),
    )  # fmt: skip


def _atomics(name: str) -> tuple[Row, ...]:
    operands: tuple[OperandSpec, ...] = (addr(), src("b"))
    vectors: tuple[OperandSpec, ...] = (addr(), OperandSpec("b", "src", "type", per="vec"))
    if name == "atom":
        operands = (dst(sink=True), *operands)
        vectors = (dst(per="vec", sink=True), *vectors)
    noftz = one("noftz")
    return (
        *(_atomic(name, one("op", *ops), type_(*types), operands=operands) for ops, types in _ATOMIC_TYPES),
        _atomic(name, one("op", "add"), noftz, type_(*_HALVES), operands=operands),
        _atomic(name, one("op", "add"), noftz, type_("f32"), operands=operands, ptx=(9, 4), sm=90),
        _atomic(name, one("op", "add"), one("vec", "v2", "v4"), type_("f32"), operands=vectors,
                ptx=(8, 1), sm=90, vector=True),
        _atomic(name, one("op", "add"), noftz, one("vec", "v2", "v4"), type_("f32"), operands=vectors,
                ptx=(9, 4), sm=90, vector=True),
        _atomic(name, one("op", "add", "min", "max"), noftz, one("vec", "v2", "v4", "v8"), type_(*_HALVES),
                operands=vectors, ptx=(8, 1), sm=90, vector=True),
    )  # fmt: skip


ROWS: tuple[Row, ...] = (
    *_atomics("atom"),
    _atomic("atom", one("op", "exch"), type_("b32", "b64", "b128"), operands=(dst(sink=True), addr(), src("b"))),
    _atomic("atom", one("op", "cas"), type_("b16", "b32", "b64", "b128"),
            operands=(dst(sink=True), addr(), src("b"), src("c"))),
    *_atomics("red"),
)  # fmt: skip
