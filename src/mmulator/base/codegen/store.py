"""Object code on disk: entries with checksums, in a folder that belongs to the user alone.

The folder is $MMULATOR_CACHE, or $XDG_CACHE_HOME/mmulator, or ~/.cache/mmulator; it may be deleted at any time. An entry is
`KEY.o`: a header with its length, its key and the SHA-256 of its code, then the code. A file that does not match its header is
ignored. `KEY.x` is a file that nvcc made; the code of `KEY.o` then is its SHA-256. `DIGEST.ptx` is a text that a message names,
which nothing here reads. Write access to the folder means control over what this process executes, so a folder or file that
belongs to another user (root excepted), or is writable by others, is not used. The folder is held by its descriptor, so that it
cannot be replaced while it is in use.
"""

import os
import re
import stat
import struct
import time
import warnings
from _blake2 import blake2b
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from mmulator.base.classes import dataclass

digest_of = partial(blake2b, digest_size=32)
"""The digest of some bytes, an object as those of hashlib: names of stored code, and checks that a file is whole.

BLAKE2 of 32 bytes, which Python brings. OpenSSL's functions will not do: exit() takes OpenSSL down while other threads of a
program of C++ still launch kernels.
"""
_HEADER = struct.Struct("<8s32s32sQ")  # magic, key, digest of the code, its length
_MAGIC = b"mmulobj2"
_LARGEST = 1 << 26  # bytes of an entry: the largest ones are far below
_STALE = 3600.0  # seconds after which a temporary file has lost its writer
_ENTRY = r"[0-9a-f]{64}\.[ox]|[0-9a-f]{12}\.ptx"
_TEMPORARY = r"(\.[0-9a-f]{64}\.[0-9a-f]{12}\.tmp|tmp[a-z0-9_]{8})"
_FOLDER = r"(libraries|cuda)-[0-9a-f]{16}"  # shared libraries of CUDA, and a CUDA_HOME (doors/library, toolkit)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class CacheWarning(UserWarning):
    """A warning that the code cache is not used, for safety; everything is compiled anew."""


@dataclass(frozen=True)
class CachePlace:
    """The path of the cache, and the reason why it is not used ("" if it is)."""

    path: Path | None
    reason: str = ""


def _trusted(info: os.stat_result) -> bool:
    return info.st_uid in (os.geteuid(), 0) and not info.st_mode & _OTHERS_WRITE


def _wanted() -> tuple[Path | None, bool]:
    """(the folder, whether it is the default rather than the user's choice)."""
    root = os.environ.get("MMULATOR_CACHE")
    try:
        if root:
            return Path(root), False
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmulator", True
    except (OSError, RuntimeError):
        return None, True


def _refusal(info: os.stat_result) -> str:
    if info.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    return "others may write to it: `chmod go-w` makes it yours alone" if info.st_mode & _OTHERS_WRITE else ""


def _open_folder(path: Path, own: bool) -> tuple[int, str]:
    """(descriptor of the folder, which is created if necessary, ""), or (-1, the reason for the failure)."""
    if not hasattr(os, "geteuid"):
        return -1, "this system does not say whose a file is"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        link = path.lstat()
        if link.st_uid not in (os.geteuid(), 0):  # a link, too, must be the user's own
            return -1, "it belongs to another user"
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        return -1, getattr(error, "strerror", None) or str(error)
    info = os.fstat(folder)
    if own and info.st_uid == os.geteuid() and info.st_mode & 0o077:
        with suppress(OSError):  # one of an earlier version, made with the umask
            os.fchmod(folder, 0o700)
            info = os.fstat(folder)
    reason = _refusal(info)
    if reason:
        os.close(folder)
        return -1, reason
    return folder, ""


