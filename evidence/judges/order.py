"""Published litmus tests of PTX's memory model: those of Dat3M (litmus/PTX, with its expected verdicts), and NVlabs/mixedproxy's.

    python -m evidence.judges.order ~/Dat3M --mixedproxy ~/mixedproxy --work /tmp/order --json order.json

A test is a few threads, and an outcome that the model permits or forbids; the verdict is the corpus's. Each is translated into
kernels of PTX (evidence/judges/litmus) and run RUNS times, under seeds: many instances in a launch; half of them with turns of a
few instructions on one thread of the host, half on several at full speed. No corpus says which tests have a data race: that is
said by a program that follows every execution of a test in which threads take turns (evidence/judges/litmus/interleavings.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evidence.judges.common import Answer, Count, Judge, arguments, finish, resumed
from evidence.judges.litmus import interleavings, kernel, program

RUNS = 10_000  # instances of each test
INSTANCES = 250  # of a launch
SLICE = 12  # instructions of a turn, at most
LONG = 64  # blocks of code of a turn, at most, where threads wait in loops and each instruction is none of its own
PAUSE = 63  # turns of a pause, at most
LOOKED = 4  # sanitized launches of a layout
NONE = 0xDEAD  # a register that was not written
FORBIDDEN, PERMITTED = "forbidden outcomes, seen in 10,000 runs", "permitted outcomes, seen"
RACES, ENDS = "races", "tests that must end, and hang"
EXPECTED = ("PTXv6_0-expected.csv", "PTXv7_5-expected.csv")
LIVENESS = ("PTXv6_0-Liveness-expected.csv", "PTXv7_5-Liveness-expected.csv")
RESOURCES = Path("dartagnan/src/test/resources")
ONE_MEMORY = "no turns of the threads lead to it: memory here is one, and keeps no copies"
HANGS = "the kernel hangs, which is reported: each of these barriers waits for all threads of the block"
JUDGE = Judge(
    "order", "Litmus tests of PTX", "github.com/hernanponcedeleon/Dat3M", "30640123", {
        FORBIDDEN: Count(0, 0, 0, 73), PERMITTED: Count(25, 65, 0, 0), RACES: Count(89, 89, 0, 49), ENDS: Count(0, 0, 0, 70),
    }, ("race-*",), ("mixedproxy",),
)  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """What the runs of a test showed. seen: runs with the outcome. rules: what sanitized launches broke. ended: errors that
    launches ended in."""

    runs: int
    seen: int
    rules: tuple[str, ...]
    ended: tuple[str, ...]


class Layout:
    """A test in one way of lying in threads and memory, ready to be launched."""

    def __init__(self, test: program.Test, way: kernel.Way) -> None:
        import mmulator as mm

        self.test, self.way, self.made = test, way, kernel.kernel(test, way)
        self.waits = any(op.kind == "jump" for thread in test.threads for op in thread.ops)  # threads wait in loops
        self.entry = mm.Module.load(self.made.ptx, name=f"{test.name}.ptx")["litmus"]

    def launch(self, seed: int, instances: int, steps: bool, observers: Sequence[Any] = ()) -> tuple[np.ndarray, str, Any]:
        """(instances with the outcome, the error that ended the launch, the report)."""
        from mmulator.errors import ExecutionFault
        from mmulator.runtime.launch.launch import How

        places, names = self.test.places, self.made.names
        memory = np.zeros((instances, max(1, len(places)), kernel.STRIDE), np.uint32)
        memory[:, : len(places), 0] = np.array([*places.values()], np.int64).astype(np.uint32)
        registers = np.full((instances, max(1, len(names))), NONE, np.uint32)
        launch = self.entry.prepared(
            instances * self.made.ctas, self.made.block,
            [memory, registers, seed * 2654435761 & 0xFFFFFFFF, 0 if steps else PAUSE], 0, "sm_90",
        )  # fmt: skip
        turn = SLICE if steps else LONG * self.waits
        how = How(seed, seed if steps else None, 1 if steps else 2, 60, slice=turn, step=steps)
        error, report = "", None
        try:
            report = self.entry.run(launch, how, observers)
        except ExecutionFault as fault:
            error, report = type(fault).__name__, fault
        values = {name: registers[:, n].astype(np.int32) for n, name in enumerate(names)}
        values |= {name: memory[:, n, 0].astype(np.int32) for n, name in enumerate(places)}
        known = np.any([values[f"P{n}:{kernel.ENDED}"] == 1 for n in range(len(self.test.threads))], axis=0)
        for name in self.test.outcome.names & set(names):
            known &= values[name] != NONE
        return known & self.test.outcome(values), error, report


def ran(test: program.Test, stuck: bool) -> Ran:
    """Run a test in all its layouts. stuck: it may end in a deadlock, which ends a launch: one instance each."""
    from mmulator.sanitizer.diagnostics.sanitizer import Sanitizer

    layouts = [Layout(test, way) for way in kernel.ways(test)]
    instances = 1 if stuck else INSTANCES
    launches = RUNS // instances
    seen, runs, rules, ends = 0, 0, set(), set()
    for number in range(launches):
        layout = layouts[number % len(layouts)]
        found, error, _ = layout.launch(number, instances, steps=number // len(layouts) % 2 == 0)
        seen, runs = seen + int(found.sum()), runs + instances
        ends |= {error} - {""}
    for layout in layouts:
        for seed in range(LOOKED):
            _, error, report = layout.launch(seed, min(instances, 32), True, [Sanitizer(strict=False)])
            rules |= {f.rule for f in report.findings}
            ends |= {error} - {""}
    return Ran(runs, seen, tuple(sorted(rules)), tuple(sorted(ends)))


def races(test: program.Test, seed: int) -> set[str]:
    """Rules about races that a strict sanitizer finds in four launches of a test, in one of its layouts. seed: says in which."""
    from mmulator.sanitizer.diagnostics.sanitizer import Sanitizer

    ways = kernel.ways(test)
    layout = Layout(test, ways[seed % len(ways)])
    reports = [layout.launch(launch, 24, True, [Sanitizer(strict=True)])[2] for launch in range(4)]
    return {finding.rule for report in reports for finding in report.findings if finding.rule.startswith("race-")}


def to_the_end(test: program.Test) -> Ran:
    """Run a test that the corpus asks to end, with its threads as warps and as lanes."""
    ends, runs = set(), 0
    for layout in [Layout(test, way) for way in kernel.ways(test) if way.space == "global"]:
        for seed in range(LOOKED):
            _, error, _ = layout.launch(seed, 16, steps=False)
            ends, runs = ends | {error}, runs + 16
    return Ran(runs, 0, (), tuple(sorted(ends - {""})))


# the corpora --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Task:
    """A test of a corpus. text, holds: as program.herd and program.mixedproxy take them. ends: whether it must end, where only
    that is asked."""

    name: str
    text: str
    holds: bool | None
    ends: bool | None = None

    def read(self) -> program.Test:
        return program.mixedproxy(self.name, self.text) if self.holds is None else program.herd(self.name, self.text, self.holds)


def verdicts(folder: Path, files: Sequence[str]) -> dict[str, bool]:
    """What the corpus expects, by the name of a file; the later of two files counts."""
    lines = [line for name in files for line in (folder / RESOURCES / name).read_text().splitlines() if line]
    return {name: verdict == "1" for name, verdict in (line.rsplit(",", 1) for line in lines)}


def tasks(folder: Path, mixedproxy: Path | None) -> Iterator[Task]:
    for name, holds in sorted(verdicts(folder, EXPECTED).items()):
        yield Task(name.removeprefix("litmus/PTX/"), (folder / name).read_text(), holds)
    for name, ends in sorted(verdicts(folder, LIVENESS).items()):
        if "/CADP/" not in name:  # the others are above; by the model their barriers may wait for ever
            continue
        yield Task(f"{name.removeprefix('litmus/PTX/')}, to its end", (folder / name).read_text(), True, ends)
    for file in sorted((mixedproxy / "tests").glob("*.test")) if mixedproxy else ():
        for number, row in enumerate(program.rows_of(file.read_text()), 1):
            yield Task(f"mixedproxy/{file.stem} {number}", row, None)


def judged(task: Task, _: Path) -> dict[str, Any]:
    """The result of a test, for JSON; it needs no folder."""
    try:
        test = task.read()
        if task.ends is not None:
            return {"ends": task.ends, **asdict(to_the_end(test))}
        found = interleavings.Explorer(test).find()
        return {"forbidden": test.forbidden, **asdict(found), **asdict(ran(test, found.stuck))}
    except program.OutOfReach as reason:
        return {"out": str(reason)}


def answers(name: str, found: dict[str, Any]) -> Iterator[Answer]:
    ended = tuple(found["ended"])
    if "ends" in found:
        yield Answer(ENDS, name, not found["ends"], ended)
        return
    seen = (f"seen {found['seen']} times",) if found["seen"] else ()
    if found["forbidden"]:
        yield Answer(FORBIDDEN, name, False, seen)
    else:
        reason = "" if seen or found["reached"] else HANGS if ended else ONE_MEMORY
        yield Answer(PERMITTED, name, True, seen, reason)
    rules = tuple(rule for rule in found["rules"] if rule.startswith("race-"))
    yield Answer(RACES, name, found["racy"], rules)


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--mixedproxy", type=Path, help="the folder of NVlabs/mixedproxy")
    options = parser.parse_args()
    asked = [task for task in tasks(options.folder, options.mixedproxy) if options.only in task.name]
    all_found = resumed(options, {task.name: partial(judged, task) for task in asked})
    out = {task.name: all_found[task.name]["out"] for task in asked if "out" in all_found[task.name]}
    given = [answer for task in asked if task.name not in out for answer in answers(task.name, all_found[task.name])]
    return finish(JUDGE, options, given, out_of_reach=out, runs=RUNS)


if __name__ == "__main__":
    sys.exit(main())
