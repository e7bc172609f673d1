"""Sparse operands: where metadata lies, what a word of it says, and where a matrix breaks the pattern.

Sparse matrix storage; Matrix fragments for multiply-accumulate operation with sparse matrix A (PTX ISA 9.1).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.isa.form import Form
from mmulator.matrix.inspect.answer import Answer
from mmulator.matrix.layouts import sparse

if TYPE_CHECKING:
    from mmulator.matrix.instruction.instruction import Instruction

_SHOWN = 8  # chunks of a PatternReport that are listed


@dataclass(frozen=True)
class Nibble:
    """Four bits of a metadata word, which belong to one chunk of one row of A.

    bits: (lowest, highest) in the word.
    columns: (first, last) of A.
    value: None where only the place was asked for.
    keeps: columns of A that are kept.
    defined: whether the specification defines the value.
    meaning: in words.
    """

    bits: tuple[int, int]
    row: int
    chunk: int
    columns: tuple[int, int]
    value: int | None = None
    keeps: tuple[int, ...] = ()
    defined: bool = True
    meaning: str = ""

    @property
    def text(self) -> str:
        """The value in binary; empty where only the place is known."""
        return "" if self.value is None else f"{self.value:04b}"


@dataclass(frozen=True)
class MetadataWord(Answer):
    """The metadata operand of one lane. nibbles is empty for a lane that does not contribute with this selector."""

    instruction: str
    lane: int
    selector: int
    word: int | None
    nibbles: tuple[Nibble, ...] = field(repr=False)

    @property
    def contributes(self) -> bool:
        return bool(self.nibbles)

    @property
    def defined(self) -> bool:
        return all(n.defined for n in self.nibbles)

    def runs(self) -> list[tuple[Nibble, ...]]:
        """Neighbouring nibbles of one row together, lowest bits first."""
        out: list[list[Nibble]] = []
        for nibble in self.nibbles:
            if not out or out[-1][-1].row != nibble.row or out[-1][-1].chunk + 1 != nibble.chunk:
                out.append([])
            out[-1].append(nibble)
        return [tuple(run) for run in out]

    def to_dict(self) -> dict[str, Any]:
        """The word as JSON data; `hex` is the number in hexadecimal."""
        return {
            **asdict(self),
            "hex": None if self.word is None else f"0x{self.word:08x}",
            "contributes": self.contributes,
            "defined": self.defined,
        }


def metadata_word(
    instruction: Instruction | Form | str, lane: int | None = None, selector: int = 0, word: int | None = None
) -> MetadataWord:
    """The metadata operand of a lane: its nibbles, and with `word` what that value says.

    lane: None is the first lane that contributes. Raises OperandError for an instruction without metadata, a lane or selector
        that
    it does not have, or a word of more than 32 bits.
    """
    form = sparse.form_of(instruction)
    lanes, bits = sparse.places(form, selector)
    lane = int(lanes.min()) if lane is None else lane
    if not 0 <= lane < form.lanes:
        raise OperandError(f"lane {lane} of {form}: it has lanes 0 to {form.lanes - 1}")
    if word is not None and not 0 <= word < 1 << 32:
        raise OperandError(f"metadata {word:#x} does not fit 32 bits")
    found = sorted((int(bits[at]), *at) for at in map(tuple, np.argwhere(lanes == lane).tolist()))
    nibbles = tuple(_nibble(form, bit, row, chunk, None if word is None else word >> bit & 15) for bit, row, chunk in found)
    return MetadataWord(str(form), lane, selector, word, nibbles)


def metadata_words(
    instruction: Instruction | Form | str, compressed: sparse.Compressed | None = None, selector: int = 0
) -> tuple[MetadataWord, ...]:
    """The metadata operand of every lane that contributes.

    compressed: a matrix of the instruction's shape, such as one of `Compressed.tiles()`; None gives places only.
    Raises OperandError as `metadata_word` does, or for another shape.
    """
    form = sparse.form_of(instruction)
    registers = None if compressed is None else compressed.registers(selector)
    if registers is not None and registers.ndim != 1:
        raise OperandError(f"metadata of shape {registers.shape}: one tile is needed")
    contributing = np.unique(sparse.places(form, selector)[0]).tolist()
    return tuple(
        metadata_word(instruction, lane, selector, None if registers is None else int(registers[lane])) for lane in contributing
    )


def _nibble(form: Form, bit: int, row: int, chunk: int, value: int | None) -> Nibble:
    size = sparse.granularity(form).chunk
    place = ((bit, bit + 3), row, chunk, (chunk * size, chunk * size + size - 1))
    if value is None:
        return Nibble(*place)
    defined = value in sparse.allowed(form)
    keeps: tuple[int, ...] = ()
    if defined:
        keeps = tuple(int(c) + chunk * size for c in sparse.indices(np.array([[value]], np.uint8), form)[0])
    return Nibble(*place, value, keeps, defined, sparse.meaning(value, form))


# Matrices ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CrowdedChunk:
    """A chunk with more non-zeros than the instruction keeps. batch: index of the matrix, empty for a single one."""

    batch: tuple[int, ...]
    row: int
    chunk: int
    columns: tuple[int, int]
    values: tuple[str, ...]


@dataclass(frozen=True)
class PatternReport(Answer):
    """Whether a matrix fits the pattern of a sparse instruction.

    shape, dtype: of the matrix.
    rule: in words.
    chunks: number of chunks.
    too_dense: number of chunks that break the rule.
    zeros: share of zeros in the matrix.
    first: the first chunks that break the rule.
    """

    instruction: str
    shape: tuple[int, ...]
    dtype: str
    rule: str
    chunks: int
    too_dense: int
    zeros: float
    first: tuple[CrowdedChunk, ...]

    @property
    def ok(self) -> bool:
        return self.too_dense == 0

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def pattern_report(a: Any, instruction: Instruction | Form | str) -> PatternReport:
    """Whether A [..., M, K] fits the instruction's pattern, and where not.

    Raises OperandError for an instruction without a sparse operand, or if K is no multiple of the chunk.
    """
    form = sparse.form_of(instruction)
    dense = np.asarray(a)
    g = sparse.granularity(form)
    crowded = sparse.too_dense(dense, form)
    first = []
    for at in np.argwhere(crowded)[:_SHOWN].tolist():
        *batch, row, chunk = at
        columns = (chunk * g.chunk, (chunk + 1) * g.chunk - 1)
        values = dense[(*batch, row)][columns[0] : columns[1] + 1]
        first.append(CrowdedChunk(tuple(batch), row, chunk, columns, tuple(map(str, values))))
    what = "pairs of elements" if g.group == 2 else "elements"
    return PatternReport(
        str(form), dense.shape, str(dense.dtype),
        f"{g.kept // g.group} of every {g.chunk // g.group} {what} may be non-zero",
        crowded.size, int(crowded.sum()), float((dense == 0).mean()) if dense.size else 0.0, tuple(first),
    )  # fmt: skip
