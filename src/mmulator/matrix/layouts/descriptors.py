"""Matrix descriptors of wgmma and of tcgen05, and the shared-memory addresses of the elements they describe.

Matrix Descriptor Format; Strides; Canonical Layouts (PTX ISA 9.1); addresses measured on an NVIDIA H200.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError, shown
from mmulator.base.tables import element, html_table
from mmulator.matrix.layouts.swizzle import BY_CODE, SWIZZLES, SWIZZLES5, Swizzle, swizzle

_FIELD_BITS = 14
_UNIT = 16
_RULE = "Matrix Descriptor Format (PTX ISA 9.1)"
# (name, lowest bit, bits) of the fields; offsets and the start address are in units of 16 bytes.
FIELDS: tuple[tuple[str, int, int], ...] = (
    ("start_address", 0, _FIELD_BITS),
    ("leading_byte_offset", 16, _FIELD_BITS),
    ("stride_byte_offset", 32, _FIELD_BITS),
    ("base_offset", 49, 3),
    ("swizzle", 62, 2),
)


def fields(word: Any) -> list[Any]:
    """The values of FIELDS in a descriptor: addresses and offsets in bytes, the swizzle as its code.

    word: an integer, or any object with an integer's operators; native code calls this function while it is compiled.
    """
    return [(word >> low & ((1 << bits) - 1)) * (_UNIT if bits == _FIELD_BITS else 1) for _, low, bits in FIELDS]


# The fields of a shared-memory descriptor of tcgen05. Shared memory descriptor (PTX ISA 9.1), Table 40.
FIELDS5: tuple[tuple[str, int, int], ...] = (
    *FIELDS[:3], ("constant", 46, 3), FIELDS[3], ("leading_mode", 52, 1), ("swizzle", 61, 3),
)  # fmt: skip


def fields5(word: Any) -> list[Any]:
    """[start, leading, stride, base, code] of a tcgen05 descriptor, as `fields` gives them; the code is one of SWIZZLES5, or -1
    for a value that names no mode.

    word: an integer, or any object with an integer's operators.
    """
    code = (word >> 62) + (word >> 61 & 1) * 4  # descriptors have 0 none, 1 128B_atom_32B, 2 128B, 4 64B, 6 32B
    return [*fields(word)[:4], code | -((code + 3) >> 3)]


@dataclass(frozen=True)
class MatrixDescriptor:
    """A 64-bit matrix descriptor. Matrix Descriptor Format (PTX ISA 9.1).

    start_address, leading_byte_offset, stride_byte_offset: bytes, multiples of 16 below 2**18.
    base_offset: 0..7, the 128-byte line of the swizzle pattern in which the matrix starts.
    swizzle: `none`, `32B`, `64B` or `128B`.

    Raises OperandError for any other value.
    """

    table: ClassVar[tuple[tuple[str, int, int], ...]] = FIELDS
    modes: ClassVar[Mapping[str, Swizzle]] = SWIZZLES
    rule: ClassVar[str] = _RULE
    start_address: int = 0
    leading_byte_offset: int = 0
    stride_byte_offset: int = 0
    base_offset: int = 0
    swizzle: str = "none"

    def __post_init__(self) -> None:
        for name in ("start_address", "leading_byte_offset", "stride_byte_offset", "base_offset"):
            object.__setattr__(self, name, _integer(name, getattr(self, name)))
        for name in ("start_address", "leading_byte_offset", "stride_byte_offset"):
            value = getattr(self, name)
            if value % _UNIT or not 0 <= value < _UNIT << _FIELD_BITS:
                raise OperandError(
                    f"{name} is {shown(value)}: it must be a multiple of 16 bytes from 0 to {(_UNIT << _FIELD_BITS) - 16}",
                    rule=self.rule,
                    hint="the descriptor holds these values divided by 16, in 14 bits",
                )
        if not 0 <= self.base_offset < 8:
            raise OperandError(
                f"base_offset is {shown(self.base_offset)}: it must be 0 to 7",
                rule=self.rule,
                hint="base offset = (pattern start address >> 7) & 7",
            )
        swizzle(self.swizzle, self.modes)

    @property
    def mode(self) -> Swizzle:
        return swizzle(self.swizzle, self.modes)

    def _repr_html_(self) -> str:
        rows = [(name, getattr(self, name)) for name, _, _ in FIELDS]
        return f"<p>{element('code', f'{self.encode():#018x}')}</p>" + html_table(("field", "value"), rows)

    def encode(self) -> int:
        """The 64-bit word."""
        word = self.base_offset << 49 | self._mode_bits
        for name, low, _ in FIELDS[:3]:
            word |= (getattr(self, name) // _UNIT) << low
        return word

    @property
    def _mode_bits(self) -> int:
        return self.mode.code << 62

    @classmethod
    def decode(cls, word: int) -> MatrixDescriptor:
        """The descriptor in a 64-bit word. Bits outside the fields are ignored; `unused_bits` shows them.

        Raises OperandError unless the word is an integer from 0 to 2**64 - 1.
        """
        start, leading, stride, base, code = fields(_word(word))
        return cls(start, leading, stride, base, BY_CODE[code].name)

    @classmethod
    def unused_bits(cls, word: int) -> int:
        """The bits of a word that belong to no field. Raises OperandError like `decode`."""
        return _word(word) & ~sum(((1 << bits) - 1) << low for _, low, bits in cls.table)


@dataclass(frozen=True)
class SharedDescriptor(MatrixDescriptor):
    """A 64-bit descriptor of a matrix in shared memory, as tcgen05 reads it: a MatrixDescriptor with other numbers of the modes,
    one mode more (`128B_atom_32B`), and a constant. Shared memory descriptor (PTX ISA 9.1).
    """

    table: ClassVar[tuple[tuple[str, int, int], ...]] = FIELDS5
    modes: ClassVar[Mapping[str, Swizzle]] = SWIZZLES5
    rule: ClassVar[str] = "Shared memory descriptor (PTX ISA 9.1)"

    @property
    def _mode_bits(self) -> int:
        return 1 << 46 | ((self.mode.code & 3) * 2 + (self.mode.code >> 2)) << 61

    @classmethod
    def decode(cls, word: int) -> SharedDescriptor:
        """The descriptor in a 64-bit word. Other bits are ignored, the constant too.

        Raises OperandError unless the word is an integer from 0 to 2**64 - 1 whose bits 61-63 name a mode.
        """
        start, leading, stride, base, code = fields5(_word(word))
        if code < 0:
            hint = "0 none, 1 128B_atom_32B, 2 128B, 4 64B, 6 32B"
            raise OperandError(f"bits 61-63 are {word >> 61}: no swizzling mode", rule=cls.rule, hint=hint)
        return cls(start, leading, stride, base, BY_CODE[code].name)


def generation(word: int) -> type[MatrixDescriptor]:
    """The class of descriptors that a word is of: tcgen05's have 0b001 in bits 46-48, wgmma's have no such bits."""
    return SharedDescriptor if _word(word) >> 46 & 7 == 1 else MatrixDescriptor


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise OperandError(f"{name} is {shown(value)}: an integer is needed", rule=_RULE) from None


def _word(value: Any) -> int:
    try:
        word = operator.index(value)
    except TypeError:
        hint = f"int({value!r}, 0)" if isinstance(value, str) else None
        raise OperandError(f"descriptor {shown(value)}: an integer of 64 bits is needed", rule=_RULE, hint=hint) from None
    if not 0 <= word < 1 << 64:
        raise OperandError(
            f"descriptor {word:#x}: a descriptor has 64 bits, as an integer from 0 to 2**64 - 1",
            rule=_RULE,
            hint="of a signed register, its low 64 bits: word & (2**64 - 1)" if -(1 << 63) <= word < 0 else None,
        )
    return word


def operand_addresses(
    descriptor: MatrixDescriptor, rows: int, k: int, element_bits: int, mn_major: bool = False, per_unit: int = 0
) -> NDArray[np.int64]:
    """Absolute shared-memory byte addresses of a matrix operand: int64 [rows, k]. For elements of less than a byte, the address
    of the byte that contains the element.

    descriptor: the matrix descriptor.
    rows: rows M of A, or columns N of B.
    k: elements along k (compressed elements for sparse A).
    element_bits: size of an element.
    mn_major: whether M or N is contiguous (`imm-trans-a`/`imm-trans-b` = 1), for elements of 16 bits.
    per_unit: elements that lie in 16 bytes, the first ones of them; 0: as many as fit.

    A K-major operand that is wider than the swizzle width continues at the leading byte offset, as on hardware, although the
    specification calls that field unused there.
    """
    row = np.arange(rows, dtype=np.int64)[:, None]
    column = np.arange(k, dtype=np.int64)[None, :]
    line, along = (column, row) if mn_major else (row, column)
    leading, stride, mode = descriptor.leading_byte_offset, descriptor.stride_byte_offset, descriptor.mode
    per = per_unit or 128 // element_bits
    byte = along // per * _UNIT + along % per * element_bits // 8
    offset = canonical(line, byte, mode.width, leading, stride, mn_major, mode.lines)
    return descriptor.mode(offset + descriptor.start_address, descriptor.base_offset)


def canonical(line: Any, byte: Any, width: int, leading: Any, stride: Any, mn_major: bool, lines: int = 8) -> Any:
    """Offset, before swizzling, of one byte in one line of the matrix: a row along k, or for MN-major one k along M or N.

    line: number of the line.
    byte: offset within the line.
    width: width of the swizzle mode in bytes.
    leading, stride: bytes from an atom to the next along a line, and across lines.
    mn_major: whether lines run along M or N.
    lines: lines of an atom.

    line, byte, leading and stride are integers, arrays, or any objects with an integer's operators; native code calls this
    function while it is compiled.
    """
    if mn_major and width == _UNIT:  # without swizzling the two offsets trade places
        leading, stride = stride, leading
    return line % lines * width + byte % width + line // lines * stride + byte // width * leading
