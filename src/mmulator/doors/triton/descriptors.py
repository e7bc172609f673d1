"""Tensor descriptors of the host, converted to a kernel's parameters: a tensor map, or, below sm_90, its contents one by one.

Triton makes the map by the driver (`fill_tma_descriptor_tiled`, `fill_tma_descriptor_im2col` of its utilities) out of the
descriptor and of the compiler's notes about its block (`tensordesc_meta` of a kernel's metadata). A map is followed by
shape and strides, which kernels read; without one, these come twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from mmulator.base.errors import LaunchError, MmulatorError, OperandError, UnsupportedError
from mmulator.doors.triton.versions import Interface
from mmulator.matrix.layouts.tensormap import Encoded, TensorMap
from mmulator.matrix.layouts.tensormap.modes import BY_DRIVER as SWIZZLES
from mmulator.matrix.layouts.tensormap.rules import check
from mmulator.matrix.layouts.tensormap.types import BY_DRIVER, BY_NAME, BY_NUMBER, TensorType

PROMOTION = "128B"  # Triton's setting for all maps
_TYPE = re.compile(r"tensordesc(?:_im2col)?<([^[>]*)\[([^\]]*)\]")
_RANK = re.compile(r",input_rank=(\d+)")

Meta = Mapping[str, Any]
Path = tuple[int, ...]


class DescriptorError(LaunchError, RuntimeError):
    """A tensor map that CUDA's driver refuses; a RuntimeError, as programs expect of Triton."""


@dataclass(frozen=True)
class DescriptorSlot:
    """A parameter.

    ty: its type as Triton writes it, `nvTmaDesc` for a tensor map.
    label: for messages.
    path: to its argument in what Triton passes.
    part: function of a tensor descriptor that gives this parameter, where a descriptor is several parameters.
    """

    ty: str
    label: str
    path: Path
    part: Callable[[Any], Any] | None = None


def slots(ty: str, label: str, path: Path, version: Interface, meta: Meta | None) -> Iterator[DescriptorSlot]:
    """The parameters that a descriptor of a type becomes.

    ty: its type.
    label: for messages.
    path: to the argument.
    version: Triton's.
    meta: the compiler's notes; None where the compiler takes descriptors apart: base, shape, strides, flags, and again shape
        and
    strides.
    """
    found = _TYPE.match(ty)
    if found is None:
        raise UnsupportedError(f"{label} is of Triton's type {ty}, which is not supported")
    rank_said = _RANK.search(ty)
    rank = int(rank_said[1]) if rank_said else found[2].count(",") + 1

    def items(width: str, name: str) -> Iterator[DescriptorSlot]:
        for n in range(rank):
            yield DescriptorSlot(width, f"{label}, {name}[{n}]", path, _item(name, n))

    if meta is None:
        yield DescriptorSlot(f"*{found[1]}", f"{label}, base", path, lambda d: d.base)
        yield from items("i64", "shape")
        yield from items("i64", "strides")
        for flag in version.flags:
            yield DescriptorSlot("i1", f"{label}, {flag}", path, _FLAGS[flag])
    else:
        yield DescriptorSlot("nvTmaDesc", label, path, lambda d: PendingDescriptor(d, meta))
    if meta is not None and meta["fp4_padded"] and version.doubled:
        for n, part in enumerate(items("i32", "shape")):
            yield replace(part, part=lambda d: 2 * d.shape[-1]) if n == rank - 1 else part
    else:
        yield from items("i32", "shape")
    yield from items("i64", "strides")


_FLAGS: dict[str, Callable[[Any], Any]] = {
    "padding": lambda d: d.padding == "nan", "round_f32_to_tf32": lambda d: d.round_f32_to_tf32,
}  # fmt: skip


def _item(name: str, n: int) -> Callable[[Any], Any]:
    return lambda d: getattr(d, name)[n]


# tensor maps ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PendingDescriptor:
    """A descriptor whose map is made when the address of its base is known."""

    descriptor: Any
    meta: Meta

    @property
    def base(self) -> Any:
        return self.descriptor.base

    def encode(self, address: int, label: str) -> bytes:
        """The 128 bytes of the map with its base at an address. Raises DescriptorError for what CUDA's driver refuses."""
        d, meta = self.descriptor, self.meta
        shape = [int(n) for n in d.shape]
        if meta["fp4_padded"]:
            shape[-1] *= 2
        kind = BY_NAME["tf32"] if getattr(d, "round_f32_to_tf32", False) else BY_NUMBER[int(meta["elem_type"])]
        nan = getattr(d, "padding", "zero") == "nan"
        size, swizzle, block = int(meta["elem_size"]), int(meta["swizzle"]), meta["block_size"]
        if not meta.get("is_im2col", False):
            return tiled(address, swizzle, size, kind, block, shape, d.strides, nan, label)
        steps = d.element_strides if d.element_strides is not None else [1] * len(shape)
        return im2col(
            address, swizzle, size, kind, block, shape, d.strides, nan,
            d.pixel_box_lower_corner, d.pixel_box_upper_corner, steps, label,
        )  # fmt: skip


