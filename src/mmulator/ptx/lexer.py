"""PTX text to tokens, by one regular expression. Syntax (PTX ISA 9.1): Lexical Elements, Identifiers, Constants."""

import re
import sys
from dataclasses import dataclass, field
from itertools import islice

from mmulator.base.codegen.locks import remaining
from mmulator.base.errors import PtxSyntaxError
from mmulator.base.location import Mark
from mmulator.base.source import Source, Span

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
    | (?P<loc>\.loc@N@N@N(?:[ \t]*+,[ \t]*+function_name[ \t]++([A-Za-z_$][\w$]*+)(?:[ \t]*+\+[ \t]*+([1-9][0-9]{0,17}+|0))?
        [ \t]*+,[ \t]*+inlined_at@N@N@N)?(?=[ \t\r]*+(?:\n|//)))
    | (?P<dot>\.[\w$]++(?:::[\w$]++)*+)
    | (?P<string>"[^"\n]*+")
    | (?P<op>(?!/\*)(?:<<|>>|<=|>=|==|!=|&&|\|\||[\[\](){}<>,;:=|!@+\-*/%&^~?]))
    | (?P<end>\Z)
    | (?P<bad>/\*|.)
    )""".replace("@N", r"[ \t]++([1-9][0-9]{0,17}+|0)"),
    re.VERBOSE | re.ASCII | re.MULTILINE,
)

_NUMBER = r"-?+(?:0[xX][0-9a-fA-F]{1,16}+|[1-9][0-9]{0,17}+|0)(?=[ \t\r\n]*+[,}])"
# Behind a brace, so many plain integers in a row are one token, of kind `numbers`: initialisers have millions.
_MANY = "{63,}+" if sys.version_info >= (3, 11, 5) else "{63,}"
_NUMBERS = re.compile(rf"[ \t\r\n]*+({_NUMBER}(?:[ \t\r\n]*+,[ \t\r\n]*+{_NUMBER}){_MANY})")
# All that compilers write into a .section, where nothing is looked for: labels, sizes, numbers and comments.
_SECTION = re.compile(r"(?:[\w$:,+\s-]++|\.(?=[\w$])|//[^\n]*+)*+\}", re.ASCII)
_PLAIN = frozenset(("word", "int", "dot", "float", "string"))  # most tokens
_BEGINS = frozenset((";", "}", ":"))  # kinds behind which a statement begins
_AT_ONCE = 4096  # tokens between two checks of the clock


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text, as parallel lists.

    kinds: `word` (a dotted name as a whole), `dot` (a directive or modifier), `int`, `float`, `string`, `numbers` (a long list
        of integers with its commas), `end`; for punctuation, the text itself.
    marks: index of a `.loc` that is a statement of its own line -> what it says. Its numbers are no tokens, and neither are those
        in a .section: a third of the text of a small kernel.
    """

    source: Source
    kinds: list[str]
    texts: list[str]
    starts: list[int]
    marks: dict[int, Mark] = field(default_factory=dict)

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
    whole = source.text
    for match in islice(_TOKEN.finditer(whole, at), _AT_ONCE):
        kind = match.lastgroup or "bad"
        start, end = match.span(match.lastindex or 0)
        text = whole[start:end]
        if kind in _PLAIN:
            kinds.append(kind)
            texts.append(text)
            starts.append(start)
            continue
        if kind == "op":
            kind = text
        elif kind == "bad":
            span = Span(source, start, start + len(text))
            if text == "/*":
                raise PtxSyntaxError("a comment is not closed", span=span, hint="end it with */")
            if text == '"':
                raise PtxSyntaxError("a string is not closed on its line", span=span)
            raise PtxSyntaxError(f"{text!r} cannot stand here", span=span, hint="PTX text is ASCII")
        elif kind == "loc":
            known = bool(kinds) and (kinds[-1] in _BEGINS or len(kinds) - 1 in found.marks)
            if known:
                found.marks[len(kinds)] = _mark(match, start)
            kinds.append("dot")
            texts.append(".loc")
            starts.append(start)
            if known:
                continue
            return start + len(".loc")
        kinds.append(kind)
        texts.append(text)
        starts.append(start)
        if kind == "{":
            section = _SECTION.match(whole, end) if ".section" in texts[-3:-2] else None
            if section is not None:
                return section.end() - 1
            numbers = _NUMBERS.match(source.text, match.end())
            if numbers is not None:
                kinds.append("numbers")
                texts.append(numbers[1])
                starts.append(numbers.start(1))
                return numbers.end()
        if kind == "end":
            break
    return match.end()


def _mark(match: re.Match[str], start: int) -> Mark:
    """The mark of a `.loc` at a place in the text."""
    first = match.lastindex or 0
    file, line, column, function, skip, *call = match.groups()[first : first + 8]
    if function is None:
        return Mark(start, int(file), int(line), int(column))
    called = int(call[0]), int(call[1]), int(call[2])
    return Mark(start, int(file), int(line), int(column), function, int(skip or 0), called)


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
