"""Structured sparsity: which elements of A are kept, the metadata that says so, and the lanes that hold it.

A chunk of A has one nibble of metadata: two 2-bit indices, the low one first. In 8- and 16-bit types a chunk has four
elements and the indices name the two that are kept; in 4-bit types it has eight, in four pairs, and the indices name
pairs; in tf32 it has two, and the indices name 16-bit halves, so 0b0100 keeps the first and 0b1110 the second.

Sparse matrix storage; Matrix fragments for multiply-accumulate operation with sparse matrix A (PTX ISA 9.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import OperandError
from mmulator.isa.forms import MatrixForm

Array = NDArray[Any]
Index = NDArray[np.int64]
Metadata = NDArray[np.uint8]

_RULE = "Sparse matrix storage (PTX ISA 9.1)"


class HasForm(Protocol):
    """Anything with a `form`, such as an Instruction."""

    @property
    def form(self) -> MatrixForm: ...


@dataclass(frozen=True)
class Granularity:
    """What one nibble of metadata covers.

    chunk: elements of A. kept: elements of it that are kept. group: elements that an index names (2 in 4-bit types).
    nibbles: values that the specification defines, in the order of the elements they keep.
    """

    chunk: int
    kept: int
    group: int
    nibbles: tuple[int, ...]


_PAIRS = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110)
_TF32 = Granularity(2, 1, 1, (0b0100, 0b1110))
_TWO_OF_FOUR = Granularity(4, 2, 1, _PAIRS)
_PAIRS_OF_EIGHT = Granularity(8, 4, 2, _PAIRS)


def form_of(instruction: MatrixForm | HasForm) -> MatrixForm:
    """The sparse form of an instruction. Raises OperandError for one without a sparse A."""
    form = instruction if isinstance(instruction, MatrixForm) else instruction.form
    if not form.sparse:
        raise OperandError(
            f"{form} has no sparse operand",
            hint="sparse instructions: mma.sp, mma.sp::ordered_metadata, wgmma.mma_async.sp",
        )
    return form


def granularity(form: MatrixForm) -> Granularity:
    """What a nibble of the form's metadata covers."""
    assert form.atype is not None
    if form.atype.name == "tf32":
        return _TF32
    if form.atype.bits == 4 and form.kind not in ("f8f6f4", "mxf8f6f4"):
        return _PAIRS_OF_EIGHT
    return _TWO_OF_FOUR


