"""Memory accesses: ld, st, prefetch, atom, red, and non-bulk cp.async.

Data Movement and Conversion Instructions, Parallel Synchronization and Communication Instructions (PTX ISA 9.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.isa.pieces import (
    BITS32_64,
    CACHE_HINT,
    INT32_64,
    MEMORY_TYPES,
    POLICY,
    SCOPE,
    addr,
    dst,
    imm,
    maybe,
    need,
    one,
    reg,
    src,
    type_,
)
from mmulator.isa.scalar import Group, OperandRule, Row, type_bits

_MOVES = "Data Movement and Conversion Instructions"
_SYNC = "Parallel Synchronization and Communication Instructions"
_BULK = "bulk asynchronous copies: later release"
_L1 = maybe("L1", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate")
_L2 = maybe("L2", "L2::evict_normal", "L2::evict_first", "L2::evict_last")
_PREFETCH = maybe("prefetch", "L2::64B", "L2::128B", "L2::256B")
_VEC = maybe("vec", "v2", "v4")
_SHARED = ("shared", "shared::cta", "shared::cluster")
_LOAD_SPACES = ("const", "global", "local", "param", "param::entry", "param::func", *_SHARED)
_STORE_SPACES = ("global", "local", "param", "param::func", *_SHARED)
_MEMORY_NEEDS = (
    *need("L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate", (7, 4), 70),
    *need("L2::64B L2::128B L2::256B", (7, 4), 75),
    *need("L2::cache_hint", (7, 4), 80),
    *need("L2::evict_normal L2::evict_first L2::evict_last", (8, 8), 100),
    *need("relaxed acquire release", (6, 0), 70),
    *need("mmio", (8, 2), 70),
    *need("b128", (8, 3), 70),
    *need("shared::cluster cluster", (7, 8), 90),
    *need("shared::cta", (7, 8), 30),
    *need("param::entry param::func", (8, 3), 70),
)


def _order(m: Mapping[str, str]) -> str | None:
    """Which modifiers of ld and st exclude or require each other."""
    sem, space = m.get("sem", "weak"), m.get("space", "")
    if sem in ("relaxed", "acquire", "release") and "scope" not in m:
        return f".{sem} needs a scope: .cta, .cluster, .gpu or .sys"
    if "scope" in m and sem in ("weak", "volatile"):
        return f".{m['scope']} needs a memory order such as .relaxed"
    if sem in ("relaxed", "acquire", "release") and space.partition("::")[0] in ("local", "const", "param"):
        return f".{sem} cannot access .{space}"
    if "mmio" in m and (sem != "relaxed" or m.get("scope") != "sys"):
        return ".mmio needs .relaxed.sys"
    if "mmio" in m and space not in ("", "global"):
        return f".mmio cannot access .{space}"
    if "cop" in m and (sem != "weak" or "L1" in m or "L2" in m):
        return f".{m['cop']} cannot stand with " + (f".{sem}" if sem != "weak" else "an eviction priority")
    if "nc" in m and ("sem" in m or space != "global"):
        return ".nc needs .global and no memory order"
    if ("prefetch" in m or "hint" in m) and space not in ("", "global"):
        return f".{m.get('prefetch') or m['hint']} needs .global"
    if "L1" in m and space.partition("::")[0] in ("shared", "param", "const", "local"):
        return f".{m['L1']} cannot stand with .{space}"
    hint = m.get("L1") or m.get("L2") or m.get("hint") or m.get("prefetch")
    if "mmio" in m and hint:
        return f".{hint} cannot stand with .mmio"
    if "L2" in m and _bits(m) != 256:
        return f".{m['L2']} needs 256 bits: .v8.b32 or .v4.b64"
    return None


def _bits(m: Mapping[str, str]) -> int:
    return type_bits(m["type"]) * int(m.get("vec", "v1")[1:])


def _narrow(m: Mapping[str, str]) -> str | None:
    """At most 128 bits, on every target."""
    return f".{m['vec']}.{m['type']} is {_bits(m)} bits wide; at most 128 are allowed" if _bits(m) > 128 else None


def _access(m: Mapping[str, str]) -> str | None:
    return _order(m) or _narrow(m)


def _wide(m: Mapping[str, str]) -> str | None:
    """256 bits, of the types of sm_100."""
    if _bits(m) != 256 or type_bits(m["type"]) not in (32, 64):
        return f".{m['vec']}.{m['type']} is {_bits(m)} bits wide; .v8 of 32 and .v4 of 64 bits are 256"
    if m.get("space", "global") != "global":
        return f"256 bits need .global, not .{m['space']}"
    return _order(m)


def _memory(name: str, *groups: Group, operands: tuple[OperandRule, ...]) -> tuple[Row, Row]:
    """Accesses of up to 128 bits, and those of 256."""
    section = f"{_MOVES}: {name}"
    wide = tuple(one("vec", "v4", "v8") if g.name == "vec" else g for g in groups)
    return (
        Row(name, groups, operands, section, (1, 0), 0, _MEMORY_NEEDS, rule=_access),
        Row(name, wide, operands, section, (8, 8), 100, _MEMORY_NEEDS, rule=_wide),
    )


_LD = _memory(
    "ld",
    maybe("mmio"), maybe("sem", "weak", "volatile", "relaxed", "acquire"), SCOPE, maybe("space", *_LOAD_SPACES),
    maybe("cop", "ca", "cg", "cs", "lu", "cv"), maybe("nc"), _L1, _L2, CACHE_HINT, _PREFETCH, _VEC,
    type_(*MEMORY_TYPES),
    operands=(dst(count="vec", wider=True), addr(), POLICY),
)  # fmt: skip
# Since 9.3 memory-mapped registers have acquire and release too.
_LD_MMIO, _ST_MMIO = (
    Row(
        name, (one("mmio", "mmio"), one("sem", sem), one("scope", "sys"), maybe("space", "global"),
               type_(*(t for t in MEMORY_TYPES if t != "b128"))), operands, f"{_MOVES}: {name}", (9, 3), 70,
    )
    for name, sem, operands in (
        ("ld", "acquire", (dst(wider=True), addr())), ("st", "release", (addr(), src("b", wider=True))),
    )
)  # fmt: skip
_ST = _memory(
    "st",
    maybe("mmio"), maybe("sem", "weak", "volatile", "relaxed", "release"), SCOPE, maybe("space", *_STORE_SPACES),
    maybe("cop", "wb", "cg", "cs", "wt"), _L1, _L2, CACHE_HINT, _VEC, type_(*MEMORY_TYPES),
    operands=(addr(), src("b", count="vec", wider=True), POLICY),
)  # fmt: skip

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


def _atomic(name: str, *groups: Group, operands: tuple[OperandRule, ...], ptx: tuple[int, int] = (1, 1), sm: int = 0,
            vector: bool = False) -> Row:  # fmt: skip
    sem = _SEM_ATOM if name == "atom" else _SEM_RED
    return Row(
        name, (sem, SCOPE, _ATOM_SPACE, *groups[:-1], CACHE_HINT, groups[-1]), (*operands, POLICY), f"{_SYNC}: {name}",
        ptx, sm, _ATOM_NEEDS, rule=_atomic_vector if vector else _atomic_hint,
    )  # fmt: skip


def _atomics(name: str) -> tuple[Row, ...]:
    operands: tuple[OperandRule, ...] = (addr(), src("b"))
    vectors: tuple[OperandRule, ...] = (addr(), OperandRule("b", "src", "type", count="vec"))
    if name == "atom":
        operands = (dst(sink=True), *operands)
        vectors = (dst(count="vec", sink=True), *vectors)
    noftz = one("noftz", "noftz")
    return (
        *(_atomic(name, one("op", *ops), type_(*types), operands=operands) for ops, types in _ATOMIC_TYPES),
        _atomic(name, one("op", "add"), noftz, type_(*_HALVES), operands=operands),
        _atomic(name, one("op", "add"), one("vec", "v2", "v4"), type_("f32"), operands=vectors,
                ptx=(8, 1), sm=90, vector=True),
        _atomic(name, one("op", "add", "min", "max"), noftz, one("vec", "v2", "v4", "v8"), type_(*_HALVES),
                operands=vectors, ptx=(8, 1), sm=90, vector=True),
    )  # fmt: skip


def _open(name: str, reason: str, ptx: tuple[int, int], sm: int, chapter: str = _MOVES) -> Row:
    return Row(name, (), (), f"{chapter}: {name}", ptx, sm, unsupported=reason, open=True)


_COPY = (addr("dst"), addr("src"))
_COPY_SIZE = OperandRule("src-size", "size", "u32", optional=True)
_COPY_SHARED = one("dst", "shared", "shared::cta")
_EVICT = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")
_SECOND = maybe("secondary", "L2::evict_first", "L2::evict_unchanged")


def _copy_async(op: str, sizes: tuple[int, ...]) -> Row:
    return Row(
        "cp.async",
        (one("op", op), _COPY_SHARED, one("src", "global"), CACHE_HINT, _PREFETCH),
        (*_COPY, imm("cp-size", values=sizes), _COPY_SIZE, POLICY),
        f"{_MOVES}: cp.async", (7, 0), 80, need("L2::cache_hint L2::64B L2::128B L2::256B", (7, 4), 80),
    )  # fmt: skip


ROWS: tuple[Row, ...] = (
    *_LD,
    _LD_MMIO,
    *_ST,
    _ST_MMIO,
    Row("ldu", (maybe("space", "global"), maybe("vec", "v2", "v4"), type_(*MEMORY_TYPES)),
        (dst(count="vec", wider=True), addr()), f"{_MOVES}: ldu", (2, 0), 20, _MEMORY_NEEDS, rule=_narrow),
    Row("prefetch", (maybe("space", "global", "local"), one("level", "L1", "L2")), (addr(),), f"{_MOVES}: prefetch",
        (2, 0), 20),
    Row("prefetch", (maybe("space", "global"), one("level", "L2::evict_last", "L2::evict_normal")), (addr(),),
        f"{_MOVES}: prefetch", (7, 4), 80),
    Row("prefetch", (maybe("space", "const", "param"), one("tensormap", "tensormap")), (addr(),),
        f"{_MOVES}: prefetch", (8, 0), 90, unsupported=_BULK),
    Row("prefetchu.L1", (), (addr(),), f"{_MOVES}: prefetchu", (2, 0), 20),
    Row("applypriority", (maybe("space", "global"), one("level", "L2::evict_normal")), (addr(), imm("size", 128, 128)),
        f"{_MOVES}: applypriority", (7, 4), 80),
    Row("discard", (maybe("space", "global"), one("level", "L2")), (addr(), imm("size", 128, 128)),
        f"{_MOVES}: discard", (7, 4), 80),
    Row("createpolicy.fractional", (one("primary", *_EVICT), _SECOND, type_("b64")),
        (dst(name="cache-policy"), src("fraction", "f32", optional=True)), f"{_MOVES}: createpolicy", (7, 4), 80),
    Row("createpolicy.range", (maybe("space", "global"), one("primary", *_EVICT), _SECOND, type_("b64")),
        (dst(name="cache-policy"), addr(), src("primary-size", "u32"), src("total-size", "u32")),
        f"{_MOVES}: createpolicy", (7, 4), 80),
    Row("createpolicy.cvt", (one("level", "L2"), type_("b64")),
        (dst(name="cache-policy"), reg("access-property", "u64")), f"{_MOVES}: createpolicy", (7, 4), 80),
    *_atomics("atom"),
    _atomic("atom", one("op", "exch"), type_("b32", "b64", "b128"), operands=(dst(sink=True), addr(), src("b"))),
    _atomic("atom", one("op", "cas"), type_("b16", "b32", "b64", "b128"),
            operands=(dst(sink=True), addr(), src("b"), src("c"))),
    *_atomics("red"),
    _copy_async("ca", (4, 8, 16)),
    _copy_async("cg", (16,)),
    Row("cp.async.commit_group", (), (), f"{_MOVES}: cp.async.commit_group", (7, 0), 80),
    Row("cp.async.wait_group", (), (imm("N", 0, (1 << 31) - 1),), f"{_MOVES}: cp.async.wait_group", (7, 0), 80),
    Row("cp.async.wait_all", (), (), f"{_MOVES}: cp.async.wait_all", (7, 0), 80),
    _open("cp.async.bulk", _BULK, (8, 0), 90),
    _open("cp.reduce", _BULK, (8, 0), 90),
    _open("cp.async.mbarrier", "mbarrier objects: later release", (7, 0), 80, _SYNC),
    _open("st.async", _BULK, (8, 1), 90),
    _open("st.bulk", _BULK, (8, 6), 100),
    _open("red.async", _BULK, (8, 1), 90, _SYNC),
    _open("multimem", "multicast memory is not modelled", (8, 1), 90),
    _open("tensormap", "tensor maps: later release", (8, 3), 90),
)  # fmt: skip
