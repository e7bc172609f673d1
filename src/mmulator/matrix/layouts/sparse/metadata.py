"""The metadata of a sparse A: the meaning of a nibble, and the lanes and bits that hold it.

A chunk of A has one nibble of metadata: two 2-bit indices, the low one first. In 8- and 16-bit types a chunk has four
elements and the indices name the two that are kept; in 4-bit types it has eight, in four pairs, and the indices name
pairs; in tf32 it has two, and the indices name 16-bit halves, so 0b0100 keeps the first and 0b1110 the second.

Sparse matrix storage; Matrix fragments for multiply-accumulate operation with sparse matrix A (PTX ISA 9.1).
"""

import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError, shown
from mmulator.base.interop import as_array, named_dtype
from mmulator.isa.form import Form
from mmulator.isa.names.instruction import parse_instruction
from mmulator.isa.types import ElementType

Array = NDArray[Any]
Index = NDArray[np.int64]
Metadata = NDArray[np.uint8]

RULE = "Sparse matrix storage (PTX ISA 9.1)"


class HasForm(Protocol):
    """Any object with a `form`, such as an Instruction."""

    @property
    def form(self) -> Form: ...


@dataclass(frozen=True)
class Granularity:
    """The part of A that one nibble of metadata covers.

    chunk: elements of A.
    kept: elements of the chunk that are kept.
    group: elements that an index names (2 in 4-bit types).
    nibbles: values that the specification defines, in the order of the elements that they keep.
    """

    chunk: int
    kept: int
    group: int
    nibbles: tuple[int, ...]


_PAIRS = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110)
TF32 = Granularity(2, 1, 1, (0b0100, 0b1110))
_TWO_OF_FOUR = Granularity(4, 2, 1, _PAIRS)
_PAIRS_OF_EIGHT = Granularity(8, 4, 2, _PAIRS)


def form_of(instruction: Form | HasForm | str) -> Form:
    """The sparse form of an instruction. Raises OperandError if it has no sparse A or is not an instruction, and
    InvalidInstructionError for a name or words that denote no instruction.
    """
    if isinstance(instruction, str):
        instruction = parse_instruction(instruction)
    form = instruction if isinstance(instruction, Form) else getattr(instruction, "form", None)
    if not isinstance(form, Form):
        raise OperandError(f"an instruction is needed, not {type(instruction).__name__}", hint='such as "mma.sp m16n8k32 f16"')
    if not form.sparse:
        raise OperandError(
            f"{form} has no sparse operand",
            hint="sparse instructions: mma.sp, mma.sp::ordered_metadata, wgmma.mma_async.sp",
        )
    return form


def granularity(form: Form) -> Granularity:
    """The part of A that a nibble of the form's metadata covers."""
    if form.atype.name == "tf32":
        return TF32
    if form.atype.bits == 4 and form.kind not in ("f8f6f4", "mxf8f6f4"):
        return _PAIRS_OF_EIGHT
    return _TWO_OF_FOUR