# Lanes and bits ------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=256)
def places(form: MatrixForm, selector: int = 0) -> tuple[Index, Index]:
    """Lane and lowest bit of the nibble of every (row, chunk): two int64 arrays [M, K / chunk].

    With g = lane / 4 the row in a warp's sixteen, f the selector:
      4 chunks            lane 4g + f      low half row g, high half row g + 8
      8 chunks, 16 bits+  lane 4g + 2f + p chunks 4p.. of row g (low half) and g + 8 (high half)
      8 chunks, 8 bits-   lane 4g + 2f + p all chunks of row g + 8p
      16 chunks           lane 4g + p      chunks 8 (p / 2).. of row g + 8 (p % 2); every lane contributes
    Raises OperandError for a selector that the specification does not define.
    """
    assert form.atype is not None
    chunks = form.k // granularity(form).chunk
    selectors = {4: 4, 8: 2, 16: 1}[chunks]
    if not 0 <= selector < selectors:
        raise OperandError(
            f"sparsity selector {selector} for {form}: it must be 0 to {selectors - 1}",
            rule=_RULE,
            hint="the selector says which lanes of each group of four hold the metadata",
        )
    row = np.arange(form.m, dtype=np.int64)[:, None]
    chunk = np.arange(chunks, dtype=np.int64)[None, :]
    warp, high, group = row // 16, row % 16 // 8, row % 8
    if chunks == 4:
        part, bit = selector + 0 * chunk, 16 * high + 4 * chunk
    elif chunks == 16:
        part, bit = 2 * (chunk // 8) + high, 4 * (chunk % 8)
    elif form.atype.bits >= 16:
        part, bit = 2 * selector + chunk // 4, 16 * high + 4 * (chunk % 4)
    else:
        part, bit = 2 * selector + high, 4 * chunk
    lane = 32 * warp + 4 * group + part + 0 * chunk
    return lane, bit + 0 * row


def to_registers(metadata: Metadata, form: MatrixForm, selector: int = 0) -> NDArray[np.uint32]:
    """Nibbles [..., M, chunks] to the metadata operand [..., lanes]; lanes that do not contribute hold 0."""
    lane, bit = places(form, selector)
    nibbles = np.asarray(metadata)
    if nibbles.shape[-2:] != lane.shape:
        raise OperandError(f"metadata of shape {nibbles.shape}; {form} needs [..., {lane.shape[0]}, {lane.shape[1]}]")
    out = np.zeros((*nibbles.shape[:-2], form.lanes), np.uint32)
    shifted = (nibbles.astype(np.uint32) & np.uint32(15)) << bit.astype(np.uint32)
    for column in range(lane.shape[1]):  # one chunk at a time, so that no lane comes twice
        for half in (bit[:, column] < 16, bit[:, column] >= 16):
            out[..., lane[half, column]] |= shifted[..., half, column]
    return out


def from_registers(registers: Array, form: MatrixForm, selector: int = 0) -> Metadata:
    """The metadata operand [..., lanes] (uint32) to nibbles [..., M, chunks]."""
    lane, bit = places(form, selector)
    words = np.asarray(registers)
    if words.shape[-1:] != (form.lanes,):
        raise OperandError(f"metadata registers of shape {words.shape}; {form} needs [..., {form.lanes}]")
    return (words.astype(np.uint32)[..., lane] >> bit.astype(np.uint32) & np.uint32(15)).astype(np.uint8)


# What is kept --------------------------------------------------------------------------------------------------------
def indices(metadata: Metadata, form: MatrixForm) -> Index:
    """Column of A (row of B) of every kept element: int64 [..., M, K / 2] from nibbles [..., M, chunks].

    Indices that are out of order or repeated are taken as they come, as hardware does. For tf32 the column is that of
    the element that holds the first half; `mixed` says where the halves do not make one element.
    """
    g = granularity(form)
    nibble = np.asarray(metadata).astype(np.int64)
    first, second = nibble & 3, nibble >> 2 & 3
    base = np.arange(nibble.shape[-1], dtype=np.int64) * g.chunk
    if g is _TF32:
        return base + first // 2
    pair = np.stack([first, second], axis=-1) * g.group
    inside = (pair[..., None] + np.arange(g.group)).reshape(*nibble.shape, g.kept)
    return (base[:, None] + inside).reshape(*nibble.shape[:-1], -1)


def mixed(metadata: Metadata, form: MatrixForm) -> NDArray[np.bool_]:
    """Where tf32 metadata takes halves that make no element: bool [..., M, chunks]; all False for other types."""
    nibble = np.asarray(metadata)
    if granularity(form) is not _TF32:
        return np.zeros(nibble.shape, bool)
    none_of_them: NDArray[np.bool_] = ~np.isin(nibble, _TF32.nibbles)
    return none_of_them


def undefined(metadata: Metadata, form: MatrixForm) -> NDArray[np.bool_]:
    """Where the specification leaves the metadata undefined: bool [..., M, chunks].

    Without `::ordered_metadata`, two different indices may come in either order.
    """
    nibble = np.asarray(metadata)
    g = granularity(form)
    if g is _TF32 or form.ordered_metadata:
        bad: NDArray[np.bool_] = ~np.isin(nibble, g.nibbles)
    else:
        bad = np.equal(nibble & 3, nibble >> 2 & 3)
    return bad


@dataclass(frozen=True, eq=False)
class Compressed:
    """A sparse A: `values` [..., M, K / 2] as A was given, `metadata` uint8 nibbles [..., M, chunks], and the form."""

    values: Array
    metadata: Metadata
    form: MatrixForm = field(repr=False)

    def registers(self, selector: int = 0) -> NDArray[np.uint32]:
        """The metadata operand, uint32 [..., lanes]. selector: which lanes of each group of four hold it."""
        return to_registers(self.metadata, self.form, selector)


def compress(a: Any, instruction: MatrixForm | HasForm) -> Compressed:
    """Keep what a sparse instruction keeps of A [..., M, K]: the non-zeros, or zeros where there are fewer.

    Raises OperandError for another shape, or where a chunk has more non-zeros than are kept, naming the first.
    """
    form = form_of(instruction)
    dense = np.asarray(a)
    if dense.shape[-2:] != (form.m, form.k):
        raise OperandError(f"A of shape {dense.shape}; {form} needs [..., {form.m}, {form.k}]")
    return compress_rows(dense, form)


def compress_rows(dense: Array, form: MatrixForm) -> Compressed:
    """As `compress`, for any number of rows and of whole chunks of columns."""
    g = granularity(form)
    chunks = dense.reshape(*dense.shape[:-1], -1, g.chunk // g.group, g.group)
    full = (chunks != 0).any(axis=-1)  # [..., M, chunks, groups of a chunk]
    room = 1 if g is _TF32 else 2
    crowded = full.sum(axis=-1) > room
    if crowded.any():
        *batch, row, chunk = (int(x) for x in np.argwhere(crowded)[0])
        what = "pairs of elements" if g.group == 2 else "elements"
        where = (
            f"{f'matrix {batch}, ' if batch else ''}row {row}, columns {chunk * g.chunk} to {(chunk + 1) * g.chunk - 1}"
        )
        raise OperandError(
            f"A is too dense: {int(full[(*batch, row, chunk)].sum())} {what} are not zero in {where}",
            rule=f"{_RULE}: {room} of every {g.chunk // g.group} {what} may be non-zero",
            hint="prune A to that pattern first",
        )
    # non-zeros first, in order of their columns; then zeros to fill up; then back into order of columns
    order = np.sort(np.argsort(~full, axis=-1, kind="stable")[..., :room], axis=-1)
    if g is _TF32:
        metadata = np.where(order[..., 0] == 0, *(np.uint8(n) for n in g.nibbles))
    else:
        metadata = order[..., 0] | order[..., 1] << 2
    kept = np.take_along_axis(chunks, order[..., None], axis=-2)
    return Compressed(kept.reshape(*dense.shape[:-1], -1), metadata.astype(np.uint8), form)


def expand(compressed: Compressed) -> Array:
    """The dense A [..., M, K] of a compressed one. Raises OperandError where the metadata is undefined."""
    form, metadata = compressed.form, compressed.metadata
    if (bad := undefined(metadata, form)).any():
        *_, row, chunk = (int(x) for x in np.argwhere(bad)[0])
        nibble = int(metadata[tuple(np.argwhere(bad)[0])])
        raise OperandError(f"metadata 0b{nibble:04b} at row {row}, chunk {chunk} keeps no two elements", rule=_RULE)
    values = np.asarray(compressed.values)
    out = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
    np.put_along_axis(out, indices(metadata, form), values, axis=-1)
    return out
