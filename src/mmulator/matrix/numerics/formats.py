"""Bits of every element type: decoded exactly, encoded exactly, and packed into words.

A finite number is `(-1)**sign * significand * 2**(exponent - mantissa)` with integers throughout: `exponent` is that
of the leading bit of a normal number, and `emin` for zero and subnormals, which stay unnormalised. `mantissa` is the
type's field width, so a normal significand lies in [2**mantissa, 2**(mantissa + 1)).

Fundamental Types; Alternate Floating-Point Data Formats; Packed Floating Point Data Types (PTX ISA 9.1).
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mmulator.base.classes import dataclass
from mmulator.base.errors import OperandError
from mmulator.base.interop import as_array, named_dtype
from mmulator.isa.types import TYPES, ElementType

Array = NDArray[Any]
Mode = Literal["rn", "rz", "rm", "rp"]


@dataclass(frozen=True)
class Fields:
    """Fields of numbers, as arrays of one shape: value = (-1)**sign * significand * 2**(exponent - mantissa), unless `nan` or
    `inf`.
    """

    sign: Array
    significand: Array
    exponent: Array
    nan: Array
    inf: Array


SCALE_OF_ONE = {"ue8m0": 0x7F, "ue4m3": 0x38}  # bits of a scale factor of 1, by its type
_CONTAINERS = {8 * size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def container(t: ElementType) -> np.dtype[Any]:
    """The unsigned dtype that holds one raw element: 8 bits for anything narrower."""
    return _CONTAINERS[max(t.bits, 8)]


def decode(t: ElementType, raw: Array) -> Fields:
    """Raw elements of a float type (any integer dtype, bits above the type's own ignored) to int64 fields.

    tf32 ignores its low 13 bits, and ue4m3 its top bit.
    """
    bits = np.asarray(raw).astype(np.uint64).astype(np.int64)
    if t.name == "tf32":
        bits = bits >> 13
    mantissa = bits & ((1 << t.mantissa) - 1)
    field = (bits >> t.mantissa) & ((1 << t.exponent) - 1)
    sign = (bits >> (t.mantissa + t.exponent)) & 1 if t.has_sign else np.zeros_like(bits)
    top = field == (1 << t.exponent) - 1
    none = np.zeros(bits.shape, bool)
    match t.nan:
        case "ieee":
            nan, inf = top & (mantissa != 0), top & (mantissa == 0)
        case "all_ones":
            nan, inf = top & (mantissa == (1 << t.mantissa) - 1), none
        case _:
            nan, inf = none, none
    if t.name == "ue8m0":  # exponent only: no zero, no subnormals
        return Fields(sign, np.ones_like(bits), field - t.bias, nan, inf)
    significand = mantissa | ((field > 0).astype(np.int64) << t.mantissa)
    return Fields(sign, significand, np.maximum(field, 1) - t.bias, nan, inf)


def integers(t: ElementType, raw: Array) -> Array:
    """Raw elements of an integer or bit type to int64 values, sign-extended for signed types."""
    bits = np.asarray(raw).astype(np.uint64).astype(np.int64) & ((1 << t.bits) - 1)
    if t.kind == "signed":
        return bits - ((bits >> (t.bits - 1)) << t.bits)
    return bits


def infinity(t: ElementType, sign: int = 0) -> int:
    """Bits of an infinity of an IEEE type."""
    return (sign << (t.exponent + t.mantissa)) | ((1 << t.exponent) - 1) << t.mantissa


def encode(t: ElementType, sign: int, significand: int, exponent: int, mode: Mode = "rz", keep: int | None = None) -> int:
    """Bits of `(-1)**sign * significand * 2**exponent` (plain integers) in IEEE type `t`, rounded once.

    t: the type.
    sign, significand, exponent: the number.
    mode: rounding mode, such as "rn" or "rz".
    keep: mantissa bits that are kept (all by default); the others are zero.

    Subnormals are kept. From 2**(emax + 1) on the result is infinite in every mode, as in tensor cores; in mode "rn" rounding
    may also carry there. (IEEE directed rounding would stop at the largest finite number; `encode_ieee` does.)
    """
    keep = t.mantissa if keep is None else keep
    if significand == 0:
        return sign << (t.exponent + t.mantissa)
    leading = max(significand.bit_length() - 1 + exponent, t.emin)
    quantum = leading - keep
    scaled = _round(significand, exponent - quantum, sign, mode)
    # A carry out of the significand, or out of the subnormals, raises the exponent field by itself.
    magnitude = (scaled + ((leading - t.emin) << keep)) << (t.mantissa - keep)
    return sign << (t.exponent + t.mantissa) | min(magnitude, infinity(t))


def encode_ieee(t: ElementType, sign: int, significand: int, exponent: int, mode: Mode) -> int:
    """`encode` with IEEE overflow: the largest finite number if the mode rounds toward zero."""
    bits = encode(t, sign, significand, exponent, mode)
    overflow = bits & infinity(t) == infinity(t)
    if overflow and (mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign)):
        return bits - 1
    return bits


def _round(significand: int, shift: int, sign: int, mode: Mode) -> int:
    """significand * 2**shift as an integer."""
    if shift >= 0:
        return significand << shift
    low = significand & ((1 << -shift) - 1)
    result = significand >> -shift
    match mode:
        case "rn":
            half = 1 << (-shift - 1)
            return result + (low > half or (low == half and result & 1))
        case "rm":
            return result + (low > 0 and sign == 1)
        case "rp":
            return result + (low > 0 and sign == 0)
        case _:
            return result


# NumPy ---------------------------------------------------------------------------------------------------------------
def numpy_dtype(t: ElementType) -> np.dtype[Any]:
    """The dtype of NumPy or ml_dtypes whose elements are this type (uint8 for b1, float32 for tf32)."""
    if not t.numpy:
        raise OperandError(f".{t} has no NumPy dtype")
    return named_dtype(t.numpy)


def to_raw(t: ElementType, array: Any, name: str = "") -> Array:
    """Elements as raw bits in their containers; an unsigned array of the container's dtype is raw already.

    t: the element type. array: the elements, in either byte order. name: the operand, for messages.
    Raises OperandError for any other dtype, and for raw elements of a type of less than a byte that do not fit into its bits,
    naming the first.
    """
    values = as_array(name or f"the .{t} matrix", array)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    want = numpy_dtype(t)
    if t.bits == 1 and values.dtype == np.bool_:
        return values.view(np.uint8)
    if values.dtype == container(t):  # before the type's own dtype, which is this one for b1
        if t.bits < 8:
            _check_fits(t, values)
        return values
    if values.dtype == want:
        raw = values.view(container(t))  # of the same size: strides stay
        return raw & np.uint8((1 << t.bits) - 1) if t.bits < 8 else raw
    raise OperandError(
        f"{name and f'{name}: '}.{t} elements as {values.dtype}",
        hint=f"give them as {want}, or as raw bits in {container(t)}",
    )


def _check_fits(t: ElementType, raw: Array) -> None:
    top = (1 << t.bits) - 1
    if raw.size and raw.max() > top:
        at = tuple(int(x) for x in np.unravel_index(np.argmax(raw > top), raw.shape))
        shown = f"{int(raw[at])} ({int(raw[at]):#x})"
        raise OperandError(
            f".{t} raw element {shown} at [{', '.join(map(str, at))}]: raw elements are 0 to {top}",
            hint=f"one element of {t.bits} bit{'s' * (t.bits > 1)} a byte, in its low bits",
        )


def from_raw(t: ElementType, raw: Array) -> Array:
    """Raw elements as the type's NumPy dtype (a view where the sizes allow it)."""
    want = numpy_dtype(t)
    bits = np.ascontiguousarray(raw, container(t))
    if t.kind == "signed" and t.bits < 8:
        return integers(t, bits).astype(want)
    return bits.view(want)


def element_type(name: str) -> ElementType:
    """The type with this PTX name, without the dot. Raises OperandError for an unknown name."""
    found = TYPES.get(name)
    if found is None:
        raise OperandError(f"{name!r} is no element type", hint=f"known: {', '.join(sorted(TYPES))}")
    return found


def batch_shape(leading: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that the leading dimensions of operands broadcast to. Raises OperandError if they do not."""
    if not any(leading.values()):
        return ()
    try:
        return np.broadcast_shapes(*leading.values())
    except ValueError:
        shapes = ", ".join(f"{name} {shape}" for name, shape in leading.items())
        raise OperandError(f"leading dimensions do not broadcast: {shapes}", rule="batches broadcast as NumPy's do") from None
