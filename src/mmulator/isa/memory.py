"""Data Movement and Conversion Instructions (PTX ISA 9.1, 9.4) on memory and caches: ld, st, ldu, prefetch and others."""

from collections.abc import Mapping

from mmulator.isa.effects import ACTS, Effects, Flow, MemoryEffect, Ptxas, Stored
from mmulator.isa.pieces import (
    CACHE_HINT,
    MEMORY_TYPES,
    MOVES,
    POLICY,
    SCOPE,
    addr,
    dst,
    imm,
    maybe,
    need,
    one,
    reg,
    row,
    src,
    type_,
)
from mmulator.isa.row import OperandSpec, Row, Slot
from mmulator.isa.types import type_bits

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
    """The error of modifiers of ld and st that exclude or require each other; None if they are legal."""
    sem, space = m.get("sem", "weak"), m.get("space", "")
    if sem in ("relaxed", "acquire", "release") and "scope" not in m:
        return f".{sem} needs a scope: .cta, .cluster, .gpu or .sys"
    if "scope" in m and sem in ("weak", "volatile"):
        return f".{m['scope']} needs a memory order such as .relaxed"
    refused = ("const", "param") if sem == "volatile" else ("local", "const", "param")  # nvcc has .volatile.local, ptxas takes it
    if sem != "weak" and space.partition("::")[0] in refused:
        return f".{sem} cannot access .{space}"
    if "mmio" in m and (sem != "relaxed" or m.get("scope") != "sys"):
        return ".mmio needs .relaxed.sys"
    if "mmio" in m and space not in ("", "global"):
        return f".mmio cannot access .{space}"
    if "cop" in m and (sem != "weak" or "L1" in m or "L2" in m):
        return f".{m['cop']} cannot stand with " + (f".{sem}" if sem != "weak" else "an eviction priority")
    if "nc" in m and m.get("cop") in ("lu", "cv"):
        return f".nc cannot stand with .{m['cop']}"
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
    """The error of an access of more than 128 bits, for rows of every target."""
    return f".{m['vec']}.{m['type']} is {_bits(m)} bits wide; at most 128 are allowed" if _bits(m) > 128 else None


def _access(m: Mapping[str, str]) -> str | None:
    return _order(m) or _narrow(m)


def _wide(m: Mapping[str, str]) -> str | None:
    """The error of an access that does not have 256 bits of a type of sm_100."""
    if _bits(m) != 256 or type_bits(m["type"]) not in (32, 64):
        return f".{m['vec']}.{m['type']} is {_bits(m)} bits wide; .v8 of 32 and .v4 of 64 bits are 256"
    if m.get("space", "global") != "global":
        return f"256 bits need .global, not .{m['space']}"
    return _order(m)


_LOADS = Effects(memory=MemoryEffect.READ, ptxas=Ptxas.GUARDED, counted_as="memory", flow=Flow.LOADED)
_STORES = ACTS.but(memory=MemoryEffect.WRITE, counted_as="memory", stored=Stored.VALUES)
_PREFETCHES = ACTS.but(memory=MemoryEffect.READ, counted_as="memory", hints=True)
_HINTS = ACTS.but(memory=MemoryEffect.READ, hints=True)


def _memory(name: str, *slots: Slot, operands: tuple[OperandSpec, ...], effects: Effects) -> tuple[Row, Row]:
    """Rows of accesses of up to 128 bits, and of 256 bits."""
    section = f"{MOVES}: {name}"
    wide = tuple(one("vec", "v4", "v8") if g.name == "vec" else g for g in slots)
    return (
        row(name, slots, operands, section, (1, 0), 0, _MEMORY_NEEDS, rule=_access, effects=effects),
        row(name, wide, operands, section, (8, 8), 100, _MEMORY_NEEDS, rule=_wide, effects=effects),
    )


