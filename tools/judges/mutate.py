"""Mutation score of the model: small changes to its source, drawn by a seed, and whether the tests notice them.

    python -m tools.judges.mutate --work /tmp/mutants --first 30 --json mutants.json

A change is one operator, one number, one condition or one call, in a file of AREAS. SEED, COUNT and the sources fix the drawing.
Each change is made in a copy of the package, and the tests of its chapter run until the first of them fails, for LIMIT seconds of
the processor. The native code of a changed package is compiled anew, in that time. Finished changes are kept in --work, so an
interrupted run goes on; a new drawing is made where the sources have changed. Nothing of the repository is written.
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
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tools.judges.common import done, keep
from tools.suites.run import ROOT, versions

SEED, COUNT, LIMIT = 30, 200, 90
MOST_SLOW = 3  # tests that may be left out because they ran out of time
_SLOW = re.compile(r"was not compiled within|time limit|TimeoutExpired")
PACKAGE = ROOT / "src" / "mmulator"
# Folders of the package, and what pytest is given for a file of each, behind the tests that have the file's name. {}: that name.
AREAS: dict[str, tuple[str, ...]] = {
    "numerics/sfu": ("tests/twin/test_sfu.py", "tests/twin/test_sfu_golden.py", "tests/chapters/test_float.py"),
    "numerics": ("tests/numerics", "tests/chapters/test_mma.py", "tests/twin"),
    "layouts": ("tests/layouts", "tests/inspect", "tests/chapters/test_tensor.py", "tests/chapters/test_mma.py"),
    "compiler/meaning": ("--chapter", "{}", "tests/chapters", "tests/sanitizer", "tests/native"),
    "native/asynchrony": (
        "tests/native", "tests/chapters/test_mbarrier.py", "tests/chapters/test_bulk.py", "tests/chapters/test_tensor.py",
        "tests/chapters/test_copies.py", "tests/sanitizer/test_corpus.py",
    ),
    "native/threads": (
        "tests/native", "tests/chapters/test_barrier.py", "tests/chapters/test_warp.py", "tests/chapters/test_control.py",
        "tests/chapters/test_cluster.py", "tests/launch", "tests/sanitizer/test_waits.py",
    ),
    "sanitizer/order": ("tests/sanitizer/test_orders.py", "tests/sanitizer/test_corpus.py"),
}  # fmt: skip
# Changes that survived, by place, and why that is right, or what was done.
EXPLAINED = {
    "compiler/meaning/bulk.py:50": "nothing changes: a kernel with such a copy initialises an mbarrier, which notes the same",
    "compiler/meaning/tcgen05.py:114": "a test loaded into registers that held the words already; it clears them now",
    "sanitizer/order/world.py:248": "stores took room from releases; tests/sanitizer/test_orders.py has a test of that now",
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
    """Text of a file that another takes the place of. begin, end: its characters in the file."""

    file: str
    begin: int
    end: int
    old: str
    new: str
    line: int

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} at {self.begin}: {self.old} -> {self.new}"


def changes(path: Path) -> Iterator[Change]:
    """Every change of a file."""
    source = path.read_text()
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))

    def at(line: int, column: int) -> int:  # of bytes in a line, as ast has them
        row = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(row.encode()[:column].decode())

    def made(begin: int, end: int, new: str, line: int) -> Change:
        return Change(path.relative_to(PACKAGE).as_posix(), begin, end, source[begin:end], new, line)

    def between(left: ast.expr, right: ast.expr, operator: ast.AST) -> Iterator[Change]:
        if type(operator) in SWAPS:
            old, new = SWAPS[type(operator)]
            begin, end = at(left.end_lineno or 0, left.end_col_offset or 0), at(right.lineno, right.col_offset)
            found = re.search(rf"(?<![<>=!*/]){re.escape(old)}(?![<>=*/])", source[begin:end])
            if found:
                yield made(begin + found.start(), begin + found.end(), new, left.end_lineno or 0)

    def visit(node: ast.AST, inside: bool) -> Iterator[Change]:
        if isinstance(node, _OPAQUE):
            return
        if inside:
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                yield from between(node.left, node.comparators[0], node.ops[0])
            elif isinstance(node, ast.BinOp):
                yield from between(node.left, node.right, node.op)
            elif isinstance(node, ast.BoolOp):
                yield from between(node.values[0], node.values[1], node.op)
            elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
                new = str(node.value + 1) if type(node.value) is int else str(not node.value)
                place = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
                yield made(*place, new, node.lineno)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                place = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
                yield made(*place, "pass", node.lineno)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
                place = at(node.lineno, node.col_offset), at(node.operand.lineno, node.operand.col_offset)
                yield made(*place, "", node.lineno)
        body = node.body if isinstance(node, ast.FunctionDef) else list(ast.iter_child_nodes(node))
        for child in body:
            yield from visit(child, inside or isinstance(node, ast.FunctionDef))

    yield from visit(ast.parse(source), False)


def drawn() -> list[Change]:
    """The changes of the drawing, in its order."""
    files = sorted({path for area in AREAS for path in (PACKAGE / area).rglob("*.py")})
    return random.Random(SEED).sample([change for path in files for change in changes(path)], COUNT)


def drawing() -> str:
    """What says whether two drawings are of the same sources."""
    found = hashlib.sha256()
    for path in sorted({path for area in AREAS for path in (PACKAGE / area).rglob("*.py")}):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def tests_of(change: Change) -> list[str]:
    area = next(area for area in AREAS if change.file.startswith(f"{area}/"))
    stem = Path(change.file).stem
    named = sorted({path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob(f"test_{stem}*.py")})
    chapters = area != "compiler/meaning" or (ROOT / f"tests/chapters/test_{stem}.py").exists()
    return [*named, *(name.format(stem) for name in AREAS[area] if chapters and name not in named)]


def limited(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def once(source: Path, tests: list[str], work: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)]), "MMULATOR_CACHE": str(work / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    options = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", "--tb=line")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, preexec_fn=partial(limited, LIMIT))


def run(source: Path, tests: list[str], work: Path) -> tuple[str, str, float]:
    """(what became of the tests with a package, the first that failed, processor seconds). A test that fails because
    this machine is slow is left out, and the others are run again."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process, slow = once(source, tests, work), 0
    while _SLOW.search(process.stdout) and slow < MOST_SLOW:
        slow += 1
        tests = [*tests, *(word for name in failures(process) for word in ("--deselect", name))]
        process = once(source, tests, work)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
    if process.returncode == 0:
        return SURVIVED, "", seconds
    if -process.returncode in (signal.SIGXCPU, signal.SIGKILL) or _SLOW.search(process.stdout):
        return LATE, "", seconds
    if process.returncode < 0:
        return KILLED, f"the process ended by signal {-process.returncode}", seconds
    failed = failures(process)
    return (KILLED if re.search(r"^FAILED ", process.stdout, re.M) else BROKEN), (failed or [process.stdout[-300:]])[0], seconds


