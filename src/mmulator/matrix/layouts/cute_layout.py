"""CuTe layouts as text: read, evaluate, print.

`shape:stride` with nested shapes, perhaps behind a swizzle: `Sw<3,4,3> o smem_ptr[16b](0x0) o ((8,8),64):((64,512),1)`
as CuTe prints it, `Swizzle<1,4,3> o ((8,2),(4,4)):((8,64),(1,4))` as Canonical Layouts (PTX ISA 9.1) writes it, the atoms
that CUTLASS names (`Layout_K_SW128_Atom<half_t>`), and `tile_to_shape` of such an atom. A mode counts its elements with
the first sub-mode fastest; the offset is the sum of index times stride over all sub-modes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError
from mmulator.base.source import Source, Span

IntTuple = int | tuple["IntTuple", ...]
FORMS = (
    "forms: Sw<3,4,3> o smem_ptr o ((8,8),64):((64,512),1), ((8,2),(4,4)):((4,32),(1,64)), Layout_K_SW128_Atom<half_t>, "
    "tile_to_shape(Layout_K_SW128_Atom<half_t>, (128,64))"
)


@dataclass(frozen=True)
class Leaf:
    """A sub-mode: `path` leads to it (`0.1`: the second of the first mode); `step` is the count of the mode's elements
    before its index grows by one."""

    path: str
    size: int
    stride: int
    step: int

    def __str__(self) -> str:
        return f"mode {self.path} ({self.size}:{self.stride})"


@dataclass(frozen=True)
class CuteSwizzle:
    """Swizzle<bits, base, shift>: XOR `bits` bits from `base` up with those `shift` higher."""

    bits: int
    base: int
    shift: int

    def __call__(self, x: Any) -> Any:
        if self.shift < 0:
            return x ^ ((x & (((1 << self.bits) - 1) << self.base)) << -self.shift)
        return x ^ ((x >> self.shift) & (((1 << self.bits) - 1) << self.base))

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@dataclass(frozen=True)
class CuteLayout:
    """A layout whose first mode is M or N, its second K, others stages.

    shape, stride: modes, perhaps nested.
    swizzle: or None.
    on_address: the swizzle acts on the byte address (`smem_ptr`, and the notation of the PTX ISA) rather than on the offset in
        the
    layout's own units (`Sw<..> o 0 o ..`, or a base other than 4 without `smem_ptr`).
    unit_bits: bits of one unit of the strides where the text says so, else 0.
    offset: added before the swizzle, in units.
    pointer: shared address of the first element where the text says it, else None.
    """

    shape: tuple[IntTuple, ...]
    stride: tuple[IntTuple, ...]
    swizzle: CuteSwizzle | None = None
    on_address: bool = True
    unit_bits: int = 0
    offset: int = 0
    pointer: int | None = None

    @classmethod
    def parse(cls, text: str) -> CuteLayout:
        """The layout of a text. Raises OperandError, with a caret, for a text in none of the known forms."""
        return _LayoutReader(text).layout()

    def __str__(self) -> str:
        plain = f"{show(self.shape)}:{show(self.stride)}"
        unit = f"[{self.unit_bits}b]" * bool(self.unit_bits) + f"({self.pointer or 0:#x})" * bool(self.unit_bits or self.pointer)
        if self.swizzle is None:
            return f"smem_ptr{unit} o {plain}" if self.pointer else plain
        if not self.on_address:
            return f"{self.swizzle} o {self.offset} o {plain}"
        return f"{self.swizzle} o smem_ptr{unit} o {plain}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each mode."""
        return tuple(size(s) for s in self.shape)

    def leaves(self, mode: int) -> tuple[Leaf, ...]:
        """The sub-modes of a mode, fastest first."""
        out: list[Leaf] = []
        step = 1
        for path, extent, stride in _flat(self.shape[mode], self.stride[mode], str(mode)):
            out.append(Leaf(path, extent, stride, step))
            step *= extent
        return tuple(out)

    def offsets(self, *coordinates: Any) -> NDArray[np.int64]:
        """Offsets in units, before the swizzle, of coordinates of each mode (arrays broadcast); missing ones are 0."""
        total = np.asarray(self.offset, np.int64)
        for mode, coordinate in enumerate(coordinates):
            c = np.asarray(coordinate, np.int64)
            for leaf in self.leaves(mode):
                total = total + c // leaf.step % leaf.size * leaf.stride
        return total

    def upcast(self, factor: int) -> CuteLayout:
        """The layout in units `factor` times as large. Raises OperandError where a stride is no whole number of them."""
        if factor == 1:
            return self
        shapes, strides = zip(*(_upcast(s, d, factor, str(i)) for i, (s, d) in enumerate(zip(self.shape, self.stride))))
        swizzle = self.swizzle
        if swizzle and swizzle.bits and not self.on_address:
            swizzle = replace(swizzle, base=swizzle.base - factor.bit_length() + 1)
        if self.offset % factor or (swizzle and swizzle.base < 0):
            raise OperandError(f"{self} moves parts of elements of {factor} units")
        unit_bits, offset = self.unit_bits * factor, self.offset // factor
        return replace(self, shape=shapes, stride=strides, swizzle=swizzle, unit_bits=unit_bits, offset=offset)


