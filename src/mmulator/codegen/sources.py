"""The fingerprint of the package's own files, which determine the fixed native code."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mmulator.codegen.store import store
from mmulator.digests import digest_of

PACKAGE = Path(__file__).parents[1]
FOLDERS = (
    "rules", "codegen", "isa", "numerics", "layouts", "twin", "instruction", "ptx", "program", "native", "sanitizer", "compiler",
    "launch", "diagnostics", "host",
)  # fmt: skip
"""Their files, and those beside them, may say what a native function is: `host`, and what it imports."""
_BEGUN = time.time() - 0.2  # this process read none of them before
_KINDS = (".py", ".json", ".npz", ".npy", ".txt")


@cache
def fingerprint(folders: tuple[str, ...] = FOLDERS) -> str:
    """A hash of the names and contents of files; "" if some are not files, or have changed after they were imported.

    folders: in the package. The hash of all that native code comes from takes 5 ms. So it is kept, under what the system says of
    the files.
    """
    try:
        files = [(path, os.stat(path)) for path in _files(folders)]  # noqa: PTH116 - twice as fast as Path.stat
        if any(info.st_mtime > _BEGUN or not stat.S_ISREG(info.st_mode) for _, info in files):
            return ""  # what runs here may be what was there before
        said = [f"{path}\0{i.st_size} {i.st_mtime_ns} {i.st_ctime_ns} {i.st_dev} {i.st_ino}" for path, i in files]
        key, kept = digest_of("\n".join(["fingerprint", *said]).encode()).hexdigest(), store()
        data = kept.read(key) if kept else None
        if data is None:
            data = contents([path for path, _ in files]).encode()
            if kept:
                kept.write(key, data)
        return data.decode()
    except OSError:
        return ""


def contents(paths: Sequence[str]) -> str:
    """A hash of the names, from the package on, and contents of files. Raises OSError."""
    found = digest_of()
    for path in paths:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # four times as fast as Path.read_bytes
        try:
            data = os.read(file, os.fstat(file).st_size)
        finally:
            os.close(file)
        found.update(f"{path[len(str(PACKAGE)) :]}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()


def _files(names: tuple[str, ...]) -> list[str]:
    paths: list[str] = []
    folders = [str(PACKAGE / folder) for folder in names]
    for entry in os.scandir(PACKAGE):
        if entry.name.endswith(_KINDS):
            paths.append(entry.path)
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.name.endswith(_KINDS):
                paths.append(entry.path)
            elif entry.name != "__pycache__" and entry.is_dir():
                folders.append(entry.path)
    if len(paths) < 2 * len(names):
        raise OSError("no package of files")
    return sorted(paths)


@cache
def is_ours(file: str) -> bool:
    """Whether a source file (`co_filename`) is one of these files."""
    return any(file.startswith(f"{PACKAGE / folder}{os.sep}") for folder in FOLDERS)
