"""The binding of rows to their meanings. Each row that runs is bound to one function, in the file of compiler/meaning/ with the
name of the row's file in isa/.

    @means("ld", "ldu")                  f(emitter, instruction): writes the instruction's code
    @lanewise("add", kinds="f32 f64")    f(scope, modifiers, *sources) -> result: a pure function, on 32 lanes at once

A name is that of a row, or begins it up to a dot: "fence" also covers fence.proxy. `kinds` restricts a function to kinds of the
first type (scope.kind_of), if functions of one name share a file. After all files are imported, `prove` matches rows that run
with functions; a row or a function without a partner is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.scope import Mods, Result, Scope, kind_of, mods
from mmulator.errors import InternalError
from mmulator.isa.form import Form
from mmulator.isa.row import Row
from mmulator.isa.types import is_type
from mmulator.ptx.tree import Instruction

Act: TypeAlias = "Callable[[Emitter, Instruction], None]"
Pure: TypeAlias = "Callable[..., Result]"
Key: TypeAlias = "tuple[str, str]"


@dataclass(frozen=True)
class Meaning:
    """The functions that write a row's code.

    lanewise: a pure function of the operands.
    receive: writes the code for control that comes back.
    one: modifiers with which the function also takes values without lanes.
    """

    function: Callable[..., Any]
    lanewise: bool
    receive: Act | None = None
    one: Callable[[Mods], bool] | None = None


_written: dict[str, dict[Key, Meaning]] = {}  # by file; (name, kind)
_receivers: dict[str, dict[str, Act]] = {}
_meanings: dict[Key, dict[str, Meaning]] = {}  # of a row: (section, name), then kind; filled by `prove`


def _file(function: Callable[..., Any]) -> str:
    return function.__module__.rpartition(".")[2]


def _bind(
    names: Iterable[str], kinds: str, function: Callable[..., Any], lanewise: bool, one: Callable[[Mods], bool] | None = None
) -> None:
    for name in names:
        for kind in kinds.split() or [""]:
            bound = _written.setdefault(_file(function), {})
            if (name, kind) in bound:
                raise InternalError(f"{name} has two meanings in compiler/meaning/{_file(function)}.py")
            bound[name, kind] = Meaning(function, lanewise, one=one)


def means(*names: str) -> Callable[[Act], Act]:
    """A decorator: the function writes the code of these rows."""

    def bind(function: Act) -> Act:
        _bind(names, "", function, False)
        return function

    return bind


def lanewise(*names: str, kinds: str = "", one: Callable[[Mods], bool] | None = None) -> Callable[[Pure], Pure]:
    """A decorator: the function computes the results of these rows from their operands. kinds: kinds of the first type for
    which it does. one: modifiers with which it also takes values without lanes.
    """

    def bind(function: Pure) -> Pure:
        _bind(names, kinds, function, True, one)
        return function

    return bind


def receives(*names: str) -> Callable[[Act], Act]:
    """A decorator: the function writes the code for control that comes back to these rows, which end a block."""

    def bind(function: Act) -> Act:
        _receivers.setdefault(_file(function), {}).update(dict.fromkeys(names, function))
        return function

    return bind


# rows to functions --------------------------------------------------------------------------------------------------
def _kinds(row: Row) -> set[str]:
    """Kinds of the first type in a row's forms."""
    for slot in row.slots:
        if any(map(is_type, slot.choices)):
            return {kind_of(c) for c in slot.choices if is_type(c)}
    return {""}


def _prefixes(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def prove(chapter: str, rows: Iterable[Row], table: str) -> None:
    """Check that every row of the file `table` that runs has a meaning in the file of this chapter, and every meaning there a
    row.

    Raises InternalError, which names both files.
    """
    bound, used = _written.get(chapter, {}), set()
    told_apart = any(kind for _, kind in bound)
    file = f"compiler/meaning/{chapter}.py"
    for row in rows:
        if not row.status.runs:
            continue
        name = row.name
        receiver = next((r for n in _prefixes(name) if (r := _receivers.get(chapter, {}).get(n))), None)
        for kind in _kinds(row) if told_apart else ("",):
            key = next(((n, k) for n in _prefixes(name) for k in (kind, "") if (n, k) in bound), None)
            if key is None:
                of = f" of kind {kind}" * bool(kind)
                raise InternalError(f"{name}{of} in {table} runs and has no meaning in {file}")
            used.add(key)
            found = bound[key]
            _meanings.setdefault((row.section.title, name), {})[key[1]] = replace(found, receive=receiver)
    for name, kind in bound.keys() - used:
        of = f" of kind {kind}" * bool(kind)
        raise InternalError(f"{name}{of} has a meaning in {file}, but no row in {table} that runs")


def bound_files() -> set[str]:
    """Names of the files that bind rows to meanings."""
    return {*_written, *_receivers}


def meaning_of(form: Form) -> Meaning:
    """The meaning of a form; program/runnable.py has refused forms without a meaning."""
    found = _meanings[form.section.title, form.name]
    return found.get("") or found[kind_of(mods(form).types[0])]


def compute(x: Scope, form: Form, *sources: Any) -> Result:
    """Results of a lane-wise form."""
    result: Result = meaning_of(form).function(x, mods(form), *sources)
    return result
