"""A cursor in the tokens, and the evaluation of constant expressions there. Constant Expressions (PTX ISA 9.1)."""

import struct
from collections.abc import Callable
from typing import Literal, NamedTuple, NoReturn

from mmulator.base.errors import PtxSyntaxError
from mmulator.base.source import Span
from mmulator.ptx.lexer import Tokens, parse_int

_MASK = (1 << 64) - 1
_MAX_DEPTH = 64
MAX_NAMES = 1 << 21  # registers written as `name<n>`, of a module; a variable takes as much as 16


class Constant(NamedTuple):
    """Value of a constant expression.

    value: an integer, or the bits of a floating-point number.
    literal: `int`, `f32` or `f64`.
    unsigned: whether it is a .u64 expression, whose division, shift and comparison are unsigned.
    """

    value: int
    literal: Literal["int", "f32", "f64"] = "int"
    unsigned: bool = False


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _logical(operator: Callable[[int, int], bool]) -> Callable[[int, int], int]:
    return lambda a, b: int(operator(a, b))


_BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, _logical(lambda a, b: bool(a or b))),
    "&&": (2, _logical(lambda a, b: bool(a and b))),
    "|": (3, lambda a, b: a | b),
    "^": (4, lambda a, b: a ^ b),
    "&": (5, lambda a, b: a & b),
    "==": (6, _logical(lambda a, b: a == b)),
    "!=": (6, _logical(lambda a, b: a != b)),
    "<": (7, _logical(lambda a, b: a < b)),
    "<=": (7, _logical(lambda a, b: a <= b)),
    ">": (7, _logical(lambda a, b: a > b)),
    ">=": (7, _logical(lambda a, b: a >= b)),
    "<<": (8, lambda a, b: a << (b & 63)),
    ">>": (8, lambda a, b: a >> (b & 63)),
    "+": (9, lambda a, b: a + b),
    "-": (9, lambda a, b: a - b),
    "*": (10, lambda a, b: a * b),
    "/": (10, _divide),
    "%": (10, lambda a, b: a - b * _divide(a, b)),
}
_ENDS = frozenset((",", ";", "]", "}", ")"))


def _wrap(value: int, unsigned: bool) -> int:
    value &= _MASK
    return value - (1 << 64) if not unsigned and value >> 63 else value


def float_constant(text: str) -> Constant:
    """Bits of `0f3F800000`, `0d...` or a decimal literal, which is a 64-bit value."""
    if text[:2] in ("0f", "0F"):
        return Constant(int(text[2:], 16), "f32")
    if text[:2] in ("0d", "0D"):
        return Constant(int(text[2:], 16), "f64")
    return Constant(int.from_bytes(struct.pack("<d", float(text)), "little"), "f64")


