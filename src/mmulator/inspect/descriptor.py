"""Matrix descriptors of wgmma explained: fields, what the offsets mean for a tile, which addresses are read, what is wrong.

`descriptor_fields` reads a word, `describe_descriptor` says what it means for an operand of an instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import MmulatorError, OperandError
from mmulator.inspect.banks import BankConflicts, bank_conflicts, tile_accesses
from mmulator.inspect.descriptor_checks import Finding, check_tile, check_word, pattern_start
from mmulator.inspect.tile import Placed, Tile, canonical, free_tile, tile_of
from mmulator.isa.form import Form
from mmulator.layouts.descriptors import FIELDS, MatrixDescriptor
from mmulator.syntax import parse_mnemonic

FORMAT = "Matrix Descriptor Format (PTX ISA 9.1)"
LEADING = "Leading Dimension Byte Offset (PTX ISA 9.1)"
STRIDE = "Stride Dimension Byte Offset (PTX ISA 9.1)"


@dataclass(frozen=True)
class Field:
    """One field of a descriptor. bits: `13-0`. raw: the bits as a number. value: in bytes, or the name of the mode."""

    name: str
    bits: str
    raw: int
    value: str


@dataclass(frozen=True)
class DescriptorFields:
    """A descriptor word taken apart. reserved: its bits that belong to no field (the model ignores them)."""

    word: int
    fields: tuple[Field, ...]
    reserved: int
    findings: tuple[Finding, ...]

    @property
    def descriptor(self) -> MatrixDescriptor:
        return MatrixDescriptor.decode(self.word)

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

    def _repr_html_(self) -> str:
        from mmulator.inspect.html import element, table

        rows = [(f.name, f.bits, f.raw, f.value) for f in self.fields]
        return element("p", f"{self.word:#018x}") + table(("field", "bits", "raw", "value"), rows) + _html(self.findings)


def descriptor_fields(word: int) -> DescriptorFields:
    """The fields of a 64-bit word. Matrix Descriptor Format (PTX ISA 9.1). Raises OperandError for a larger number."""
    if not 0 <= word < 1 << 64:
        raise OperandError(f"{word:#x} is no 64-bit word", rule=FORMAT)
    d = MatrixDescriptor.decode(word)
    fields = []
    for name, low, bits in FIELDS:
        raw = word >> low & ((1 << bits) - 1)
        value = getattr(d, name)
        text = f"{value:#x} ({value} bytes)" if bits == 14 else str(value)
        fields.append(Field(name, f"{low + bits - 1}-{low}", raw, text))
    reserved = MatrixDescriptor.unused_bits(word)
    return DescriptorFields(word, tuple(fields), reserved, check_word(word, reserved))


@dataclass(frozen=True)
class OffsetMeaning:
    """What LBO or SBO does in a tile.

    field: `leading_byte_offset` or `stride_byte_offset`. along: `k`, `m` or `n`. every: elements along it after which
    the offset is added once more. steps: how often that happens in the tile; 0: the field is not read. text: in words.
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
class DescriptorAnswer:
    """What a descriptor means for a tile.

    base: where the repeating swizzle pattern starts (given, or found from start address and base offset).
    """

    descriptor: MatrixDescriptor
    tile: Tile
    base: int
    offsets: tuple[OffsetMeaning, OffsetMeaning]
    findings: tuple[Finding, ...]

    @cached_property
    def placed(self) -> Placed:
        return Placed(self.tile, self.descriptor)

    @property
    def ok(self) -> bool:
        """No finding says that the hardware reads something else than the matrix."""
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
        """Elements (m or n, k) of a swizzle atom; without swizzling of a core matrix."""
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
            "instruction": str(self.tile.instruction) if self.tile.instruction else None,
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
        from mmulator.inspect.draw_tile import draw_tile

        return draw_tile(self, theme)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return self.svg() + _html(self.findings)


def _html(findings: tuple[Finding, ...]) -> str:
    from mmulator.inspect.html import table

    rows = [(f.level, f.text, f.rule, f.hint) for f in findings]
    return table(("finding", "", "rule", "hint"), rows) if rows else ""


