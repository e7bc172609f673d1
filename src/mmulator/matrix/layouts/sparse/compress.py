"""Conversion of a dense A to the elements that a sparse instruction keeps, and back; pruning to the required pattern.

Sparse matrix storage (PTX ISA 9.1).
"""

from __future__ import annotations

import math
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.classes import dataclass
from mmulator.base.errors import OperandError, short_traceback, shown
from mmulator.base.interop import as_array
from mmulator.isa.form import Form
from mmulator.isa.types import ElementType
from mmulator.matrix.layouts.sparse import metadata as meta
from mmulator.matrix.layouts.sparse.metadata import (
    RULE,
    Array,
    Granularity,
    HasForm,
    Metadata,
    element_bits,
    element_dtype,
    form_of,
    granularity,
)


@dataclass(frozen=True, eq=False)
class Compressed:
    """A compressed sparse matrix A.

    values: [..., M, K / 2], in the dtype of A.
    metadata: uint8 nibbles [..., M, chunks].
    form: the form whose operand it is.

    M and K are those of a whole matrix, or of one instruction. Raises OperandError if the two shapes do not fit.
    """

    values: Array
    metadata: Metadata
    form: Form = field(repr=False)

    def __post_init__(self) -> None:
        values, nibbles = as_array("values", self.values), as_array("metadata", self.metadata)
        form = form_of(self.form)
        kept = granularity(form).kept
        if values.ndim < 2 or nibbles.ndim < 2 or values.shape != (*nibbles.shape[:-1], nibbles.shape[-1] * kept):
            raise OperandError(
                f"values of shape {values.shape} with metadata of shape {nibbles.shape}: "
                f"{self.form} has a nibble for every {kept} value{'s' * (kept > 1)}"
            )
        if nibbles.dtype.kind not in "iu" or (nibbles.size and (nibbles.min() < 0 or nibbles.max() > 15)):
            raise OperandError(f"metadata of {nibbles.dtype}: nibbles are integers from 0 to 15")
        object.__setattr__(self, "form", form)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "metadata", nibbles.astype(np.uint8, copy=False))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense A: [..., M, K]."""
        return (*self.values.shape[:-1], 2 * self.values.shape[-1])

    def registers(self, selector: int = 0) -> NDArray[np.uint32]:
        """The metadata operand, uint32 [..., lanes]. selector: selects the lanes of each group of four that hold it.

        Raises OperandError if M and K are not the instruction's (see `tiles`), or for an undefined selector.
        """
        return meta.to_registers(self.metadata, self.form, selector)

    def padded(self, rows: int, columns: int) -> Compressed:
        """The matrix with zeros added below and to the right, up to `rows` and `columns` (of the dense A)."""
        rows, columns = meta.whole_number("rows", rows), meta.whole_number("columns", columns)
        m, k = self.shape[-2:]
        g = granularity(self.form)
        if (m, k) == (rows, columns):
            return self
        if rows < m or columns < k or columns % g.chunk:
            raise OperandError(f"A of shape {self.shape} cannot be padded to {shown(rows)} rows and {shown(columns)} columns")
        before: list[tuple[int, int]] = [(0, 0)] * (self.values.ndim - 2)
        below = (0, rows - m)
        if rows * columns * math.prod(self.shape[:-2]) >= _LARGEST:
            raise OperandError(f"{shown(rows)} x {shown(columns)} elements of A are more than this library pads to")
        values = np.pad(self.values, [*before, below, (0, (columns - k) // 2)])
        nibbles = np.pad(self.metadata, [*before, below, (0, (columns - k) // g.chunk)], constant_values=g.nibbles[-1])
        return Compressed(values, nibbles, self.form)

    def tiles(self) -> Compressed:
        """The matrix cut into the instruction's shape and padded with zeros: values [..., M / m, K / k, m, k / 2].

        `registers()` of the result are the metadata operands [..., M / m, K / k, lanes], and
        `layout("a").to_registers(values)` the operands `a` that belong to them.
        """
        f = self.form
        rows, columns = (-(-self.shape[-2] // f.m) * f.m, -(-self.shape[-1] // f.k) * f.k)
        whole = self.padded(rows, columns)
        cut = [
            np.swapaxes(x.reshape(*x.shape[:-2], rows // f.m, f.m, columns // f.k, size), -2, -3)
            for x, size in ((whole.values, f.k // 2), (whole.metadata, f.k // granularity(f).chunk))
        ]
        return Compressed(cut[0], cut[1], f)


_LARGEST = 1 << 34  # elements


def check_compressed(value: object) -> None:
    """Raise OperandError unless the value is a Compressed."""
    if not isinstance(value, Compressed):
        raise OperandError(
            f"a Compressed matrix is needed, not {type(value).__name__}",
            hint="`sparse.compress` makes one of a dense matrix, `sparse.Compressed` of values and metadata",
        )


@short_traceback
def compress(a: Any, instruction: Form | HasForm | str) -> Compressed:
    """The compressed A [..., M, K]: non-zero elements, and zeros in chunks with fewer non-zeros than are kept.

    M and K are the instruction's, or any number of rows and of whole chunks: a whole matrix. Zeros that fill up a chunk are
    taken from its second half first, as PyTorch does. A has any dtype; unsigned integers for a float type are its raw bits.
    Raises OperandError for any other shape, or if a chunk has more non-zeros than are kept, naming the first.
    """
    return compress_rows(_dense(a), form_of(instruction))


def compress_rows(dense: Array, form: Form) -> Compressed:
    """`compress` with a form instead of an instruction."""
    g = granularity(form)
    full = _occupied(dense, form)
    groups = full.shape[-1]
    pattern = np.packbits(full, axis=-1, bitorder="little")[..., 0]
    nibbles, kept, count = _choices(g)
    room = kept.shape[-1]
    if (count[pattern] > room).any():
        _refuse(dense, count[pattern], form)
    # of every group that is kept, its place among all groups
    place = kept[pattern] + groups * np.arange(pattern.size, dtype=np.int64).reshape(*pattern.shape, 1)
    values = np.ascontiguousarray(dense).reshape(-1, g.group)[place.reshape(-1)]
    return Compressed(values.reshape(*dense.shape[:-1], dense.shape[-1] // 2), nibbles[pattern], form)


def operand(a: Any, form: Form) -> Compressed:
    """A as a form's sparse operand: compressed if it is dense, checked if it is already compressed.

    Raises OperandError if it is too dense, was compressed in a different granularity, or has undefined metadata.
    """
    if not isinstance(a, Compressed):
        return compress_rows(_dense(a), form)
    own, wanted = granularity(a.form), granularity(form)
    if own != wanted:
        raise OperandError(
            f"A was compressed for {a.form}, {own.kept} of {own.chunk}; {form} keeps {wanted.kept} of {wanted.chunk}"
        )
    meta.check(a.metadata, form)
    return a if a.form == form else Compressed(a.values, a.metadata, form)


@short_traceback
def too_dense(a: Any, instruction: Form | HasForm | str) -> NDArray[np.bool_]:
    """Whether each chunk of A [..., M, K] has more non-zeros than the instruction keeps: bool [..., M, chunks].

    Raises OperandError if K is not a multiple of the chunk.
    """
    form = form_of(instruction)
    g = granularity(form)
    over: NDArray[np.bool_] = _occupied(_dense(a), form).sum(axis=-1) > g.kept // g.group
    return over


@lru_cache
def _choices(g: Granularity) -> tuple[Metadata, meta.Index, meta.Index]:
    """For every pattern of non-zero groups: (its nibble, the groups that are kept, the number of non-zero groups)."""
    groups, room = g.chunk // g.group, g.kept // g.group
    fill = [*range(groups // 2, groups), *range(groups // 2)]
    nibbles, kept, count = [], [], []
    for pattern in range(1 << groups):
        full = [i for i in range(groups) if pattern >> i & 1]
        chosen = sorted([*full, *(i for i in fill if i not in full)][:room])
        nibbles.append(g.nibbles[chosen[0]] if room == 1 else chosen[0] | chosen[1] << 2)
        kept.append(chosen)
        count.append(len(full))
    return np.array(nibbles, np.uint8), np.array(kept, np.int64), np.array(count, np.int64)


def _dense(a: Any) -> Array:
    dense = as_array("A", a)
    if dense.dtype.kind not in "biuf" and dense.dtype.isbuiltin != 2:  # 2: of ml_dtypes
        raise OperandError(f"A is {dense.dtype}: numbers are needed")
    return dense


def _occupied(dense: Array, form: Form) -> NDArray[np.bool_]:
    """Whether each group has a non-zero: bool [..., M, chunks, groups of a chunk]. Float zeros of both signs are zero."""
    g = granularity(form)
    if dense.ndim < 2 or dense.shape[-1] % g.chunk:
        raise OperandError(
            f"A of shape {dense.shape}; {form} needs [..., {form.m}, {form.k}], or any rows and whole chunks of {g.chunk} columns"
        )
    if dense.dtype.kind not in "iub" and dense.dtype == element_dtype(form.atype):
        dense = np.ascontiguousarray(dense).view(f"u{dense.dtype.itemsize}")  # comparing bits is faster
    if _is_raw(dense, form.atype):
        bits = element_bits(form.atype) - form.atype.is_float  # the sign of a zero does not count
        filled = dense & dense.dtype.type((1 << bits) - 1) != 0
    else:
        filled = dense != 0
    groups = filled.reshape(*dense.shape[:-1], dense.shape[-1] // g.chunk, g.chunk // g.group, g.group)
    occupied: NDArray[np.bool_] = groups.any(axis=-1)
    return occupied


def _is_raw(dense: Array, element: ElementType) -> bool:
    """Whether an array holds bits of a signed type in an unsigned dtype."""
    return element.has_sign and dense.dtype.kind == "u" and dense.dtype.itemsize == max(1, element_bits(element) // 8)


def _values(raw: Array, element: ElementType) -> Array:
    bits = element_bits(element)
    inside = raw & raw.dtype.type((1 << bits) - 1)
    if element.kind == "signed":
        wide = inside.astype(np.int64)
        return wide - ((wide >> (bits - 1)) << bits)
    return inside.view(element_dtype(element))


def _refuse(dense: Array, count: meta.Index, form: Form) -> None:
    g = granularity(form)
    room = g.kept // g.group
    crowded = np.argwhere(count > room)
    at = tuple(int(x) for x in crowded[0])
    what = "pairs of elements" if g.group == 2 else "elements"
    values = dense[at[:-1]][at[-1] * g.chunk : (at[-1] + 1) * g.chunk]
    raise OperandError(
        f"A is too dense: {int(count[at])} {what} are not zero in {meta.where(at, form)}: " + ", ".join(str(x) for x in values),
        rule=f"{RULE}: {room} of every {g.chunk // g.group} {what} may be non-zero",
        hint="mmulator.sparse.prune (compress: --prune) keeps the largest"
        + (f"; {len(crowded):,} chunks are too dense" if len(crowded) > 1 else ""),
    )


@short_traceback
def expand(compressed: Compressed) -> Array:
    """The dense A [..., M, K] of a compressed matrix. Raises OperandError for undefined metadata."""
    check_compressed(compressed)
    meta.check(compressed.metadata, compressed.form)
    out = np.zeros(compressed.shape, compressed.values.dtype)
    np.put_along_axis(out, meta.indices(compressed.metadata, compressed.form), compressed.values, axis=-1)
    return out


@short_traceback
def prune(a: Any, instruction: Form | HasForm | str) -> Array:
    """A [..., M, K] with all but the largest elements of every chunk set to zero, so that `compress` accepts it.

    The largest elements are those with the greatest magnitude, or for 4-bit types, which go in pairs, the pairs with the
    greatest sum: the elements that are kept have the largest possible sum of magnitudes. NaN is larger than all numbers; among
    equals the lowest column is kept. The result has A's shape and dtype; unsigned integers for a float type are its raw bits.
    Raises OperandError for an instruction without a sparse operand, or if K is not a multiple of the chunk.
    """
    form = form_of(instruction)
    dense = _dense(a)
    g = granularity(form)
    shape = _occupied(dense, form).shape
    room = g.kept // g.group
    size = _magnitude(dense, form).reshape(*shape, g.group).sum(axis=-1)
    rank = np.where(np.isnan(size), np.uint64(2**64 - 1), size.view(np.uint64))  # positive doubles order as integers
    best = np.argsort(~rank, axis=-1, kind="stable")[..., :room]
    keep = np.zeros(shape, bool)
    np.put_along_axis(keep, best, True, axis=-1)
    mask = np.repeat(keep, g.group, axis=-1).reshape(dense.shape)
    return np.where(mask, dense, np.zeros((), dense.dtype))


def _magnitude(dense: Array, form: Form) -> NDArray[np.float64]:
    values = _values(dense, form.atype) if _is_raw(dense, form.atype) else dense
    size: NDArray[np.float64] = np.abs(values.astype(np.float64))
    return size
