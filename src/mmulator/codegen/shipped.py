"""Object code of native functions that is part of the package, for two levels of CPUs, so that nothing fixed is compiled at run
time.

The project's build makes the files (tools/ship.py) from the sources, whose fingerprint they contain; a file of other sources,
or a damaged one, is not used. A development tree has none: everything is compiled on demand.

    head:     magic, fingerprint, number of entries
    buckets:  for each first byte of a digest the number of its first entry
    entries:  digest of level and name; digest of them and the piece; offset of the piece, length of its links and of its code
    pieces:   names of the functions that are called, one a line; object code (linking.py: `flattened`)

Entries are ordered by their first digest, so a process reads of the file only what it looks for.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from mmulator.codegen.cpus import level_of
from mmulator.codegen.engine import target_cpu
from mmulator.codegen.linking import flattened
from mmulator.codegen.sources import PACKAGE, fingerprint
from mmulator.digests import digest_of

_HEAD, _BUCKETS, _ENTRY = struct.Struct("<8s64sQ"), struct.Struct("<257I"), struct.Struct("<16s32sQII")
_BEGIN = _HEAD.size + _BUCKETS.size  # of the entries
_BOUNDS = struct.Struct("<2I")  # of a bucket
_MAGIC = b"mmuship3"
Entries = Mapping[tuple[int, str], tuple[bytes, Sequence[str]]]
"""(object code, names of called functions) by level of optimisation and name."""


def file_of(level: str) -> Path:
    return PACKAGE / "objects" / f"{level}.bin"


def _key(level: int, name: str) -> bytes:
    return digest_of(f"{level} {name}".encode()).digest()[:16]


def _digest(key: bytes, links: bytes, code: bytes) -> bytes:
    return digest_of(b"%b%d %b%b" % (key, len(links), links, code)).digest()


def write(path: Path, entries: Entries) -> None:
    """Write a file."""
    places: dict[bytes, int] = {}
    index = []
    size = _BEGIN + _ENTRY.size * len(entries)
    for (level, name), (code, links) in entries.items():
        text, code = "\n".join(links).encode(), flattened(code)
        piece, key = text + code, _key(level, name)
        if piece not in places:
            places[piece] = size
            size += len(piece)
        index.append(_ENTRY.pack(key, _digest(key, text, code), places[piece], len(text), len(code)))
    path.parent.mkdir(parents=True, exist_ok=True)
    index.sort()
    buckets = _BUCKETS.pack(*(bisect_left(index, bytes([n])) for n in range(256)), len(index))
    path.write_bytes(b"".join((_HEAD.pack(_MAGIC, fingerprint().encode(), len(index)), buckets, *index, *places)))


class Shipped:
    """A file of object code."""

    def __init__(self, path: Path) -> None:
        """Raises OSError or ValueError if there is no file, or if it is damaged or of other sources."""
        with path.open("rb") as stream:
            self._data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if len(self._data) < _HEAD.size:
            raise ValueError("too short")
        magic, made_of, self._count = _HEAD.unpack_from(self._data)
        if magic != _MAGIC or len(self._data) < _BEGIN + self._count * _ENTRY.size:
            raise ValueError("damaged")
        if not fingerprint() or made_of != fingerprint().encode():
            raise ValueError("of other sources")

    def __len__(self) -> int:
        return self._count

    def find(self, name: str, level: int) -> tuple[bytes, list[str]] | None:
        """(object code, names of called functions); None if it is absent or damaged."""
        key = _key(level, name)
        first, end = _BOUNDS.unpack_from(self._data, _HEAD.size + 4 * key[0])
        entry = self._data.find(key, _BEGIN + _ENTRY.size * first, _BEGIN + _ENTRY.size * min(end, self._count))
        if entry < 0:
            return None
        _, digest, at, links, code = _ENTRY.unpack_from(self._data, entry)
        text, piece = self._data[at : at + links], self._data[at + links : at + links + code]
        if _digest(key, text, piece) != digest:
            return None
        return piece, text.decode().split("\n") if text else []


@cache
def shipped() -> Shipped | None:
    """The file of object code for this process's CPU; None if there is none."""
    level = level_of(*target_cpu())
    try:
        return Shipped(file_of(level)) if level else None
    except (OSError, ValueError):
        return None
