"""Floating-point operations in every rounding mode, by setting the CPU's mode."""

import zlib
from collections.abc import Sequence
from functools import cache

from mmulator.base.codegen.ops import bitcast, elements_at, gather, load, select, shuffle
from mmulator.base.codegen.types import Ty, boolean, i32, ptr_to, u16, u32, void
from mmulator.base.codegen.values import WIDE, Builder, Value, constant, mangle

STRICT = f"{WIDE} strictfp"
_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
_DYNAMIC = 'metadata !"round.dynamic", metadata !"fpexcept.ignore"'


def set_rounding(mode: str) -> None:
    """Set the rounding mode of `strict`: rz, rn, rp or rm. Callers must set it back to rn at the end."""
    b = Builder.current()
    b.call("llvm.set.rounding", void, [constant(b, i32, _MODES[mode])])


def strict(operation: str, ty: Ty, *args: Value, attributes: str = "") -> Value:
    """`fadd`, `fsub`, `fmul`, `fdiv`, `fma`, `sqrt`, `fptrunc`, `sitofp` or `uitofp` in the current rounding mode."""
    b = args[0].b
    suffix = mangle(ty) if ty == args[0].ty else f"{mangle(ty)}.{mangle(args[0].ty)}"
    name = f"llvm.experimental.constrained.{operation}.{suffix}"
    types = ", ".join(a.ty.llvm for a in args)
    b.declared[name] = f"declare {ty.llvm} @{name}({types}, metadata, metadata)"
    given = ", ".join(a.typed for a in args)
    return b.emit(ty, f"call {ty.llvm} @{name}({given}, {_DYNAMIC}) {attributes}".rstrip())


def directed(operation: str, mode: str, ty: Ty, *args: Value) -> Value:
    """An operation of `strict` rounded by `mode`.

    Only inside a function with the attributes `STRICT`; the mode is to nearest before and after.
    """
    set_rounding(mode)
    result = strict(operation, ty, *args, attributes="strictfp")
    set_rounding("rn")
    return result


@cache
def has_own_rounding() -> bool:
    """Whether instructions can specify their rounding mode (AVX-512)."""
    from mmulator.base.codegen.engine import has_feature

    return has_feature("avx512f")


_DOWN, _UP, _TO_ZERO = 9, 10, 11  # with no exceptions


def odd_fma(a: Value, c: Value, d: Value) -> Value:
    """a * c + d of f32 lanes (a multiple of 16) rounded to odd, if `has_own_rounding`: toward zero, with the last bit set if
    that was inexact, so that a later rounding to fewer bits gives the same result as a single rounding.
    """
    b, wide, bits = a.b, a.ty.element.vec(16), u32.vec(16)
    parts = []
    for at in range(0, a.ty.lanes, 16):
        sources = [shuffle(v, None, range(at, at + 16)) for v in (a, c, d)]
        down, up, near = (
            b.call("llvm.x86.avx512.vfmadd.ps.512", wide, [*sources, constant(b, i32, mode)]) for mode in (_DOWN, _UP, _TO_ZERO)
        )
        inexact = b.emit(boolean.vec(16), f"fcmp one {down.typed}, {up.text}")
        word = bitcast(bits, near)
        parts.append(bitcast(wide, select(inexact, word | 1, word)))
    while len(parts) > 1:
        parts = [shuffle(x, y, range(2 * x.ty.lanes)) for x, y in zip(parts[::2], parts[1::2])]
    return parts[0]


# lookups -------------------------------------------------------------------------------------------------------------
_WORDS = 16  # 32-bit words of a vector of 512 bits


@cache
def has_permutes() -> bool:
    """Whether the CPU has vpermi2d, which selects one of 32 words for each of 16 lanes."""
    from mmulator.base.codegen.engine import has_feature

    return has_feature("avx512f")


@cache
def has_word_permutes() -> bool:
    """Whether the CPU has vpermi2w, which selects one of 64 words of 16 bits for each of 32 lanes."""
    from mmulator.base.codegen.engine import has_feature

    return has_feature("avx512bw")


