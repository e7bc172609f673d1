"""`TensorMap`: the tensor map that users hold, with the array that it describes, in the array's own order."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from mmulator.base.errors import OperandError, shown
from mmulator.base.interop import strided
from mmulator.base.tables import element, html_table
from mmulator.matrix.layouts.tensormap.encoded import Encoded
from mmulator.matrix.layouts.tensormap.modes import FILLS, INTERLEAVES, PROMOTIONS, SLICES, SWIZZLES, choose
from mmulator.matrix.layouts.tensormap.rules import check
from mmulator.matrix.layouts.tensormap.types import BY_DTYPE, TensorType, tensor_type

_TILED = "cuTensorMapEncodeTiled (CUDA driver API)"
_IM2COL = "cuTensorMapEncodeIm2col (CUDA driver API)"


@dataclass(frozen=True, repr=False)
class TensorMap:
    """A tensor map: the description of a tensor, and of a box of it, for the tensor copies.

    fields: the content of the 128 bytes, in the hardware's order.
    array: the array that the map describes; None for a decoded map.

    Make one with `tiled` or `im2col` and pass it to a launch; the array is then in the kernel's global memory. Shapes, boxes,
    strides and corners are in the array's order, the outermost dimension first.
    """

    fields: Encoded
    array: NDArray[Any] | None = field(default=None, compare=False)

    # making one -----------------------------------------------------------------------------------------------------
    @classmethod
    def tiled(
        cls,
        array: Any,
        box: Sequence[int],
        *,
        element_strides: Sequence[int] | None = None,
        interleave: str = "none",
        swizzle: str = "none",
        l2_promotion: str = "none",
        oob_fill: str = "zero",
        type: str | None = None,
    ) -> TensorMap:
        """The map of an array and of a box, as cuTensorMapEncodeTiled makes it.

        array: a NumPy array, a torch tensor, or another object that shares its memory; 1 to 5 dimensions, the last contiguous.
        box: elements of each dimension.
        element_strides: steps within the box, 1 to 8.
        interleave: `none`, `16B` or `32B`: the array is then [N, C/slice, ..., W, slice]; its last dimension is a slice of 16
            or 32 bytes, and is not a dimension of the map.
        swizzle: `none`, `32B`, `64B`, `128B`; for sm_100 also `128B_atom_32B` and others.
        l2_promotion: `none`, `64B`, `128B` or `256B`.
        oob_fill: `zero` or `nan`.
        type: name in PTX; by default the type of the array.

        Raises OperandError for what the driver refuses.
        """
        elements, kind, sizes, strides = _described(array, type, interleave, _TILED)
        rank = len(sizes)
        m = Encoded(
            kind, sizes, strides, _steps(element_strides, rank, _TILED), _integers("box", box, rank, _TILED),
            **_modes(interleave, swizzle, l2_promotion, oob_fill, _TILED),
        )  # fmt: skip
        return cls(check(m), elements)

    @classmethod
    def im2col(
        cls,
        array: Any,
        lower: Sequence[int],
        upper: Sequence[int],
        channels: int,
        pixels: int,
        *,
        element_strides: Sequence[int] | None = None,
        interleave: str = "none",
        swizzle: str = "none",
        l2_promotion: str = "none",
        oob_fill: str = "zero",
        type: str | None = None,
    ) -> TensorMap:
        """The map of a batch of images, as cuTensorMapEncodeIm2col makes it.

        array: [N, W, C], [N, H, W, C] or [N, D, H, W, C].
        lower, upper: corners of the bounding box, along those of D, H and W that the array has: from `lower` to size - 1 +
            `upper`.
        channels, pixels: size of a column.

        All other parameters, and errors, are as for `tiled`.
        """
        elements, kind, sizes, strides = _described(array, type, interleave, _IM2COL)
        rank = len(sizes)
        m = Encoded(
            kind, sizes, strides, _steps(element_strides, rank, _IM2COL), im2col=True,
            lower=_integers("lower", lower, max(rank - 2, 0), _IM2COL),
            upper=_integers("upper", upper, max(rank - 2, 0), _IM2COL),
            channels=_integer("channels", channels, _IM2COL), pixels=_integer("pixels", pixels, _IM2COL),
            **_modes(interleave, swizzle, l2_promotion, oob_fill, _IM2COL),
        )  # fmt: skip
        return cls(check(m), elements)

    @classmethod
    def decode(cls, data: Any) -> TensorMap:
        """The map in 128 bytes; it has no array. Raises OperandError for bytes that no tensor map has."""
        try:
            raw = bytes(memoryview(data))
        except (TypeError, BufferError, ValueError):
            raise OperandError(f"{shown(data)}: 128 bytes are needed", hint="bytes.fromhex(text), or array.tobytes()") from None
        return cls(Encoded.decode(raw))

    # asking one -----------------------------------------------------------------------------------------------------
    def encode(self, address: int) -> bytes:
        """The 128 bytes for a tensor at an address of global memory. Raises OperandError for a misaligned address."""
        return check(replace(self.fields, address=_integer("address", address, _TILED))).encode()

    @property
    def address(self) -> int:
        """Address of the tensor in global memory, in a decoded map; 0 before the map was encoded."""
        return self.fields.address

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of each dimension."""
        return self.fields.sizes[::-1]

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between elements (interleaved: slices) of each dimension; 0 for the innermost dimension of types of less than a
        byte.
        """
        return (*self.fields.strides[::-1], self.fields.slice or self.fields.type.bits // 8)

    @property
    def box(self) -> tuple[int, ...]:
        """Elements of each dimension that a box spans; (pixels, channels) for im2col."""
        return (self.fields.pixels, self.fields.channels) if self.fields.im2col else self.fields.box[::-1]

    @property
    def element_strides(self) -> tuple[int, ...]:
        return self.fields.element_strides[::-1]

    @property
    def lower(self) -> tuple[int, ...]:
        """Lower corner of the bounding box of im2col, along those of D, H, W that the array has."""
        return self.fields.lower[::-1]

    @property
    def upper(self) -> tuple[int, ...]:
        """Upper corner of the bounding box of im2col, relative to the last element, along those of D, H, W that the
        array has.
        """
        return self.fields.upper[::-1]

    @property
    def type(self) -> str:
        return self.fields.type.name

    @property
    def mode(self) -> str:
        """"tiled" or "im2col"."""
        return "im2col" if self.fields.im2col else "tiled"

    @property
    def swizzle(self) -> str:
        return self.fields.swizzle

    @property
    def interleave(self) -> str:
        return self.fields.interleave

    @property
    def l2_promotion(self) -> str:
        return self.fields.l2_promotion

    @property
    def oob_fill(self) -> str:
        return self.fields.oob_fill

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy of one box adds to an mbarrier's count, and that `expect_tx` must announce."""
        return self.fields.transaction_bytes

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a box occupies: more than `box_bytes` if rows are shorter than the swizzle."""
        return self.fields.span

    @property
    def alignment(self) -> int:
        """Required alignment of the box in shared memory, in bytes: the period of the swizzle pattern."""
        return self.fields.mode.alignment

    # showing one ----------------------------------------------------------------------------------------------------
    def rows(self) -> list[tuple[str, str]]:
        """(name, value) of the map's properties, as text; unused modes are left out."""
        f = self.fields
        out = [("type", self.type), ("shape", _times(self.shape)), ("strides", f"{', '.join(map(str, self.strides))} bytes")]
        if f.im2col:
            out += [
                ("lower", str(self.lower)),
                ("upper", str(self.upper)),
                ("channels", str(f.channels)),
                ("pixels", str(f.pixels)),
            ]
        else:
            out.append(("box", _times(self.box)))
        if set(f.element_strides) != {1}:
            out.append(("element strides", str(self.element_strides)))
        out += [(name, mode) for name, mode in (("interleave", f.interleave), ("swizzle", f.swizzle)) if mode != "none"]
        out += [("L2 promotion", f.l2_promotion)] if f.l2_promotion != "none" else []
        out += [("fill", "NaN")] if f.oob_fill == "nan" else []
        out += [("bytes of a box", str(self.box_bytes)), ("bytes in shared memory", str(self.shared_bytes))]
        out += [("alignment in shared memory", str(self.alignment))]
        return [("address", f"{self.address:#x}"), *out] if self.array is None else out

    def __repr__(self) -> str:
        f = self.fields
        said = [f"{self.type} [{_times(self.shape)}]"]
        if f.im2col:
            said += [f"lower {self.lower}", f"upper {self.upper}", f"{f.channels} channels", f"{f.pixels} pixels"]
        else:
            said.append(f"box [{_times(self.box)}]")
        said += [f"element strides {self.element_strides}"] if set(f.element_strides) != {1} else []
        said += [f"{name} {mode}" for name, mode in (("interleave", f.interleave), ("swizzle", f.swizzle)) if mode != "none"]
        said += [f"L2 promotion {f.l2_promotion}"] if f.l2_promotion != "none" else []
        said += ["fill NaN"] if f.oob_fill == "nan" else []
        said += [f"at {self.address:#x}"] if self.address else []
        return f"TensorMap.{self.mode}({', '.join(said)})"

    def _repr_html_(self) -> str:
        return f"<p>{element('code', f'TensorMap.{self.mode}')}</p>" + html_table(("field", "value"), self.rows())


