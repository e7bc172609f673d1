"""The driver that fuzzers share: processes that may die, each with a batch of cases, and what is counted and kept of them.

Case N of a seed is always the same. `--out` keeps what was done, so that the same command goes on after an interruption, or
after `--seconds`. On standard error a line every ten seconds and a table at the end, on standard output the totals as JSON.
Exit code 0: nothing was found.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import selectors
import struct
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BATCH = 200  # cases that a worker is given at a time
MEMORY = 8 << 30  # address space of a worker
GROWN = 1500 << 20  # bytes in memory at which a worker gives way to a new one
HANG = 30.0  # seconds of a case after which it hangs
NOW = struct.Struct("<q")
OUTCOMES = ("loaded", "refused", "launched", "finished", "fault", "time limit", "not launched")


@dataclass(frozen=True)
class Fuzz:
    """A fuzzer.

    module: what `python -m` runs. case: number N of a seed, from (seed, N). text: its PTX. how: what else it is, in words.
    outcomes: what becomes of it, names out of OUTCOMES; raises what is not of the error family. environment: of worker number n.
    batch: cases that a worker is given at a time. hang: seconds of a case after which it hangs.
    """

    module: str
    case: Callable[[int, int], Any]
    text: Callable[[Any], str]
    how: Callable[[Any], str]
    outcomes: Callable[[Any], Iterator[str]]
    environment: Callable[[int], Mapping[str, str]] = lambda number: {}
    batch: int = BATCH
    hang: float = HANG


# worker -------------------------------------------------------------------------------------------------------------
def work(fuzz: Fuzz, now: Path, seed: int) -> None:
    """Takes batches from standard input, `first count`, and says the outcome of each as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    keep_no_kernels()
    with now.open("r+b") as file, mmap.mmap(file.fileno(), NOW.size) as place:
        for line in sys.stdin:
            first, count = map(int, line.split())
            counts: Counter[str] = Counter()
            errors: list[tuple[int, str]] = []
            for number in range(first, first + count):
                NOW.pack_into(place, 0, number)
                one = fuzz.case(seed, number)
                try:
                    planted(number)
                    counts.update(fuzz.outcomes(one))
                except Exception:
                    errors.append((number, traceback.format_exc()))
            NOW.pack_into(place, 0, -1)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 > GROWN
            print(json.dumps({"counts": counts, "errors": errors, "grown": grown}), file=answers, flush=True)


def keep_no_kernels() -> None:
    """Code of kernels is used once: only that of the run time goes to the cache. LLVM optimises one kernel in eight: that
    takes most of the time."""
    from mmulator.base.codegen import engine

    real = engine.compile_object

    def compile_object(text: str, level: int = 2) -> tuple[bytes, bool]:
        if level > 1:
            return real(text, level)
        return engine._worker().do(lambda: engine._compile(text, int(len(text) % 8 == 0))), False

    engine.compile_object = compile_object


def planted(number: int) -> None:
    """Faults on order, MMULATOR_FUZZ_PLANT="crash=3,hang=5,error=7", to see that they are found."""
    for item in filter(None, os.environ.get("MMULATOR_FUZZ_PLANT", "").split(",")):
        what, _, at = item.partition("=")
        if int(at) == number:
            if what == "crash":
                os.abort()
            if what == "hang":
                time.sleep(3600)
            raise ValueError("planted")


