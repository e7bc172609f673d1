# mypy: disable-error-code="valid-type, arg-type, index, operator"
"""CUDA's random numbers, compiled: Philox4x32-10, and the conversions of cuRAND and torch.

A kernel of torch is a grid of threads. Each thread has a sequence of its own, takes four words of 32 bits at a time, and gives
the numbers that these make to elements that are one grid apart: number n of round r of thread t is element
(r * EACH[kind] + n) * width + t. tests/support/philox.py says the same in NumPy.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.loading import address
from mmulator.base.codegen.ops import bitcast, cast_ptr, ceil, fma, iota, masked_store, select, sqrt, store
from mmulator.base.codegen.types import Ty, f16, f32, f64, i32, i64, ptr, u16, u32, u64
from mmulator.base.codegen.values import Value, constant, splat
from mmulator.base.floating import in_plain_floats
from mmulator.isa.targets import DEVICES
from mmulator.matrix.numerics.sfu.arithmetic import INVERSE_TWO_PI
from mmulator.matrix.numerics.sfu.tables import Tables, tables_for
from mmulator.matrix.twin.sfu import vector
from mmulator.matrix.twin.sfu.short import lanes, to
from mmulator.matrix.twin.threads import split

LANES = 32
LEAST = 512  # groups of so many threads of the GPU, which are worth a thread of the host
LOW = 0xFFFFFFFF
LN2 = 0.693147182464599609375  # of f32
_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_TWO_PI = 0x30C90FDB  # f32(2.3283064e-10) * f32(6.2831855), over 2**32
_LOG = (0xBE055027, 0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9, 0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000)
Words = Sequence[Value]


def philox(seed: Value, place: Value, sequence: Value) -> Words:
    """Four words of each sequence, in u64 lanes of which the upper halves hold anything.

    seed: of the generator.
    place: counted in fours.
    sequence: numbers of the sequences, u64 lanes below 2**32.
    """
    k0, k1 = seed & LOW, seed >> 32
    c0, c1, c2, c3 = place & LOW, place >> 32, sequence, constant(seed.b, sequence.ty, 0)
    for _ in range(10):
        a, b = ((c & LOW) * m for c, m in zip((c0, c2), _MULTIPLIERS))
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b, (a >> 32) ^ c3 ^ k1, a
        k0, k1 = k0 + _WEYL[0] & LOW, k1 + _WEYL[1] & LOW
    return c0, c1, c2, c3


def _float(like: Value, bits: int) -> Value:
    """A number of f32, given by its bits, in all lanes."""
    return bitcast(lanes(f32, like), constant(like.b, lanes(u32, like), bits))


def _uniform32(word: Value) -> Value:
    """Numbers above 0, up to 1, of f32."""
    return to(f32, to(u32, word)) * 2.0**-32 + 2.0**-33


def _uniform64(low: Value, high: Value) -> Value:
    """Numbers above 0, up to 1, of f64: of 53 bits."""
    return to(f64, (low & LOW) ^ (high & LOW) << 21) * 2.0**-53 + 2.0**-54


def _log(x: Value) -> Value:
    """logf of normal numbers: its polynomial."""
    bits = bitcast(lanes(i32, x), x)
    exponent = (bits - 0x3F2AAAAB) & -0x800000
    m = bitcast(x.ty, bits - exponent) - 1.0
    total = _float(x, _LOG[0])
    for c in _LOG[1:]:
        total = fma(total, m, _float(x, c))
    total = fma(m * total, m, m)
    return fma(to(f32, exponent) * 2.0**-23, LN2, total)


def _lg2(x: Value, tables: Tables) -> Value:
    """Natural logarithms by lg2.approx."""
    return bitcast(x.ty, vector.lg2(bitcast(lanes(u32, x), x), tables)) * LN2


def _pair(first: Value, second: Value, tables: Tables) -> Words:
    """Two numbers of the standard normal distribution of two words, by Box and Muller."""
    radius = sqrt(_log(_uniform32(first)) * -2.0) * 2.0**-vector.SINE_SCALE
    step = _float(second, _TWO_PI)
    angle = fma(to(f32, to(u32, second)), step, step * 0.5)
    # sin.approx and cos.approx: the angle in turns toward zero, in units of 2**-25
    product = to(f64, angle) * (to(f64, _float(second, INVERSE_TWO_PI)) * 2.0**25)
    turns = to(u32, bitcast(product.ty, bitcast(lanes(u64, product), product) & ~0x1FFFFFFF))
    return [vector.sine_of_turns(turns + (n << 23), tables) * radius for n in (0, 1)]


def _normal(words: Words, tables: Tables, a: Value, b: Value, c: Value) -> Words:
    """`a` times numbers of the standard normal distribution, plus `b`."""
    return [fma(x, a, b) for n in (0, 2) for x in _pair(words[n], words[n + 1], tables)]


def _exponential(words: Words, tables: Tables, a: Value, b: Value, c: Value) -> Words:
    """`a` times the logarithm of uniform numbers, which is not 0."""
    uniform = [_uniform32(w) for w in words]
    return [select(u >= 1.0 - 2.0**-24, -(2.0**-24), _lg2(u, tables)) * a for u in uniform]


def _geometric(words: Words, tables: Tables, a: Value, b: Value, c: Value) -> Words:
    """Numbers of trials until one succeeds. a: chance of a failure."""
    failure = _lg2(splat(a, LANES), tables)
    return [ceil(_lg2(_uniform32(w), tables) / failure) for w in words]


Make = Callable[[Words, Tables, Value, Value, Value], Words]
# kind: (type of a number, whether it depends on the chip, what makes numbers of four words and three numbers of the caller).
KINDS: dict[str, tuple[Ty, bool, Make]] = {
    "words32": (u32, False, lambda words, *_: [to(u32, w) for w in words]),
    "words64": (u64, False, lambda words, *_: [words[0] << 32 | words[1] & LOW, words[2] << 32 | words[3] & LOW]),
    "uniform64": (f64, False, lambda words, *_: [_uniform64(*words[:2]), _uniform64(*words[2:])]),
    # between two bounds, b and c, whose difference is a
    "uniform32": (f32, False, lambda words, _, a, b, c: [fma(_uniform32(w), a, b) for w in words]),
    "normal": (f32, True, _normal),
    "exponential": (f32, True, _exponential),
    "geometric": (f32, True, _geometric),
}
DTYPES = {kind: f"{'f' if ty.kind == 'float' else 'u'}{ty.size}" for kind, (ty, _, _) in KINDS.items()}  # of NumPy
EACH = {kind: 4 if ty.bits == 32 else 2 for kind, (ty, _, _) in KINDS.items()}  # numbers of four words


def _bfloat16(x: Value) -> Value:
    bits = bitcast(lanes(u32, x), x)
    return to(u16, bits + (bits >> 16 & 1) + 0x7FFF >> 16)


# The type as which f32 is stored: (type in memory, rounding to it, back).
STORED: dict[str, tuple[Ty, Callable[[Value], Value], Callable[[Value], Value]]] = {
    "float16": (f16, lambda x: to(f16, x), lambda h: to(f32, h)),
    "bfloat16": (u16, _bfloat16, lambda h: bitcast(lanes(f32, h), to(u32, h) << 16)),
}


@cache
def function(kind: str, stored: str, tables: Tables) -> Native:
    """A function that writes what groups of LANES threads draw.

    kind: of KINDS.
    stored: name of a type of STORED, or nothing.
    tables: of the special-function unit.
    """
    ty, depends, make = KINDS[kind]
    memory, narrow, wide = STORED.get(stored, (ty, lambda x: x, lambda x: x))
    each = EACH[kind]

    def made(words: Words, a: Value, b: Value, c: Value) -> Words:
        found = [narrow(x) for x in make(words, tables, a, b, c)]
        if kind == "uniform32":  # the bound that is left out is the upper one
            found = [narrow(select(wide(x) == c, b, wide(x))) for x in found]
        return found

    def draw(out: ptr, seed: u64, place: u64, width: i64, count: i64, first: i64, last: i64, a: f32, b: f32, c: f32) -> None:
        target = cast_ptr(memory, out)
        groups = width // LANES
        for group in range(first, last):
            r = group // groups
            thread = (group - r * groups) * LANES
            start = r * each * width + thread
            if start < count:
                words = philox(seed, place + u64(r), iota(u64.vec(LANES)) + u64(thread))
                if start + width < count:
                    numbers = made(words, a, b, c)
                    for n in unrolled(each):
                        at = start + n * width
                        if at + LANES <= count:
                            store(numbers[n], target, at)
                        elif at < count:
                            masked_store(numbers[n], target + at, iota(i64.vec(LANES)) < count - at)
                else:  # a small tensor, or the end of one: of each thread's numbers the first
                    number = made(words, a, b, c)[0]
                    if start + LANES <= count:
                        store(number, target, start)
                    else:
                        masked_store(number, target + start, iota(i64.vec(LANES)) < count - start)

    return Native(draw, f"philox_{kind}{stored and '_' + stored}{'_' + tables.device if depends else ''}")


def every() -> list[Native]:
    """All functions, for all chips."""
    chips = {tables.device: tables for tables, _ in map(tables_for, DEVICES)}
    kinds = [(kind, stored) for kind, (ty, _, _) in KINDS.items() for stored in ("", *(STORED if ty is f32 else ()))]
    found = [function(*kind, tables) for kind in kinds for tables in chips.values()]
    return [*{one.name: one for one in found}.values()]


_CALL: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_uint64] * 2, *[ctypes.c_int64] * 4, *[ctypes.c_float] * 3)


@cache
def _callable(kind: str, stored: str, tables: Tables) -> Callable[..., None]:
    call: Callable[..., None] = _CALL(address(function(kind, stored, tables)))
    return call


@in_plain_floats
def fill(
    out: int, count: int, kind: str, seed: int, place: int, width: int, device: str, numbers: tuple[float, float, float],
    stored: str = "", threads: int = 1,
) -> None:  # fmt: skip
    """Write random numbers into memory.

    out: address of the first.
    count: how many.
    kind: of KINDS.
    seed, place: of the generator; place is counted in fours.
    width: threads of the grid, a multiple of LANES.
    device: name of the chip.
    numbers: a, b and c of the kind.
    stored: name of the type in memory, if it is one of STORED.
    threads: most threads of the host.
    """
    draw = _callable(kind, stored, tables_for(device)[0])
    groups = -(-count // (width * EACH[kind])) * (width // LANES)

    def part(first: int, size: int) -> None:
        draw(out, seed, place, width, count, first, first + size, *numbers)

    split(part, groups, min(threads, groups // LEAST))
