"""The approximate instructions on NumPy arrays, through the compiled twin."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.loading import address
from mmulator.base.errors import OperandError
from mmulator.matrix.numerics.sfu.tables import DEFAULT_DEVICE, Tables, tables_for
from mmulator.matrix.twin.sfu.native import BINARY, KEYS, array_functions, word_of

Array = NDArray[Any]


class ArrayFunction:
    """A compiled native function `f(src, ..., dst, count)`, called with arrays of its words."""

    def __init__(self, native: Native) -> None:
        pointers = [ctypes.c_void_p] * (len(native.params) - 1)
        self._call: Callable[..., None] = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(address(native))

    def __call__(self, *sources: Array, out: Array | None = None) -> Array:
        """The result for sources of one shape. out: a C-contiguous array for the result, which may be a source."""
        sources = tuple(np.ascontiguousarray(s) for s in sources)
        result = np.empty_like(sources[0]) if out is None else out
        self._call(*(s.ctypes.data for s in sources), result.ctypes.data, result.size)
        return result


@cache
def array_function(operation: str, type: str, ftz: bool, tables: Tables) -> ArrayFunction:
    return ArrayFunction(array_functions(tables)[operation, type, ftz])


def evaluate(operation: str, *operands: Array, type: str = "f32", ftz: bool = False, device: str = DEFAULT_DEVICE) -> Array:
    """The result of `operation.approx{.ftz}.type` (div.approx and div.full: two operands) on a device, element by element.

    operation: name, such as "rcp".
    operands: arrays of one shape, of the type's dtype or of its bits (uint16 for f16 and bf16, uint32 for f32, f16x2 and
        bf16x2, uint64 for f64).
    type: PTX name of the type.
    ftz: whether subnormals are flushed.
    device: name of the device.

    The result has the dtype of the first operand. Raises OperandError for anything else.
    Floating Point Instructions and Half Precision Floating Point Instructions (PTX ISA 9.1).
    """
    key = (operation, type, ftz)
    if key not in KEYS:
        raise OperandError(
            f"there is no approximate {operation}{'.ftz' if ftz else ''} of {type}",
            hint="known: " + ", ".join(f"{n}{'.ftz' if z else ''}.{t}" for n, t, z in KEYS),
        )
    wanted = 2 if key in BINARY else 1
    size = word_of(key).size
    arrays = [np.ascontiguousarray(o) for o in operands]
    if len(arrays) != wanted:
        raise OperandError(f"{operation} takes {wanted} operands, not {len(arrays)}")
    for array in arrays:
        if array.dtype.itemsize != size or array.dtype.kind in "iSUO" or array.shape != arrays[0].shape:
            raise OperandError(
                f"an operand of {operation}.{type} is {array.dtype}{list(array.shape)}",
                hint=f"give arrays of one shape, of the type itself or of its bits as uint{8 * size}",
            )
    bits = np.dtype(f"u{size}")
    function = array_function(*key, tables_for(device)[0])
    return function(*(a.view(bits) for a in arrays)).view(arrays[0].dtype)