def selectors(form: Form) -> range:
    """The sparsity selectors that the specification defines for a form."""
    return range({4: 4, 8: 2, 16: 1}[form.k // granularity(form).chunk])


def element_bits(element: ElementType) -> int:
    """Bits of an element of the uncompressed A: 32 for tf32."""
    return 32 if element.name == "tf32" else element.bits


def element_dtype(element: ElementType) -> np.dtype[Any]:
    """NumPy or ml_dtypes dtype of A's elements."""
    return named_dtype(element.numpy)


# Lanes and bits ------------------------------------------------------------------------------------------------------
def places(form: Form, selector: int = 0) -> tuple[Index, Index]:
    """Lane and lowest bit of the nibble of every (row, chunk): two int64 arrays [M, K / chunk].

    With g = lane / 4 the row in a warp's sixteen, f the selector:
      4 chunks            lane 4g + f      low half row g, high half row g + 8
      8 chunks, 16 bits+  lane 4g + 2f + p chunks 4p.. of row g (low half) and g + 8 (high half)
      8 chunks, 8 bits-   lane 4g + 2f + p all chunks of row g + 8p
      16 chunks           lane 4g + p      chunks 8 (p / 2).. of row g + 8 (p % 2); every lane contributes
    Raises OperandError for a selector that the specification does not define.
    """
    return _places(form_of(form), whole_number("sparsity selector", selector))


def whole_number(name: str, value: Any) -> int:
    """An integer argument as an int. Raises OperandError for any other value."""
    try:
        return operator.index(value)
    except TypeError:
        raise OperandError(f"{name} {value!r}: an integer is needed") from None


def nibbles_of(metadata: Any) -> Array:
    """Metadata as an array of integers from 0 to 15. Raises OperandError for other values."""
    found = as_array("metadata", metadata)
    if found.dtype.kind not in "iu":
        raise OperandError(f"metadata of {found.dtype}: nibbles [..., M, chunks] are needed, as integers")
    return found


@lru_cache(maxsize=256)
def _places(form: Form, selector: int) -> tuple[Index, Index]:
    if form.effects.tensor:
        raise OperandError(f"{form} has its metadata in tensor memory", hint="layouts.tensor_memory.metadata_place says where")
    chunks = form.k // granularity(form).chunk
    allowed = selectors(form)
    if selector not in allowed:
        raise OperandError(
            f"sparsity selector {shown(selector)} for {form}: it must be 0 to {allowed[-1]}",
            rule=RULE,
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


def to_registers(metadata: Metadata, form: Form, selector: int = 0) -> NDArray[np.uint32]:
    """Nibbles [..., M, chunks] to the metadata operand [..., lanes]; lanes that do not contribute hold 0."""
    lane, bit = places(form, selector)
    nibbles = nibbles_of(metadata)
    if nibbles.shape[-2:] != lane.shape:
        raise OperandError(
            f"metadata of shape {nibbles.shape}; {form} needs [..., {lane.shape[0]}, {lane.shape[1]}]",
            hint="`tiles()` cuts a larger compressed matrix into the instruction's shape",
        )
    out = np.zeros((*nibbles.shape[:-2], form.lanes), np.uint32)
    shifted = (nibbles.astype(np.uint32) & np.uint32(15)) << bit.astype(np.uint32)
    for column in range(lane.shape[1]):  # one chunk at a time, so that no lane comes twice
        for half in (bit[:, column] < 16, bit[:, column] >= 16):
            out[..., lane[half, column]] |= shifted[..., half, column]
    return out


def from_registers(registers: Array, form: Form, selector: int = 0) -> Metadata:
    """The metadata operand [..., lanes] (uint32) to nibbles [..., M, chunks]."""
    lane, bit = places(form, selector)
    words = as_array("metadata registers", registers)
    if words.shape[-1:] != (form.lanes,) or words.dtype.kind not in "iu":
        raise OperandError(f"metadata registers of {words.dtype} {words.shape}; {form} needs integers [..., {form.lanes}]")
    return (words.astype(np.uint32)[..., lane] >> bit.astype(np.uint32) & np.uint32(15)).astype(np.uint8)


# What is kept --------------------------------------------------------------------------------------------------------
def indices(metadata: Metadata, form: Form) -> Index:
    """Column of A (row of B) of every kept element: int64 [..., M, K / 2] from nibbles [..., M, chunks].

    Indices that are out of order or repeated are used as they are, as on hardware. For tf32 the column is that of the element
    with the first half; `mixed` tells where the two halves are not of one element.
    """
    g = granularity(form)
    nibble = nibbles_of(metadata).astype(np.int64)
    if nibble.ndim < 1:
        raise OperandError("metadata is a number: nibbles [..., M, chunks] are needed")
    first, second = nibble & 3, nibble >> 2 & 3
    base = np.arange(nibble.shape[-1], dtype=np.int64) * g.chunk
    if g is TF32:
        return base + first // 2
    pair = np.stack([first, second], axis=-1) * g.group
    inside = (pair[..., None] + np.arange(g.group)).reshape(*nibble.shape, g.kept)
    return (base[:, None] + inside).reshape(*nibble.shape[:-1], nibble.shape[-1] * g.kept)


def mixed(metadata: Metadata, form: Form) -> NDArray[np.bool_]:
    """Whether tf32 metadata selects halves of different elements: bool [..., M, chunks]; all False for other types."""
    nibble = nibbles_of(metadata)
    if granularity(form) is not TF32:
        return np.zeros(nibble.shape, bool)
    none_of_them: NDArray[np.bool_] = ~np.isin(nibble, TF32.nibbles)
    return none_of_them


def undefined(metadata: Metadata, form: Form) -> NDArray[np.bool_]:
    """Whether the specification leaves the metadata undefined: bool [..., M, chunks].

    Without `::ordered_metadata`, two different indices may come in either order.
    """
    nibble = nibbles_of(metadata)
    g = granularity(form)
    if g is TF32 or form.ordered_metadata:
        bad: NDArray[np.bool_] = ~np.isin(nibble, g.nibbles)
    elif form.effects.tensor:
        bad = ~np.isin(nibble, (*g.nibbles, 0b0110))
    else:
        bad = np.equal(nibble & 3, nibble >> 2 & 3)
    return bad


def refused_nibbles(form: Form) -> tuple[int, int, int]:
    """Three masks of the 16 nibbles: those that the specification leaves undefined; among them those that only the order of
    `::ordered_metadata` excludes; and others that only the list of nibbles of mma.sp with FP8 excludes, without a word of order.
    """
    bad = (1 << 16) - 1 - sum(1 << n for n in allowed(form))
    distinct = sum(1 << n for n in range(16) if n & 3 != n >> 2)
    falling = sum(1 << n for n in range(16) if n & 3 > n >> 2)
    if form.op == "mma" and form.atype.name.startswith("e") and not form.ordered_metadata:
        return bad, 0, falling
    return bad, bad & distinct if form.ordered_metadata and granularity(form) is not TF32 else 0, 0


def contributing(form: Form, selector: int) -> list[int]:
    """Lanes of a warp whose words of metadata an instruction uses."""
    return sorted({int(lane) % 32 for lane in places(form, selector)[0].flat})


def check(metadata: Metadata, form: Form) -> None:
    """Raise OperandError for the first nibble that the specification leaves undefined, naming its row and columns."""
    bad = undefined(metadata, form)
    if bad.ndim < 2:
        raise OperandError(f"metadata of shape {bad.shape}: [..., M, chunks] is needed")
    if bad.any():
        at = tuple(int(x) for x in np.argwhere(bad)[0])
        nibble = int(nibbles_of(metadata)[at])
        raise OperandError(
            f"metadata 0b{nibble:04b} at {where(at, form)}: it {meaning(nibble, form)}",
            rule=f"{RULE}: " + ", ".join(f"0b{n:04b}" for n in allowed(form)) + " are defined",
            hint=None if bad.sum() == 1 else f"so it is in {int(bad.sum())} chunks",
        )


def allowed(form: Form) -> tuple[int, ...]:
    """Nibbles that the specification defines for a form, ascending."""
    every = np.arange(16, dtype=np.uint8)
    return tuple(int(n) for n in every[~undefined(every, form)])


def meaning(nibble: int, form: Form) -> str:
    """The elements that a nibble keeps of its chunk, or the reason why it is undefined, in words."""
    g = granularity(form)
    first, second = nibble & 3, nibble >> 2
    if g is TF32:
        kept = {n: f"keeps element {i}" for i, n in enumerate(g.nibbles)}
        return kept.get(nibble, f"names 16-bit halves {first} and {second}, not those of one element")
    what = "pair" if g.group == 2 else "element"
    if first == second:
        return f"names {what} {first} twice"
    if first > second and form.ordered_metadata:
        return f"names {what}s {first} and {second} out of order, which ::ordered_metadata does not allow"
    return f"keeps {what}s {first} and {second}"


def where(at: tuple[int, ...], form: Form) -> str:
    """The place (..., row, chunk) in words, with the columns of A."""
    *batch, row, chunk = at
    size = granularity(form).chunk
    matrix = f"matrix {', '.join(map(str, batch))}, " if batch else ""
    return f"{matrix}row {row}, columns {chunk * size} to {(chunk + 1) * size - 1} (chunk {chunk})"
