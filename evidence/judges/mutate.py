"""Mutation score of the model: small changes to its source, drawn by a seed, and whether the tests notice them.

    python -m evidence.judges.mutate --work /tmp/mutants --jobs 2 --json mutants.json

A change is one operator, one number, one condition or one call, in a file of AREAS. SEED, COUNT and the code fix the drawing:
comments, docstrings and places of lines have no part in it, and an edit of one function leaves the changes of the others.
Each change is made in a copy of the package, and the tests of its chapter run until the first of them fails, for LIMIT seconds of
the processor. All these tests run once without a change before: those that fail are left out, and named in the JSON, and the code
that they compiled is there for every change, which so compiles only what it changes. Finished changes are kept, so an interrupted
run goes on, until code of the files has changed. A test that does not end, and ended soon without the change, notices it.
Nothing of the repository is written.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from evidence.judges.common import done, keep
from evidence.suites.run import ROOT, versions
from mmulator.base.files import write

SEED, COUNT, LIMIT = 30, 200, 90
MOST_LEFT_OUT = 12  # tests of a change
ENDLESS = 60  # seconds of the processor for a test that, as it seems, does not end
WALL = 3  # times the limit, for a change that makes tests wait
_SLOW = re.compile(r"was not compiled within|TimeoutExpired")  # what fails so, fails because this machine is slow
PACKAGE = ROOT / "src" / "mmulator"
# Folders of the package, and what pytest is given for a file of each, beside the tests that have the file's name. {}: that name.
# The folders whose tests take longest come first, and so do their changes.
_NOT = "--ignore=tests/sanitizer/test_static.py"  # runs no native code
AREAS: dict[str, tuple[str, ...]] = {
    "runtime/native/asynchrony": (
        "tests/chapters/test_mbarrier.py", "tests/chapters/test_bulk.py", "tests/chapters/test_tensor.py",
        "tests/chapters/test_copies.py", "tests/chapters/test_tensormap.py", "tests/native", "tests/sanitizer", "tests/ub",
        "tests/kernels", _NOT,
    ),
    "runtime/native/threads": (
        "tests/chapters/test_barrier.py", "tests/chapters/test_warp.py", "tests/chapters/test_cluster.py", "tests/sanitizer",
        "tests/ub", "tests/native", "tests/launch", "tests/kernels", _NOT,
    ),
    "sanitizer/order": ("tests/sanitizer", "tests/ub",),
    "compiler/meaning": ("--chapter", "{}", "tests/chapters", "tests/sanitizer", "tests/ub", "tests/native"),
    "layouts": ("tests/layouts", "tests/inspect", "tests/chapters/test_tensor.py", "tests/chapters/test_mma.py"),
    "matrix/numerics/sfu": ("tests/twin/test_sfu.py", "tests/twin/test_sfu_golden.py", "tests/chapters/test_float.py"),
    "numerics": ("tests/numerics", "tests/chapters/test_mma.py", "tests/twin"),
}  # fmt: skip
# Changes that survived, or were not noticed in time, by name, and why that is right.
EXPLAINED = {
    "compiler/meaning/video.py _place: 0 -> 1": "nothing changes: of a whole word the lowest bit is not read",
    "compiler/meaning/integer.py _high: 64 -> 65": "nothing changes: the function is in line then",
    "matrix/numerics/sfu/unit.py lg2: 0 -> 1, 4": "nothing changes: the sum is never 0",
    "matrix/numerics/sfu/unit.py ex2: 127 -> 128": "nothing changes: the exponents between lead to the same ends below",
    "runtime/native/asynchrony/transfers.py chance: + -> -": "another random number, as good",
    "runtime/native/asynchrony/tensor.py move_tensor_load: 0 -> 1": "nothing changes: rows are copied one by one, not together",
    "matrix/layouts/sparse/metadata.py _places: + -> -": "nothing changes: 0 is added",
    "matrix/layouts/cute_layout.py _upcast: and -> or": "nothing changes: shape and stride have one structure",
    "matrix/layouts/tensormap/rules.py _tensor: 0 -> 1, 3": "nothing changes: stride 0 is legal, so has no hint",
    "matrix/numerics/dot.py step: < -> <=": "nothing changes: it is an infinity",
    "matrix/numerics/dot.py group_scales: True -> False": "nothing changes: both sides have as many scale factors",
    "matrix/numerics/arrays.py _instruction: and -> or": "nothing changes: scale factors of A and B come together",
    "matrix/numerics/element.py _step: True -> False": "nothing changes: the lists have one length",
    "runtime/native/asynchrony/tensor.py tensor_load: 0 -> 1, 4":
        "nothing changes: the words of this fault do not have the number",
    "compiler/meaning/wgmma.py _goes_on: not -> nothing": "a gap: a race of stores with a wgmma would show it",
    "compiler/meaning/misc.py setmaxnreg: e.flush() -> pass": "nothing changes: setmaxnreg.inc is alone in its block",
    "runtime/native/asynchrony/boxes.py along_row: 1 -> 2, 3": "a gap: no test has a row of an odd number of elements of 4 bits",
    "compiler/meaning/cluster.py _comes: 0 -> 1": "a gap: no kernel has a barrier.cluster without .aligned behind a skipped one",
    "matrix/layouts/fragments.py _copy: + -> -, 2": "nothing changes: it is multiplied by 0",
}
KILLED, SURVIVED, LATE, BROKEN = "noticed", "survived", "not noticed in time", "does not import"
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
_OPAQUE = (ast.Assert, ast.Raise, ast.JoinedStr, ast.AnnAssign, ast.arguments, ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Change:
    """Text of a file that another takes the place of.

    begin, end: its characters in the file.
    name: file, function, text, and how many changes with these names there were up to this one. Lines have no part in it.
    """

    file: str
    begin: int
    end: int
    old: str
    new: str
    line: int
    name: str


def changes(path: Path, source: str) -> Iterator[Change]:
    """Every change of a file."""
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    file, seen = path.relative_to(PACKAGE).as_posix(), Counter[str]()

    def at(line: int, column: int) -> int:  # of bytes in a line, as ast has them
        row = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(row.encode()[:column].decode())

    def made(begin: int, end: int, new: str, line: int, function: str, words: str = "") -> Change:
        old = source[begin:end]
        which = f"{file} {function}: {words or old} -> {new or 'nothing'}"
        seen[which] += 1
        return Change(file, begin, end, old, new, line, which if seen[which] == 1 else f"{which}, {seen[which]}")

    def between(left: ast.expr, right: ast.expr, operator: ast.AST, function: str) -> Iterator[Change]:
        if type(operator) in SWAPS:
            old, new = SWAPS[type(operator)]
            begin, end = at(left.end_lineno or 0, left.end_col_offset or 0), at(right.lineno, right.col_offset)
            found = re.search(rf"(?<![<>=!*/]){re.escape(old)}(?![<>=*/])", source[begin:end])
            if found:
                yield made(begin + found.start(), begin + found.end(), new, left.end_lineno or 0, function)

    def visit(node: ast.AST, function: str) -> Iterator[Change]:
        if isinstance(node, _OPAQUE):
            return
        if function and isinstance(node, ast.expr | ast.Expr):
            place = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                yield from between(node.left, node.comparators[0], node.ops[0], function)
            elif isinstance(node, ast.BinOp):
                yield from between(node.left, node.right, node.op, function)
            elif isinstance(node, ast.BoolOp):
                yield from between(node.values[0], node.values[1], node.op, function)
            elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
                new = str(node.value + 1) if type(node.value) is int else str(not node.value)
                yield made(*place, new, node.lineno, function)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                yield made(*place, "pass", node.lineno, function, ast.unparse(node))
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
                word = "not" if isinstance(node.op, ast.Not) else "~"
                yield made(place[0], place[0] + len(word), "", node.lineno, function)
        inside = isinstance(node, ast.FunctionDef)
        named = f"{function}.{node.name}".lstrip(".") if inside else function
        for child in node.body if inside else ast.iter_child_nodes(node):
            yield from visit(child, named)

    yield from visit(ast.parse(source), "")


def sources() -> dict[Path, str]:
    return {path: path.read_text() for area in AREAS for path in sorted((PACKAGE / area).rglob("*.py"))}


def drawn(texts: dict[Path, str]) -> list[Change]:
    """The changes of the drawing: those whose names have the least digests."""
    found = (change for path, text in texts.items() for change in changes(path, text))
    return sorted(found, key=lambda one: hashlib.sha256(f"{SEED} {one.name}".encode()).digest())[:COUNT]


def drawing(texts: dict[Path, str]) -> str:
    """A digest by which two drawings of one code are told from others."""
    found = hashlib.sha256()
    for text in texts.values():
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                del node.body[0]
        found.update(ast.dump(tree).encode())
    return found.hexdigest()[:16]


def area_of(change: Change) -> str:
    return next(area for area in AREAS if change.file.startswith(f"{area}/"))


def tests_of(change: Change) -> list[str]:
    """Arguments of pytest: tests that have the name of the changed file, and those of its folder."""
    area, stem = area_of(change), Path(change.file).stem
    named = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob(f"test_{stem}*.py"))
    others = [*AREAS[area]]
    if "--chapter" in others and not (PACKAGE / f"isa/{stem}.py").exists():
        others = others[2:]
    return [f"--first={stem}", *named, *(name.format(stem) for name in others if name not in named)]


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--first", help="the name of the file whose tests come first")


def pytest_runtestloop(session: Any) -> bool | None:
    """The file of --first; then always a test of that file whose tests have had least time.

    In a file every function has one case before any has two. The cases behind a function's first are in an order that SEED makes,
    because neighbours are alike.
    """
    if session.testsfailed or not session.config.getoption("--first"):
        return None
    cases: dict[Path, dict[str, list[Any]]] = {}
    for item in session.items:
        cases.setdefault(item.path, {}).setdefault(getattr(item, "originalname", item.name), []).append(item)
    files = {}
    for path, functions in cases.items():
        for rest in functions.values():
            rest[1:] = random.Random(SEED).sample(rest[1:], len(rest) - 1)
        files[path] = [item for turn in zip_longest(*functions.values()) for item in turn if item]
    spent = dict.fromkeys(files, 0.0)
    for path in files:
        if path.stem == f"test_{session.config.getoption('--first')}":
            spent[path] = -float("inf")
    while files:
        path = min(files, key=spent.__getitem__)
        begun, item = time.monotonic(), files[path].pop(0)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        spent[path] += time.monotonic() - begun
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if not files[path]:
            del files[path]
    return True


def limited(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


@dataclass(frozen=True)
class Run:
    """Tests that have run: the exit code of pytest (less than 0: a signal), what it wrote, and seconds of the processor."""

    code: int
    text: str
    seconds: float

    @property
    def failures(self) -> list[str]:
        return re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", self.text, re.M)

    @property
    def out_of_time(self) -> bool:
        return -self.code in (signal.SIGXCPU, signal.SIGKILL)

    @property
    def last(self) -> str:
        """The test that had begun."""
        return next((line.split(" ")[0] for line in reversed(self.text.splitlines()) if line.startswith("tests/")), "")


def once(source: Path, tests: list[str], work: Path, limit: int, cache: Path | None = None, workers: int = 0) -> Run:
    """Run tests with a package, until one fails.

    tests: arguments of pytest.
    work: a folder for what they write.
    limit: seconds of the processor, of each process.
    cache: mmulator's; None: one in work.
    workers: processes; with them all tests run, whatever fails.
    """
    (work / "site").mkdir(parents=True, exist_ok=True)  # tests see two processors, whatever this machine has
    (work / "site" / "sitecustomize.py").write_text("import os\nos.cpu_count = lambda: 2\n")
    site = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(work / "site"), str(source), str(ROOT), *site]),
        "MMULATOR_CACHE": str(cache or work / "cache"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    options = ("-ptools.judges.mutate", "-vv", "-pno:cacheprovider", "-m", "not full", "--tb=line", "--color=no")
    options += (f"-n{workers}",) if workers else ("-n0", "-x")
    with (work / "out").open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT,
            preexec_fn=partial(limited, limit), start_new_session=True,
        )  # fmt: skip
        end, status = time.monotonic() + WALL * limit, None
        while status is None:
            time.sleep(0.05)
            ended, found, usage = os.wait4(process.pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(found) if ended else None
            if status is None and time.monotonic() > end:
                end = float("inf")
                os.killpg(process.pid, signal.SIGKILL)
        process.returncode = status
    return Run(status, (work / "out").read_text(errors="replace"), round(usage.ru_utime + usage.ru_stime, 1))


class Tests:
    """Tests with and without changes. left_out: tests that fail without a change, here."""

    def __init__(self, work: Path) -> None:
        self.work, self.left_out = work, set[str]()
        self.unchanged = cache(self._unchanged)
        self._own = threading.local()

    def folder(self) -> Path:
        """One of this thread."""
        if not hasattr(self._own, "folder"):
            self._own.folder = self.work / str(threading.get_ident())
        return self._own.folder

    def _unchanged(self, test: str) -> Run:
        return once(PACKAGE.parent, [test], self.folder(), 2 * LIMIT, self.work / "plain")

    def plain(self, test: str) -> bool:
        """Whether a test, or a file that does not import, passes without a change; True if it cannot be found by its name."""
        return self.unchanged(test).code not in (1, 2)

    def endless(self, source: Path, test: str) -> bool:
        """Whether a test alone takes ENDLESS seconds with a package, and not a tenth of them without a change."""
        if not test or self.unchanged(test).code or self.unchanged(test).seconds > ENDLESS / 10:
            return False
        return once(source, [test], self.folder(), ENDLESS).out_of_time

    def before(self, tests: list[str], jobs: int) -> None:
        """Run tests without a change: what fails alone, too, is left out. A file says that they have run."""
        ran = self.work / "before.json"
        if not ran.exists():
            run = once(PACKAGE.parent, tests, self.folder(), 20 * LIMIT, self.work / "plain", jobs)
            with ThreadPoolExecutor(jobs) as pool:
                failed = [test for test, passes in zip(run.failures, pool.map(self.plain, run.failures)) if not passes]
            print(f"without a change: {len(failed)} fail ({run.seconds} s)", *run.text.splitlines()[-1:], sep="\n", flush=True)
            ran.write_text(json.dumps(failed))
        self.left_out.update(json.loads(ran.read_text()))

    def outcome(self, source: Path, tests: list[str], limit: int) -> tuple[str, str, float]:
        """(what became of the tests with a package, the test that failed or had begun, seconds of the processor)."""
        seconds = 0.0
        for _ in range(MOST_LEFT_OUT):
            but = [word for name in sorted(self.left_out) for word in ("--deselect" if "::" in name else "--ignore", name)]
            run = once(source, [*tests, *but], self.folder(), limit)
            seconds = round(seconds + run.seconds, 1)
            if run.code == 0:
                return SURVIVED, "", seconds
            if run.out_of_time:
                if self.endless(source, run.last):
                    return KILLED, f"{run.last}: does not end", seconds
                return LATE, run.last, seconds
            if run.code < 0:
                return KILLED, f"{run.last}: signal {-run.code}", seconds
            if not run.failures:
                return BROKEN, run.text[-300:], seconds
            test = run.failures[0]
            if not _SLOW.search(run.text) and self.plain(test):
                return KILLED if run.code == 1 else BROKEN, test, seconds
            self.left_out.add(test)
        return LATE, "too many tests fail without a change", seconds


def tried(change: Change, tests: Tests, limit: int) -> dict[str, object]:
    """The outcome of a change."""
    work = tests.folder()
    source = work / "src"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(work / "cache", ignore_errors=True)
    shutil.copytree(tests.work / "plain", work / "cache", copy_function=os.link)  # what is there is replaced, never written
    shutil.copytree(PACKAGE, source / "mmulator", ignore=shutil.ignore_patterns("__pycache__"))
    changed = source / "mmulator" / change.file
    text = changed.read_text()
    changed.write_text(text[: change.begin] + change.new + text[change.end :])
    given = tests_of(change)
    outcome, test, seconds = tests.outcome(source, given, limit)
    if outcome == SURVIVED and "--chapter" in given:  # now tests that do not have its name
        at = given.index("--chapter")
        outcome, test, more = tests.outcome(source, given[:at] + given[at + 2 :], limit)
        seconds = round(seconds + more, 1)
    return {"outcome": outcome, "test": test, "seconds": seconds, "limit": limit, **asdict(change)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder for copies of the package")
    parser.add_argument("--kept", type=Path, help="the file of what is done; default: in --work")
    parser.add_argument("--first", type=int, default=COUNT, help="so many of the drawing")
    parser.add_argument("--only", default="", help="changes with this in their names, again")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds of the processor; what took longer is tried again")
    parser.add_argument("--until", type=float, default=float("inf"), help="seconds after which no change is begun")
    parser.add_argument("--jobs", type=int, default=1, help="changes at once")
    parser.add_argument("--json", type=Path, help="what has been done so far")
    options = parser.parse_args()
    texts = sources()
    kept = options.kept or options.work / f"done-{drawing(texts)}.jsonl"
    finished, tests, begun = done(kept), Tests(options.work), time.monotonic()
    asked = [change for change in drawn(texts)[: options.first] if options.only in change.name]

    def again(change: Change) -> bool:
        found = finished.get(change.name)
        return not found or bool(options.only) or (found["outcome"] == LATE and found["limit"] < options.limit)

    def one(change: Change) -> None:
        if time.monotonic() - begun < options.until:
            found = tried(change, tests, options.limit)
            finished[change.name] = found
            keep(kept, {"case": change.name, "found": found})
            print(f"{change.name}: {found['outcome']} {found['test']} ({found['seconds']} s)", flush=True)

    order, to_do = [*AREAS], [*filter(again, asked)]
    if to_do:
        paths = {name for change in to_do for name in tests_of(change) if name.startswith("tests/")}
        tests.before(sorted(paths), options.jobs)
    with ThreadPoolExecutor(options.jobs) as pool:
        for _ in pool.map(one, sorted(to_do, key=lambda one: (one.name in finished, order.index(area_of(one))))):
            pass
    found = [finished[change.name] for change in asked if change.name in finished]
    counts = Counter(one["outcome"] for one in found)
    print(", ".join(f"{count} {what}" for what, count in counts.most_common()))
    if tests.left_out:
        print("left out, as they fail without a change:", *sorted(tests.left_out), sep="\n  ")
    if options.json:
        write(options.json, json.dumps({
            "judge": "mutate", "seed": SEED, "drawn": COUNT, "run": len(found), "limit": LIMIT, "versions": versions(),
            "counts": dict(counts), "left out": sorted(tests.left_out), "changes": found,
        }, indent=1) + "\n")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
