"""Output files: written beside and renamed, so that a full disk, or the end of the process, leaves the file that was there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

from mmulator.base.errors import MmulatorError

_numbers = count()


@contextmanager
def replacing(path: str | Path, raises: type[MmulatorError] = MmulatorError, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A new file that takes the place of another when it has been written. mode: its rights; None: those of the other.

    What is no regular file (a pipe, a terminal), or lies in a folder that takes no new ones, is written itself. Raises `raises`
    where it cannot be written.
    """
    beside = None
    try:
        place = os.path.realpath(path)  # where a link leads
        there = Path(place)
        if not there.exists() or (there.is_file() and os.access(there.parent, os.W_OK)):
            name = there.with_name(f".mmulator-{os.getpid()}-{next(_numbers)}")
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            beside = name
            if mode is not None or there.exists():
                os.fchmod(handle, there.stat().st_mode & 0o777 if mode is None else mode)
        else:
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            yield file
        if beside is not None:
            beside.replace(there)
    except OSError as error:
        raise raises(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if beside is not None:
            with suppress(OSError):
                beside.unlink()


def write(path: str | Path, content: str | bytes, raises: type[MmulatorError] = MmulatorError, mode: int | None = None) -> None:
    """Write a file as `replacing` does, whose other parameters these are."""
    with replacing(path, raises, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def append(path: str | Path, data: bytes, raises: type[MmulatorError] = MmulatorError) -> None:
    """Add to the end of a file that other processes may be adding to. Nothing where its folder is gone: the program outlives
    what asked for it. Raises `raises` where it cannot be written."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while data:  # all at once but where the disk is full
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise raises(f"cannot write {path}: {error.strerror}") from None
