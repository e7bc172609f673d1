"""The view of number formats: the fields of a type, and what its codes are worth."""

from collections.abc import Iterable

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.isa.types import TYPES, ElementType
from mmulator.matrix.explore.view import Block, Choices, Document, View, facts, table, text
from mmulator.matrix.numerics.formats import decode, infinity, integers

_NOTABLE, _ALL = "notable codes", "all codes"
_LISTED = (
    "e2m1", "e2m3", "e3m2", "e4m3", "e5m2", "ue4m3", "ue8m0", "f16", "bf16", "tf32", "f32", "f64", "s4", "u4", "s8", "u8", "b1",
)  # fmt: skip
_SPECIAL = {
    "ieee": "infinities and NaNs, as IEEE 754 has them", "all_ones": "a NaN of all ones, no infinity",
    "none": "no NaN, no infinity",
}  # fmt: skip
_LEADING = {"f16": range(0x80), "bf16": range(0x3C, 0x44)}  # first bytes of codes that are listed: 2^-7 to 2^9 of bf16
_STEP = 256  # codes of a document


def _used(t: ElementType) -> int:
    """Number of bits that a code has; the others of the container are ignored."""
    return t.exponent + t.mantissa + t.has_sign if t.is_float else t.bits


def _shift(t: ElementType) -> int:
    """Number of ignored bits below a code in its container."""
    return 13 if t.name == "tf32" else 0


def _choices() -> Choices:
    tree: Choices = {}
    for name in _LISTED:
        parts = [_ALL] if _used(TYPES[name]) <= 8 else [_NOTABLE]
        parts += [f"{high:#04x}.." for high in _LEADING.get(name, ())]
        tree[name] = dict.fromkeys(parts)
    return tree


def _notable(t: ElementType) -> list[int]:
    """Zero, the least and the greatest of each class of a float type, one, infinity, NaN."""
    ones = (1 << t.exponent + t.mantissa) - 1
    if t.nan == "ieee":
        top = [infinity(t) - 1, infinity(t), infinity(t) | 1 << t.mantissa - 1]
    else:
        top = [ones - 1, ones] if t.nan == "all_ones" else [ones]
    one = t.bias << t.mantissa
    return [0, 1, (1 << t.mantissa) - 1, 1 << t.mantissa, one, one + 1, *top]


def codes(t: ElementType, part: str) -> list[int]:
    """The codes of a part of a type's choices."""
    if part == _ALL:
        return [*range(1 << _used(t))]
    if part == _NOTABLE:
        return _notable(t)
    high = int(part.rstrip("."), 16)
    return [*range(high * _STEP, (high + 1) * _STEP)]


def worth(t: ElementType, given: Iterable[int]) -> list[tuple[str, str, str, str, str]]:
    """(code, fields, class, exact value, value) of codes."""
    numbers = [*given]
    raw = np.array([n << _shift(t) for n in numbers], np.uint64)
    digits = -(-_used(t) // 4)
    if not t.is_float:
        values = integers(t, raw).tolist()
        return [(f"0x{n:0{digits}x}", f"{n:0{t.bits}b}", "integer", str(v), str(v)) for n, v in zip(numbers, values)]
    f = decode(t, raw)
    rows = []
    parts = (f.sign, f.significand, f.exponent, f.nan, f.inf)
    for n, sign, significand, exponent, nan, inf in zip(numbers, *(p.tolist() for p in parts)):
        low = exponent - t.mantissa
        minus = "-" * sign
        kind = _class(t, significand, nan, inf)
        exact = "" if nan or inf else f"{minus}{significand} * 2^{low}"
        value = "NaN" if nan else f"{minus}infinity" if inf else repr(float(np.ldexp(float(significand), low)) * (1 - 2 * sign))
        rows.append((f"0x{n:0{digits}x}", _fields(t, n), kind, exact, value))
    return rows


def _class(t: ElementType, significand: int, nan: bool, inf: bool) -> str:
    if nan or inf:
        return "NaN" if nan else "infinity"
    return "zero" if not significand else "normal" if significand >> t.mantissa else "subnormal"


def _fields(t: ElementType, code: int) -> str:
    """The bits of a code: sign, exponent, mantissa."""
    bits = f"{code:0{_used(t)}b}"
    parts = bits[: t.has_sign], bits[t.has_sign : t.has_sign + t.exponent], bits[t.has_sign + t.exponent :]
    return " ".join(filter(None, parts))


def _about(t: ElementType) -> Block:
    if not t.is_float:
        return facts([("bits", t.bits), ("read as", "a number with a sign" if t.kind == "signed" else "a number without a sign")])
    rows = [
        ("bits", f"{t.bits}" + (f", of which {_used(t)} count" if _used(t) < t.bits else "")), ("sign", f"{int(t.has_sign)} bit"),
        ("exponent", f"{t.exponent} bits, bias {t.bias}"), ("mantissa", f"{t.mantissa} bits"),
        ("special values", _SPECIAL[t.nan]),
        ("least normal number", f"2^{t.emin}" if t.mantissa else "2^-127; there are no subnormals and no zero"),
    ]  # fmt: skip
    return facts(rows)


def _document(type: str, part: str, code: str = "") -> Document:
    t = TYPES[type]
    given = [_code(t, code)] if code else codes(t, part)
    rows = worth(t, given)
    more = [text("Codes with the sign's bit have the same values with a minus.")] if part.endswith("..") and not code else []
    columns = ("code", "sign, exponent, mantissa" if t.is_float else "bits", "class", "exactly", "value")
    return [_about(t), *more, table(f"codes of {type}", columns, rows)]


def _code(t: ElementType, given: str) -> int:
    try:
        code = int(given, 0)
    except ValueError:
        code = -1
    if not 0 <= code < 1 << t.bits or code & ((1 << _shift(t)) - 1):
        raise OperandError(f"{given!r} is no code of {t}", hint=f"a number of {t.bits} bits, such as 0x{t.bias << t.mantissa:x}")
    return code >> _shift(t)


VIEW = View(
    "format", "Number formats", "What the bits of an element are worth.", (("type", "Type"), ("part", "Codes")),
    _choices, _document, (("code", "A code", "0x3c00"),),
)  # fmt: skip
