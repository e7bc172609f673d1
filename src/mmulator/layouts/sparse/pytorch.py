"""The two layouts in which PyTorch's semi-structured sparse tensors keep a compressed matrix.

A word of metadata has the nibbles of 16 bits' or 32 bits' worth of chunks of one row, low chunk first. Words are
stored in the order in which a warp reads them: those of rows r and r + 8 side by side, so that 32 bits of 16-bit words
are the metadata operand of an `mma.sp` with eight chunks, then the next 16 columns of words, then the next row.

cutlass     values [M, K / 2], and words [M, words of a row] whose memory is the reordered one. What
            torch.sparse.SparseSemiStructuredTensorCUTLASS calls packed and meta.
cusparselt  one buffer: values, then words in tiles of 128 x 64 elements. NVIDIA does not document it; this is the
            layout that PyTorch itself writes for cuSPARSELt (torch._sparse_semi_structured_tile): 16-bit types, M and K
            multiples of 128. Nothing is known of other types and shapes, which raise UnsupportedError.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mmulator.errors import OperandError, UnsupportedError
from mmulator.isa.forms import MatrixForm
from mmulator.layouts.sparse import metadata as meta
from mmulator.layouts.sparse.compress import Compressed
from mmulator.layouts.sparse.metadata import (
    TF32,
    Array,
    HasForm,
    Index,
    Metadata,
    element_bits,
    element_dtype,
    form_of,
    granularity,
)

BACKENDS = ("cutlass", "cusparselt")
# Element type -> (dtype of a metadata word, rows that are reordered together)
_WORDS = {
    "f16": (np.int16, 32),
    "bf16": (np.int16, 32),
    "tf32": (np.int16, 32),
    "s8": (np.int32, 16),
}


def to_torch(compressed: Compressed, backend: str = "cutlass") -> tuple[Array, Array | None]:
    """(packed, meta) of a compressed matrix [M, K], as PyTorch keeps them; meta is None for cusparselt.

    cutlass: packed is `values` [M, K / 2]; meta int16 [M, K / 16] for .f16 and .bf16, int16 [M, K / 8] for .tf32 (which
    PyTorch calls float32), int32 [M, K / 32] for .s8. cusparselt: packed is one-dimensional,
    M K / 2 values and M K / 16 words of metadata, both with the dtype of `values`.
    Raises OperandError for an M or K that the layout cannot hold, UnsupportedError for an element type or shape that
    the backend has not, or whose layout is not known.
    """
    form = compressed.form
    words, offsets = _layout(compressed.shape, form, backend)
    if compressed.metadata.size != compressed.values.size // granularity(form).kept:
        raise OperandError("one matrix at a time: [M, K]")
    nibbles = compressed.metadata.astype(np.uint32).reshape(*offsets.shape, -1)
    shifts = 4 * np.arange(nibbles.shape[-1], dtype=np.uint32)
    flat = np.empty(offsets.size, words)
    flat[offsets] = np.bitwise_or.reduce(nibbles << shifts, axis=-1).astype(f"u{words.itemsize}").view(words)
    if backend == "cutlass":
        return compressed.values, flat.reshape(offsets.shape)
    values = np.ascontiguousarray(compressed.values).reshape(-1)
    return np.concatenate([values, flat.view(values.dtype)]), None


def from_torch(
    packed: Any, meta_words: Any = None, *, instruction: MatrixForm | HasForm, shape: tuple[int, int] | None = None
) -> Compressed:
    """The compressed matrix of a semi-structured sparse tensor of PyTorch.

    packed: the tensor, or its `packed`; meta_words: its `meta` ([M, words], or [M, 2, words / 2] as PyTorch's own
    pruning leaves it), None for the cuSPARSELt backend, which keeps both in `packed` and so needs `shape`, (M, K). They
    are NumPy arrays, tensors, or anything NumPy can read. instruction: whose operand it is to become; it says the
    element type.
    Metadata with indices out of order, or with one index twice where a value is zero (PyTorch's own pruning writes
    both), becomes ordered metadata for the same dense matrix.
    Raises OperandError for shapes or dtypes that do not fit, or metadata that keeps one element twice;
    UnsupportedError as `to_torch`.
    """
    form = form_of(instruction)
    if meta_words is None and hasattr(packed, "packed") and hasattr(packed, "meta"):
        shape = shape or tuple(int(n) for n in packed.shape)  # type: ignore[assignment]
        packed, meta_words = packed.packed, packed.meta
    values = _array(packed)
    assert form.atype is not None
    if values.dtype not in (element_dtype(form.atype), np.dtype(f"u{element_bits(form.atype) // 8 or 1}")):
        raise OperandError(f"packed of {values.dtype}; .{form.atype} of {form} is {element_dtype(form.atype)}")
    if meta_words is None:
        values, flat, offsets = _from_buffer(values, form, shape)
    else:
        flat, offsets = _from_words(values, _array(meta_words), form)
    bits = 8 * flat.itemsize
    unsigned = flat.view(f"u{flat.itemsize}").astype(np.uint32)[offsets]
    nibbles = unsigned[..., None] >> np.arange(0, bits, 4, dtype=np.uint32) & np.uint32(15)
    return _ordered(values, nibbles.reshape(values.shape[0], -1).astype(np.uint8), form)


def _from_buffer(values: Array, form: MatrixForm, shape: tuple[int, int] | None) -> tuple[Array, Array, Index]:
    if shape is None:
        raise OperandError(
            "the shape of a packed buffer without metadata is not known",
            hint="cuSPARSELt's: give shape=(M, K). CUTLASS': give its meta as well",
        )
    words, offsets = _layout(shape, form, "cusparselt")
    m, k = shape
    if values.shape != (m * k * 9 // 16,):
        raise OperandError(f"a buffer of shape {values.shape}; {m} x {k} of .{form.atype} takes {m * k * 9 // 16} elements")
    return values[: m * k // 2].reshape(m, k // 2), values[m * k // 2 :].view(words), offsets


def _from_words(values: Array, words: Array, form: MatrixForm) -> tuple[Array, Index]:
    if values.ndim != 2:
        raise OperandError(f"packed of shape {values.shape}: [M, K / 2] is needed")
    want, offsets = _layout((values.shape[0], 2 * values.shape[1]), form, "cutlass")
    if words.dtype.itemsize != want.itemsize or words.dtype.kind not in "iu":
        raise OperandError(f"meta of {words.dtype}; .{form.atype} has {want} words")
    if words.ndim == 3 and words.shape[1] == 2:
        words = words.transpose(2, 0, 1).reshape(words.shape[0], -1)
    if words.shape != offsets.shape:
        raise OperandError(f"meta of shape {words.shape}; packed of shape {values.shape} needs {offsets.shape}")
    return np.ascontiguousarray(words).reshape(-1), offsets


def _layout(shape: tuple[int, ...], form: MatrixForm, backend: str) -> tuple[np.dtype[Any], Index]:
    """dtype of the words, and where the word of every (row, word of the row) is stored: int64 [M, words]."""
    if backend not in BACKENDS:
        raise OperandError(f"no backend {backend!r}", hint=f"there are {' and '.join(BACKENDS)}")
    assert form.atype is not None
    name = form.atype.name
    if len(shape) != 2:
        raise OperandError(f"A of shape {shape}: PyTorch's sparse tensors have two dimensions")
    m, k = shape
    if backend == "cusparselt" and (name not in ("f16", "bf16") or m % 128 or k % 128 or 0 in shape):
        raise UnsupportedError(
            f"where cuSPARSELt puts the metadata of a {m} x {k} matrix of .{name} is not known",
            rule="NVIDIA does not document the layout; PyTorch writes it itself for .f16 and .bf16 with M and K "
            "multiples of 128, and nothing public says more",
            hint="the CUTLASS backend has more types and shapes: torch.sparse.SparseSemiStructuredTensor._FORCE_CUTLASS = True",
        )
    if name not in _WORDS:
        raise UnsupportedError(
            f"PyTorch's conversion for CUTLASS has no .{name}", hint=f"it has {', '.join(f'.{n}' for n in _WORDS)}"
        )
    kind, group = _WORDS[name]
    words = np.dtype(kind)
    columns = granularity(form).chunk * 2 * words.itemsize  # of A, in a word
    if m == 0 or m % group or k == 0 or k % (2 * columns):
        raise OperandError(
            f"a {m} x {k} matrix of .{name} has no such layout: M must be a multiple of {group}, K of {2 * columns}",
            hint="`Compressed.padded(M, K)` fills up with zeros",
        )
    row = np.arange(m, dtype=np.int64)[:, None]
    word = np.arange(k // columns, dtype=np.int64)[None, :]
    # in a group of rows: g, then the sixteen, then the column of words, then the half of the sixteen
    inside = row % 8 * (group // 4) + row % group // 16 * 4 + word % 2 * 2 + row // 8 % 2
    if backend == "cutlass":
        return words, inside + row // group * (2 * group) + word // 2 * (2 * m)
    tile = row // 128 + word // 4 * (m // 128)  # of 128 x 64 elements, 512 words
    return words, inside + row % 128 // 32 * 64 + word // 2 % 2 * 256 + tile * 512


def _ordered(values: Array, nibbles: Metadata, form: MatrixForm) -> Compressed:
    """The same dense matrix with ordered metadata, where a zero makes that possible."""
    if granularity(form) is not TF32:
        pair = values.reshape(*nibbles.shape, 2)
        first, second = nibbles & 3, nibbles >> 2
        twice = first == second
        late = twice & (pair[..., 0] == 0)  # the zero is the first of the two
        spare = twice & (late | (pair[..., 1] == 0))
        if spare.any():  # the value that is left, and a zero beside it
            only = np.where(late, pair[..., 1], pair[..., 0])
            other = np.where(first < 2, 2, np.where(first == 2, 3, 2)).astype(np.uint8)
            pair = np.where(spare[..., None], np.stack([only, np.zeros_like(only)], axis=-1), pair)
            second = np.where(spare, other, second)
        swap = first > second
        pair = np.where(swap[..., None], pair[..., ::-1], pair)
        low, high = np.minimum(first, second), np.maximum(first, second)
        values, nibbles = pair.reshape(values.shape), (low | high << 2).astype(np.uint8)
    meta.check(nibbles, form)
    return Compressed(values, nibbles, form)


def _array(x: Any) -> Array:
    """A NumPy array of a tensor: the same bits, for dtypes that NumPy has from ml_dtypes too."""
    if hasattr(x, "detach") and str(getattr(x, "dtype", "")).startswith("torch."):
        import ml_dtypes

        name = str(x.dtype).removeprefix("torch.")
        x = x.detach().cpu()
        special = getattr(ml_dtypes, name, None)
        if special is None:
            return np.asarray(x.numpy())
        torch = sys.modules[type(x).__module__.partition(".")[0]]  # it made the tensor, so it is there
        return np.asarray(x.contiguous().view(torch.uint8).numpy()).view(special)
    if not hasattr(x, "__array__") and hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    return np.asarray(x)
