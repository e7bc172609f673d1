"""Things that are made on first use: a property (`cached_property` without a lock), and the names of a package (`face`).

Python 3.11 computes a `cached_property` under a lock of its class. A fork in another thread leaves it locked in the child, which
then waits for ever. Computing a value twice is harmless: all cached properties here are functions of frozen data.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property:
        """A property that is computed once and then lies in the instance's `__dict__`."""

        def __init__(self, function: Any) -> None:
            self.function = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.name, self.function(instance))


def _imported(name: str) -> Any:
    """A module. What it makes stays, so nothing is looked for meanwhile that might go."""
    import gc
    from importlib import import_module

    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if collects:
            gc.enable()


def face(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose public names are imported on first use.

    The names stand once, in the `__init__.pyi` beside the package's file, which type checkers read: `from MODULE import A as A`,
    or `import MODULE as A` for a module.
    """
    module = sys.modules[package]
    with open(f"{module.__file__}i") as stub:
        lines = stub.read().replace("(\n", "").replace(",\n", ", ").splitlines()
    places: dict[str, tuple[str, str]] = {}
    for kind, _, rest in (line.partition(" ") for line in lines):
        if kind == "from":
            origin, _, names = rest.partition(" import ")
            places |= {name.split()[0]: (origin, name.split()[0]) for name in names.strip(" )").split(", ") if name}
        elif kind == "import":
            places[rest.split()[2]] = rest.split()[0], ""

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        origin, attribute = places[name]
        found = _imported(origin)
        module.__dict__[name] = value = getattr(found, attribute) if attribute else found
        return value

    return get, lambda: sorted(every), (every := sorted(places))
