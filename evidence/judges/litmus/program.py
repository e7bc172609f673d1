"""Litmus tests as data, and the two text formats that published ones have: that of herd (Dat3M's folder litmus/PTX), and
NVlabs/mixedproxy's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Operand = int | str  # a number, or the name of a register
Environment = Mapping[str, Any]  # values by name: `P0:r1` of a register, `x` of a location; numbers, or arrays of them
Truth = Callable[[Environment], Any]
SEMANTICS = ("weak", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile")
SCOPES = ("cta", "gpu", "sys")
COMPARISONS = ("eq", "ne", "ge", "le", "gt", "lt")


class OutOfReach(Exception):
    """A test asks for what a kernel of PTX cannot say, or mmulator has not."""


@dataclass(frozen=True)
class Op:
    """An instruction of a litmus test.

    kind: ld, st, atom (with the operations add, sub, exch, cas; `red` is an atom without a register), fence, sync or arrive (of a
    barrier), move, add, branch, jump, label.
    operands: st and atom: the values; sync and arrive: the barrier's number, and threads if they are said; branch: the two that
    are compared.
    only: a run counts only if the load gave this value.
    """

    kind: str
    sem: str = "weak"
    scope: str = "sys"
    register: str = ""
    place: str = ""
    operands: tuple[Operand, ...] = ()
    operation: str = ""
    label: str = ""
    only: int | None = None


@dataclass(frozen=True)
class Condition:
    """Whether final values are an outcome. names: the values that it looks at."""

    holds: Truth
    names: frozenset[str]

    def __call__(self, env: Environment) -> Any:
        return self.holds(env)


@dataclass(frozen=True)
class Thread:
    cta: int
    gpu: int
    ops: tuple[Op, ...]
    registers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Test:
    """A program and one outcome of it.

    outcome: whether final values are the outcome. forbidden: no execution that the model allows has it.
    """

    name: str
    threads: tuple[Thread, ...]
    places: Mapping[str, int]
    outcome: Condition
    forbidden: bool


# conditions ---------------------------------------------------------------------------------------------------------
_TOKEN = re.compile(r"\s*(/\\|\\/|&&|\|\||==|!=|=|~|\(|\)|not\b|P?\d+:\w+|-?\d+|[A-Za-z_]\w*)")


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"condition {text!r}")
        found.append(match[1])
        at = match.end()
    return found


def condition(text: str, own: Callable[[str], str] = str) -> Condition:
    """A condition in the words of either format. own: the name in an environment of a name in the text."""
    tokens = [*_tokens(re.sub(r"(?<=\d:)\s+", "", text)), ""]
    names: set[str] = set()

    def value() -> Truth:
        word = tokens.pop(0)
        if re.fullmatch(r"-?\d+", word):
            number = int(word)
            return lambda _: number
        name = own(re.sub(r"^(?=\d)", "P", word))
        names.add(name)
        return lambda env: env[name]

    def one() -> Truth:
        if tokens[0] in ("~", "not"):
            tokens.pop(0)
            inner = one()
            return lambda env: ~(inner(env) != 0)
        if tokens[0] == "(":
            tokens.pop(0)
            inner = either()
            if tokens.pop(0) != ")":
                raise ValueError(f"condition {text!r}")
            return inner
        left, sign, right = value(), tokens.pop(0), value()
        return (lambda env: left(env) != right(env)) if sign == "!=" else (lambda env: left(env) == right(env))

    def chain(signs: tuple[str, str], inner: Callable[[], Truth], both: bool) -> Truth:
        parts = [inner()]
        while tokens[0] in signs:
            tokens.pop(0)
            parts.append(inner())

        def all_of(env: Environment) -> Any:
            found = parts[0](env)
            for part in parts[1:]:
                found = (found & part(env)) if both else (found | part(env))
            return found

        return all_of

    def every() -> Truth:
        return chain(("/\\", "&&"), one, True)

    def either() -> Truth:
        return chain(("\\/", "||"), every, False)

    result = either()
    if tokens != [""]:
        raise ValueError(f"condition {text!r}")
    return Condition(result, frozenset(names))


def negated(inner: Condition) -> Condition:
    return Condition(lambda env: inner(env) == 0, inner.names)


# instructions -------------------------------------------------------------------------------------------------------
_ACCESS = re.compile(r"(ld|st|atom|red)((?:\.\w+)*)\s+(.*)")
_BRANCH = re.compile(r"b(eq|ne|ge|le|gt|lt)\s+(\w+)\s*,\s*(\w+)\s*,\s*(\w+)")


def _operand(word: str) -> Operand:
    return int(word) if re.fullmatch(r"-?\d+", word) else word


def _access(kind: str, dots: list[str], words: list[str], places: Mapping[str, int]) -> Op:
    sem = next((d for d in dots if d in SEMANTICS), "weak")
    scope = next((d for d in dots if d in SCOPES), "sys")
    operation = next((d for d in dots if d not in SEMANTICS and d not in SCOPES), "")
    if kind == "ld" and re.fullmatch(r"-?\d+|r\d+", words[1]):
        return Op("move", register=words[0], operands=(_operand(words[1]),))
    named = {"ld": (words[0], words[1], words[2:]), "st": ("", words[0], words[1:]), "red": ("", words[0], words[1:])}
    register, place, values = named.get(kind) or (words[0], words[1], words[2:])
    if place not in places:
        raise OutOfReach(f"{place}: another name of a location")
    kind = "atom" if kind == "red" else kind
    return Op(kind, sem, scope, register, place, tuple(map(_operand, values)), operation)


def instruction(text: str, places: Mapping[str, int]) -> Op:
    """An instruction in the words of either format, without the brackets around locations."""
    if text.startswith("fence"):
        dots = text.split(".")[1:]
        if "proxy" in dots or dots == ["alias"]:
            raise OutOfReach(f"{text}: a fence that PTX has not, or of memory at two addresses")
        return Op("fence", dots[0], dots[1] if len(dots) > 1 else "sys")
    if found := re.fullmatch(r"bar\.cta\.(sync|arrive) (.*)", text):
        words = [_operand(word.strip()) for word in found[2].split(",")]  # name in the model, number, warps
        return Op(found[1], operands=tuple(words[1:]) or (words[0],))
    if found := _BRANCH.fullmatch(text):
        return Op("branch", operation=found[1], operands=(_operand(found[2]), _operand(found[3])), label=found[4])
    if found := re.fullmatch(r"goto (\w+)|(\w+):", text):
        return Op("jump", label=found[1]) if found[1] else Op("label", label=found[2])
    if found := re.fullmatch(r"(add|sub) (\w+), (\w+), (\w+)", text):
        return Op("add", register=found[2], operands=tuple(map(_operand, found.group(3, 4))), operation=found[1])
    if found := _ACCESS.fullmatch(text):
        return _access(found[1], found[2].split(".")[1:], [w.strip() for w in found[3].split(",")], places)
    raise OutOfReach(f"{text.split()[0]}: surfaces, textures and constants are not reached through such instructions in PTX")


# herd's format ------------------------------------------------------------------------------------------------------
_PLACE = re.compile(r"\b(?:(?:st|red)\.[\w.]+ +|(?:ld|atom)\.[\w.]+ +\w+, *)([A-Za-z_]\w*)")
_HEAD = re.compile(r"P\d+\s*@\s*cta (\d+), *gpu (\d+)")


def herd(name: str, text: str, holds: bool) -> Test:
    """A test of a .litmus file. holds: the published verdict on what its last lines say. Raises OutOfReach."""
    said, body = re.sub(r"\(\*.*?\*\)|//[^\n]*", "", re.sub(r'"[^"]*"', "", text), flags=re.S).split("}", 1)
    code, quantifier, ask = re.split(r"(~exists|exists|forall)", body, maxsplit=1)
    aliases = set(re.findall(r"(\w+) *@ *\w+ +aliases", said))
    used = {name for row in code.split(";") for cell in row.split("|") for name in _PLACE.findall(cell)}
    places = dict.fromkeys(sorted(used - aliases), 0)
    registers: dict[str, dict[str, int]] = {}
    for line in said.split("{", 1)[1].split(";"):
        if found := re.fullmatch(r"\s*P?(\d+):(\w+)\s*=\s*(-?\d+)\s*", line):
            registers.setdefault(found[1], {})[found[2]] = int(found[3])
        elif found := re.fullmatch(r"\s*(\w+)\s*=\s*(-?\d+)\s*", line):
            places[found[1]] = int(found[2])
        elif "aliases" not in line and line.strip():
            raise OutOfReach(f"{line.strip()}: a location in a register")
    rows = [[cell.strip() for cell in row.split("|")] for row in code.split(";") if row.strip()]
    heads = [_HEAD.fullmatch(cell) for cell in rows[0]]
    if any(head[2] != "0" for head in heads if head):
        raise OutOfReach("threads of two GPUs")
    threads = []
    for number, head in enumerate(heads):
        assert head, f"{name}: {rows[0]}"
        cells = [re.sub(r"\s+", " ", row[number]) for row in rows[1:] if number < len(row) and row[number]]
        ops = tuple(instruction(cell, places) for cell in cells)
        threads.append(Thread(int(head[1]), int(head[2]), ops, registers.get(str(number), {})))
    asked = condition(ask)
    outcome = negated(asked) if quantifier == "forall" else asked
    return Test(name, tuple(threads), places, outcome, (quantifier != "exists") == holds)


# mixedproxy's format ------------------------------------------------------------------------------------------------
_THREAD = re.compile(r"d(\d+)\.b(\d+)\.t\d+\s*\{(.*?)\}", re.S)
_VERDICT = re.compile(r"(assert|permit)\s*\((.*)\)\s*as\s+\w+\s*;", re.S)


def rows_of(text: str) -> Iterator[str]:
    """The tests of a file of mixedproxy: itself, or one for each row of its table."""
    template, _, table = text.partition("$$")
    rows = [row for row in table.splitlines() if row.strip()]
    for row in rows:
        filled = template
        for number, cell in enumerate(row.split("|")):
            filled = filled.replace(f"${number}", cell.strip())
        yield filled
    if not rows:
        yield template


def mixedproxy(name: str, text: str) -> Test:
    """A test of mixedproxy. Raises OutOfReach."""
    text = re.sub(r"//[^\n]*", "", text)
    places = dict.fromkeys(re.findall(r"\.global (\w+)\s*;", text), 0)
    threads = []
    owners: dict[str, str] = {}
    for number, (gpu, cta, body) in enumerate(_THREAD.findall(text)):
        if gpu != "0":
            raise OutOfReach("threads of two GPUs")
        ops = []
        for line in body.split(";"):
            words, _, only = re.sub(r"[\[\]]|(?<= )none(?= )", "", re.sub(r"\s+", " ", line).strip()).partition("==")
            if words:
                op = instruction(re.sub(r"\.(add|sub)((?:\.\w+)*)", r"\2.\1", words.strip()), places)
                ops.append(replace(op, only=int(only)) if only else op)
                owners[ops[-1].register] = f"P{number}:{ops[-1].register}"
        threads.append(Thread(int(cta), 0, tuple(ops)))
    found = _VERDICT.search(text)
    assert found, name
    asked = condition(found[2], lambda word: owners.get(word, word))
    outcome = negated(asked) if found[1] == "assert" else asked
    only = [(owners[op.register], op.only) for thread in threads for op in thread.ops if op.only is not None]

    def all_of(env: Environment) -> Any:
        result = outcome(env)
        for register, value in only:
            result = result & (env[register] == value)
        return result

    whole = Condition(all_of, outcome.names | {register for register, _ in only})
    return Test(name, tuple(threads), places, whole, found[1] == "assert")