# driver -------------------------------------------------------------------------------------------------------------
@dataclass
class State:
    """next: first module that no worker was given yet. open: (first, count) of what was given or is left of it."""

    seed: int
    next: int = 0
    open: list[list[int]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def modules(self) -> int:
        return self.counts["loaded"] + self.counts["refused"] + len(self.failures)

    @classmethod
    def read(cls, path: Path, seed: int, first: int) -> State:
        if not path.exists():
            return cls(seed, first)
        data = json.loads(path.read_text())
        if data["seed"] != seed:
            raise SystemExit(f"{path} is of seed {data['seed']}: choose another --out")
        return cls(**{**data, "counts": Counter(data["counts"])})

    def write(self, path: Path) -> None:
        new = path.with_suffix(".new")
        new.write_text(json.dumps(vars(self), indent=1))
        new.replace(path)


class Worker:
    """A process, what it works on, and since when it has worked on that."""

    def __init__(self, fuzz: Fuzz, out: Path, seed: int, number: int) -> None:
        self.log = out / f"worker{number}.log"
        self.now = out / f"worker{number}.now"
        self.now.write_bytes(NOW.pack(-1))
        command = [sys.executable, "-m", fuzz.module, "--worker", str(self.now), "--seed", str(seed)]
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **fuzz.environment(number)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self.batch = [0, 0]
        self.at, self.since = -1, time.monotonic()

    def give(self, batch: list[int]) -> None:
        assert self.process.stdin is not None
        self.batch, self.at, self.since = batch, -1, time.monotonic()
        try:
            self.process.stdin.write(f"{batch[0]} {batch[1]}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is seen where its answer is read

    def hangs(self, limit: float) -> bool:
        at = NOW.unpack(self.now.read_bytes())[0]
        if at != self.at:
            self.at, self.since = at, time.monotonic()
        return time.monotonic() - self.since > limit

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Fuzzer:
    """jobs: processes. hang: seconds of a case after which it hangs. seconds: after which nothing more is begun."""

    def __init__(self, fuzz: Fuzz, state: State, out: Path, jobs: int, hang: float, seconds: float) -> None:
        self.fuzz, self.state, self.out, self.hang, self.seconds = fuzz, state, out, hang, seconds
        self.workers = [Worker(fuzz, out, state.seed, n) for n in range(jobs)]
        self.given: dict[int, list[int]] = {}
        self.began, self.before = time.monotonic(), state.seconds

    def run(self, modules: int, launches: int, quiet: bool) -> None:
        state, said, written = self.state, 0.0, 0.0
        waiting, state.open = state.open, []

        def wanted() -> bool:
            if time.monotonic() - self.began > self.seconds:
                return False
            return bool(waiting) or state.next < modules or state.counts["launched"] < launches

        with selectors.DefaultSelector() as selector:

            def give(number: int) -> None:
                if wanted():
                    if not waiting:
                        most = self.fuzz.batch
                        waiting.append([state.next, min(most, modules - state.next) if state.next < modules else min(most, 10)])
                        state.next += waiting[-1][1]
                    self.given[number] = waiting.pop()
                    self.workers[number].give(self.given[number])

            def restart(number: int) -> None:
                selector.unregister(self.workers[number].process.stdout)
                self.workers[number].end()
                self.workers[number] = Worker(self.fuzz, self.out, state.seed, number)
                selector.register(self.workers[number].process.stdout, selectors.EVENT_READ, number)

            for number, worker in enumerate(self.workers):
                selector.register(worker.process.stdout, selectors.EVENT_READ, number)
                give(number)
            while self.given:
                for key, _ in selector.select(1.0):
                    number = key.data
                    line = self.workers[number].process.stdout.readline()
                    if line:
                        answer = json.loads(line)
                        state.counts.update(answer["counts"])
                        for at, text in answer["errors"]:
                            self.failure("error", at, text)
                        del self.given[number]
                        if answer["grown"]:
                            restart(number)
                    else:
                        self.died(number, "crash", waiting)
                        restart(number)
                    give(number)
                for number, worker in enumerate(self.workers):
                    if number in self.given and worker.hangs(self.hang):
                        worker.end()
                        self.died(number, "hang", waiting)
                        restart(number)
                        give(number)
                state.seconds = self.before + time.monotonic() - self.began
                if time.monotonic() - written > 5:
                    written = time.monotonic()
                    state.open = [*waiting, *self.given.values()]  # what an interruption leaves
                    state.write(self.out / "state.json")
                if not quiet and time.monotonic() - said > 10:
                    said = time.monotonic()
                    print(self.line(modules), file=sys.stderr, flush=True)
        state.open = waiting
        state.write(self.out / "state.json")

    def died(self, number: int, kind: str, waiting: list[list[int]]) -> None:
        """A worker crashed or hung: the module is kept, what stands before and behind it is done again."""
        first, count = self.given.pop(number)
        worker = self.workers[number]
        at = NOW.unpack(worker.now.read_bytes())[0]
        worker.process.wait()
        text = f"exit code {worker.process.returncode}\n{worker.log.read_text(errors='replace')[-6000:]}"
        if not first <= at < first + count:
            raise SystemExit(f"a worker cannot start: {text}")
        self.failure(kind, at, text)
        waiting += [b for b in ([first, at - first], [at + 1, first + count - at - 1]) if b[1]]

    def failure(self, kind: str, at: int, text: str) -> None:
        one = self.fuzz.case(self.state.seed, at)
        self.state.failures.append({"kind": kind, "module": at, "what": text.strip().splitlines()[-1][:200]})
        (self.out / f"{kind}-{at}.ptx").write_text(self.fuzz.text(one))
        (self.out / f"{kind}-{at}.txt").write_text(f"{self.fuzz.how(one)}\n{text}")

    def line(self, modules: int) -> str:
        state, found = self.state, Counter(f["kind"] for f in self.state.failures)
        rate = state.modules / max(state.seconds, 0.001)
        return (
            f"{state.modules:,} of {modules:,} modules, {state.counts['launched']:,} launched; {rate:.0f} modules/s; "
            f"crashes {found['crash']}, hangs {found['hang']}, errors outside the family {found['error']}"
        )

    def close(self) -> None:
        for worker in self.workers:
            worker.end()


def report(state: State) -> dict[str, Any]:
    found = Counter(f["kind"] for f in state.failures)
    return {
        "seed": state.seed, "modules": state.modules, **{name: state.counts[name] for name in OUTCOMES},
        "crashes": found["crash"], "hangs": found["hang"], "errors outside the family": found["error"],
        "seconds": round(state.seconds, 1), "failures": state.failures,
    }  # fmt: skip


def table(found: Mapping[str, Any]) -> str:
    """The totals as the line of a table in Markdown."""
    names = [name for name in found if name != "failures"]
    rows = (names, ["---"] * len(names), [f"{found[name]:,}" for name in names])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(fuzz: Fuzz, about: str, launches: int = 1_000, modules: int = 10_000) -> None:
    """The command of a fuzzer. about: its docstring. launches, modules: of a run that does not say."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=modules, help="the number before which it ends")
    parser.add_argument("--first", type=int, default=0, help="the number of the first module")
    parser.add_argument("--launches", type=int, default=launches, help="go on until so many were launched")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing more after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--hang", type=float, default=fuzz.hang, help="seconds after which a module hangs")
    parser.add_argument("--out", type=Path, default=Path("fuzz-out"))
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--case", type=int, help="one module, here and now")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(fuzz, given.worker, given.seed)
        return
    if given.case is not None:
        one = fuzz.case(given.seed, given.case)
        print(fuzz.text(one), f"// {fuzz.how(one)}", sep="\n", flush=True)
        counted = Counter(fuzz.outcomes(one))
        print(", ".join(f"{name} {count}" if count > 1 else name for name, count in counted.items()))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    state = State.read(given.out / "state.json", given.seed, given.first)
    fuzzer = Fuzzer(fuzz, state, given.out, given.jobs, given.hang, given.seconds)
    try:
        fuzzer.run(given.modules, given.launches, given.quiet)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        sys.exit(130)
    finally:
        fuzzer.close()
    found = report(state)
    if not given.quiet:
        print(table(found), file=sys.stderr)
    print(json.dumps(found, indent=1))
    sys.exit(1 if state.failures else 0)
