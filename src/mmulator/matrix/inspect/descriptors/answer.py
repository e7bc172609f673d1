"""Matrix descriptors: what one says by itself, and what it means for a tile."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import MmulatorError
from mmulator.base.lazy import cached_property
from mmulator.matrix.inspect.answer import Answer
from mmulator.matrix.inspect.descriptors.banks import BankConflicts, bank_conflicts, tile_accesses
from mmulator.matrix.inspect.descriptors.checks import Diagnostic
from mmulator.matrix.inspect.descriptors.tile import Placed, Tile, canonical
from mmulator.matrix.layouts.descriptors import MatrixDescriptor


@dataclass(frozen=True)
class DescriptorField:
    """One field of a descriptor. bits: `13-0`. raw: the bits as a number. value: in bytes, or the name of the mode."""

    name: str
    bits: str
    raw: int
    value: str


@dataclass(frozen=True)
class DescriptorFields(Answer):
    """A descriptor word taken apart. reserved: bits that belong to no field (the model ignores them)."""

    word: int
    fields: tuple[DescriptorField, ...]
    reserved: int
    findings: tuple[Diagnostic, ...]
    generation: type[MatrixDescriptor] = MatrixDescriptor

    @property
    def descriptor(self) -> MatrixDescriptor:
        return self.generation.decode(self.word)

    def to_dict(self) -> dict[str, Any]:
        return {
            "word": f"{self.word:#018x}",
            **{
                name: getattr(self.descriptor, name)
                for name in ("start_address", "leading_byte_offset", "stride_byte_offset", "base_offset", "swizzle")
            },
            "fields": [{"name": f.name, "bits": f.bits, "raw": f.raw, "value": f.value} for f in self.fields],
            "reserved_bits": f"{self.reserved:#x}",
            "findings": [f.to_dict() for f in self.findings],
        }


@dataclass(frozen=True)
class OffsetMeaning:
    """Effect of the leading (LBO) or stride byte offset (SBO) in a tile.

    field: `leading_byte_offset` or `stride_byte_offset`.
    bytes: the offset.
    along: dimension, `k`, `m` or `n`.
    every: elements along that dimension after which the offset is added once more.
    steps: how often that happens in the tile; 0: the field is not read.
    text: in words.
    rule: section of the specification.
    """

    field: str
    bytes: int
    along: str
    every: int
    steps: int
    text: str
    rule: str

    @property
    def encoded(self) -> int:
        return self.bytes >> 4


@dataclass(frozen=True)
class DescriptorAnswer(Answer):
    """Meaning of a descriptor for a tile.

    base: where the repeating swizzle pattern starts (given, or found from start address and base offset).
    """

    descriptor: MatrixDescriptor
    tile: Tile
    base: int
    offsets: tuple[OffsetMeaning, OffsetMeaning]
    findings: tuple[Diagnostic, ...]

    @cached_property
    def placed(self) -> Placed:
        return Placed(self.tile, self.descriptor)

    @property
    def ok(self) -> bool:
        """Whether the hardware reads the matrix: there is no finding of level error."""
        return not any(f.level == "error" for f in self.findings)

    @property
    def word(self) -> int:
        return self.descriptor.encode()

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Byte addresses [m or n, k]: what `execute` reads."""
        return self.placed.addresses

    @property
    def bytes(self) -> tuple[int, int]:
        """First and last byte that are read."""
        return self.placed.bytes

    @property
    def atom(self) -> tuple[int, int]:
        """Extents (m or n, k) in elements of a swizzle atom; without swizzling, of a core matrix."""
        return self.tile.atom(self.descriptor.mode)

    def address(self, row: int, col: int) -> int:
        """Byte address of element (row, col) of A [m, k] or B [k, n]. Raises OperandError outside the tile."""
        return self.placed.address(row, col)

    def element(self, address: int) -> tuple[tuple[int, int], ...]:
        """(row, col) of the elements in the byte at an address; none if the tile does not have it."""
        return self.placed.at(address)

    def conflicts(self, access: str, at: tuple[int, int] | None = None) -> BankConflicts:
        """Bank conflicts of an access to the tile: `ldmatrix`, `k:BYTES` or `mn:BYTES`; see `tile_accesses`.

        at: (row, col) of the first element of one access, instead of all of them. Raises OperandError.
        """
        return bank_conflicts(*tile_accesses(self.placed, access, at))

    @cached_property
    def cute(self) -> str | None:
        """The CuTe layout in elements, as Canonical Layouts (PTX ISA 9.1) writes it; None where no string says it."""
        try:
            return str(canonical(self.tile, self.descriptor))
        except MmulatorError:
            return None

    def base_offset_text(self) -> str:
        """How the base offset follows from where the pattern starts."""
        mode = self.descriptor.mode
        if not mode.mask:
            return "without swizzling there is no pattern; the field is not used"
        want = (self.base >> 7) & 7
        return (
            f"the {mode.name} pattern repeats every {mode.repeat} bytes and starts at {self.base:#x}: "
            f"({self.base:#x} >> 7) & 7 = {want}"
            + ("" if mode.mask == 7 else f"; the {mode.name} swizzle uses it modulo {mode.mask + 1}")
        )

    def to_dict(self) -> dict[str, Any]:
        first, last = self.bytes
        atom = self.atom
        return {
            "word": f"{self.word:#018x}",
            "operand": self.tile.operand,
            "instruction": self.tile.reader or None,
            "type": self.tile.element.name,
            "major": "mn" if self.tile.mn_major else "k",
            "rows": self.tile.shape[0],
            "columns": self.tile.shape[1],
            "atom": {"mn": atom[0], "k": atom[1]},
            "pattern_start": self.base,
            "base_offset": self.descriptor.base_offset,
            "base_offset_meaning": self.base_offset_text(),
            "offsets": [{**vars(o), "encoded": o.encoded} for o in self.offsets],
            "first_byte": first,
            "last_byte": last,
            "cute": self.cute,
            "ok": self.ok,
            "findings": [f.to_dict() for f in self.findings],
        }

    def svg(self, theme: str = "auto") -> str:
        """The tile in shared memory as a picture, in the manner of figures 156 to 165 of the specification."""
        return self.show("svg", theme)

    def _repr_svg_(self) -> str:
        return self.svg()
