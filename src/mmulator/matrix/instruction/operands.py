"""The operands that a user passes to an instruction: words, registers, integers and images of memory, and their checks."""

import operator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import ExecutionFault, OperandError, shown
from mmulator.base.interop import as_array, writable
from mmulator.isa.form import Form
from mmulator.matrix.layouts import fragment, sparse
from mmulator.matrix.numerics.formats import batch_shape

Array = NDArray[Any]
Operands = dict[str, Any]

OFFSETS = range(-(1 << 40), 1 << 40)  # bytes or elements; the size of the memory is checked by its readers


# numbers and registers ------------------------------------------------------------------------------------------------
def words(name: str, value: Any, bits: int = 32) -> Array:
    """An operand as unsigned words of 32 or 64 bits; signed and float arrays of that size are reinterpreted bit for bit."""
    array = as_array(f"operand {name}", value)
    want = np.dtype(f"<u{bits // 8}")
    if array.dtype.kind not in "uif" or array.dtype.itemsize != want.itemsize:
        raise OperandError(f"operand {name} is {array.dtype}: registers are {want.name}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array).view(want)


def registers(form: Form, name: str, value: Any) -> Array:
    """A register operand as unsigned words [..., lanes, registers]."""
    rule = fragment(form, name)
    array = words(name, value, rule.register_bits)
    if array.shape[-2:] != (rule.lanes, rule.registers):
        raise OperandError(
            f"operand {name} of shape {array.shape}: [..., {rule.lanes} lanes, {rule.registers} registers] is needed",
            rule=str(form.section),
        )
    return array


def column(form: Form, name: str, value: Any) -> Array:
    """An operand of one register, as [..., lanes]; [..., lanes, 1] is accepted too."""
    array = words(name, value)
    if array.shape[-2:] == (form.lanes, 1):
        array = array[..., 0]
    if array.shape[-1:] != (form.lanes,):
        raise OperandError(f"operand {name} of shape {array.shape}: [..., {form.lanes} lanes] is needed")
    return array


def batch(**operands: tuple[Array | None, int]) -> tuple[int, ...]:
    """Common leading dimensions of arrays, each given as (array, number of its own dimensions)."""
    return batch_shape({name: x.shape[: x.ndim - own] for name, (x, own) in operands.items() if x is not None})


def integer(name: str, value: Any, allowed: range | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise OperandError(f"operand {name} is {shown(value)}: an integer is needed") from None
    if allowed is not None and number not in allowed:
        which = f"one of {', '.join(map(str, allowed))}" if len(allowed) < 9 else f"from {allowed[0]} to {allowed[-1]}"
        raise OperandError(f"operand {name} is {shown(number)}: it must be {which}")
    return number


def check_signs(form: Form, imm_scale_a: Any, imm_scale_b: Any) -> None:
    """Raise OperandError unless imm-scale-a and imm-scale-b are 1 or -1; only wgmma and tcgen05 on float types take
    -1.
    """
    for name, value in (("imm_scale_a", imm_scale_a), ("imm_scale_b", imm_scale_b)):
        integer(name, value, range(-1, 2, 2))
        if value != 1 and not ((form.lanes > 32 or form.effects.tensor) and form.atype.is_float):
            raise OperandError(f"{form} has no {name}")


def sparse_a(form: Form, a: Any, metadata: Any) -> Any:
    """A as given, or compressed if it comes with metadata. Raises OperandError for metadata that no instruction needs."""
    if metadata is None:
        return a
    if not form.sparse or isinstance(a, sparse.Compressed):
        raise OperandError("A is compressed and has its own metadata" if form.sparse else f"{form} takes no metadata")
    return sparse.Compressed(a, metadata, form)


# sparsity metadata ----------------------------------------------------------------------------------------------------
def check_metadata(form: Form, words: Array, selector: int, strict: bool) -> None:
    """Raise OperandError for a selector out of range and, if `strict`, for nibbles that the specification leaves undefined."""
    lanes, refused = _undefined_halves(form, selector)
    if strict and refused[np.ascontiguousarray(words[..., lanes]).view("<u2")].any():
        sparse.check(sparse.from_registers(words, form, selector), form)


@lru_cache(maxsize=256)
def _undefined_halves(form: Form, selector: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(lanes that contribute whole words of metadata; for every value of 16 bits, whether a nibble of it is undefined)."""
    nibbles = np.arange(1 << 16)[:, None] >> np.arange(0, 16, 4) & 15
    refused = np.asarray(sparse.undefined(nibbles.astype(np.uint8), form).any(axis=-1))
    return np.unique(sparse.places(form, selector)[0]), refused


# memory ---------------------------------------------------------------------------------------------------------------
def image(name: str, value: Any) -> NDArray[np.uint8]:
    """Images of memory as bytes [..., bytes]."""
    found = as_array(f"operand {name}", value)
    if found.dtype != np.uint8 or found.ndim < 1:
        raise OperandError(f"operand {name} is {found.dtype} of shape {found.shape}: uint8 [..., bytes] is needed")
    return found


def target(value: Any) -> NDArray[np.uint8]:
    """The operand `memory` of a store: images of memory that may be written."""
    found = image("memory", value)
    if writable(value, "operand memory") is None or not found.flags.writeable:
        raise OperandError("operand memory must be a writable array: the store changes it")
    return found


def stored(form: Form, value: Any, memory: NDArray[np.uint8]) -> Array:
    """The registers r of a store. Raises OperandError unless their leading dimensions fit those of the memory."""
    given = registers(form, "r", value)
    if batch(r=(given, 2), memory=(memory, 1)) != memory.shape[:-1]:
        raise OperandError(f"operand r of shape {given.shape} for memory of shape {memory.shape}: one image for each is needed")
    return given


def check_inside(name: str, address: NDArray[np.int64], size: int, limit: int, base: int = 0) -> None:
    """Raise ExecutionFault unless all `size` bytes at an address are inside the image.

    name: of the operand, for the message.
    address: of the first byte.
    size: bytes.
    limit: bytes of the image.
    base: address of the image's first byte.
    """
    outside = (address < 0) | (address + size > limit)
    if outside.any():
        first = int(address[outside].flat[0]) + base
        raise ExecutionFault(
            f"address {first:#x} is outside {name}: it "
            + (f"has bytes {base:#x} to {base + limit - 1:#x}" if limit else "is empty"),
            hint="check start address, byte offsets and strides",
        )
