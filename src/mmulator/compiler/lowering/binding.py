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

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.values import Value, extract
from mmulator.base.errors import InternalError
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.lowering.operands import write_result
from mmulator.compiler.lowering.scope import Mods, Result, Scope, kind_of, mods
from mmulator.isa.form import Form
from mmulator.isa.row import Row
from mmulator.isa.types import is_type
from mmulator.ptx.program.uses import CARRY
from mmulator.ptx.tree import Immediate, Instruction, Operand, PredicatePair, Reg, VectorOperand

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
    """The meaning of a form; ptx/program/runnable.py has refused forms without a meaning."""
    found = _meanings[form.section.title, form.name]
    return found.get("") or found[kind_of(mods(form).types[0])]


def compute(x: Scope, form: Form, *sources: Any) -> Result:
    """Results of a lane-wise form."""
    result: Result = meaning_of(form).function(x, mods(form), *sources)
    return result


# lane-wise instructions ----------------------------------------------------------------------------------------------
class Lanes:
    """The view that a pure function has of the emitter: the lanes, their condition code, calls of native functions."""

    lanes = 32

    def __init__(self, e: Emitter, ins: Instruction) -> None:
        self._e, self._ins = e, ins
        self.device, self.known = e.device, e.known

    def call(self, function: Native, *args: Any) -> Value:
        return self._e.call(function, *args)

    @property
    def carry(self) -> Value:
        return self._e.read(CARRY)

    @carry.setter
    def carry(self, value: Value) -> None:
        self._e.write(CARRY, value, self._e.guard(self._ins))


def run(e: Emitter, ins: Instruction, meaning: Meaning) -> None:
    """Write an instruction whose results are a function of its operands."""
    form: Any = ins.form
    m = mods(form)
    targets: list[Operand] = []
    sources: list[Any] = []
    for spec, operand in zip(form.operands, ins.operands):
        if spec.access == "w":
            targets += [operand.p, operand.q] if isinstance(operand, PredicatePair) else [operand]
        elif spec.kind == "imm" and isinstance(operand, Immediate):
            sources.append(operand.value)
        elif isinstance(operand, VectorOperand):
            sources += [(part, spec.type) for part in operand.elements]
        else:
            sources.append((operand, spec.type))
    values = _ones(e, sources) if meaning.one is not None and meaning.one(m) else None
    if values is None:
        values = [e.source(*s) if isinstance(s, tuple) else s for s in sources]
    results = meaning.function(Lanes(e, ins), m, *values)
    if not isinstance(results, tuple):
        results = (results,)
    for target, result in zip(targets, results):
        if isinstance(target, Reg) and result.ty.lanes and target.name in e.frame.uniform:
            one = e.one_of(result)
            result = extract(result, 0) if one is None else one  # its sources are equal in all lanes, whichever are active
        write_result(e, target, result, ins)


def _ones(e: Emitter, sources: list[Any]) -> list[Any] | None:
    """The sources as values without lanes; None if lanes may differ."""
    values: list[Any] = []
    for s in sources:
        values.append(e.one(*s) if isinstance(s, tuple) else s)
        if values[-1] is None:
            return None
    return values
