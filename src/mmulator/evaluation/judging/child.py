"""A process of its own for what is judged: started inside a fence, watched, and ended at a limit of time or memory."""

import ctypes
import json
import os
import resource
import secrets
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from mmulator.base.errors import LaunchError
from mmulator.evaluation.judging import fence, warden
from mmulator.evaluation.judging.warden import below, end_all_below

_PAGE = resource.getpagesize()
_EVERY = 0.02  # seconds between two looks at memory
_MOST_WRITTEN = 1 << 30  # bytes of a file that it may write
MOST_TOLD = 4000  # characters of what a child printed that are kept
# folders of a child's own, and the variables that lead there
_FOLDERS = {
    "tmp": ("TMPDIR", "TMP", "TEMP"), "cache": ("MMULATOR_CACHE",), "others": ("XDG_CACHE_HOME",),
    "triton": ("TRITON_CACHE_DIR", "TRITON_HOME"), "inductor": ("TORCHINDUCTOR_CACHE_DIR",), "numba": ("NUMBA_CACHE_DIR",),
    "cupy": ("CUPY_CACHE_DIR",),
}  # fmt: skip
_LIBRARIES = ("mmulator", "numpy", "ml_dtypes", "llvmlite", "triton")
_HOME = str(Path(warden.__file__).parents[3])
_WARDEN = f"import sys; sys.path.append({_HOME!r}); from mmulator.evaluation.judging.warden import start; start()"
_MARK = "JUDGED_BY_MMULATOR"


@dataclass(frozen=True)
class Limits:
    """Limits of what is judged: of a compilation, and again of a run.

    seconds: of the clock.
    bytes: of memory that its processes may hold together, mmulator's own (some 150 MB), the arguments, shared memory and
        temporary files among them.
    """

    seconds: float = 60.0
    bytes: int = 4 << 30

    def __post_init__(self) -> None:
        if not self.seconds > 0 or not self.bytes > 0:
            raise LaunchError(f"limits of {self.seconds} s and {self.bytes} bytes: both must be more than 0")


@dataclass(frozen=True)
class ChildEnd:
    """How a child ended.

    code: its exit code; 128 and more for a signal.
    limit: "timeout" or "memory", which it reached; "" for neither.
    told: the end of what it printed.
    seconds: that it took.
    missing: what the fence does not enforce on this system, in words.
    """

    code: int
    limit: str
    told: str
    seconds: float
    missing: tuple[str, ...] = ()


def run(
    words: Sequence[str], limits: Limits, where: Path, answer: BinaryIO, *, trusted: bool = False, hidden: Sequence[Path] = (),
    layer: str = "", most: int = 0, environment: Mapping[str, str] | None = None,
) -> ChildEnd:  # fmt: skip
    """Run a command inside a fence until it ends or reaches a limit; no process that it starts is left running.

    words: the command. The child has the file `answer` open under the same number.
    limits: of time and memory.
    where: a folder of this child alone.
    answer: an open file for what it hands over: no name leads to it.
    trusted: it is mmulator's own code on data, and reads the user's code cache; else it has an empty one.
    hidden: files that it must not read.
    layer: a folder that it may seem to write to.
    most: bytes that it may hand over.
    environment: variables besides those of this process.
    """
    own, mark = where / "own", secrets.token_hex(16)
    own.mkdir()
    ours, theirs = socket.socketpair()
    plan = {
        "judge": os.getpid(), "door": theirs.fileno(), "files": [answer.fileno()], "own": str(own), "bytes": limits.bytes,
        "hidden": [str(path) for path in hidden], "layer": layer, "file_size": max(_MOST_WRITTEN, most),
        "folders": list(_FOLDERS),
    }  # fmt: skip
    folders = {"tmp": _FOLDERS["tmp"]} if trusted else _FOLDERS
    variables = {name: f"{own}/{folder}" for folder, names in folders.items() for name in names} | {_MARK: mark}
    started, limit, missing, place = time.monotonic(), "", (), -1
    with (where / "told").open("a+b") as told, ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WARDEN, json.dumps(plan), *words], stdin=subprocess.DEVNULL, stdout=told,
            stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **(environment or {}), **variables},
            pass_fds=[theirs.fileno(), answer.fileno()],
        )  # fmt: skip
        theirs.close()
        try:
            ours.settimeout(limits.seconds)
            with suppress(OSError, ValueError):
                said, places, *_ = socket.recv_fds(ours, 1 << 16, 1)
                place = places[0] if places else -1
                missing = tuple(json.loads(said))
            with _out_of_reach(warden.SUPERVISOR in missing, mark):
                with suppress(OSError):
                    ours.send(b"1")
                while not limit:
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(_EVERY)
                        break
                    if time.monotonic() - started > limits.seconds:
                        limit = "timeout"
                    elif held(child.pid, own, place) > limits.bytes:
                        limit = "memory"
                _end(child)
        finally:
            _end(child)
            if place >= 0:
                os.close(place)
        return ChildEnd(child.returncode, limit, _tail(told), time.monotonic() - started, missing)


