"""Loading of native functions on demand: each is a separate small piece of stored object code, linked by symbol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mmulator.codegen import named
from mmulator.codegen.engine import CompiledObject, code_memory
from mmulator.codegen.linking import Linked
from mmulator.codegen.locks import Lock, remaining
from mmulator.codegen.variants import says_all
from mmulator.errors import InternalError

if TYPE_CHECKING:
    from mmulator.codegen.lang import Native

_loaded: dict[str, int] = {}
_functions: dict[str, Native] = {}  # by name: one function has it
_names: dict[int, str] = {}  # of those that are loaded, by address
_asked: dict[str, named.NamedCode] = {}  # found, and not loaded yet
_memory: list[Linked] = []  # one, from the first function on
_lock = Lock()


def ensure(functions: Iterable[Native]) -> None:
    """Compile, or read from the cache, these functions and all functions that they call, and load them. Raises TimeUp."""
    wanted = [f for f in functions if _functions.get(f.name) is not f]
    if wanted:
        with _lock:
            _load(wanted)


def _load(wanted: list[Native]) -> None:
    found = _Found()
    try:
        for function in wanted:
            remaining()
            found.take(function)
        codes = {name: code if isinstance(code, bytes) else code.code() for name, code in found.codes.items()}
    except BaseException:
        found.give_up()
        raise
    for name, links in found.links.items():
        piece = found.codes[name]
        if isinstance(piece, CompiledObject) and links is not None:
            named.keep(name, codes[name], links)
    _enter(codes)
    _functions.update(found.functions)


def _enter(codes: dict[str, bytes]) -> None:
    if codes:
        if not _memory:
            _memory.append(code_memory())
        _memory[0].add(codes.values())
        found = {name: _memory[0].address(name) for name in codes}
        _loaded.update(found)
        _names.update({at: name for name, at in found.items()})
        _asked.clear()


def is_stored(name: str) -> bool:
    """Whether the code of a function of the package is loaded or stored, or linked to what may still be compiled."""
    return name in _loaded or _stored(name) is not None


def _stored(name: str) -> named.NamedCode | None:
    """The stored code of a function of the package, read once although several callers need it before it is loaded."""
    entry = _asked.get(name)
    if entry is None:
        entry = named.find(name)
        if entry is not None:
            _asked[name] = entry
    return entry


def ensure_named(names: Iterable[str]) -> bool:
    """Load functions of the package by their names alone. Returns False, and loads nothing, if the code of one is
    not stored.
    """
    with _lock:
        found = _Found()
        if not all(found.by_name(name) for name in names):
            return False
        _enter({name: code for name, code in found.codes.items() if isinstance(code, bytes)})
        return True


class _Found:
    """Functions that are not loaded, and all functions to which they are linked, as object code that is finished or being
    compiled.

    links: for each function the names of the functions that it calls; None if these names do not determine its code.
    """

    def __init__(self) -> None:
        self.codes: dict[str, bytes | CompiledObject] = {}
        self.links: dict[str, list[str] | None] = {}
        self.functions: dict[str, Native] = {}

    def take(self, function: Native) -> None:
        name = function.name
        known = self.functions.get(name) or _functions.get(name)
        if known is not None and not known.is_like(function):
            raise InternalError(f"{name} is the name of two native functions: they are linked by it")
        self.functions.setdefault(name, function)
        if known is not None or name in _loaded or name in self.codes or (says_all(function) and self.by_name(name)):
            return
        from mmulator.codegen.lang import parts
        from mmulator.codegen.values import module_text

        builders, calls = parts(function)
        linked = {f.name: f for f in calls if f.name != name}
        for callee in linked.values():
            self.take(callee)
        ours = says_all(function) and all(says_all(f) for f in linked.values())
        self.codes[name] = CompiledObject(module_text(builders), quick=function.quick)
        self.links[name] = [*linked] if ours else None

    def by_name(self, name: str) -> bool:
        """Whether the code of a function, and of all functions to which it is linked, is stored; its text is not
        needed then.
        """
        if name in _loaded or name in self.codes:
            return True
        entry = _stored(name)
        if entry is None or not all(self.by_name(link) for link in entry.links):
            return False
        self.codes[name] = entry.code
        return True

    def give_up(self) -> None:
        for code in self.codes.values():
            if isinstance(code, CompiledObject):
                code.give_up()


def address(function: Native) -> int:
    """Address of a native function, loading it first."""
    ensure([function])
    return _loaded[function.name]


def symbols(names: Iterable[str]) -> dict[str, int]:
    """Addresses of those of `names` that are loaded native functions."""
    return {n: _loaded[n] for n in names if n in _loaded}


def name_of_own(address: int) -> str | None:
    """The name of the package's own loaded function at an address."""
    name = _names.get(address)
    return name if name and (name not in _functions or says_all(_functions[name])) else None
