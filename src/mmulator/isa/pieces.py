"""The parts of rows: common slots, operands and signatures."""

from collections.abc import Callable, Mapping
from typing import Any

from mmulator.isa.effects import ACTS, LANEWISE, Algebra, Effects, MemoryEffect, Queue, Step
from mmulator.isa.row import BLACKWELL, RUNS, Need, OperandSpec, Requirement, Row, Section, Slot, Status

# Types, as the specification slots them
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


MOVES = "Data Movement and Conversion Instructions"
SYNC = "Parallel Synchronization and Communication Instructions"


def row(
    name: str,
    slots: tuple[Slot, ...],
    operands: tuple[OperandSpec, ...],
    section: str,
    ptx: tuple[int, int] = (1, 0),
    sm: int = 0,
    needs: tuple[Need, ...] = (),
    *,
    rule: Callable[[Mapping[str, str]], str | None] | None = None,
    specific: bool = False,
    chip: bool = False,
    families: tuple[int, ...] = (),
    chips: tuple[int, ...] = (),
    unsupported: str = "",
    open: bool = False,
    leading: str = "",
    free: bool = False,
    effects: Effects = LANEWISE,
) -> Row:
    """A row of the table.

    name, slots, operands, needs, rule, open, leading, free, effects: as in `Row`.
    section: title of the section.
    ptx, sm: the least PTX version and target.
    specific: whether it needs a target with suffix `a` or `f`.
    chip: whether it needs a target with suffix `a`.
    families: the least target of each family that has it.
    chips: the numbers of the chips that have it.
    unsupported: why the machine does not run it; "" if it does.
    """
    requires = Requirement(ptx, sm, "a" if chip or chips else "af" if specific else "", families, chips)
    status = Status("not modelled", unsupported) if unsupported else BLACKWELL if min(families, default=sm) >= 100 else RUNS
    return Row(name, slots, operands, Section(section), requires, needs, rule, status, open, leading, free, effects)


def chapter(title: str, **usual: Any) -> Callable[..., Row]:
    """A function that makes the rows of a chapter: `make(name, *slots, operands=..., effects=...)`, with all that `row` takes.

    usual: what its rows have that do not say otherwise.
    """

    def make(name: str, *slots: Slot, **more: Any) -> Row:
        return row(name, slots, section=f"{title}: {name}", **{"operands": (), **usual, **more})

    return make


def later(names: str, reason: str, chapter: str, ptx: tuple[int, int] = (1, 0), sm: int = 0) -> tuple[Row, ...]:
    """Rows of instructions that are recognised but not modelled, by their opcodes; modifiers and operands are arbitrary."""
    return tuple(
        row(name, (), (), f"{chapter}: {name}", ptx, sm, unsupported=reason, open=True, effects=ACTS) for name in names.split()
    )


def one(name: str, *alternatives: str) -> Slot:
    """A slot that must have one of these modifiers; without alternatives, the modifier with the slot's name."""
    return Slot(name, alternatives or (name,))


def maybe(name: str, *alternatives: str) -> Slot:
    """A slot that may have one of these modifiers; without alternatives, a flag with the slot's name."""
    return Slot(name, alternatives or (name,), True)


def type_(*alternatives: str) -> Slot:
    return Slot("type", alternatives)


FTZ = maybe("ftz")
SAT = maybe("sat")
RND = maybe("rnd", "rn", "rz", "rm", "rp")
RND_REQUIRED = one("rnd", "rn", "rz", "rm", "rp")
RN = maybe("rnd", "rn")
RN_REQUIRED = one("rnd", "rn")
APPROX = one("approx")
SCOPE = maybe("scope", "cta", "cluster", "gpu", "sys")
CACHE_HINT = maybe("hint", "L2::cache_hint")

# What ptxas fuses and folds, and its names.
ARITHMETIC = (
    ("add", Effects(algebra=Algebra.SUM)),
    ("sub", Effects(algebra=Algebra.DIFFERENCE)),
    ("mul", Effects(algebra=Algebra.PRODUCT)),
)
FUSED = Effects(algebra=Algebra.FUSED)
SIGNS = (("abs", Effects(algebra=Algebra.MAGNITUDE)), ("neg", Effects(algebra=Algebra.NEGATION)))

BF16_NEEDS = (Need("bf16", (7, 8), 90), Need("bf16x2", (7, 8), 90))


def need(modifiers: str, ptx: tuple[int, int], sm: int) -> tuple[Need, ...]:
    """Requirements of modifiers: `need("bf16 bf16x2", (7, 8), 90)`."""
    return tuple(Need(m, ptx, sm) for m in modifiers.split())


# Operands


def dst(type: str = "type", name: str = "d", **more: Any) -> OperandSpec:
    return OperandSpec(name, "dst", type, "w", **more)


def src(name: str, type: str = "type", **more: Any) -> OperandSpec:
    return OperandSpec(name, "src", type, **more)


def reg(name: str, type: str = "type", **more: Any) -> OperandSpec:
    return OperandSpec(name, "reg", type, **more)


def imm(name: str, lo: int | None = None, hi: int | None = None, **more: Any) -> OperandSpec:
    return OperandSpec(name, "imm", "u32", lo=lo, hi=hi, **more)


def pred(name: str, **more: Any) -> OperandSpec:
    return OperandSpec(name, "pred", "pred", **more)


def addr(name: str = "a", **more: Any) -> OperandSpec:
    return OperandSpec(name, "addr", "u64", **more)


POLICY = src("cache-policy", "u64", when="hint")
SINK = OperandSpec("_", "sink", access="w")

# What bulk copies end in, and operands of theirs.
COMPLETE_TX = one("completion", "mbarrier::complete_tx::bytes")
BULK_COPIES = ACTS.but(memory=MemoryEffect.COPY, queue=Queue.BULK, step=Step.ISSUE, counted_as="bulk")
BULK_PREFETCHES = ACTS.but(memory=MemoryEffect.READ, counted_as="bulk")
BULK_SIZE = src("size", "u32", values=range(0, 1 << 20, 16))
BULK_GROUP = one("completion", "bulk_group")
MULTICAST = maybe("multicast", "multicast::cluster", "multicast::cluster::16b")
MULTICAST_NEEDS = (Need("multicast::cluster::16b", (9, 4), 90),)  # the mask has 16 bits without it, too
MBARRIER = addr("mbar", space="shared")
CTA_MASK = src("ctaMask", "u16", lo=0, hi=0xFFFF, when="multicast")

D_A = (dst(), src("a"))
D_A_B = (dst(), src("a"), src("b"))
D_A_B_C = (dst(), src("a"), src("b"), src("c"))
