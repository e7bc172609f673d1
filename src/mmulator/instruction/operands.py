"""Operands of an instruction as a user gives them: words, registers, integers, images of memory; what is wrong with them."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import ExecutionFault, OperandError, shown
from mmulator.interop import as_array, writable
from mmulator.isa.forms import MatrixForm
from mmulator.layouts import fragment, sparse
from mmulator.numerics.arrays import batch_shape

Array = NDArray[Any]
Operands = dict[str, Any]

OFFSETS = range(-(1 << 40), 1 << 40)  # bytes or elements; what memory there is, says who reads it


# numbers and registers ------------------------------------------------------------------------------------------------
def words(name: str, value: Any, bits: int = 32) -> Array:
    """An operand as unsigned words of 32 or 64 bits; signed and float arrays of that size are taken bit for bit."""
    array = as_array(f"operand {name}", value)
    want = np.dtype(f"<u{bits // 8}")
    if array.dtype.kind not in "uif" or array.dtype.itemsize != want.itemsize:
        raise OperandError(f"operand {name} is {array.dtype}: registers are {want.name}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array).view(want)


def registers(form: MatrixForm, name: str, value: Any) -> Array:
    """A register operand [..., lanes, registers]."""
    rule = fragment(form, name)
    array = words(name, value, rule.register_bits)
    if array.shape[-2:] != (rule.lanes, rule.registers):
        raise OperandError(
            f"operand {name} of shape {array.shape}: [..., {rule.lanes} lanes, {rule.registers} registers] is needed",
            rule=str(form.section),
        )
    return array


def column(form: MatrixForm, name: str, value: Any) -> Array:
    """A one-register operand: [..., lanes], or [..., lanes, 1]."""
    array = words(name, value)
    if array.shape[-2:] == (form.lanes, 1):
        array = array[..., 0]
    if array.shape[-1:] != (form.lanes,):
        raise OperandError(f"operand {name} of shape {array.shape}: [..., {form.lanes} lanes] is needed")
    return array


def batch(**operands: tuple[Array | None, int]) -> tuple[int, ...]:
    """Common leading dimensions of (array, number of its own dimensions)."""
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


def check_signs(form: MatrixForm, imm_scale_a: Any, imm_scale_b: Any) -> None:
    """imm-scale-a and imm-scale-b are 1 or -1, and only wgmma on float types has them."""
    for name, value in (("imm_scale_a", imm_scale_a), ("imm_scale_b", imm_scale_b)):
        integer(name, value, range(-1, 2, 2))
        if value != 1 and not (form.family == "wgmma" and form.atype is not None and form.atype.is_float):
            raise OperandError(f"{form} has no {name}")


# sparsity metadata ----------------------------------------------------------------------------------------------------
def check_metadata(form: MatrixForm, words: Array, selector: int, strict: bool) -> None:
    """Raises OperandError for a selector out of range and, if strict, for nibbles that the specification leaves undefined."""
    lanes, refused = _undefined_halves(form, selector)
    if strict and refused[np.ascontiguousarray(words[..., lanes]).view("<u2")].any():
        sparse.check(sparse.from_registers(words, form, selector), form)


@lru_cache(maxsize=256)
def _undefined_halves(form: MatrixForm, selector: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The lanes that contribute metadata, whole words of it; for every 16 bits whether a nibble of them is undefined."""
    nibbles = np.arange(1 << 16)[:, None] >> np.arange(0, 16, 4) & 15
    refused = np.asarray(sparse.undefined(nibbles.astype(np.uint8), form).any(axis=-1))
    return np.unique(sparse.places(form, selector)[0]), refused


# memory ---------------------------------------------------------------------------------------------------------------
def image(name: str, value: Any) -> NDArray[np.uint8]:
    """Images of memory [..., bytes]."""
    found = as_array(f"operand {name}", value)
    if found.dtype != np.uint8 or found.ndim < 1:
        raise OperandError(f"operand {name} is {found.dtype} of shape {found.shape}: uint8 [..., bytes] is needed")
    return found


def target(value: Any) -> NDArray[np.uint8]:
    """`memory` of a store: images that it may change."""
    found = image("memory", value)
    if writable(value, "operand memory") is None or not found.flags.writeable:
        raise OperandError("operand memory must be a writable array: the store changes it")
    return found


def stored(form: MatrixForm, value: Any, memory: NDArray[np.uint8]) -> Array:
    """Registers r of a store, whose leading dimensions have to fit those of memory."""
    given = registers(form, "r", value)
    if batch(r=(given, 2), memory=(memory, 1)) != memory.shape[:-1]:
        raise OperandError(f"operand r of shape {given.shape} for memory of shape {memory.shape}: one image for each is needed")
    return given


def check_inside(name: str, address: NDArray[np.int64], size: int, limit: int, base: int = 0) -> None:
    """Raises ExecutionFault if `size` bytes at an address, counted from the image's first byte, are not all inside."""
    outside = (address < 0) | (address + size > limit)
    if outside.any():
        first = int(address[outside].flat[0]) + base
        raise ExecutionFault(
            f"address {first:#x} is outside {name}: it "
            + (f"has bytes {base:#x} to {base + limit - 1:#x}" if limit else "is empty"),
            hint="check start address, byte offsets and strides",
        )
