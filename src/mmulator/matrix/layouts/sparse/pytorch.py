"""The layouts in which PyTorch's semi-structured sparse tensors keep a compressed matrix.

cutlass          values [M, K / 2], and words [M, words of a row] whose memory is reordered. A word of metadata holds the
                 nibbles of 16 or 32 bits' worth of chunks of one row, low chunk first. Words of rows r and r + 8 are
                 adjacent, so that 32 bits of 16-bit words are the metadata operand of an `mma.sp` with eight chunks; the
                 next 16 columns of words follow, and then the next row. torch.sparse.SparseSemiStructuredTensorCUTLASS
                 calls the two packed and meta.
cusparselt       one buffer: values, then metadata, as cuSPARSELt writes them (cusparselt.py).
cusparselt_tile  one buffer, as PyTorch itself writes it for cuSPARSELt (torch._sparse_semi_structured_tile).
"""

from typing import Any

import numpy as np

from mmulator.base.errors import OperandError, UnsupportedError, short_traceback, shown
from mmulator.base.interop import as_array
from mmulator.isa.form import Form
from mmulator.matrix.layouts.sparse import cusparselt
from mmulator.matrix.layouts.sparse import metadata as meta
from mmulator.matrix.layouts.sparse.compress import Compressed, check_compressed, expand
from mmulator.matrix.layouts.sparse.metadata import (
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

BACKENDS = ("cutlass", "cusparselt", "cusparselt_tile")
PADDING = 0b1110  # of chunks that the matrix lacks
# Element type -> (dtype of a metadata word, rows that are reordered together)
_WORDS = {
    "f16": (np.int16, 32),
    "bf16": (np.int16, 32),
    "tf32": (np.int16, 32),
    "s8": (np.int32, 16),
}


@short_traceback
def to_torch(compressed: Compressed, backend: str = "cutlass") -> tuple[Array, Array | None]:
    """(packed, meta) of a compressed matrix [M, K], as PyTorch keeps them; meta is None except for cutlass.

    cutlass: packed is `values` [M, K / 2]; meta is int16 [M, K / 16] for .f16 and .bf16, int16 [M, K / 8] for .tf32 (which
        PyTorch calls float32), int32 [M, K / 32] for .s8.
    cusparselt: packed is one-dimensional and has the dtype of `values`: M K / 2 values, then the metadata, as
        torch._cslt_compress returns them (`.reshape(M, -1)`). Types .f16, .bf16, .s8, .e4m3 and .tf32; M and K are multiples of
        32. Bytes that cuSPARSELt does not write are 0. Half a unit in the last place is added to values of .tf32.
    cusparselt_tile: packed is written as by torch._sparse_semi_structured_tile for cuSPARSELt. Types .f16 and .bf16; M and K
        are multiples of 128.

    Raises OperandError for an M or K that the layout cannot hold, or values of a different dtype; UnsupportedError for an
    element type or shape that the backend does not support, or whose layout is not known.
    """
    check_compressed(compressed)
    form = compressed.form
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise OperandError(f"no backend {shown(backend)}", hint=f"there are {', '.join(BACKENDS)}")
    if len(compressed.shape) != 2:
        raise OperandError(f"A of shape {compressed.shape}: PyTorch's sparse tensors have two dimensions")
    if backend != "cutlass":
        return _to_buffer(compressed, backend), None
    words, offsets = _layout(compressed.shape, form)
    nibbles = compressed.metadata.astype(np.uint32).reshape(*offsets.shape, -1)
    shifts = 4 * np.arange(nibbles.shape[-1], dtype=np.uint32)
    flat = np.empty(offsets.size, words)
    flat[offsets] = np.bitwise_or.reduce(nibbles << shifts, axis=-1).astype(f"u{words.itemsize}").view(words)
    return compressed.values, flat.reshape(offsets.shape)


@short_traceback
def from_torch(
    packed: Any,
    meta_words: Any = None,
    *,
    instruction: Form | HasForm | str,
    shape: tuple[int, int] | None = None,
    backend: str | None = None,
) -> Compressed:
    """The compressed matrix of a semi-structured sparse tensor of PyTorch.

    packed: the tensor, or its `packed`.
    meta_words: its `meta` ([M, words], or [M, 2, words / 2] after PyTorch's own pruning); None for the cuSPARSELt backend,
        which keeps both in `packed`.
    instruction: the instruction whose operand it becomes; determines the element type.
    shape: (M, K); required if `meta_words` is None.
    backend: as in `to_torch`. None selects cutlass for integer metadata, cusparselt without metadata, and cusparselt_tile if
        `meta` has the dtype of `packed` (as PyTorch's own pruning for cuSPARSELt returns it).

    packed and meta_words are NumPy arrays, tensors, or anything that NumPy can read. Metadata with indices out of order, or
    with one index twice where a value is zero (PyTorch's own pruning writes both), becomes ordered metadata of the same dense
    matrix. .tf32 values of cusparselt lose their low 13 bits.
    Raises OperandError for shapes or dtypes that do not fit, or metadata that keeps one element twice; UnsupportedError like
    `to_torch`.
    """
    form = form_of(instruction)
    if meta_words is None and hasattr(packed, "packed") and hasattr(packed, "meta"):
        shape = shape or tuple(int(n) for n in packed.shape)  # type: ignore[assignment]
        packed, meta_words = packed.packed, packed.meta
    values = _array("packed", packed)
    words = None if meta_words is None else _array("meta", meta_words)
    _check_dtype(values, form)
    if backend is None:
        tile = words is not None and words.dtype == values.dtype and words.ndim == 3 and shape is not None
        backend = "cusparselt_tile" if tile else "cusparselt" if words is None else "cutlass"
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise OperandError(f"no backend {shown(backend)}", hint=f"there are {', '.join(BACKENDS)}")
    if backend != "cutlass":
        return _ordered(*_from_buffer(values, form, shape, backend), form)
    if words is None:
        raise OperandError("CUTLASS' layout without its meta", hint="give meta_words")
    flat, offsets = _from_words(values, words, form)
    bits = 8 * flat.itemsize
    unsigned = flat.view(f"u{flat.itemsize}").astype(np.uint32)[offsets]
    nibbles = unsigned[..., None] >> np.arange(0, bits, 4, dtype=np.uint32) & np.uint32(15)
    return _ordered(values, nibbles.reshape(values.shape[0], -1).astype(np.uint8), form)


def _check_dtype(values: Array, form: Form) -> None:
    if values.dtype not in (element_dtype(form.atype), np.dtype(f"u{element_bits(form.atype) // 8 or 1}")):
        raise OperandError(f"packed of {values.dtype}; .{form.atype} of {form} is {element_dtype(form.atype)}")


def _buffer(shape: tuple[int, ...], form: Form, backend: str) -> cusparselt.CompressedBuffer:
    layout = cusparselt.compressed if backend == "cusparselt" else cusparselt.packed
    return layout(shape[0], shape[1], form.atype.name)


def _to_buffer(s: Compressed, backend: str) -> Array:
    _check_dtype(s.values, s.form)
    layout = _buffer(s.shape, s.form, backend)
    if backend == "cusparselt" and granularity(s.form) is not TF32:
        s = _filled(s)
    (m, k), size = s.shape, s.values.itemsize
    nibbles = np.zeros(2 * layout.size, np.uint8)
    nibbles[: 2 * layout.written] = PADDING  # what the matrix lacks
    for place in layout.places:
        nibbles[place] = s.metadata
    values = np.ascontiguousarray(s.values)
    if granularity(s.form) is TF32:
        values = _rounded(values)
    out = np.zeros(_elements(m, k, size, layout), values.dtype)
    out[: m * k // 2] = values.reshape(-1)
    out.view(np.uint8)[m * k // 2 * size :][: layout.size] = nibbles[::2] | nibbles[1::2] << 4
    return out


def _elements(m: int, k: int, size: int, layout: cusparselt.CompressedBuffer) -> int:
    """Number of elements of PyTorch's tensor, which consists of M whole rows."""
    return -(-(m * k // 2 * size + layout.size) // (m * size)) * m


def _rounded(values: Array) -> Array:
    """float32 values as cuSPARSELt stores them: half a unit of tf32's last place is added to the bits, since readers drop the
    low 13 bits; subnormals become zero first, infinities and NaN stay.
    """
    bits = values.view(np.uint32)
    exponent = bits & np.uint32(0x7F800000)
    bits = np.where(exponent == 0, np.uint32(0), bits)
    return np.where(exponent == 0x7F800000, bits, bits + np.uint32(0x1000)).view(values.dtype)


def _filled(s: Compressed) -> Compressed:
    """The matrix with metadata as cuSPARSELt fills chunks with too few non-zeros: with the last columns."""
    dense = expand(s).reshape(*s.metadata.shape, 4)
    full = dense.view(f"u{dense.itemsize}") != 0
    column = np.arange(4)
    order = np.where(full, column, 7 - column)  # non-zeros first, then free columns from the last one on
    kept = np.sort(np.argsort(order, axis=-1, kind="stable")[..., :2], axis=-1)
    values = np.take_along_axis(dense, kept, axis=-1).reshape(s.values.shape)
    return Compressed(values, (kept[..., 0] | kept[..., 1] << 2).astype(np.uint8), s.form)


def _from_buffer(values: Array, form: Form, shape: tuple[int, int] | None, backend: str) -> tuple[Array, Metadata]:
    if shape is None:
        raise OperandError(
            "the shape of a packed buffer without metadata is not known",
            hint="cuSPARSELt's: give shape=(M, K). CUTLASS': give its meta as well",
        )
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise OperandError(f"shape {shown(shape)}: PyTorch's sparse tensors have two dimensions, (M, K)")
    shape = meta.whole_number("M", shape[0]), meta.whole_number("K", shape[1])
    layout = _buffer(shape, form, backend)
    (m, k), size = shape, values.itemsize
    half, most = m * k // 2, _elements(m, k, size, layout)
    flat = np.ascontiguousarray(values).reshape(-1)
    if not half * size + layout.size <= flat.nbytes <= most * size:
        raise OperandError(f"a buffer of shape {values.shape}; {m} x {k} of .{form.atype} takes {most} elements")
    stored = flat.view(np.uint8)[half * size :]
    copies = stored[layout.places >> 1] >> (4 * (layout.places & 1)).astype(np.uint8) & 15
    if (copies != copies[0]).any():
        raise OperandError("the two copies of the metadata differ: this is no buffer of cuSPARSELt's, or not of this shape")
    kept = flat[:half].reshape(m, k // 2)
    if granularity(form) is TF32:
        kept = (kept.view(np.uint32) & np.uint32(0xFFFFE000)).view(kept.dtype)
    return kept, copies[0]


def _from_words(values: Array, words: Array, form: Form) -> tuple[Array, Index]:
    if values.ndim != 2:
        raise OperandError(f"packed of shape {values.shape}: [M, K / 2] is needed")
    want, offsets = _layout((values.shape[0], 2 * values.shape[1]), form)
    if words.dtype.itemsize != want.itemsize or words.dtype.kind not in "iu":
        raise OperandError(f"meta of {words.dtype}; .{form.atype} has {want} words")
    if words.ndim == 3 and words.shape[1] == 2:
        words = words.transpose(2, 0, 1).reshape(words.shape[0], -1)
    if words.shape != offsets.shape:
        raise OperandError(f"meta of shape {words.shape}; packed of shape {values.shape} needs {offsets.shape}")
    return np.ascontiguousarray(words).reshape(-1), offsets


def _layout(shape: tuple[int, ...], form: Form) -> tuple[np.dtype[Any], Index]:
    """(dtype of CUTLASS's words, the offset at which each word [M, words of a row] is stored: int64 [M, words])."""
    name = form.atype.name
    m, k = shape
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
    return words, inside + row // group * (2 * group) + word // 2 * (2 * m)


def _ordered(values: Array, nibbles: Metadata, form: Form) -> Compressed:
    """An equal dense matrix with ordered metadata; possible where a repeated index has a zero value."""
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


def _array(name: str, x: Any) -> Array:
    """A NumPy array from an array or a tensor, which may be on a GPU."""
    return as_array(name, x.detach().cpu() if hasattr(x, "detach") and hasattr(x, "cpu") else x)
