"""Object code of native functions that is part of the package, for two levels of CPUs, so that nothing fixed is compiled at run
time.

The project's build makes the files (tools/ship.py) from the sources, whose fingerprint they contain; a file of other sources,
or a damaged one, is not used. A development tree has none: everything is compiled on demand.

    magic, SHA-256 of the index, length of the index, index (JSON), object code
    index: {"fingerprint", "entries": {"LEVEL NAME": [offset, length, SHA-256, names of what it calls]}}
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mmulator.codegen.cpus import level_of
from mmulator.codegen.engine import target_cpu
from mmulator.codegen.sources import PACKAGE, fingerprint

_HEAD = struct.Struct("<8s32sQ")
_MAGIC = b"mmuship1"


def file_of(level: str) -> Path:
    return PACKAGE / "objects" / f"{level}.bin"


def write(path: Path, entries: Mapping[tuple[int, str], tuple[bytes, Sequence[str]]]) -> None:
    """Write a file. entries: (object code, names of called functions) by level of optimisation and name."""
    index: dict[str, Any] = {}
    blobs: dict[bytes, int] = {}
    size = 0
    for (level, name), (code, links) in sorted(entries.items()):
        if code not in blobs:
            blobs[code] = size
            size += len(code)
        index[f"{level} {name}"] = [blobs[code], len(code), hashlib.sha256(code).hexdigest(), list(links)]
    text = json.dumps({"fingerprint": fingerprint(), "entries": index}, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_HEAD.pack(_MAGIC, hashlib.sha256(text).digest(), len(text)) + text + b"".join(blobs))


class Shipped:
    """A file of object code."""

    def __init__(self, path: Path) -> None:
        """Raises OSError or ValueError if there is no file, or if it is damaged or of other sources."""
        with path.open("rb") as stream:
            self._data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if len(self._data) < _HEAD.size:
            raise ValueError("too short")
        magic, digest, length = _HEAD.unpack_from(self._data)
        self._start = _HEAD.size + length
        text = self._data[_HEAD.size : self._start]
        if magic != _MAGIC or hashlib.sha256(text).digest() != digest:
            raise ValueError("damaged")
        index = json.loads(text)
        if not fingerprint() or index["fingerprint"] != fingerprint():
            raise ValueError("of other sources")
        self.entries: dict[str, list[Any]] = index["entries"]

    def all(self) -> dict[tuple[int, str], tuple[bytes, list[str]]]:
        """What `write` takes."""
        named = {(int(level), name): self.find(name, int(level)) for level, _, name in (k.partition(" ") for k in self.entries)}
        return {key: found for key, found in named.items() if found}

    def find(self, name: str, level: int) -> tuple[bytes, list[str]] | None:
        """(object code, names of called functions); None if it is absent or damaged."""
        entry = self.entries.get(f"{level} {name}")
        if entry is None:
            return None
        offset, length, digest, links = entry
        code = self._data[self._start + offset : self._start + offset + length]
        return (code, links) if hashlib.sha256(code).hexdigest() == digest else None


@cache
def shipped() -> Shipped | None:
    """The file of object code for this process's CPU; None if there is none."""
    level = level_of(*target_cpu())
    try:
        return Shipped(file_of(level)) if level else None
    except (OSError, ValueError):
        return None
