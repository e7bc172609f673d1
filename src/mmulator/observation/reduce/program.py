"""A kernel as lines that can be left out: one statement or declaration each, without scopes, comments and what it does not reach.

The tree of a module comes in, and its text goes out again, for two programs at once where one is compared with the other: a line
has then the words of both, and goes from both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import Enum

import numpy as np

from mmulator.base.errors import MmulatorError
from mmulator.ptx.program.calls import reached
from mmulator.ptx.resources import named_symbols
from mmulator.ptx.tree import Function, Label, ParsedModule, Variable

_COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/|\s+")
_WORD = re.compile(r"[%\w$]+")


class LineKind(Enum):
    """The part that a line has in a program."""

    FIXED = "it stays"
    PARAM = "a parameter of the kernel"
    DECLARATION = "a variable, a prototype or a list of targets"
    STATEMENT = "an instruction or a label"


@dataclass(frozen=True)
class ProgramLine:
    """A line of a program.

    texts: of the program, and of the one that it is compared with; "" where it has none.
    function: whose line it is, "" for the module's.
    """

    texts: tuple[str, str]
    kind: LineKind
    function: str = ""

    @property
    def alike(self) -> bool:
        return self.texts[0] == self.texts[1]

    def but(self, text: str) -> ProgramLine:
        """The line with another text, on both sides."""
        return replace(self, texts=(text, text))


@dataclass(frozen=True)
class KernelLines:
    """A program, or two.

    lines: in order.
    registers: for each side, function -> name of each register -> type.
    entry: name of the kernel.
    """

    lines: tuple[ProgramLine, ...]
    registers: tuple[Mapping[str, Mapping[str, str]], Mapping[str, Mapping[str, str]]]
    entry: str

    def but(self, lines: Sequence[ProgramLine]) -> KernelLines:
        return replace(self, lines=tuple(lines))

    def text(self, side: int = 0) -> str:
        """The PTX of a side."""
        return "".join(f"{text}\n" for _, text in self.rows(side))

    def rows(self, side: int = 0) -> Iterator[tuple[int, str]]:
        """The rows of the PTX of a side, each with the number of its line here; -1 for declarations of registers."""
        used: dict[str, set[str]] = {}
        for line in self.lines:
            if line.function and line.kind is not LineKind.PARAM:
                used.setdefault(line.function, set()).update(_WORD.findall(line.texts[side]))
        last = max((n for n, line in enumerate(self.lines) if line.kind is LineKind.PARAM), default=-1)
        for n, line in enumerate(self.lines):
            text = line.texts[side] + "," * (line.kind is LineKind.PARAM and n != last)
            yield from ((n, row) for row in text.splitlines())
            if line.kind is LineKind.FIXED and text.endswith("{"):
                types: dict[str, list[str]] = {}
                for name, kind in self.registers[side].get(line.function, {}).items():
                    if name in used[line.function]:
                        types.setdefault(kind, []).append(name)
                yield from ((-1, f"  .reg .{kind} {', '.join(names)};") for kind, names in types.items())

    def of(self, kind: LineKind) -> list[int]:
        """Numbers of the lines of a kind."""
        return [n for n, line in enumerate(self.lines) if line.kind is kind]

    @property
    def instructions(self) -> int:
        """How many instructions the program has."""
        found = (line.texts[0] for line in self.lines if line.kind is LineKind.STATEMENT)
        return sum(text.count(";") for text in found)


def lines_of(tree: ParsedModule, entry: str, verified: bool = True) -> KernelLines:
    """The lines of a kernel and of what it reaches.

    verified: whether the tree is; of another one all functions stay.
    """
    kernel = next(f for f in tree.entries if f.name == entry)
    functions = list(reached(tree, kernel).functions) if verified else [f.name for f in tree.functions]
    kept = [f for f in tree.functions if not f.is_defined or f.name in functions]
    names = {v.name for v in tree.variables}
    if verified:
        names &= named_symbols([f for f in kept if f.is_defined])
        waiting = [v for v in tree.variables if v.name in names]
        while waiting:  # what their initialisers point to
            more = {s.symbol for v in waiting for s in v.symbols} - names
            names |= more
            waiting = [v for v in tree.variables if v.name in more]
    options = "".join(f", {word}" for word in tree.options)
    fixed = [".version {}.{}".format(*tree.version), f".target {tree.target}{options}", f".address_size {tree.address_size}"]
    out = [ProgramLine((text, text), LineKind.FIXED) for text in fixed]
    out += [_line(_declared(v, v.name), LineKind.DECLARATION) for v in tree.variables if v.name in names]
    registers = {}
    for f in kept:
        if not f.is_defined:
            out.append(_line(f"{_plain(f.span.text)};", LineKind.DECLARATION))
            continue
        out += _function(f, f is kernel)
        own = {p.name for p in (*f.returns, *f.params)}
        registers[f.name] = {_unique(name): kind for name, kind in f.registers.items() if name not in own}
    out += [_line(f".alias {a}, {b};", LineKind.FIXED) for a, b in tree.aliases.items() if not verified or b in functions]
    return KernelLines(tuple(out), (registers, registers), entry)


def _line(text: str, kind: LineKind, function: str = "") -> ProgramLine:
    return ProgramLine((text, text), kind, function)


def _plain(text: str) -> str:
    """A text on one line, without comments."""
    return _COMMENT.sub(" ", text).strip()


def _unique(name: str) -> str:
    """The name of what an inner scope declares, or of an element of a vector, in a program without either."""
    return name.replace("@", "__").replace(".", "__")


def _function(f: Function, is_kernel: bool) -> Iterator[ProgramLine]:
    head, parameters = _plain(f.span.text), [_plain(p.span.text) for p in f.params]
    if is_kernel and parameters:
        before, _, rest = head.partition("(")
        yield _line(f"{before}(", LineKind.FIXED, f.name)
        yield from (_line(f"  {text}", LineKind.PARAM, f.name) for text in parameters)
        yield _line(f") {rest[rest.rindex(')') + 1 :]} {{", LineKind.FIXED, f.name)
    else:
        yield _line(f"{head} {{", LineKind.FIXED, f.name)
    for v in f.variables:
        yield _line(f"  {_declared(v, _unique(v.name))}", LineKind.DECLARATION, f.name)
    for span, names in (
        *((p.span, [p.name]) for p in f.prototypes.values()),
        *((t.span, [t.name, *(o.name for o in t.targets)]) for t in f.targets.values()),
    ):
        yield _line(f"  {_renamed(span.text, names)}", LineKind.DECLARATION, f.name)
    for s in f.body:
        if isinstance(s, Label):
            yield _line(f"{_unique(s.name)}:", LineKind.STATEMENT, f.name)
            continue
        operands = (*s.leaves, *((s.guard[0],) if s.guard else ()))
        yield _line(f"  {_renamed(s.span.text, [getattr(o, 'name', '') for o in operands])}", LineKind.STATEMENT, f.name)
    yield _line("}", LineKind.FIXED, f.name)


def _renamed(text: str, names: Sequence[str]) -> str:
    """A statement on one line with the names that are unique in the function."""
    text = _plain(text)
    for name in {n for n in names if "@" in n or "." in n}:
        if (there := name.partition("@")[0]) in text:
            text = re.sub(rf"(?<![\w$%.]){re.escape(there)}(?![\w$])", _unique(name), text)
    return text


def _declared(v: Variable, name: str) -> str:
    """The declaration of a variable."""
    linkage = f".{v.linkage} " if v.linkage else ""
    extents = "".join(f"[{n or ''}]" for n in v.shape)
    head = f"{linkage}.{v.space} .align {v.align} {f'.v{v.vector} ' if v.vector > 1 else ''}.{v.type} {name}{extents}"
    if v.initial is None:
        return f"{head};"
    if v.symbols or v.attributes or v.type in ("b128", "texref", "samplerref", "surfref"):
        return f"{_renamed(v.span.text, [v.name])};"
    size = v.size // max(1, v.vector * int(np.prod(v.shape, dtype=np.int64)))
    words = np.frombuffer(v.initial + bytes(-len(v.initial) % size), f"<u{size}")
    form = {"f32": "0f{:08x}", "f64": "0d{:016x}"}.get(v.type, "{}")
    values = ", ".join(form.format(int(n)) for n in words)
    return f"{head} = {f'{{{values}}}' if v.shape or v.vector > 1 else values};"


def side_by_side(a: KernelLines, b: KernelLines) -> KernelLines:
    """Two programs as one: lines that they have in common, and between them pieces of one or of both.

    Raises MmulatorError where their functions or parameters are not the same.
    """
    ours, theirs = ([line.texts[0] for line in one.lines] for one in (a, b))
    out: list[ProgramLine] = []
    for tag, i, k, j, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        left, right = a.lines[i:k], b.lines[j:m]
        if tag == "equal":
            out += left
            continue
        if [x.kind for x in left] == [x.kind for x in right]:
            out += (replace(x, texts=(x.texts[0], y.texts[0])) for x, y in zip(left, right))
            continue
        if any(x.kind in (LineKind.FIXED, LineKind.PARAM) for x in (*left, *right)):
            raise MmulatorError("the two kernels have other functions or parameters: they cannot be made small together")
        words = tuple("\n".join(x.texts[0] for x in part) for part in (left, right))
        some = (left or right)[0]
        out.append(ProgramLine((words[0], words[1]), some.kind, some.function))
    theirs_by_name = {a.entry if f == b.entry else f: types for f, types in b.registers[0].items()}
    return KernelLines(tuple(out), (a.registers[0], theirs_by_name), a.entry)
