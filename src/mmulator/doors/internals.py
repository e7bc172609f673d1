"""Internal names of other people's libraries: what each is for, and what a program loses where a version lacks one.

Tables stand in doors/torch/internals.py and doors/triton/internals.py; a name that is in none no file of a door uses. In place of
one that is lacking a function is put that raises UnsupportedError, so that importing the library goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn

from mmulator.errors import UnsupportedError
from mmulator.versions import TABLE, warn

_MISSING = object()


def found(name: str) -> Any:
    """The object that a dotted name stands for, importing modules on the way; `_MISSING` where it is nothing."""
    head, *rest = name.split(".")
    at: Any = sys.modules.get(head) or import_module(head)
    for n, part in enumerate(rest):
        value: Any = getattr(at, part, _MISSING)
        if value is _MISSING:
            try:
                value = import_module(".".join([head, *rest[: n + 1]]))
            except ImportError:
                return _MISSING
        at = value
    return at


def lacking(names: Mapping[str, str]) -> dict[str, str]:
    """Names of a table that this version of the library lacks, with what each is for."""
    return {name: purpose for name, purpose in names.items() if found(name) is _MISSING}


def stand_in(package: str, names: Mapping[str, str], needed: str) -> None:
    """Put functions that raise in place of names that are lacking, and warn of all that is lost, once.

    package: of the library, in the table of versions.
    names: what each is for.
    needed: what is for nothing less than the door: a lacking name for it raises UnsupportedError at once.
    """
    row, lost = TABLE[package], lacking(names)
    library = f"{row.name} {getattr(sys.modules.get(row.module), '__version__', '')}"
    for name, purpose in lost.items():
        refused = _refused(f"{library} has no {name}, which mmulator needs for {purpose}", package)
        if purpose == needed:
            refused()
        parent, _, leaf = name.rpartition(".")
        if (holder := found(parent)) is not _MISSING:
            setattr(holder, leaf, refused)
    if lost:
        said = f"{library} lacks {len(lost)} internal names that mmulator uses; what needs them raises: "
        warn(said + ", ".join(sorted({*lost.values()})))


def _refused(message: str, package: str) -> Callable[..., NoReturn]:
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(message, hint=TABLE[package].mend)

    return refused