_LD = _memory(
    "ld",
    maybe("mmio"), maybe("sem", "weak", "volatile", "relaxed", "acquire"), SCOPE, maybe("space", *_LOAD_SPACES),
    maybe("cop", "ca", "cg", "cs", "lu", "cv"), maybe("nc"), _L1, _L2, CACHE_HINT, _PREFETCH, _VEC,
    type_(*MEMORY_TYPES),
    operands=(dst(per="vec", wider=True), addr(), POLICY), effects=_LOADS.where("volatile", pure=False).where("nc", steady=True),
)  # fmt: skip
# Since 9.3 memory-mapped registers have acquire and release too.
_LD_MMIO, _ST_MMIO = (
    row(
        name, (one("mmio"), one("sem", sem), one("scope", "sys"), maybe("space", "global"),
               type_(*(t for t in MEMORY_TYPES if t != "b128"))), operands, f"{MOVES}: {name}", (9, 3), 70,
        effects=effects,
    )
    for name, sem, operands, effects in (
        ("ld", "acquire", (dst(wider=True), addr()), _LOADS), ("st", "release", (addr(), src("b", wider=True)), _STORES),
    )
)  # fmt: skip
_ST = _memory(
    "st",
    maybe("mmio"), maybe("sem", "weak", "volatile", "relaxed", "release"), SCOPE, maybe("space", *_STORE_SPACES),
    maybe("cop", "wb", "cg", "cs", "wt"), _L1, _L2, CACHE_HINT, _VEC, type_(*MEMORY_TYPES),
    operands=(addr(), src("b", per="vec", wider=True), POLICY), effects=_STORES,
)  # fmt: skip

_EVICT = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")
_SECOND = maybe("secondary", "L2::evict_first", "L2::evict_unchanged")

ROWS: tuple[Row, ...] = (
    *_LD,
    _LD_MMIO,
    row("ld.proxy::readonly", (maybe("space", "global"), maybe("nc"), _VEC, type_(*(t for t in MEMORY_TYPES if t != "b128"))),
        (dst(per="vec", wider=True), addr()), f"{MOVES}: ld", (9, 4), 90, rule=_access, free=True,
        effects=_LOADS.but(steady=True)),
    *_ST,
    _ST_MMIO,
    row("ldu", (maybe("space", "global"), maybe("vec", "v2", "v4"), type_(*MEMORY_TYPES)),
        (dst(per="vec", wider=True), addr()), f"{MOVES}: ldu", (2, 0), 20, _MEMORY_NEEDS, rule=_narrow,
        effects=_LOADS.but(steady=True)),
    row("prefetch", (maybe("space", "global", "local"), one("level", "L1", "L2")), (addr(),), f"{MOVES}: prefetch",
        (2, 0), 20, effects=_PREFETCHES),
    row("prefetch", (maybe("space", "global"), one("level", "L2::evict_last", "L2::evict_normal")), (addr(),),
        f"{MOVES}: prefetch", (7, 4), 80, effects=_PREFETCHES),
    row("prefetch", (maybe("space", "global"), one("level", "L1::32B"), one("valid", "valid_addr")), (addr(),),
        f"{MOVES}: prefetch", (9, 4), 90, effects=_PREFETCHES),
    row("prefetch", (maybe("space", "const", "param"), one("tensormap")), (addr(),),
        f"{MOVES}: prefetch", (8, 0), 90, effects=_PREFETCHES),
    row("prefetchu.L1", (), (addr(),), f"{MOVES}: prefetchu", (2, 0), 20, effects=_PREFETCHES),
    row("applypriority", (maybe("space", "global"), one("level", "L2::evict_normal")), (addr(), imm("size", 128, 128)),
        f"{MOVES}: applypriority", (7, 4), 80, effects=_HINTS),
    row("discard", (maybe("space", "global"), one("level", "L2")), (addr(), imm("size", 128, 128)),
        f"{MOVES}: discard", (7, 4), 80,
        effects=ACTS.but(memory=MemoryEffect.WRITE, hints=True, chooses="leaves bytes that nobody knows")),
    row("createpolicy.fractional", (one("primary", *_EVICT), _SECOND, type_("b64")),
        (dst(name="cache-policy"), src("fraction", "f32", optional=True)), f"{MOVES}: createpolicy", (7, 4), 80),
    row("createpolicy.range", (maybe("space", "global"), one("primary", *_EVICT), _SECOND, type_("b64")),
        (dst(name="cache-policy"), addr(), src("primary-size", "u32"), src("total-size", "u32")),
        f"{MOVES}: createpolicy", (7, 4), 80, effects=Effects(hints=True)),
    row("createpolicy.cvt", (one("level", "L2"), type_("b64")),
        (dst(name="cache-policy"), reg("access-property", "u64")), f"{MOVES}: createpolicy", (7, 4), 80),
)  # fmt: skip