def constant_table(name: str, ty: Ty, words: Sequence[int], b: Builder) -> str:
    """The symbol of an array of words. Tables of two devices may be in one module."""
    body = ", ".join(f"{ty.llvm} {w}" for w in words)
    symbol = f"{name}_{zlib.crc32(body.encode()):08x}"
    b.declared[symbol] = f"@{symbol} = private unnamed_addr constant [{len(words)} x {ty.llvm}] [{body}], align 64"
    return symbol


def word_at(words: Value, index: Value) -> Value:
    """words[index] for each of 32 lanes. words: pointer to 32 words. index: u32 x 32, below 32."""
    if not has_permutes():
        return gather(index.ty, elements_at(words, index), constant(index.b, boolean.vec(index.ty.lanes), 1))
    row = u32.vec(_WORDS)
    return _by_parts([load(row, words, 0), load(row, words, _WORDS)], index)


def table_word(name: str, words: Sequence[int], index: Value) -> Value:
    """words[index] as u32 lanes. index: u32 lanes; bits above those that number the words are ignored."""
    b: Builder = index.b
    lanes = index.ty.lanes
    if not (has_permutes() and lanes % _WORDS == 0 and len(words) in (32, 64, 128)):
        symbol = constant_table(name, u32, words, b)
        at = b.emit(ptr_to(u32).vec(lanes), f"getelementptr i32, ptr @{symbol}, {(index & len(words) - 1).typed}")
        return gather(index.ty, at, constant(b, boolean.vec(lanes), 1))
    row = u32.vec(_WORDS)
    # an address that LLVM does not see through: each vector of a constant that it knows is reached by 64 bits of code
    base = b.emit(ptr_to(row), f'call ptr asm "", "=r,0"(ptr @{constant_table(name, u32, words, b)})')
    vectors = [load(row, base, n, 64) for n in range(len(words) // _WORDS)]
    return _by_parts(vectors, index)


def half_word(name: str, columns: Sequence[Sequence[int]], index: Value) -> list[Value]:
    """For each column the word at `index`, by permutations of words. Columns have 64 or 128 words of 16 bits; index: u16 x 32,
    where bits above those that number the words are ignored.
    """
    b, ty = index.b, index.ty
    words = [w & 0xFFFF for column in columns for w in column]
    base = b.emit(ptr_to(ty), f'call ptr asm "", "=r,0"(ptr @{constant_table(name, u16, words, b)})')
    found = []
    upper = (index & 64) != 0
    for start in range(0, len(words), len(columns[0])):
        vectors = [load(ty, base, (start + at) // ty.lanes, 64) for at in range(0, len(columns[0]), ty.lanes)]
        pairs = zip(vectors[::2], vectors[1::2])
        halves = [b.call("llvm.x86.avx512.vpermi2var.hi.512", ty, [low, index, high]) for low, high in pairs]
        found.append(select(upper, halves[1], halves[0]) if len(halves) == 2 else halves[0])
    return found


def _by_parts(vectors: list[Value], index: Value) -> Value:
    """The words for 16 lanes at a time."""
    starts = range(0, index.ty.lanes, _WORDS)
    parts = [_permuted(vectors, shuffle(index, None, range(at, at + _WORDS))) for at in starts]
    while len(parts) > 1:
        parts = [shuffle(a, c, range(2 * a.ty.lanes)) for a, c in zip(parts[::2], parts[1::2])]
    return parts[0]


def _permuted(vectors: list[Value], index: Value) -> Value:
    """The words for 16 lanes: one of each 32 by a permutation, and one of these by the higher bits of the index."""
    b, ty = index.b, index.ty
    found = [b.call("llvm.x86.avx512.vpermi2var.d.512", ty, [low, index, high]) for low, high in zip(vectors[::2], vectors[1::2])]
    bit = 2 * _WORDS
    while len(found) > 1:
        upper = (index & bit) != 0
        found = [select(upper, c, a) for a, c in zip(found[::2], found[1::2])]
        bit *= 2
    return found[0]