def _backwards(values: Sequence[Any]) -> tuple[int, ...]:
    """Values in reverse order: dimensions with the innermost first, as maps have them."""
    return tuple(int(v) for v in values)[::-1]


def tiled(
    address: int, swizzle: int, size: int, kind: TensorType, block: Sequence[int], shape: Sequence[int], strides: Sequence[int],
    nan: bool, label: str,
) -> bytes:  # fmt: skip
    """Bytes of a tiled tensor map. Raises DescriptorError.

    address: of the tensor.
    swizzle: CUDA's number.
    size: bytes of an element, as strides count.
    kind: CUDA's number of the element type.
    block, shape, strides: outermost dimension first.
    nan: fill with NaN.
    label: of the map, for messages.
    """
    return _encoded(
        Encoded(kind, _backwards(shape), tuple(size * s for s in _backwards(strides)[1:]), (1,) * len(shape), _backwards(block)),
        address, swizzle, nan, label,
    )  # fmt: skip


def im2col(
    address: int, swizzle: int, size: int, kind: TensorType, block: Sequence[int], shape: Sequence[int], strides: Sequence[int],
    nan: bool, lower: Sequence[int], upper: Sequence[int], steps: Sequence[int], label: str,
) -> bytes:  # fmt: skip
    """Bytes of an im2col tensor map. Raises DescriptorError.

    address: of the tensor.
    swizzle: CUDA's number.
    size: bytes of an element, as strides count.
    kind: CUDA's number of the element type.
    block: pixels of a column, channels of a pixel.
    shape, strides: outermost dimension first.
    nan: fill with NaN.
    lower, upper: corners of the bounding box, D, H, W.
    steps: element strides.
    label: of the map, for messages.
    """
    pixels, channels = (int(n) for n in block)
    return _encoded(
        Encoded(
            kind, _backwards(shape), tuple(size * s for s in _backwards(strides)[1:]), _backwards(steps), im2col=True,
            lower=_backwards(lower), upper=_backwards(upper), channels=channels, pixels=pixels,
        ),
        address, swizzle, nan, label,
    )  # fmt: skip


@lru_cache(256)  # programs launch again on the same memory
def _encoded(m: Encoded, address: int, swizzle: int, nan: bool, label: str) -> bytes:
    if swizzle not in SWIZZLES:
        raise DescriptorError(f"{label}: swizzle {swizzle} is none of CUDA's", hint=f"known: {SWIZZLES}")
    try:
        return check(
            replace(
                m, address=address, swizzle=SWIZZLES[swizzle], l2_promotion=PROMOTION, oob_fill="nan" if nan else "zero"
            )
        ).encode()
    except OperandError as error:
        raise _refused(label, error) from None


def _refused(label: str, error: MmulatorError) -> DescriptorError:
    return DescriptorError(
        f"Triton Error [CUDA]: Failed to create tensor map descriptor: {label}: {error.message}", rule=error.rule, hint=error.hint
    )


# what the driver's utilities make ---------------------------------------------------------------------------------------
class Map:
    """A tensor map that a program made with the driver's utilities, and passes to a kernel itself."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return repr(TensorMap.decode(self.data))


def fill_tiled(
    address: int, swizzle: int, size: int, kind: int, block: Sequence[int], shape: Sequence[int], strides: Sequence[int],
    padding: int = 0,
) -> Map:  # fmt: skip
    """`fill_tma_descriptor_tiled`, in Triton 3.5 and 3.6 `fill_tma_descriptor`. kind: of CUtensorMapDataType. padding: 1 is NaN.
    """
    return Map(tiled(address, swizzle, size, _driver_type(kind), block, shape, strides, padding == 1, "a tensor descriptor"))


def fill_im2col(
    address: int, swizzle: int, size: int, kind: int, block: Sequence[int], shape: Sequence[int], strides: Sequence[int],
    padding: int, lower: Sequence[int], upper: Sequence[int], steps: Sequence[int],
) -> Map:  # fmt: skip
    """`fill_tma_descriptor_im2col`."""
    nan, known = padding == 1, _driver_type(kind)
    return Map(im2col(address, swizzle, size, known, block, shape, strides, nan, lower, upper, steps, "a tensor descriptor"))


def _driver_type(kind: int) -> TensorType:
    if kind not in BY_DRIVER:
        raise DescriptorError(f"element type {kind} is none of CUtensorMapDataType")
    return BY_DRIVER[kind]