class Cursor:
    """A reader of tokens, one after another.

    at: index of the next token. kinds, texts: the lists of `Tokens`.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.kinds = tokens.kinds
        self.texts = tokens.texts
        self.at = 0
        self._depth = 0
        self._names = 0

    def fail(self, message: str, hint: str | None = None, at: int | None = None) -> NoReturn:
        raise self.error(message, hint, at)

    def error(self, message: str, hint: str | None = None, at: int | None = None) -> PtxSyntaxError:
        return self.tokens.error(self.at if at is None else at, message, hint)

    def found(self) -> str:
        """The next token, as messages quote it."""
        return "the end of the text" if self.kinds[self.at] == "end" else repr(self.texts[self.at])

    def span_from(self, first: int) -> Span:
        return self.tokens.span_from(first, self.at)

    def expect(self, kind: str, what: str | None = None) -> str:
        """Read the next token, which must be of this kind, and return its text."""
        if self.kinds[self.at] != kind:
            self.fail(f"expected {what or repr(kind)}, found {self.found()}")
        text = self.texts[self.at]
        self.at += 1
        return text

    def accept(self, kind: str) -> bool:
        if self.kinds[self.at] == kind:
            self.at += 1
            return True
        return False

    def accept_text(self, text: str) -> bool:
        if self.texts[self.at] == text:
            self.at += 1
            return True
        return False

    def name(self, what: str) -> str:
        """Read a plain identifier."""
        text = self.expect("word", what)
        if "." in text:
            self.fail(f"expected {what}, found {text!r}", at=self.at - 1)
        return text

    def number(self, what: str) -> int:
        """Read a plain integer literal."""
        text = self.expect("int", what)
        try:
            return parse_int(text)
        except ValueError:
            self.fail(f"{text!r} is not a number", hint="a leading 0 makes it octal", at=self.at - 1)

    def integer(self, what: str = "an integer") -> int:
        """Read an integer constant expression."""
        start = self.at
        constant = self.constant()
        if constant.literal != "int":
            self.fail(f"expected {what}, found a floating-point constant", at=start)
        return constant.value

    def size(self, what: str, limit: int = 1 << 40) -> int:
        """Read an integer from 0 to below `limit`."""
        start = self.at
        value = self.integer(what)
        if not 0 <= value < limit:
            self.fail(f"{what} is {value}; it must be from 0 to {limit - 1}", at=start)
        return value

    def count(self, what: str, limit: int) -> int:
        """The number in `<n>` after a name, from 0 to below `limit`; 1 if there is no `<`."""
        if not self.accept("<"):
            return 1
        start = self.at
        value = self._primary()  # an expression would take the '>' for an operator
        if value.literal != "int" or not 0 <= value.value < limit:
            self.fail(f"{what} is {self.texts[start]}; it must be an integer from 0 to {limit - 1}", at=start)
        self.expect(">")
        return value.value

    def names(self, count: int, each: int = 1) -> int:
        """`count`, after adding it to the number of names that the module declares. Fails above MAX_NAMES names.

        each: the weight of one name in this number.
        """
        self._names += count * each
        if self._names > MAX_NAMES:
            self.fail(f"the module declares too many names: {MAX_NAMES // each} at most", at=self.at - 1)
        return count

    def constant(self) -> Constant:
        """Read a constant expression."""
        kind = self.kinds[self.at]
        if kind == "int" and self.kinds[self.at + 1] in _ENDS:  # nearly every constant
            return self._primary()
        value = self._binary(0)
        if self.kinds[self.at] != "?":
            return value
        self._deeper()
        self.at += 1
        yes = self.constant()
        self.expect(":")
        no = self.constant()
        self._depth -= 1
        return yes if value.value else no

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self.fail("the constant expression is nested too deeply")

    def _binary(self, least: int) -> Constant:
        left = self._unary()
        while True:
            operator = self.kinds[self.at]
            level, compute = _BINARY.get(operator, (0, None))
            if compute is None or level <= least:
                return left
            at = self.at
            self.at += 1
            right = self._binary(level)
            if left.literal != "int" or right.literal != "int":
                left = self._float(operator, left, right, at)
                continue
            if operator in ("/", "%") and right.value == 0:
                self.fail("division by zero in a constant expression", at=at)
            unsigned = left.unsigned or right.unsigned
            value = compute(_wrap(left.value, unsigned), _wrap(right.value, unsigned))
            left = Constant(_wrap(value, unsigned), "int", unsigned and level > 7)

    def _float(self, operator: str, left: Constant, right: Constant, at: int) -> Constant:
        """The result of an operation on decimal floating-point constants, in double precision."""
        if (left.literal, right.literal) != ("f64", "f64") or operator not in ("+", "-", "*", "/"):
            self.fail(f"{operator!r} cannot stand between these constants", at=at)
        a, b = (struct.unpack("<d", c.value.to_bytes(8, "little"))[0] for c in (left, right))
        try:
            value = {"+": a + b, "-": a - b, "*": a * b}[operator] if operator != "/" else a / b
        except ZeroDivisionError:
            self.fail("division by zero in a constant expression", at=at)
        return Constant(int.from_bytes(struct.pack("<d", value), "little"), "f64")

    def _unary(self) -> Constant:
        self._deeper()
        value = self._unary_at_depth()
        self._depth -= 1
        return value

    def _unary_at_depth(self) -> Constant:
        operator = self.kinds[self.at]
        if operator in ("+", "-", "!", "~"):
            at = self.at
            self.at += 1
            value = self._unary()
            if value.literal != "int":
                if operator in ("!", "~") or value.literal == "f32":
                    self.fail(f"{operator!r} takes integer constants only", at=at)
                return Constant(value.value ^ 1 << 63, "f64") if operator == "-" else value
            number = {"+": value.value, "-": -value.value, "!": int(not value.value), "~": ~value.value}[operator]
            # -9223372036854775808 and -(0xffffffffU): the sign is kept, an operand wraps it to its own size
            return Constant(_wrap(number, value.unsigned and operator == "~"), "int", value.unsigned)
        if operator == "(":
            self.at += 1
            if self.kinds[self.at] == "dot" and self.texts[self.at] in (".s64", ".u64"):
                unsigned = self.texts[self.at] == ".u64"
                self.at += 1
                self.expect(")")
                value = self._unary()
                return Constant(_wrap(value.value, unsigned), value.literal, unsigned)
            value = self.constant()
            self.expect(")")
            return value
        return self._primary()

    def _primary(self) -> Constant:
        kind, text = self.kinds[self.at], self.texts[self.at]
        if kind == "int":
            try:
                value = parse_int(text)
            except ValueError:
                self.fail(f"{text!r} is not a number", hint="a leading 0 makes it octal")
            if value > _MASK:
                self.fail(f"{text} does not fit 64 bits")
            self.at += 1
            return Constant(value, "int", text[-1] == "U" or value >> 63 != 0)
        if kind == "float":
            self.at += 1
            return float_constant(text)
        if kind == "word" and text == "WARP_SZ":
            self.at += 1
            return Constant(32)
        raise self.error(f"expected a constant, found {self.found()}")
