"""Many products of one form in one native call: from arrays of registers to an array of registers."""

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import address
from mmulator.matrix.twin.places import Product
from mmulator.matrix.twin.product import OPERANDS, batch_function
from mmulator.matrix.twin.threads import pointer, room, split, worth

Array = NDArray[Any]
_P, _I, _U = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32
_Seven = ctypes.c_uint64 * OPERANDS
_OWN = (2, 2, 2, 1, 1, 1)  # dimensions of an operand that are not leading ones


def run(
    product: Product, a: Array, b: Array, c: Array | None, e: Array | None = None, scale_a: Array | None = None,
    scale_b: Array | None = None, *, batch: tuple[int, ...], select: tuple[int, int] = (0, 0),
) -> Array:  # fmt: skip
    """D [*batch, lanes, registers].

    product: the product.
    a, b: registers [..., lanes, registers], or rows of a matrix [..., M or N, K] if the product is made for that.
    c: registers; None if the product's flags state that C is not read.
    e: metadata [..., lanes] of a sparse form.
    scale_a, scale_b: scale-a-data and scale-b-data [..., 32] of a block-scaled form.
    batch: leading dimensions, to which those of all operands broadcast.
    select: offset in bytes from the scale factors of selectors 0.
    """
    out = np.empty((*batch, *product.result), product.word)
    count = math.prod(batch)
    if count == 0:
        return out
    if product.transposed:
        a, b = b, a
    nothing = out, 0  # never read; c is copied, but its bits do not matter
    given = [nothing if x is None else fitted(x, own, batch, count) for x, own in zip((a, b, c, e, scale_a, scale_b), _OWN)]
    places = [pointer(x) for x, _ in given]
    places.append(pointer(out))
    strides = _Seven(*(size for _, size in given), out.nbytes // count)
    native, address = entry(product)

    def part(first: int, size: int) -> None:
        at = _Seven(*([p + first * s for p, s in zip(places, strides)] if first else places))
        native(address, room(product.scratch), size, at, strides, *select)

    if count == 1:
        part(0, 1)
    else:
        split(part, count, worth(count * product.macs))
    return out


def fitted(array: Array, own: int, batch: tuple[int, ...], count: int) -> tuple[Array, int]:
    """(contiguous array, distance in bytes from one product's operand to the next, 0 if all products share it)."""
    shape = array.shape[: array.ndim - own]
    if shape != batch and math.prod(shape) != 1:
        array = np.broadcast_to(array, (*batch, *array.shape[array.ndim - own :]))
        shape = batch
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array, array.nbytes // count if shape == batch else 0


def entry(product: Product) -> tuple[Any, int]:
    """(the compiled loop around the product, the address of the product's table)."""
    if product.entry is None:
        product.entry = _compiled(product.function), int(product.table.ctypes.data)
    return product.entry


@cache
def _compiled(one: Native) -> Any:
    return ctypes.CFUNCTYPE(None, _P, _P, _I, _P, _P, _U, _U)(address(batch_function(one)))
