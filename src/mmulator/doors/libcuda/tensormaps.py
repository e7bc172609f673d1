"""Tensor maps as CUDA's driver encodes them: cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col, cuTensorMapReplaceAddress.

The manual wants a map at a multiple of 64 bytes; programs that keep it in a Python object (cuda.core) do not, and are served.
"""

import ctypes
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from mmulator.base.errors import LaunchError, OperandError
from mmulator.doors.libcuda.abi import Refused, api, get_bytes, put_bytes
from mmulator.doors.libcuda.codes import Code
from mmulator.matrix.layouts.tensormap import Encoded
from mmulator.matrix.layouts.tensormap.fields import BYTES, GLOBAL_ADDRESS, MOST_RANK, WORDS
from mmulator.matrix.layouts.tensormap.modes import BY_DRIVER as SWIZZLES
from mmulator.matrix.layouts.tensormap.modes import FILLS, INTERLEAVES, PROMOTIONS
from mmulator.matrix.layouts.tensormap.rules import check, refusals
from mmulator.matrix.layouts.tensormap.types import BY_DRIVER

T = TypeVar("T")
_BY_INTERLEAVE = {number: name for name, number in INTERLEAVES.items()}
_BY_PROMOTION = {number: name for name, number in PROMOTIONS.items()}
_BY_FILL = {number: name for name, number in FILLS.items()}


def _refused(message: str) -> Refused:
    return Refused(Code.INVALID_VALUE, LaunchError(message, rule="Tensor Map Object Management (CUDA driver API)"))


def _of(known: Mapping[int, T], number: int, what: str) -> T:
    if number not in known:
        raise _refused(f"{what} is {number}, which is none of the driver's")
    return known[number]


def _numbers(address: int, kind: Any, count: int, what: str) -> tuple[int, ...]:
    """Integers of the caller, in the driver's order: dimension 0 the innermost."""
    if count and not address:
        raise _refused(f"{what} is a null pointer")
    return tuple((kind * count).from_buffer_copy(get_bytes(address, ctypes.sizeof(kind) * count))) if count else ()


_CALLED = {
    "array": "tensorRank", "address": "globalAddress", "shape": "globalDim", "strides": "globalStrides",
    "element_strides": "elementStrides", "box": "boxDim", "lower": "pixelBoxLowerCorner", "upper": "pixelBoxUpperCorner",
    "channels": "channelsPerPixel", "pixels": "pixelsPerColumn", "oob_fill": "oobFill",
}  # fmt: skip


def _as_called(parameter: str, m: Encoded) -> str:
    """The driver's name of a parameter, and the caller's index: `box[0]` of a matrix is boxDim[1]. The driver counts dimensions
    from the innermost, and globalStrides lack that one.
    """
    most = {"strides": m.rank - 2, "lower": m.rank - 3, "upper": m.rank - 3}

    def called(found: re.Match[str]) -> str:
        name, index = found[1], found[2]
        return _CALLED.get(name, name) + (f"[{most.get(name, m.rank - 1) - int(index)}]" if index else "")

    return re.sub(r"(\w+)(?:\[(\d+)\])?", called, parameter)


def _put(out: int, m: Encoded) -> None:
    if not out:
        raise _refused("tensorMap is a null pointer")
    for refusal in refusals(m):
        raise Refused(Code.INVALID_VALUE, replace(refusal, parameter=_as_called(refusal.parameter, m)).error())
    put_bytes(out, m.encode())


def _described(
    kind: int, rank: int, address: int, sizes: int, strides: int, steps: int, interleave: int, swizzle: int, promotion: int,
    fill: int,
) -> Encoded:  # fmt: skip
    """The part of a map that both encoders describe."""
    if not 1 <= rank <= MOST_RANK:
        raise _refused(f"tensorRank is {rank}: a tensor has 1 to {MOST_RANK} dimensions")
    return Encoded(
        _of(BY_DRIVER, kind, "tensorDataType"), _numbers(sizes, ctypes.c_uint64, rank, "globalDim"),
        _numbers(strides, ctypes.c_uint64, rank - 1, "globalStrides"),
        _numbers(steps, ctypes.c_uint32, rank, "elementStrides"), address=address,
        interleave=_of(_BY_INTERLEAVE, interleave, "interleave"), swizzle=_of(SWIZZLES, swizzle, "swizzle"),
        l2_promotion=_of(_BY_PROMOTION, promotion, "l2Promotion"), oob_fill=_of(_BY_FILL, fill, "oobFill"),
    )  # fmt: skip


@api("cuTensorMapEncodeTiled", "piupppppiiii")
def encode_tiled(
    out: int, kind: int, rank: int, address: int, sizes: int, strides: int, box: int, steps: int, interleave: int, swizzle: int,
    promotion: int, fill: int,
) -> None:  # fmt: skip
    m = _described(kind, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill)
    _put(out, replace(m, box=_numbers(box, ctypes.c_uint32, rank, "boxDim")))


@api("cuTensorMapEncodeIm2col", "piupppppuupiiii")
def encode_im2col(
    out: int, kind: int, rank: int, address: int, sizes: int, strides: int, lower: int, upper: int, channels: int, pixels: int,
    steps: int, interleave: int, swizzle: int, promotion: int, fill: int,
) -> None:  # fmt: skip
    m = _described(kind, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill)
    corners = [_numbers(at, ctypes.c_int32, max(rank - 2, 0), name) for at, name in
               ((lower, "pixelBoxLowerCorner"), (upper, "pixelBoxUpperCorner"))]  # fmt: skip
    _put(out, replace(m, im2col=True, lower=corners[0], upper=corners[1], channels=channels, pixels=pixels))


@api("cuTensorMapReplaceAddress", "pp")
def replace_address(out: int, address: int) -> None:
    """Write another address into a map; the rest stays."""
    if not out:
        raise _refused("tensorMap is a null pointer")
    data = get_bytes(out, BYTES)
    try:
        check(replace(Encoded.decode(data), address=address))
    except OperandError as error:
        raise Refused(Code.INVALID_VALUE, error) from None
    words = [int.from_bytes(data[4 * n : 4 * n + 4], "little") for n in range(WORDS)]
    GLOBAL_ADDRESS.put(words, address)
    put_bytes(out, b"".join(word.to_bytes(4, "little") for word in words))