def failures(process: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", process.stdout, re.M)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder for the copy of the package and for what is done")
    parser.add_argument("--first", type=int, default=COUNT, help="so many of the drawing")
    parser.add_argument("--part", default="0/1", metavar="M/N", help="every N-th change; parts may run at once")
    parser.add_argument("--json", type=Path, help="what all parts have done so far")
    options = parser.parse_args()
    kept = options.work / f"done-{drawing()}.jsonl"
    own, parts = map(int, options.part.split("/"))
    finished, work = done(kept), options.work / str(own)
    source = work / "src"
    asked = drawn()[: options.first]
    for number, change in enumerate(asked, 1):
        if change.name in finished or number % parts != own:
            continue
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(PACKAGE, source / "mmulator", ignore=shutil.ignore_patterns("__pycache__"))
        changed = source / "mmulator" / change.file
        text = changed.read_text()
        changed.write_text(text[: change.begin] + change.new + text[change.end :])
        begun = time.time()
        outcome, test, seconds = run(source, tests_of(change), work)
        shutil.rmtree(work / "cache", ignore_errors=True)
        finished[change.name] = {"outcome": outcome, "test": test, "seconds": seconds, **asdict(change)}
        keep(kept, {"case": change.name, "found": finished[change.name]})
        print(f"{number} of {len(asked)}: {change.name}: {outcome} {test} ({seconds} s, {time.time() - begun:.0f})", flush=True)
    found = [finished[change.name] for change in asked if change.name in finished]
    counts = Counter(one["outcome"] for one in found)
    print(", ".join(f"{count} {what}" for what, count in counts.most_common()))
    if options.json:
        options.json.write_text(json.dumps({
            "judge": "mutate", "seed": SEED, "drawn": COUNT, "run": len(found), "limit": LIMIT, "versions": versions(),
            "counts": dict(counts), "changes": found,
        }, indent=1) + "\n")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