def _times(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))


def _modes(interleave: str, swizzle: str, l2_promotion: str, oob_fill: str, rule: str) -> dict[str, Any]:
    choose("interleave", interleave, INTERLEAVES, rule)
    choose("swizzle", swizzle, SWIZZLES, rule)
    choose("l2_promotion", l2_promotion, PROMOTIONS, rule)
    choose("oob_fill", oob_fill, FILLS, rule)
    return {"interleave": interleave, "swizzle": swizzle, "l2_promotion": l2_promotion, "oob_fill": oob_fill}


def _integer(name: str, value: Any, rule: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise OperandError(f"{name} is {shown(value)}: an integer is needed", rule=rule) from None


def _integers(name: str, values: Any, count: int, rule: str) -> tuple[int, ...]:
    """`count` integers of a user, reversed: outermost first in, innermost first out."""
    try:
        listed = list(values)
    except TypeError:
        raise OperandError(f"{name} is {shown(values)}: {count} integers are needed", rule=rule) from None
    if len(listed) != count:
        raise OperandError(
            f"{name} is {shown(tuple(listed))}: {count} integers are needed, one for each dimension of the array"
            f"{'' if name not in ('lower', 'upper') else ' but images and channels'}",
            rule=rule, hint="in the array's order, the outermost dimension first",
        )  # fmt: skip
    return tuple(_integer(f"{name}[{n}]", value, rule) for n, value in enumerate(listed))[::-1]


def _steps(values: Sequence[int] | None, rank: int, rule: str) -> tuple[int, ...]:
    return (1,) * rank if values is None else _integers("element_strides", values, rank, rule)


def _described(
    array: Any, type: str | None, interleave: str, rule: str
) -> tuple[NDArray[Any], TensorType, tuple[int, ...], tuple[int, ...]]:
    """(array as a NumPy array on the same memory, its type, sizes and strides in the hardware's order)."""
    found = strided(array, "array")
    if found is None:
        raise OperandError(f"array is {shown(array)}: an array is needed", rule=rule)
    if not found.ndim:
        raise OperandError("array has no dimensions: a tensor map takes 1 to 5", rule=rule, hint="pass x.reshape(1)")
    if not found.dtype.isnative:
        hint = "pass x.astype(x.dtype.newbyteorder('='))"
        raise OperandError("array is big-endian: tensor copies move bytes as they are, and a GPU is not", rule=rule, hint=hint)
    kind = tensor_type(type) if type is not None else BY_DTYPE.get(found.dtype.name)
    if kind is None:
        raise OperandError(
            f"array has elements of {found.dtype}, which tensor maps do not know", rule=rule,
            hint="say type=, or view it as an integer of the same size: x.view(numpy.uint8)",
        )  # fmt: skip
    inner, size = found.strides[-1], found.dtype.itemsize
    if inner != size and found.shape[-1] > 1 and found.size:
        raise OperandError(
            f"array has strides {found.strides}: elements of the last dimension are {inner} bytes apart, and have {size}",
            rule=rule, hint="tensor copies want the last dimension contiguous: transpose, or copy",
        )  # fmt: skip
    row = found.shape[-1] * size
    if (size != kind.memory and kind.elements == 1) or row * 8 % kind.bits:
        raise OperandError(
            f"type is {kind}, of {kind.memory} bytes: array has elements of {found.dtype}", rule=rule,
            hint=f"view it as elements of {kind.memory} bytes, or leave type away",
        )  # fmt: skip
    slice_ = SLICES.get(interleave) if isinstance(interleave, str) else None
    if slice_ is None:
        return found, kind, (row * 8 // kind.bits, *found.shape[-2::-1]), found.strides[-2::-1]
    if row != slice_ or found.ndim < 2 or found.strides[-2] != slice_:
        raise OperandError(
            f"array has shape {found.shape} and strides {found.strides}: with interleave {interleave} its last dimension is a "
            f"slice of {slice_} bytes, and slices lie next to one another", rule="Interleave layout (PTX ISA 9.1)",
            hint=f"such as [N, C/{slice_ // size}, H, W, {slice_ // size}]",
        )  # fmt: skip
    return found, kind, found.shape[-2::-1], found.strides[-3::-1] if found.ndim > 2 else ()
