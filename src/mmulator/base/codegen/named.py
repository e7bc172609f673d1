"""Object code of the package's own native functions, by name.

The name of such a function determines its code within one version of the files that make it (lang.py, sources.py). So its code is
found by its name and the fingerprint of these files, among the code that came with the package (shipped.py) and in the store, and
its LLVM text is written only if there is none. An entry names the functions to which it is linked.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.codegen.engine import key_of
from mmulator.base.codegen.shipped import shipped
from mmulator.base.codegen.sources import is_ours, of_natives
from mmulator.base.codegen.store import store


@dataclass(frozen=True)
class NamedCode:
    """Stored code. links: names of the native functions that it calls. quick: whether better code can be compiled."""

    code: bytes
    links: tuple[str, ...] = ()
    quick: bool = False


def _key(name: str, level: int) -> str:
    return key_of("named", of_natives(), str(level), name)


QUICK, TEXT, BEST = 0, 1, 2  # levels: code that is compiled at first, the deflated text of what takes its place, and that


def find(name: str, levels: Sequence[int] = (BEST, QUICK)) -> NamedCode | None:
    """The code with this name, of the first level of which there is some; None if there is none yet."""
    came, kept = shipped(), store() if of_natives() else None
    for level in levels:
        found = came.find(name, level) if came else None
        if found is not None:
            return NamedCode(found[0], tuple(found[1]), level == QUICK)
        data = kept.read(_key(name, level)) if kept else None
        if data is not None:
            head, _, code = data.partition(b"\n")
            return NamedCode(code, tuple(json.loads(head)), level == QUICK)
    return None


def keep(name: str, code: bytes, links: Sequence[str] = (), level: int = BEST) -> None:
    """Store code under its name. The names of the function and of its links must determine their code."""
    kept = store()
    if kept and of_natives():
        kept.write(_key(name, level), json.dumps([*links]).encode() + b"\n" + code)


# what a name says ----------------------------------------------------------------------------------------------------
def says_all(function: Any) -> bool:
    """Whether a native function's name determines its code: the function and its instrument's functions are the
    package's own.
    """
    return _is_ours(function) and (function.instrument is None or _all_ours(function.instrument))


def _is_ours(function: Any) -> bool:
    return is_ours(function.function.__code__.co_filename)


@cache
def _all_ours(instrument: Any) -> bool:
    return all(_is_ours(f) for f in instrument.hooks.values())


def differs(made: Any) -> bool:
    """Whether a function under an instrument calls a function of the instrument, directly or indirectly."""
    name = f"differs {made.name}"
    known = find(name, [BEST]) if says_all(made) else None
    if known is not None:
        return bool(known.code)
    _, calls = made.build()
    taken = {id(f) for f in made.instrument.hooks.values()}
    found = any(id(f) in taken or (f.instrument is not None and f is not made) for f in calls)
    if says_all(made):
        keep(name, b"yes" if found else b"")
    return found