def size(shape: IntTuple) -> int:
    return prod(map(size, shape)) if isinstance(shape, tuple) else shape


def show(value: IntTuple) -> str:
    """A nested tuple as CuTe prints it."""
    return f"({','.join(map(show, value))})" if isinstance(value, tuple) else str(value)


def _flat(shape: IntTuple, stride: IntTuple, path: str) -> Iterator[tuple[str, int, int]]:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        for i, (s, d) in enumerate(zip(shape, stride)):
            yield from _flat(s, d, f"{path}.{i}")
    elif isinstance(shape, int) and isinstance(stride, int):
        yield path, shape, stride


def _upcast(shape: IntTuple, stride: IntTuple, factor: int, path: str) -> tuple[IntTuple, IntTuple]:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        both = [_upcast(s, d, factor, f"{path}.{i}") for i, (s, d) in enumerate(zip(shape, stride))]
        return tuple(s for s, _ in both), tuple(d for _, d in both)
    assert isinstance(shape, int) and isinstance(stride, int)
    if stride % factor == 0 or shape == 1:
        return shape, stride // factor
    if factor % stride == 0 and shape % (factor // stride) == 0:
        return shape // (factor // stride), 1
    raise OperandError(
        f"mode {path} ({shape}:{stride}) does not hold whole elements of {factor} units",
        hint="strides count elements of the operand's type; --units bytes or bits says otherwise",
    )


# Atoms that CUTLASS names (include/cute/atom/mma_traits_sm90_gmma.hpp), in bits: width of a row in bits.
_ATOMS = {"INTER": (0, 128), "SW32": (1, 256), "SW64": (2, 512), "SW128": (3, 1024)}
_TYPE_BITS = {
    "half_t": 16, "bfloat16_t": 16, "tfloat32_t": 32, "float": 32, "float_e4m3_t": 8, "float_e5m2_t": 8, "int8_t": 8,
    "uint8_t": 8, "uint1b_t": 1, "f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1,
    "half": 16, "__half": 16, "__nv_bfloat16": 16, "nv_bfloat16": 16, "__nv_fp8_e4m3": 8, "__nv_fp8_e5m2": 8,
}  # fmt: skip


def atom(major: str, swizzle: str, bits: int) -> CuteLayout:
    """`Layout_<K or MN>_<INTER, SW32, SW64 or SW128>_Atom` for elements of `bits` bits."""
    code, width = _ATOMS[swizzle]
    row = width // bits
    shape, stride = ((8, row), (row, 1)) if major == "K" else ((row, 8), (1, row))
    return CuteLayout(shape, stride, CuteSwizzle(code, 4, 3), unit_bits=bits)


def tile_to_shape(tile: CuteLayout, shape: tuple[int, ...], order: tuple[int, ...] | None = None) -> CuteLayout:
    """Copies of an atom that fill `shape`, the first mode fastest, or as `order` ranks the modes.

    Raises OperandError if the shape is no multiple of the atom's.
    """
    order = tuple(range(len(shape))) if order is None else order
    extents = (*tile.sizes, *(1,) * (len(shape) - len(tile.sizes)))
    if len(order) != len(shape) or len(shape) < len(tile.sizes):
        raise OperandError(f"tile_to_shape: shape {show(shape)} and order {show(order)} do not fit the atom's modes")
    if any(s % e for s, e in zip(shape, extents)):
        raise OperandError(
            f"tile_to_shape: {show(shape)} is no multiple of the atom's {show(tile.sizes)}",
            hint="choose an atom with a narrower swizzle, or a larger tile",
        )
    grid = [s // e for s, e in zip(shape, extents)]
    strides = [0] * len(shape)
    step = prod(extents)
    for mode in sorted(range(len(shape)), key=lambda m: order[m]):
        strides[mode] = step
        step *= grid[mode]
    inner_shape = (*tile.shape, *(1,) * (len(shape) - len(tile.shape)))
    inner_stride = (*tile.stride, *(0,) * (len(shape) - len(tile.stride)))
    return replace(
        tile,
        shape=tuple((s, g) for s, g in zip(inner_shape, grid)),
        stride=tuple((d, g) for d, g in zip(inner_stride, strides)),
    )


_TOKEN = re.compile(r"\s*(_?0x[0-9a-fA-F]+|-?_?\d+|[A-Za-z_][\w:]*\w|[A-Za-z]|[()<>\[\]{},:∘.*])")
_ATOM = re.compile(r"(?:\w+::)*Layout_(K|MN)_(INTER|SW32|SW64|SW128)_Atom(_Bits)?$")


class _LayoutReader:
    """Recursive descent over the tokens of a layout."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise OperandError(f"a CuTe layout is a text, not {type(text).__name__}", hint="such as '(64,64):(64,1)'")
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self.error(f"{text[at]!r} has no place in a layout", at)
            self.tokens.append((found[1], found.start(1)))
            at = found.end()
        self.at = 0

    def error(self, message: str, place: int | None = None) -> OperandError:
        if place is None:
            place = self.tokens[self.at][1] if self.at < len(self.tokens) else max(0, len(self.text) - 1)
        span = Span(Source("<layout>", self.text), place, place + 1) if self.text else None
        return OperandError(f"cannot read the CuTe layout: {message}", span=span, hint=FORMS)

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def next(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise self.error(f"{wanted or 'more'!r} is expected" + (f", not {token!r}" if token else " at its end"))
        self.at += 1
        return token

    def number(self) -> int:
        token = self.peek().replace("_", "", 1)
        try:
            value = int(token, 0)
        except ValueError:
            raise self.error(f"a whole number is expected, not {self.peek()!r}") from None
        self.at += 1
        return value

    def int_tuple(self) -> IntTuple:
        if self.peek() in ("Shape", "Step", "Stride", "cute::Shape", "cute::Step", "make_shape", "cute::make_shape"):
            self.next()
            if self.peek() == "<":
                return self._items("<", ">")
        if self.peek() == "(":
            return self._items("(", ")")
        if self.peek().startswith(("Int", "C", "cute::Int", "cute::C")):
            self.next()
            self.next("<")
            value = self.number()
            self.next(">")
            self._braces()
            return value
        return self.number()

    def _items(self, opened: str, closed: str) -> IntTuple:
        self.next(opened)
        items = [self.int_tuple()]
        while self.peek() == ",":
            self.next()
            items.append(self.int_tuple())
        self.next(closed)
        self._braces()
        return tuple(items)

    def _braces(self) -> None:
        for opened, closed in ("{}", "()"):
            if self.peek() == opened and self.tokens[self.at + 1 : self.at + 2] and self.tokens[self.at + 1][0] == closed:
                self.at += 2

    def layout(self) -> CuteLayout:
        found = self._named() if self._is_named() else self._written()
        if self.at < len(self.tokens):
            raise self.error(f"{self.peek()!r} follows the layout")
        return found

    def _is_named(self) -> bool:
        return self.peek().endswith("tile_to_shape") or _ATOM.match(self.peek()) is not None

    def _named(self) -> CuteLayout:
        if not self.peek().endswith("tile_to_shape"):
            return self._atom()
        self.next()
        self.next("(")
        if not self._is_named():
            raise self.error("tile_to_shape of a named atom is expected")
        tile = self._named()
        self.next(",")
        shape = self._plain()
        order = None
        if self.peek() == ",":
            self.next()
            order = self._plain()
        self.next(")")
        return tile_to_shape(tile, shape, order)

    def _plain(self) -> tuple[int, ...]:
        value = self.int_tuple()
        if isinstance(value, int) or not all(isinstance(v, int) for v in value):
            raise self.error("a flat tuple such as (128,64) is expected")
        return tuple(size(v) for v in value)

    def _atom(self) -> CuteLayout:
        found = _ATOM.match(self.next())
        assert found
        bits = 1
        if self.peek() == "<":
            self.next()
            name = self.next().split("::")[-1]
            if name not in _TYPE_BITS:
                self.at -= 1
                raise self.error(f"no element type {name!r}; known: {', '.join(_TYPE_BITS)}")
            bits = _TYPE_BITS[name]
            self.next(">")
        elif not found[3]:
            raise self.error(f"{found[0]} needs an element type, as in {found[0]}<half_t>")
        self._braces()
        return atom(found[1], found[2], bits)

    def _written(self) -> CuteLayout:
        swizzle: CuteSwizzle | None = None
        behind = offset = pointer = None  # behind: what the layout is composed with
        unit = 0
        if self.peek() in ("Sw", "Swizzle", "S", "cute::Swizzle"):
            self.next()
            numbers = self._items("<", ">")
            if isinstance(numbers, int) or len(numbers) != 3:
                raise self.error("a swizzle has three numbers, as in Sw<3,4,3>")
            bits, base, shift = (size(n) for n in numbers)
            if min(bits, base) < 0 or (bits and abs(shift) < bits):
                raise self.error(f"Sw<{bits},{base},{shift}> is no swizzle: the shift is at least as large as the bits")
            swizzle = CuteSwizzle(bits, base, shift)
            self._compose()
            if self.peek().startswith("smem_ptr"):
                behind = self.next()
                unit, pointer = self._pointer()
                self._compose()
            elif self.peek()[:1] in "_0123456789" and self._ahead() in ("o", "∘"):
                offset = self.number()
                self._compose()
        elif self.peek().startswith("smem_ptr"):
            behind = self.next()
            unit, pointer = self._pointer()
            self._compose()
        shape, place = self.int_tuple(), self.at
        if self.peek() != ":":
            raise self.error("':' and the strides are expected")
        self.next(":")
        stride = self.int_tuple()
        modes = (shape, stride) if isinstance(shape, tuple) and isinstance(stride, tuple) else ((shape,), (stride,))
        if not _congruent(*modes):
            raise self.error(f"shape {show(shape)} and stride {show(stride)} are nested differently", self.tokens[place][1])
        if any(n < 1 for _, n, _ in _flat(*modes, "")) or any(d < 0 for *_, d in _flat(*modes, "")):
            raise self.error("extents are 1 or more, strides 0 or more", self.tokens[place][1])
        # Without a pointer or an offset the PTX ISA writes Swizzle<B,4,3> in bytes; another base can only count elements.
        on_address = behind is not None or (offset is None and (swizzle is None or swizzle.base == 4))
        return CuteLayout(*modes, swizzle, on_address, unit, offset or 0, pointer)

    def _ahead(self) -> str:
        return self.tokens[self.at + 1][0] if self.at + 1 < len(self.tokens) else ""

    def _compose(self) -> None:
        if self.peek() not in ("o", "∘"):
            raise self.error(f"'o' is expected, not {self.peek()!r}")
        self.next()

    def _pointer(self) -> tuple[int, int | None]:
        """(bits of an element or 0, address or None) of what follows smem_ptr: `[16b](0x400)`, `[16b](unset)`,
        `_flag_bits<16>`.
        """
        bits, address = 0, None
        while self.peek() in ("[", "(", "<", "{"):
            closed = {"[": "]", "(": ")", "<": ">", "{": "}"}[self.next()]
            while self.peek() != closed:
                token = self.next()
                if closed in "]>" and token.isdigit():
                    bits = int(token)
                elif closed == ")" and token[:1].isdigit():
                    address = int(token, 0)
            self.next(closed)
        return bits, address


def _congruent(shape: IntTuple, stride: IntTuple) -> bool:
    if isinstance(shape, tuple) and isinstance(stride, tuple):
        return len(shape) == len(stride) and all(map(_congruent, shape, stride))
    return isinstance(shape, int) and isinstance(stride, int)
