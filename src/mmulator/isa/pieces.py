"""What the rows of the scalar tables are made of: groups of modifiers, operands, and usual signatures."""

from __future__ import annotations

from mmulator.isa.scalar import Group, Need, OperandRule

# Types, as the specification groups them
U16_64 = ("u16", "u32", "u64")
S16_64 = ("s16", "s32", "s64")
INT16_64 = (*U16_64, *S16_64)
INT32_64 = ("u32", "u64", "s32", "s64")
INT32 = ("u32", "s32")
BITS16_64 = ("b16", "b32", "b64")
BITS32_64 = ("b32", "b64")
F16 = ("f16", "f16x2")
BF16 = ("bf16", "bf16x2")
MEMORY_TYPES = (
    "b8", "b16", "b32", "b64", "b128", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f32", "f64",
)  # fmt: skip


def one(name: str, *alternatives: str) -> Group:
    """One of these modifiers must stand."""
    return Group(name, alternatives)


def maybe(name: str, *alternatives: str) -> Group:
    """One of these modifiers may stand; a flag of that name if none is given."""
    return Group(name, alternatives or (name,), True)


def type_(*alternatives: str) -> Group:
    return Group("type", alternatives)


FTZ = maybe("ftz")
SAT = maybe("sat")
RND = maybe("rnd", "rn", "rz", "rm", "rp")
RND_REQUIRED = one("rnd", "rn", "rz", "rm", "rp")
RN = maybe("rnd", "rn")
RN_REQUIRED = one("rnd", "rn")
APPROX = one("approx", "approx")
SCOPE = maybe("scope", "cta", "cluster", "gpu", "sys")
CACHE_HINT = maybe("hint", "L2::cache_hint")

BF16_NEEDS = (Need("bf16", (7, 8), 90), Need("bf16x2", (7, 8), 90))


def need(modifiers: str, ptx: tuple[int, int], sm: int) -> tuple[Need, ...]:
    """`need("bf16 bf16x2", (7, 8), 90)`."""
    return tuple(Need(m, ptx, sm) for m in modifiers.split())


# Operands


def dst(type: str = "type", name: str = "d", **more: object) -> OperandRule:
    return OperandRule(name, "dst", type, "w", **more)  # type: ignore[arg-type]


def src(name: str, type: str = "type", **more: object) -> OperandRule:
    return OperandRule(name, "src", type, **more)  # type: ignore[arg-type]


def reg(name: str, type: str = "type", **more: object) -> OperandRule:
    return OperandRule(name, "reg", type, **more)  # type: ignore[arg-type]


def imm(name: str, lo: int | None = None, hi: int | None = None, **more: object) -> OperandRule:
    return OperandRule(name, "imm", "u32", lo=lo, hi=hi, **more)  # type: ignore[arg-type]


def pred(name: str, **more: object) -> OperandRule:
    return OperandRule(name, "pred", "pred", **more)  # type: ignore[arg-type]


def addr(name: str = "a", **more: object) -> OperandRule:
    return OperandRule(name, "addr", "u64", **more)  # type: ignore[arg-type]


POLICY = OperandRule("cache-policy", "reg", "b64", when="hint")

D_A = (dst(), src("a"))
D_A_B = (dst(), src("a"), src("b"))
D_A_B_C = (dst(), src("a"), src("b"), src("c"))