def _meanings(tile: Tile, d: MatrixDescriptor) -> tuple[OffsetMeaning, OffsetMeaning]:
    mode, mn = d.mode, tile.letter
    atom_mn, atom_k = tile.atom(mode)
    leading_along, stride_along = (mn, "k") if tile.mn_major and mode.mask else ("k", mn)
    every = {mn: atom_mn, "k": atom_k}
    extent = {mn: tile.mn, "k": tile.k}
    out = []
    for name, along, rule in (
        ("leading_byte_offset", leading_along, LEADING), ("stride_byte_offset", stride_along, STRIDE),
    ):  # fmt: skip
        step, value = every[along], getattr(d, name)
        steps = max(0, -(-extent[along] // step) - 1)
        short = "LBO" if rule is LEADING else "SBO"
        text = f"{value} bytes from {step} {along} to the next {step} {along}"
        if steps:
            text += f"; this tile has {extent[along]} {along}: {_times(steps)}"
        else:
            text += f"; this tile has no more than {step} {along}: not read"
        if short == "LBO" and not tile.mn_major and mode.mask:
            text = f"not used in K-major swizzled layouts, assumed to be 1, says the specification. Hardware: {text}"
        out.append(OffsetMeaning(name, value, along, step, steps, text, rule))
    return out[0], out[1]


def _times(n: int) -> str:
    return "one step" if n == 1 else f"{n} steps"


def describe_descriptor(
    descriptor: MatrixDescriptor | int,
    instruction: Form | str | None = None,
    operand: str = "b",
    *,
    mn_major: bool = False,
    base: int | None = None,
    type: str = "f16",
    mn: int = 64,
    k: int = 64,
    shared: int | None = None,
    shared_base: int = 0,
) -> DescriptorAnswer:
    """What a descriptor means for operand `a` or `b` of a wgmma, or for a matrix of `mn` by `k` elements of `type`.

    descriptor: or its 64-bit word. instruction: a form, its name, or a few words (`wgmma m64n128 bf16`); None takes
    `type`, `mn` and `k`. mn_major: m or n contiguous (imm-trans-a/-b = 1). base: shared address where the repeating
    pattern starts, if it is known; else it follows from start address and base offset. shared: bytes of the shared
    window, which begins at shared_base; None: what an SM has. Raises OperandError for an instruction without
    descriptors, or a type it cannot read MN-major; InvalidInstructionError for a name that is none. What is wrong with
    the descriptor itself is in `findings`.
    """
    d = descriptor if isinstance(descriptor, MatrixDescriptor) else MatrixDescriptor.decode(descriptor)
    word_findings = () if isinstance(descriptor, MatrixDescriptor) else descriptor_fields(descriptor).findings
    tile = make_tile(instruction, operand, mn_major=mn_major, type=type, mn=mn, k=k)
    start = pattern_start(d) if base is None else base
    meanings = _meanings(tile, d)
    placed = Placed(tile, d)
    findings = (*word_findings, *check_tile(placed, meanings[0].steps, base, shared, shared_base))
    return DescriptorAnswer(d, tile, start, meanings, findings)


def make_tile(
    instruction: Form | str | None, operand: str, *, mn_major: bool, type: str = "f16", mn: int = 64, k: int = 64
) -> Tile:
    """The tile of an instruction's operand, or one by itself; see `describe_descriptor`."""
    if instruction is None:
        return free_tile(operand, mn, k, type, mn_major)
    form = _form(instruction) if isinstance(instruction, str) else getattr(instruction, "form", instruction)
    if not isinstance(form, Form):
        raise OperandError(f"an instruction is needed, not {_type(form).__name__}", hint="such as 'wgmma m64n128 bf16'")
    return tile_of(form, operand, mn_major)


_type = type  # `type` is a parameter above


def _form(text: str) -> Form:
    """The instruction of a name, or the likeliest wgmma of a few words."""
    if "." in text and " " not in text.strip():
        return parse_mnemonic(text.strip())
    from mmulator.syntax.search import find_forms

    found = find_forms(text)
    return next((form for form in found if form.family == "wgmma" and form.op == "mma_async"), found[0])