class Store:
    """The entries of a folder that belongs to the user."""

    def __init__(self, path: Path, folder: int) -> None:
        self.path, self.folder = path, folder
        self._swept = False

    def read(self, key: str) -> bytes | None:
        """The code of an entry; None if there is none, or if the file is not a valid entry."""
        try:
            file = os.open(f"{key}.o", os.O_RDONLY | _OPEN, dir_fd=self.folder)
        except OSError:
            return None
        try:
            info = os.fstat(file)
            if not stat.S_ISREG(info.st_mode) or not _trusted(info) or info.st_size > _LARGEST:
                return None
            data = os.read(file, info.st_size)
        except OSError:
            return None
        finally:
            os.close(file)
        return _checked(data, key)

    def write(self, key: str, code: bytes) -> None:
        """Store an entry. Several processes may write it at once; a reader sees all of it or nothing."""
        if not self._swept:
            self._swept = True
            self._sweep()
        data = _HEADER.pack(_MAGIC, bytes.fromhex(key), digest_of(code).digest(), len(code)) + code
        self._put(key, f"{key}.o", data)

    def file(self, key: str) -> Path | None:
        """The path of a file that was kept, with the bytes that were kept; None if there is none."""
        path, digest = self.path.absolute() / f"{key}.x", self.read(key)
        try:
            return path if digest is not None and digest_of(path.read_bytes()).digest() == digest else None
        except OSError:
            return None

    def keep(self, key: str, made: Path) -> Path | None:
        """Keep a file that may be executed; returns the path of what is kept, None if that fails."""
        data = made.read_bytes()
        self._put(key, f"{key}.x", data, 0o700)
        self.write(key, digest_of(data).digest())
        return self.file(key)

    def text(self, text: str) -> Path | None:
        """A file with a text, for people to open; None if it cannot be written."""
        data = text.encode("utf-8", "surrogateescape")
        key = digest_of(data).digest().hex()
        name = f"{key[:12]}.ptx"
        return self.path.absolute() / name if self._put(key, name, data) else None

    def _put(self, key: str, name: str, data: bytes, mode: int = 0o600) -> bool:
        """Write a file beside its name and rename it; False if the system refuses."""
        temporary = f".{key}.{os.urandom(6).hex()}.tmp"
        try:
            self._write_file(temporary, data, mode)
            os.replace(temporary, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.folder)
            if not isinstance(error, OSError):
                raise
            return False
        return True

    def _write_file(self, name: str, data: bytes, mode: int = 0o600) -> None:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, mode, dir_fd=self.folder)
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)

    def _files(self, pattern: str, folders: bool = False) -> Iterator[tuple[str, os.stat_result]]:
        """Names and status of the cache's files, or of its folders. A folder with the name of a file is not one of them."""
        with suppress(OSError):
            for name in os.listdir(self.folder):  # noqa: PTH208 - by descriptor
                if re.fullmatch(pattern, name):
                    with suppress(OSError):
                        info = os.stat(name, dir_fd=self.folder, follow_symlinks=False)
                        if stat.S_ISDIR(info.st_mode) == folders:
                            yield name, info

    def _in_folders(self) -> Iterator[int]:
        """Bytes of each file in the cache's folders; a link has those of its text."""
        for name, _ in self._files(_FOLDER, True):
            for _, _, files, descriptor in os.fwalk(name, dir_fd=self.folder):
                yield from (os.stat(file, dir_fd=descriptor, follow_symlinks=False).st_size for file in files)

    def _sweep(self) -> None:
        """Remove temporary files whose writer was killed."""
        before = time.time() - _STALE
        for name, info in self._files(_TEMPORARY):
            if info.st_mtime < before:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self.folder)

    def size(self) -> tuple[int, int]:
        """Number of entries, and their bytes with those of temporary files."""
        entries = [*(info.st_size for _, info in self._files(_ENTRY)), *self._in_folders()]
        return len(entries), sum(entries) + sum(info.st_size for _, info in self._files(_TEMPORARY))

    def clear(self) -> tuple[int, int]:
        """Remove entries, temporary files and folders of CUDA libraries, and nothing else; returns files and bytes."""
        import shutil

        inside = [*self._in_folders()]
        count, size = len(inside), sum(inside)
        for name, _ in self._files(_FOLDER, True):
            shutil.rmtree(name, ignore_errors=True, dir_fd=self.folder)
        for pattern in (_ENTRY, _TEMPORARY):
            for name, info in self._files(pattern):
                with suppress(OSError):
                    os.unlink(name, dir_fd=self.folder)
                    count, size = count + 1, size + info.st_size
        return count, size


def _checked(data: bytes, key: str) -> bytes | None:
    """The code behind a header that matches it and the key; otherwise None."""
    if len(data) < _HEADER.size:
        return None
    magic, of, digest, length = _HEADER.unpack_from(data)
    code = data[_HEADER.size :]
    if magic != _MAGIC or of != bytes.fromhex(key) or length != len(code):
        return None
    return code if digest_of(code).digest() == digest else None


def open_store() -> tuple[Store | None, CachePlace]:
    """The cache of this environment, or None with the reason."""
    path, own = _wanted()
    if path is None:
        return None, CachePlace(None, "there is no home folder")
    folder, reason = _open_folder(path, own)
    return (None, CachePlace(path, reason)) if folder < 0 else (Store(path, folder), CachePlace(path))


@cache
def store() -> Store | None:
    """The cache of this process. If the folder cannot be created, there is silently none; if it is unsafe, a warning
    is shown.
    """
    found, place = open_store()
    if "others may write" in place.reason or "another user" in place.reason:
        warnings.warn(f"the code cache {place.path} is not used: {place.reason}", CacheWarning, stacklevel=2)
    return found
