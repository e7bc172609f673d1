"""Object code of native functions that is part of the package, for two levels of CPUs, so that nothing fixed is compiled at run
time.

The project's build makes the files (tools/ship.py) from the sources, whose fingerprint they contain; a file of other sources,
or a damaged one, is not used. The build keeps a file in the code cache, too, where later builds of the same sources find it, and
a development tree, which has no file of its own.

    head:     magic, fingerprint, digest of what it was made from (tools/ship.py), number of entries
    buckets:  for each first byte of a digest the number of its first entry
    entries:  digest of level and name; digest of them and the piece; offset of the piece, length of its links and of its code
    pieces:   names of the functions that are called, one a line; object code (linking.py: `flattened`)

Entries are ordered by their first digest, so a process reads of the file only what it looks for.
"""

import mmap
import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from mmulator.base.codegen.cpus import level_of
from mmulator.base.codegen.engine import target_cpu
from mmulator.base.codegen.linking import flattened
from mmulator.base.codegen.sources import PACKAGE, of_natives
from mmulator.base.codegen.store import digest_of, store

_HEAD, _BUCKETS, _ENTRY = struct.Struct("<8s64s64sQ"), struct.Struct("<257I"), struct.Struct("<16s32sQII")
_BEGIN = _HEAD.size + _BUCKETS.size  # of the entries
_BOUNDS = struct.Struct("<2I")  # of a bucket
_MAGIC = b"mmuship4"
Entries = Mapping[tuple[int, str], tuple[bytes, Sequence[str]]]
"""(object code, names of called functions) by level of optimisation and name."""


def file_of(level: str) -> Path:
    return PACKAGE / "objects" / f"{level}.bin"


def _key(level: int, name: str) -> bytes:
    return digest_of(f"{level} {name}".encode()).digest()[:16]


def _digest(key: bytes, links: bytes, code: bytes) -> bytes:
    return digest_of(b"%b%d %b%b" % (key, len(links), links, code)).digest()


def written(entries: Entries, asked: str = "") -> bytes:
    """The contents of a file. asked: a digest of what was to be in it."""
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
    index.sort()
    buckets = _BUCKETS.pack(*(bisect_left(index, bytes([n])) for n in range(256)), len(index))
    return b"".join((_HEAD.pack(_MAGIC, of_natives().encode(), asked.encode(), len(index)), buckets, *index, *places))


class Shipped:
    """The contents of a file of object code. asked: what `written` was given."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        """Raises ValueError if they are damaged or of other sources."""
        self._data = data
        if len(self._data) < _HEAD.size:
            raise ValueError("too short")
        magic, made_of, asked, self._count = _HEAD.unpack_from(self._data)
        self.asked = asked.rstrip(b"\0").decode(errors="replace")
        if magic != _MAGIC or len(self._data) < _BEGIN + self._count * _ENTRY.size:
            raise ValueError("damaged")
        if not of_natives() or made_of != of_natives().encode():
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


def of_file(path: Path) -> Shipped:
    """A file of object code. Raises OSError or ValueError if there is none, or if it is damaged or of other sources."""
    with path.open("rb") as stream:
        return Shipped(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def kept(level: str, release: bool, data: bytes | None = None) -> bytes | None:
    """The contents of a file for these sources that a build has kept; None if there is none. data: what is to be kept."""
    folder = store() if of_natives() else None
    key = digest_of(f"shipped {level} {release} {of_natives()}".encode()).hexdigest()
    if folder and data is not None:
        folder.write(key, data)
    return folder.read(key) if folder else None


@cache
def shipped() -> Shipped | None:
    """The object code for this process's CPU that came with the package, or that a build has kept; None if there is none."""
    level = level_of(*target_cpu())
    if level:
        with suppress(OSError, ValueError):
            return of_file(file_of(level))
        with suppress(ValueError):
            data = kept(level, True) or kept(level, False)
            return Shipped(data) if data else None
    return None
