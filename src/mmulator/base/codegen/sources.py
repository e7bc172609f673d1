"""Fingerprints of the package's own files: of all that a compiled kernel comes from, and of those that make native functions.

A native function's name and the second fingerprint determine its code. The files are those of the folders that define native
functions, the modules that these import, from one to the next, and data beside them. A law traces what runs while they are built.
"""

import os
import re
import stat
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from mmulator.base.codegen.store import digest_of, store

PACKAGE = Path(__file__).parents[2]
FOLDERS = (
    "base", "isa", "matrix/numerics", "matrix/layouts", "matrix/twin", "matrix/instruction", "ptx", "runtime", "sanitizer",
    "compiler", "host",
)  # fmt: skip
"""Their files, and those beside them, may say what a kernel becomes: `host`, and what it imports."""
NATIVE = (
    "base/codegen/", "matrix/twin/", "runtime/native/", "sanitizer/checks/", "sanitizer/order/", "sanitizer/shadow/",
    "sanitizer/state.py", "compiler/",
)  # fmt: skip
"""How the paths of files begin that define native functions."""
LIST = "files.txt"  # among a wheel's objects: the fingerprint of what makes native functions, and the names of these files
_BEGUN = time.time() - 0.2  # this process read none of them before
_KINDS = (".py", ".json", ".npz", ".npy", ".txt")
_NAMED = re.compile(r"mmulator\.([\w.]+)(?: import (\([^)]*\)|.*))?")  # begins with letters, which makes the search fast
_FOR_TYPES = re.compile(r"\nif TYPE_CHECKING:[^\n]*(?:\n+ [^\n]*)*")


def fingerprint(folders: tuple[str, ...] = FOLDERS) -> str:
    """A hash of the names and contents of files; "" if some are not files, or have changed after they were imported.

    folders: in the package. The hash of all that a kernel comes from takes 5 ms. So it is kept, under what the system says of
    the files.
    """
    return hashes(folders).partition("\n")[0]


def of_natives() -> str:
    """The hash of the files that make native functions; "" as for `fingerprint`."""
    return hashes().partition("\n")[2]


@cache
def hashes(folders: tuple[str, ...] = FOLDERS) -> str:
    """The hash of the folders' files, and, if they are FOLDERS, that of the files that make native functions, on two lines."""
    try:
        files = [(path, os.stat(path)) for path in _files(folders)]  # noqa: PTH116 - twice as fast as Path.stat
        if any(info.st_mtime > _BEGUN or not stat.S_ISREG(info.st_mode) for _, info in files):
            return ""  # what runs here may be what was there before
        said = [f"{path}\0{i.st_size} {i.st_mtime_ns} {i.st_ctime_ns} {i.st_dev} {i.st_ino}" for path, i in files]
        key, kept = digest_of("\n".join(["fingerprints", *said]).encode()).hexdigest(), store()
        data = kept.read(key) if kept else None
        if data is None:
            paths = [path for path, _ in files]
            own = f"\n{_listed() or contents(native_files(paths))}" if folders == FOLDERS else ""
            data = (contents(paths) + own).encode()
            if kept:
                kept.write(key, data)
        return data.decode()
    except OSError:
        return ""


def contents(paths: Sequence[str]) -> str:
    """A hash of the names, from the package on, and contents of files. Raises OSError."""
    found = digest_of()
    for path in paths:
        data = _read(path)
        found.update(f"{path[len(str(PACKAGE)) :]}\0{len(data)}\0".encode())
        found.update(data)
    return found.hexdigest()


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # four times as fast as Path.read_bytes
    try:
        return os.read(file, os.fstat(file).st_size)
    finally:
        os.close(file)


def native_files(paths: Iterable[str]) -> list[str]:
    """Paths of the files that make native functions, among those of the package. Raises OSError."""
    there = {path[len(str(PACKAGE)) + 1 :] for path in paths}
    found = {name for name in there if name.endswith(".py") and name.startswith(NATIVE)}
    waiting = [*found]
    while waiting:
        text = _FOR_TYPES.sub("", _read(str(PACKAGE / waiting.pop())).decode())
        for module, names in _NAMED.findall(text):
            base = module.replace(".", "/")
            folders = [base[:at] for at, c in enumerate(base) if c == "/"]
            for one in (*folders, base, *(f"{base}/{name}" for name in re.findall(r"\w+", names))):
                new = ({f"{one}.py", f"{one}/__init__.py"} & there) - found
                found |= new
                waiting += new
    beside = {os.path.dirname(name) for name in found} - {""}  # noqa: PTH120
    data = {name for name in there if not name.endswith(".py") and any(name.startswith(f"{folder}/") for folder in beside)}
    return sorted(str(PACKAGE / name) for name in found | data)


def listed() -> str:
    """The text of LIST for these files."""
    names = native_files(_files(FOLDERS))
    return "\n".join([contents(names), *(name[len(str(PACKAGE)) + 1 :] for name in names)])


def _listed() -> str:
    """The hash, if a wheel says of which files it is and they are as it says: so imports need not be read."""
    try:
        said, *names = (PACKAGE / "objects" / LIST).read_text().split("\n")
        return said if contents([str(PACKAGE / name) for name in names]) == said else ""
    except OSError:
        return ""


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
    """Whether a source file (`co_filename`) is where native functions of the package are defined."""
    return file.startswith(tuple(f"{PACKAGE}/{path}" for path in NATIVE))
