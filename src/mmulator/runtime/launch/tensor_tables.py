"""Tables of tcgen05.mma, which native code asks for when it meets an instruction descriptor for the first time.

`tables_of(device).address` is the host function that it calls. A table holds places, sizes and functions, as matrix/layouts/ and
the numerics twin define them (runtime/native/matrix/tensor_state.py: TensorTable).
"""

import ctypes
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from mmulator.base.errors import InternalError, MmulatorError, OperandError, UnsupportedError
from mmulator.isa.types import TYPES
from mmulator.matrix.layouts.instruction_descriptor import InstructionDescriptor, Variant
from mmulator.matrix.layouts.tensor_memory import TensorPiece, layout_id, metadata_place, pieces, scale_span, scale_step
from mmulator.matrix.numerics.profiles import DotKey, profile_for
from mmulator.matrix.twin.product import IndexTable
from mmulator.matrix.twin.twin import Twin, twin_for
from mmulator.runtime.native.matrix.tensor_state import PIECES, TENSOR_LANES, TENSOR_SCRATCH, TENSOR_STEPS, TensorTable, Unpack

_TABLE, _INDEX = TensorTable.numpy_dtype(), IndexTable.numpy_dtype()
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
MOST_SHIFT = 64
_UPPER = ("F", "C")  # layouts of 16 lanes in each quarter


def key_of(d: InstructionDescriptor, variant: Variant) -> DotKey:
    """The key of an instruction's arithmetic."""
    return DotKey(
        "tcgen05", d.atype, d.btype, d.dtype, d.dtype, d.k,
        sparse=d.sparse,
        satfinite=d.saturate,
        kind=variant.kind if variant.kind.startswith("mx") else None,
        scale_vec=f"{variant.scale_vec}X" if variant.scale_vec else None,
        stype=d.stype or None,
    )  # fmt: skip


def unpacking(kind: str, element: str) -> tuple[Unpack, Unpack]:
    """How elements lie in shared memory, and in tensor memory."""
    bits = TYPES[element].bits
    if kind in ("mxf4", "mxf4nvf4"):
        return Unpack.PAIRS, Unpack.PAIRS
    if bits == 4:
        return Unpack.PADDED_4, Unpack.SHIFTED_4
    return (Unpack.PADDED_6, Unpack.LOW_6) if bits == 6 else (Unpack.WHOLE, Unpack.WHOLE)


