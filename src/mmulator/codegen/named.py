"""Object code of the package's own native functions, by name.

Within one version of the package's files, the name of such a function determines its code (lang.py). So its code is found by
its name and the files' fingerprint, among the code that came with the package (shipped.py) and in the store, and its LLVM text
is written only if there is none. An entry names the functions to which it is linked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from mmulator.classes import dataclass
from mmulator.codegen.engine import key_of
from mmulator.codegen.shipped import shipped
from mmulator.codegen.sources import fingerprint
from mmulator.codegen.store import store


@dataclass(frozen=True)
class NamedCode:
    """Stored code. links: names of the native functions that it calls."""

    code: bytes
    links: tuple[str, ...] = ()


def _key(name: str, level: int) -> str:
    return key_of("named", fingerprint(), str(level), name)


def find(name: str, level: int = 2) -> NamedCode | None:
    """The code with this name; None if there is none yet."""
    came = shipped()
    found = came.find(name, level) if came else None
    if found is not None:
        return NamedCode(found[0], tuple(found[1]))
    kept = store()
    data = kept.read(_key(name, level)) if kept and fingerprint() else None
    if data is None:
        return None
    head, _, code = data.partition(b"\n")
    return NamedCode(code, tuple(json.loads(head)))


def keep(name: str, code: bytes, links: Sequence[str] = (), level: int = 2) -> None:
    """Store code under its name. The names of the function and of its links must determine their code."""
    kept = store()
    if kept and fingerprint():
        kept.write(_key(name, level), json.dumps([*links]).encode() + b"\n" + code)
