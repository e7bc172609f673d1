"""Loading native functions on demand: each is its own small piece of cached object code, linked by symbol."""

from __future__ import annotations

from collections.abc import Iterable

from mmulator.codegen.engine import Library
from mmulator.codegen.lang import Native, parts
from mmulator.codegen.locks import Lock
from mmulator.codegen.values import module_text
from mmulator.errors import InternalError

_loaded: dict[str, int] = {}
_functions: dict[str, Native] = {}  # the same, by name: one function has it
_libraries: list[Library] = []  # keeps the code alive
_lock = Lock()


def ensure(functions: Iterable[Native]) -> None:
    """Compile (or fetch from the cache) these functions and what they call."""
    for function in functions:
        _ensure(function)


def _ensure(function: Native) -> None:
    if _functions.get(function.name) is not function:
        with _lock:
            _load(function)


def _load(function: Native) -> None:
    known = _functions.get(function.name)
    if known is not None:
        if not known.is_like(function):
            raise InternalError(f"{function.name} is the name of two native functions: they are linked by it")
        return
    builders, calls = parts(function)
    for callee in calls:
        if callee.name != function.name:
            _load(callee)
    symbols = {n: _loaded[n] for b in builders for n in b.declared if n in _loaded}
    library = Library(module_text(builders), 2, symbols)
    _libraries.append(library)
    _loaded[function.name] = library.address(function.name)
    _functions[function.name] = function


def address(function: Native) -> int:
    """Address of a native function, loading it first."""
    _ensure(function)
    return _loaded[function.name]


def symbols(names: Iterable[str]) -> dict[str, int]:
    """Addresses of those of `names` that are loaded native functions."""
    return {n: _loaded[n] for n in names if n in _loaded}