@contextmanager
def _out_of_reach(needed: bool, mark: str) -> Iterator[None]:
    """Where no fence keeps a child from the processes above it: this one is not traced, and takes what is left running.

    needed: whether it is so.
    mark: the value of the variable _MARK that the child and what it starts has.
    """
    if not needed:
        yield
        return
    libc = ctypes.CDLL(None)
    was = libc.prctl(3, 0, 0, 0, 0) if hasattr(libc, "prctl") else 1  # PR_GET_DUMPABLE
    fence.control(fence.DUMPABLE, 0)
    fence.control(fence.SUBREAPER, 1)
    try:
        yield
        for process in below(os.getpid()):
            with suppress(OSError):
                if f"{_MARK}={mark}".encode() in Path(f"/proc/{process}/environ").read_bytes():
                    end_all_below(process)
                    os.kill(process, 9)
    finally:
        fence.control(fence.SUBREAPER, 0)
        fence.control(fence.DUMPABLE, was)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a warden, after all processes below it."""
    end_all_below(child.pid)
    with suppress(ProcessLookupError):
        child.kill()
    child.wait()


def held(pid: int, own: Path, place: int = -1) -> int:
    """Bytes of memory that the processes below a process hold: pages, files without a name, and what lies in their own folder.

    pid: of the process above them.
    own: that folder.
    place: the same, open, where it is memory; -1: it is on the disk.
    """
    total, device, shared = 0, None, 0
    with suppress(OSError):
        if place >= 0:
            disk, device = os.fstatvfs(place), os.fstat(place).st_dev
            total += (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        else:
            total += sum(_size(Path(folder, name)) for folder, _, names in os.walk(own) for name in names)
    unnamed, mapped = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    for process in below(pid):
        with suppress(OSError, ValueError, IndexError):
            pages = Path(f"/proc/{process}/statm").read_text().split()
            total, shared = total + int(pages[1]) * _PAGE, shared + int(pages[2]) * _PAGE
        with suppress(OSError, ValueError):
            for name, size in _mapped(process).items():
                mapped[name] = max(size, mapped.get(name, 0))
        with suppress(OSError):
            for entry in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    file = entry.stat()
                    if not file.st_nlink and file.st_dev != device and stat.S_ISREG(file.st_mode):  # of memfd_create
                        unnamed[file.st_dev, file.st_ino] = file.st_blocks * 512
    # pages that others wrote are not among those of a process that maps them
    untouched = sum(size for file, size in mapped.items() if file not in unnamed and file[0] != device) - shared
    return total + sum(unnamed.values()) + max(0, untouched)


def _mapped(process: int) -> dict[tuple[int, int], int]:
    """Sizes of the mappings that a process may share and that have no name: by device and number, those of one file added."""
    found: dict[tuple[int, int], int] = {}
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        if line.endswith(" (deleted)"):
            place, rights, _, device, number, _ = line.split(maxsplit=5)
            first, _, end = place.partition("-")
            major, _, minor = device.partition(":")
            file = os.makedev(int(major, 16), int(minor, 16)), int(number)
            found[file] = found.get(file, 0) + (int(end, 16) - int(first, 16) if rights.endswith("s") else 0)
    return found


def _size(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


def _tail(file: BinaryIO) -> str:
    file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_TOLD))
    return file.read(MOST_TOLD).decode(errors="replace")


def python(call: str, *words: object) -> list[str]:
    """The command that makes a call with words (sys.argv), in an isolated Python of its own.

    Neither the current folder nor variables of the environment say where its modules are, but where they are here does.
    """
    specs = (find_spec(name) for name in _LIBRARIES)
    paths = list(dict.fromkeys(str(Path(s.origin).parents[1]) for s in specs if s is not None and s.origin))
    return [sys.executable, "-I", "-c", f"import sys; sys.path += {paths!r}; {call}", *map(str, words)]


def function(name: str, *words: object) -> list[str]:
    """The command that calls a function of children.py with words."""
    return python(f"from mmulator.evaluation.judging.children import {name}; {name}(*sys.argv[1:])", *words)
