"""The part of an operand matrix that one wgmma or tcgen05.mma reads from shared memory, and where a descriptor puts it."""

from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError
from mmulator.base.lazy import cached_property
from mmulator.isa.form import Form
from mmulator.isa.shapes import stored_bits
from mmulator.isa.types import TYPES, ElementType
from mmulator.matrix.inspect.search import descriptor_of, text_of
from mmulator.matrix.layouts.cute_layout import CuteLayout, CuteSwizzle
from mmulator.matrix.layouts.descriptors import MatrixDescriptor, SharedDescriptor, operand_addresses
from mmulator.matrix.layouts.swizzle import Swizzle, swizzle

MAJORNESS = "Shared Memory Matrix Layout (PTX ISA 9.1)"


@dataclass(frozen=True)
class Tile:
    """A matrix in shared memory, as one wgmma or tcgen05.mma reads it.

    operand: `a` or `b`.
    mn: rows of A (m) or columns of B (n).
    k: elements along k; compressed ones of sparse A.
    element: their type.
    mn_major: m or n is contiguous instead of k.
    instruction: the form that reads it, or None for a matrix by itself.
    generation: the class of its descriptors.
    """

    operand: str
    mn: int
    k: int
    element: ElementType
    mn_major: bool = False
    instruction: Form | None = None
    generation: type[MatrixDescriptor] = MatrixDescriptor

    @property
    def letter(self) -> str:
        return "m" if self.operand == "a" else "n"

    @property
    def major(self) -> str:
        return f"{self.letter.upper()}-major" if self.mn_major else "K-major"

    @property
    def per_chunk(self) -> int:
        """Number of elements in 16 bytes: T in Canonical Layouts."""
        form = self.instruction
        padded = self.generation is SharedDescriptor and form is not None and stored_bits(form, self.element) == 8
        return 16 if padded else 128 // self.element.bits

    @property
    def share(self) -> int:
        """Number of neighbouring elements after which one begins at a byte of its own."""
        return 8 // gcd(8, self.element.bits)

    @property
    def k_bytes(self) -> int:
        return self.k * 16 // self.per_chunk

    @property
    def reader(self) -> str:
        """The instruction as text, or empty."""
        return text_of(self.instruction) if self.instruction else ""

    @property
    def contiguous(self) -> tuple[str, int]:
        """Name and extent in elements of the contiguous dimension."""
        return (self.letter, self.mn) if self.mn_major else ("k", self.k)

    @property
    def strided(self) -> tuple[str, int]:
        return ("k", self.k) if self.mn_major else (self.letter, self.mn)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the matrix as written: [m, k] of A, [k, n] of B."""
        return (self.mn, self.k) if self.operand == "a" else (self.k, self.mn)

    @property
    def axes(self) -> str:
        """Names of row and column: `m,k` of A, `k,n` of B."""
        return "m,k" if self.operand == "a" else "k,n"

    def matrix(self, mn: int, k: int) -> tuple[int, int]:
        """(row, column) of the element at (mn, k); its own inverse."""
        return (mn, k) if self.operand == "a" else (k, mn)

    def name(self, mn: int, k: int) -> str:
        """Name of an element: `A[m=3, k=8]`, `B[k=8, n=3]`."""
        a, b = f"{self.letter}={mn}", f"k={k}"
        return f"A[{a}, {b}]" if self.operand == "a" else f"B[{b}, {a}]"

    def __str__(self) -> str:
        rows, columns = ("m", "k") if self.operand == "a" else ("k", "n")
        return f"{self.operand.upper()} [{rows}={self.shape[0]}, {columns}={self.shape[1]}] of {self.element}, {self.major}"

    def atom(self, mode: Swizzle) -> tuple[int, int]:
        """Extents (mn, k) in elements of a swizzle atom; without swizzling, of a core matrix. Table 38."""
        run = mode.width // 16 * self.per_chunk
        return (run, mode.lines) if self.mn_major else (mode.lines, run)

    def addresses(self, descriptor: MatrixDescriptor) -> NDArray[np.int64]:
        """Shared-memory byte addresses [mn, k]: what `execute` reads."""
        return operand_addresses(descriptor, self.mn, self.k, self.element.bits, self.mn_major, self.per_chunk)

    def packed(self, mode: str, start: int = 0, base: int | None = None) -> MatrixDescriptor:
        """The descriptor of the tile with its atoms one after the other, those along mn first.

        base: where the repeating pattern starts (default: at `start`); the base offset follows from it.
        """
        s = swizzle(mode, self.generation.modes)
        atoms = tuple(max(1, -(-extent // size)) for extent, size in zip((self.mn, self.k), self.atom(s)))
        by_mn, by_k = s.repeat, s.repeat * atoms[0]
        # Without swizzling LBO steps along k in both majors; with it SBO steps over 8 rows (K) or over 8 k (MN).
        leading, stride = (by_mn, by_k) if self.mn_major and s.mask else (by_k, by_mn)
        if not self.mn_major and s.mask and self.k_bytes <= s.width:
            leading = 16  # not used, assumed to be 1
        offset = ((start if base is None else base) >> 7) & s.mask
        return self.generation(start, leading, stride, offset, mode)


class Placed:
    """A tile at a descriptor: every address, both ways."""

    def __init__(self, tile: Tile, descriptor: MatrixDescriptor) -> None:
        self.tile = tile
        self.descriptor = descriptor

    @cached_property
    def addresses(self) -> NDArray[np.int64]:
        return self.tile.addresses(self.descriptor)

    @cached_property
    def _by_byte(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for (mn, k), address in np.ndenumerate(self.addresses):
            found.setdefault(int(address), []).append((mn, k))
        return found

    @property
    def bytes(self) -> tuple[int, int]:
        """First and last byte that are read."""
        size = max(1, self.tile.element.bits // 8)
        return int(self.addresses.min()), int(self.addresses.max()) + size - 1

    def address(self, row: int, col: int) -> int:
        """Byte address of an element of the matrix: [m, k] of A, [k, n] of B; for b1 the byte that has the element.
        Raises OperandError outside the tile.
        """
        rows, columns = self.tile.shape
        if not (0 <= row < rows and 0 <= col < columns):
            raise OperandError(
                f"element ({row}, {col}) is outside {self.tile}", hint=f"rows 0..{rows - 1}, columns 0..{columns - 1}"
            )
        return int(self.addresses[self.tile.matrix(row, col)])

    def at(self, address: int) -> tuple[tuple[int, int], ...]:
        """(row, column) of the elements that the byte at an address belongs to; none if the tile does not have it."""
        size = max(1, self.tile.element.bits // 8)
        found = [e for back in range(size) for e in self._by_byte.get(address - back, ())]
        return tuple(self.tile.matrix(*e) for e in found)


def tile_of(form: Form, operand: str, mn_major: bool = False) -> Tile:
    """The tile that operand `a` or `b` of a wgmma reads, or of a tcgen05.mma: of a pair, that of one CTA.

    Raises OperandError for another instruction or operand, or where the instruction has no MN-major operand.
    """
    if not (form.lanes > 32 or form.effects.tensor) or not form.atype or not form.btype:
        raise OperandError(
            f"{form} takes no matrix descriptor",
            rule="Matrix Descriptor Format (PTX ISA 9.1): operands a-desc and b-desc of wgmma.mma_async{.sp}",
        )
    if operand not in ("a", "b"):
        raise OperandError(f"operand {operand!r} has no matrix descriptor", hint="a or b")
    element = form.atype if operand == "a" else form.btype
    mn, k = (form.m, form.k // 2 if form.sparse else form.k) if operand == "a" else (form.n, form.k)
    if form.effects.tensor:
        on = mn_major and operand == "a", mn_major and operand == "b"
        replace(descriptor_of(form), transpose_a=on[0], transpose_b=on[1])  # raises where it cannot be
        return Tile(operand, mn >> (form["cta_group"] == "cta_group::2"), k, element, mn_major, form, SharedDescriptor)
    _check_major(element, operand, mn_major, str(form))
    return Tile(operand, mn, k, element, mn_major, form)


def free_tile(
    operand: str, mn: int, k: int, type_name: str, mn_major: bool = False,
    generation: type[MatrixDescriptor] = MatrixDescriptor,
) -> Tile:  # fmt: skip
    """A matrix of shared memory by itself. Raises OperandError for a type that wgmma does not read, or empty extents."""
    known = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1")
    if type_name not in known:
        raise OperandError(f"wgmma reads no elements of type {type_name!r}", hint=f"types: {', '.join(known)}")
    element = TYPES[type_name]
    inner, outer = (mn, k) if mn_major else (k, mn)
    if operand not in ("a", "b") or min(mn, k) < 1 or inner * element.bits % 128 or outer % 8:
        run = 128 // element.bits
        raise OperandError(
            f"a matrix of {mn} (m or n) by {k} (k) elements of {type_name} does not consist of core matrices",
            hint=f"a multiple of {run} (16 bytes) along the contiguous dimension, of 8 along the other",
            rule=MAJORNESS,
        )
    return Tile(operand, mn, k, element, mn_major, generation=generation)


def _check_major(element: ElementType, operand: str, mn_major: bool, what: str) -> None:
    if mn_major and element.bits != 16:
        raise OperandError(
            f"{what} reads {operand.upper()} K-major only: .{element} is not .f16 or .bf16",
            rule=f"{MAJORNESS}: imm-trans-{operand} exists for .f16 and .bf16",
            hint="store the matrix with k contiguous",
        )


def canonical(tile: Tile, descriptor: MatrixDescriptor) -> CuteLayout:
    """The CuTe layout of a tile, in elements, in the form of Canonical Layouts (PTX ISA 9.1).

    A tile that ends inside an atom gives the layout of whole atoms. Raises OperandError where the swizzle pattern of the
    descriptor
    neither follows the absolute addresses nor starts with the matrix: no layout string says that.
    """
    mode, t, bits = descriptor.mode, tile.per_chunk, tile.element.bits
    if t * bits != 128:
        raise OperandError(f"no CuTe layout: 16 bytes hold {t} elements of {bits} bits, and padding")
    leading, stride = (8 * b // bits for b in (descriptor.leading_byte_offset, descriptor.stride_byte_offset))
    if tile.mn_major and not mode.mask:  # without swizzling the two offsets trade places
        leading, stride = stride, leading
    width = mode.width // 16
    chunks = -(-tile.contiguous[1] // t)
    if chunks < width or (not tile.mn_major and width in (1, chunks)):
        run: tuple[Any, Any] = (t, chunks), (1, t if width > 1 else leading)
    else:
        run = (t, width, -(-chunks // width)), (1, t, leading)
    groups = tile.strided[1] // mode.lines
    rows: tuple[Any, Any] = ((mode.lines, groups), (t * width, stride)) if groups > 1 else (mode.lines, t * width)
    parts = (run, rows) if tile.mn_major else (rows, run)
    code = cute_swizzle(mode)
    modes = tuple(p[0] for p in parts), tuple(p[1] for p in parts)
    layout = CuteLayout(*modes, code, unit_bits=bits, pointer=descriptor.start_address)
    return _behind(layout, descriptor, bits)


def cute_swizzle(mode: Swizzle) -> CuteSwizzle:
    """A mode as CuTe's Swizzle, on bytes."""
    base = mode.unit.bit_length() - 1
    return CuteSwizzle(mode.mask.bit_length(), base, 7 - base)


def _behind(layout: CuteLayout, d: MatrixDescriptor, bits: int) -> CuteLayout:
    mask = d.mode.mask
    if d.base_offset & mask == 0:
        return layout
    if d.start_address % 128 == 0 and (d.start_address >> 7) & mask == d.base_offset & mask:
        base = 4 + 3 - (bits.bit_length() - 1)
        code = CuteSwizzle(mask.bit_length(), base, 3)
        return replace(layout, swizzle=code, on_address=False)
    raise OperandError(
        f"no CuTe layout: base offset {d.base_offset} moves the swizzle pattern away from the absolute addresses",
        hint="a layout string can only say that it follows the addresses, or that it starts with the matrix",
    )
