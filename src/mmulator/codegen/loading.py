"""Loading native functions on demand: each is its own small piece of cached object code, linked by symbol."""

from __future__ import annotations

from collections.abc import Iterable

from mmulator.codegen.engine import Library
from mmulator.codegen.lang import Native, parts
from mmulator.codegen.locks import Lock
from mmulator.codegen.values import module_text

_loaded: dict[str, int] = {}
_libraries: list[Library] = []  # keeps the code alive
_lock = Lock()


def ensure(functions: Iterable[Native]) -> None:
    """Compile (or fetch from the cache) these functions and what they call."""
    for function in functions:
        _ensure(function)


def _ensure(function: Native) -> None:
    if function.name not in _loaded:
        with _lock:
            _load(function)


def _load(function: Native) -> None:
    if function.name in _loaded:
        return
    builders, calls = parts(function)
    for callee in calls:
        if callee.name != function.name:
            _load(callee)
    symbols = {n: _loaded[n] for b in builders for n in b.declared if n in _loaded}
    library = Library(module_text(builders), 2, symbols)
    _libraries.append(library)
    _loaded[function.name] = library.address(function.name)


def address(function: Native) -> int:
    """Address of a native function, loading it first."""
    _ensure(function)
    return _loaded[function.name]


def symbols(names: Iterable[str]) -> dict[str, int]:
    """Addresses of those of `names` that are loaded native functions."""
    return {n: _loaded[n] for n in names if n in _loaded}
