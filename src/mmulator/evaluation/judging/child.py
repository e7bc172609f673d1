"""A process of its own for what is judged: started without the reference, watched, and ended at a limit of time or memory."""

import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mmulator.base.errors import LaunchError
from mmulator.evaluation.judging import warden
from mmulator.evaluation.judging.warden import below, end_all_below

_PAGE = resource.getpagesize()
_EVERY = 0.02  # seconds between two looks at memory
_MOST_WRITTEN = 1 << 30  # bytes of a file that it may write
MOST_TOLD = 4000  # characters of what a child printed that are kept


@dataclass(frozen=True)
class Limits:
    """Limits of what is judged: of a compilation, and again of a run.

    seconds: of the clock.
    bytes: of memory that its processes may hold together, mmulator's own (some 150 MB) and the arguments among them.
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
    """

    code: int
    limit: str
    told: str
    seconds: float


def run(words: Sequence[str], limits: Limits, folder: Path, environment: Mapping[str, str] | None = None) -> ChildEnd:
    """Run a command until it ends or reaches a limit; no process that it starts is left running.

    words: the command.
    limits: of time and memory.
    folder: receives what it prints.
    environment: variables of the environment; None: those of this process.
    """
    told = folder / "told"
    started = time.monotonic()
    limit = ""
    with told.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-E", "-S", warden.__file__, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True, env=None if environment is None else dict(environment),
        )  # fmt: skip
        try:
            with suppress(ProcessLookupError):
                resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
            while True:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_EVERY)
                    break
                if time.monotonic() - started > limits.seconds:
                    limit = "timeout"
                elif held(child.pid) > limits.bytes:
                    limit = "memory"
                if limit:
                    break
        finally:
            _end(child)
    return ChildEnd(child.returncode, limit, _tail(told), time.monotonic() - started)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a warden, after all processes below it."""
    end_all_below(child.pid)
    with suppress(ProcessLookupError):
        child.kill()
    child.wait()


def held(pid: int) -> int:
    """Bytes of memory that the processes below a process hold."""
    total = 0
    for process in below(pid):
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    return total


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_TOLD))
        return file.read().decode(errors="replace")


def python(function: str, folder: Path) -> list[str]:
    """The command that calls a function of children.py, for a folder, in a Python of its own."""
    call = f"import sys; from mmulator.evaluation.judging.children import {function}; {function}(sys.argv[1])"
    return [sys.executable, "-c", call, str(folder)]
