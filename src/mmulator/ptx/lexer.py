"""PTX text to tokens, by one regular expression. Syntax (PTX ISA 9.1): Lexical Elements, Identifiers, Constants."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from itertools import islice

from mmulator.codegen.locks import remaining
from mmulator.errors import PtxSyntaxError
from mmulator.source import Source, Span

# Possessive quantifiers (`*+`): no backtracking, so no input takes more than linear time. None around a choice inside
# another, where Python is older than 3.11.5, which gets that wrong.
_TOKEN = re.compile(
    r"""(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*[\s\S]*?\*/|^[ \t]*+\#[^\n]*+)*+
    (?:
      (?P<word>(?:[A-Za-z_$]|%(?=[\w$]))[\w$]*+(?:\.[\w$]++(?:::[\w$]++)*+)*+)
    | (?P<float>0[fF][0-9a-fA-F]{8}(?![\w$])|0[dD][0-9a-fA-F]{16}(?![\w$])
        |[0-9]++(?:\.[0-9]*+(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)(?![\w$])
        |\.[0-9]++(?:[eE][+-]?[0-9]++)?+(?![\w$]))
    | (?P<int>0[xX][0-9a-fA-F]++U?|0[bB][01]++U?|[0-9]++U?)
    | (?P<dot>\.[\w$]++(?:::[\w$]++)*+)
    | (?P<string>"[^"\n]*+")
    | (?P<op>(?!/\*)(?:<<|>>|<=|>=|==|!=|&&|\|\||[\[\](){}<>,;:=|!@+\-*/%&^~?]))
    | (?P<end>\Z)
    | (?P<bad>/\*|.)
    )""",
    re.VERBOSE | re.ASCII | re.MULTILINE,
)

_NUMBER = r"-?+(?:0[xX][0-9a-fA-F]{1,16}+|[1-9][0-9]{0,17}+|0)(?=[ \t\r\n]*+[,}])"
# Behind a brace, so many plain integers in a row are one token, of kind `numbers`: initialisers have millions.
_MANY = "{63,}+" if sys.version_info >= (3, 11, 5) else "{63,}"
_NUMBERS = re.compile(rf"[ \t\r\n]*+({_NUMBER}(?:[ \t\r\n]*+,[ \t\r\n]*+{_NUMBER}){_MANY})")
_AT_ONCE = 4096  # tokens between two checks of the clock


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text, as parallel lists.

    kinds: `word` (a dotted name as a whole), `dot` (a directive or modifier), `int`, `float`, `string`, `numbers` (a long list
        of integers with its commas), `end`; for punctuation, the text itself.
    """

    source: Source
    kinds: list[str]
    texts: list[str]
    starts: list[int]

    def span(self, index: int) -> Span:
        start = self.starts[index]
        return Span(self.source, start, start + len(self.texts[index]))

    def span_from(self, first: int, after: int) -> Span:
        """The span from token `first` to the end of the token before `after`."""
        last = max(first, after - 1)
        return Span(self.source, self.starts[first], self.starts[last] + len(self.texts[last]))

    def error(self, index: int, message: str, hint: str | None = None) -> PtxSyntaxError:
        return PtxSyntaxError(message, span=self.span(index), hint=hint)


def tokenize(source: Source) -> Tokens:
    """Tokens of a text; the last one has the kind `end`.

    Raises PtxSyntaxError for a character that starts no token, or a comment that does not end; TimeUp.
    """
    kinds: list[str] = []
    texts: list[str] = []
    starts: list[int] = []
    at, found = 0, Tokens(source, kinds, texts, starts)
    while not kinds or kinds[-1] != "end":
        remaining()
        at = _some(found, at)
    return found


def _some(found: Tokens, at: int) -> int:
    """Append some more tokens, from a place in the text on, and return the place where the next tokens begin."""
    source, kinds, texts, starts = found.source, found.kinds, found.texts, found.starts
    for match in islice(_TOKEN.finditer(source.text, at), _AT_ONCE):
        kind = match.lastgroup or "bad"
        text = match[kind]
        start = match.start(kind)
        if kind == "op":
            kind = text
        elif kind == "bad":
            span = Span(source, start, start + len(text))
            if text == "/*":
                raise PtxSyntaxError("a comment is not closed", span=span, hint="end it with */")
            if text == '"':
                raise PtxSyntaxError("a string is not closed on its line", span=span)
            raise PtxSyntaxError(f"{text!r} cannot stand here", span=span, hint="PTX text is ASCII")
        kinds.append(kind)
        texts.append(text)
        starts.append(start)
        if kind == "{":
            numbers = _NUMBERS.match(source.text, match.end())
            if numbers is not None:
                kinds.append("numbers")
                texts.append(numbers[1])
                starts.append(numbers.start(1))
                return numbers.end()
        if kind == "end":
            break
    return match.end()


def parse_int(text: str) -> int:
    """Value of an integer literal: hexadecimal, octal, binary or decimal, with an optional `U`. Raises ValueError."""
    digits = text.rstrip("U")
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    if digits[:2] in ("0b", "0B"):
        return int(digits, 2)
    if len(digits) > 1 and digits[0] == "0":
        return int(digits, 8)
    return int(digits)
