"""Shared by the benchmarks: times of calls and processes, packages with object code, processes that measure on demand."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CPU_TIME = "--cpu-time" in sys.argv


def best(call: Callable[[], Any], rounds: int, inner: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call, the least of several rounds of `inner` calls."""
    least = float("inf")
    for _ in range(rounds):
        start = clock()
        for _ in range(inner):
            call()
        least = min(least, (clock() - start) / inner)
    return least


def processor_seconds(who: int = resource.RUSAGE_CHILDREN) -> float:
    """Seconds of the processor so far, of child processes that have ended, or of this process."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


@contextmanager
def spent() -> Iterator[list[float]]:
    """The cost of a block's child processes: [seconds of the processor, seconds of the clock], filled at its end."""
    found: list[float] = []
    begun, before = time.perf_counter(), processor_seconds()
    yield found
    found += processor_seconds() - before, time.perf_counter() - begun


def installed(src: str, objects: str, folder: str | Path) -> str:
    """A copy of a package with object code, as a wheel has it."""
    shutil.copytree(src, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(objects, Path(folder, "mmulator", "objects"), dirs_exist_ok=True)
    return str(folder)


def answer(seconds: Callable[..., Any]) -> None:
    """Read lines with the arguments of `seconds`, and print what it returns."""
    for line in sys.stdin:
        print(json.dumps(seconds(*json.loads(line))), flush=True)


class Other:
    """A process of a benchmark that measures on demand.

    against: the folder `src` of another commit, which it measures, with a cache of its own there.
    """

    def __init__(self, script: str, python: str = sys.executable, against: str | None = None, **environment: str) -> None:
        words = [python, script, "--worker", *(["--cpu-time"] if CPU_TIME else [])]
        if against:
            environment |= {"PYTHONPATH": against, "MMULATOR_CACHE": f"{against}/.cache"}
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def __call__(self, *what: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self.process.args))} ended at {what}")  # type: ignore[arg-type]
        return json.loads(line)