class _Tables:
    """The tables of a device. problems: why there is none for a variant and a descriptor."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.known: dict[tuple[int, int], tuple[np.ndarray, list[Any]]] = {}
        self.problems: dict[tuple[int, int], Exception] = {}
        self.questions: list[str] = []  # what is inferred of products, in words; tables have masks of their numbers
        self.callback = CALLBACK(self._resolve)
        self.address = ctypes.cast(self.callback, ctypes.c_void_p).value or 0

    def _resolve(self, number: int, word: int) -> int:
        """The address of a table; 0 if the instruction does not take the descriptor. Called from native code, so nothing may be
        raised."""
        found = self.known.get((number, word))
        if found is None:
            try:
                keep: list[Any] = []
                found = make_table(Variant.of_number(number), word, self.device, keep, self.questions), keep
            except MmulatorError as problem:
                self.problems[number, word] = problem
                return 0
            except Exception as problem:
                self.problems[number, word] = InternalError(f"{type(problem).__name__}: {problem}")
                return 0
            found = self.known.setdefault((number, word), found)
        return int(found[0].ctypes.data)


@cache
def tables_of(device: str) -> _Tables:
    """The tables that instructions of a device use."""
    return _Tables(device)


def questions(device: str, tallies: np.ndarray) -> list[str]:
    """Notes about products of a launch: what is inferred. tallies: what they counted."""
    return [f"inferred: {tables_of(device).questions[n]}" for n in np.flatnonzero(tallies[1:])]


def make_table(variant: Variant, word: int, device: str, keep: list[Any], questions: list[str]) -> np.ndarray:
    """The table of a variant with an instruction descriptor on a device: a TensorTable.

    keep: receives what must live as long as the table.
    questions: what is inferred of products; receives what is not in it.

    Raises OperandError for a descriptor that the variant does not take, UnsupportedError for one whose result is not known.
    """
    d = variant.decode(word)
    if d.unknown:
        raise UnsupportedError(f"instruction descriptor {word:#010x}: {d.unknown}")
    key = key_of(d, variant)
    try:
        twin = twin_for(key, device)
    except UnsupportedError:
        if d.k != 96:
            raise
        raise OperandError(f"instruction descriptor {word:#010x}: bit 31 is reserved on {device}: K = 96 is of sm_103") from None
    layout = layout_id(d.m, variant.pair, variant.ws, variant.sparse)
    parts = pieces(layout, d.n)
    rows = d.m // (1 + variant.pair)
    stored = d.k // 2 if d.sparse else d.k
    scales = variant.scale_vec * d.k // 64 if d.k == 96 else variant.scale_vec
    lines = parts[0].columns
    a_size, b_size = (max(TYPES[t].bits, 8) // 8 for t in (d.atype, d.btype))
    (a_unpack, cells_unpack), (b_unpack, _) = unpacking(d.kind, d.atype), unpacking(d.kind, d.btype)
    table = np.zeros(1, _TABLE)
    values: dict[str, Any] = {
        "word": word, "mode": variant.number,
        "pack_a": twin.pack_a, "pack_b": twin.pack_b, "pack_b_rows": twin.pack_b_rows, "dot": twin.dot,
        "dot_steps": twin.dot_steps,
        "m": rows, "n": d.n, "k": d.k, "stored": stored,
        "a_size": a_size, "b_size": b_size,
        "a_line": _line(stored, a_size, a_unpack), "b_line": _line(d.k, b_size, b_unpack),
        "a_cells": _line(stored, a_size, cells_unpack),
        "a_unpack": a_unpack, "b_unpack": b_unpack, "a_cells_unpack": cells_unpack,
        "a_across": d.transpose_a, "b_across": d.transpose_b,
        "flags": twin.flags(negate_a=d.negate_a, negate_b=d.negate_b), "d_bits": TYPES[d.dtype].bits,
        "pieces": len(parts), "rows": parts[0].rows, "columns": parts[0].columns,
        "upper": layout in _UPPER, "width": max(p.column + p.columns for p in parts),
        "scales": scales, "a_byte": d.scale_a_id, "b_byte": d.scale_b_id,
        "a_next": scale_step(rows), "b_next": scale_step(lines),
        "a_span": scale_span(rows, d.scale_a_id, scales), "b_span": scale_span(lines, d.scale_b_id, scales),
        "sparse": d.sparse, "selected": d.selector, "macs": d.m * d.n * d.k,
        "open": _mask(questions, _of_sums(d, key, device, layout)), "open_cells": _mask(questions, _of_cells(cells_unpack)),
    }  # fmt: skip
    for name, value in values.items():
        table[name] = value
    for p, part in enumerate(parts):
        for name in ("row", "first", "lane", "column"):
            table[name][0, p] = getattr(part, name)
    _pack_rows(table, twin, parts)
    if d.sparse:
        _indices(table, d, layout, rows, stored, keep)
    _scratch(table, twin, d, rows, stored)
    keep.append(twin)
    return table


def _mask(questions: list[str], asked: Iterator[str]) -> int:
    """The bits of questions in a list, which receives new ones."""
    mask = 0
    for question in asked:
        if question not in questions:
            questions.append(question)
        mask |= 1 << questions.index(question)
    return mask


def _of_sums(d: InstructionDescriptor, key: DotKey, device: str, layout: str) -> Iterator[str]:
    """Inferred properties of a product, whatever A is in."""
    profile = profile_for(key, device)
    if profile.confidence == "inferred":
        yield f"tcgen05.mma.kind::{d.kind} on {device}: {profile.note or 'not observed'}"
    if d.ws:
        yield "tcgen05.mma.ws has the sums of tcgen05.mma"
    if d.sparse and layout in _UPPER:
        yield f"metadata of tcgen05.mma.sp with M = {d.m}: 16 lanes in each quarter, as D"


def _of_cells(unpack: Unpack) -> Iterator[str]:
    """Inferred properties of A in tensor memory."""
    bits = {Unpack.SHIFTED_4: "4 bits are bits 2 to 5", Unpack.LOW_6: "6 bits are bits 0 to 5"}
    if unpack in bits:
        yield f"elements of A in tensor memory of {bits[unpack]} of a byte"


def _line(elements: int, size: int, unpack: Unpack) -> int:
    """Bytes of some elements in memory."""
    return elements // 2 if unpack == Unpack.PAIRS else elements * size


def _pack_rows(table: np.ndarray, twin: Twin, parts: tuple[TensorPiece, ...]) -> None:
    if len(parts) > PIECES:
        raise InternalError(f"{len(parts)} pieces of an accumulator")
    for name, size, count in (("a_row", twin.a_bytes, parts[0].rows), ("b_row", twin.b_bytes, parts[0].columns)):
        table[name] = -(-size(count, int(table["k"][0])) // count // 8) * 8 + 8


def _indices(table: np.ndarray, d: InstructionDescriptor, layout: str, rows: int, stored: int, keep: list[Any]) -> None:
    """Add the IndexTable of a sparse A."""
    bits = {"mxf4": 4, "mxf4nvf4": 4}.get(d.kind, max(TYPES[d.atype].bits, 8))
    m, j = np.divmod(np.arange(rows * stored), stored)
    lane, column, shift = metadata_place(bits, m, j, layout)
    cells = int(np.max(column)) + 1
    if bits == 32:  # one of two
        base, group, drop = j * 2, 1, 1
    elif bits == 4:  # two pairs of four
        base, group, drop = j // 4 * 8 + j % 2, 2, 0
    else:  # two of four
        base, group, drop = j // 2 * 4, 1, 0
    index = np.zeros(1, _INDEX)
    index["count"], index["drop"], index["group"] = rows * stored, drop, group
    for name, values in (("lane", lane * cells + column), ("shift", shift), ("base", base)):
        array = np.ascontiguousarray(values, np.int32)
        keep.append(array)
        index[name] = array.ctypes.data
    keep.append(index)
    table["places"], table["cells"] = index.ctypes.data, cells


def _padded(size: int) -> int:
    """Bytes of a part of the scratch memory: vectors may read a line beyond."""
    return -(-size // 64) * 64 + 64


def _scratch(table: np.ndarray, twin: Twin, d: InstructionDescriptor, rows: int, stored: int) -> None:
    """Give each part of the scratch memory its place."""
    columns = d.n + MOST_SHIFT * d.ws  # a zero-column mask descriptor may shift the columns of B
    elements = max(rows * stored * int(table["a_size"][0]), columns * d.k * int(table["b_size"][0]))
    packed = rows * int(table["a_row"][0]), d.n * int(table["b_row"][0])
    table["a_pack"], table["b_pack"] = (-(-size // 64) * 64 for size in packed)
    sizes = {
        "raw": elements,
        "elements": elements,
        "packed_a": packed[0],
        "packed_b": packed[1],
        "c": 128 * d.n * 4,
        "index": rows * stored * 4 * d.sparse,
        "metadata": TENSOR_LANES * int(table["cells"][0]) * 4,
        "scale_a": rows * int(table["scales"][0]),
        "scale_b": d.n * int(table["scales"][0]),
    }
    alone = sum(map(_padded, sizes.values()))
    if alone > TENSOR_SCRATCH:
        raise InternalError(f"tcgen05.mma needs {alone} bytes to compute in")
    if table["dot_steps"][0]:
        step = int(table["a_pack"][0]), int(table["b_pack"][0])
        table["steps"] = min(TENSOR_STEPS, 1 + (TENSOR_SCRATCH - alone) // sum(step))
        for name, size in zip(("packed_a", "packed_b"), step):
            sizes[name] += size * (int(table["steps"][0]) - 1)
    starts = [*accumulate(map(_padded, sizes.values()), initial=0)]
    for name, at in zip(sizes, starts):
        table["scratch"][name] = at
