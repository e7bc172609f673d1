"""Parts that the runners of this folder share: answers, their counts, the expectation, the table, JSON, and CUDA C++ to PTX."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evidence.suites.run import ROOT, commit, versions
from mmulator.base.files import write

OPTIONS = ("--gpu-architecture=compute_80", "-lineinfo")


@dataclass(frozen=True)
class Answer:
    """The label of one program of a corpus, and what was found in the program.

    question: the row of the table that it counts in. case: the program's name. planted: whether the corpus says that it has the
    defect. found: rules that say so. reason: why a defect was missed or a clean program was flagged, where that is known.
    """

    question: str
    case: str
    planted: bool
    found: tuple[str, ...]
    reason: str = ""

    @property
    def wrong(self) -> bool:
        return self.planted != bool(self.found)


@dataclass(frozen=True)
class Count:
    """A row of the table. found of planted: programs with the defect. flagged of clean: programs without it."""

    found: int
    planted: int
    flagged: int
    clean: int

    def __str__(self) -> str:
        return f"{self.found} of {self.planted} found, {self.flagged} of {self.clean} flagged"


@dataclass(frozen=True)
class Judge:
    """A corpus. name: of its file here and of its JSON. title: for a table. source: where it is fetched, commit: which of it was
    run. expected: the counts that a run of all of it has, by question. rules: names and patterns of those that it asks for.
    beside: folders of further corpora, each an option of the runner."""

    name: str
    title: str
    source: str
    commit: str
    expected: Mapping[str, Count]
    rules: tuple[str, ...]
    beside: tuple[str, ...] = ()


def counted(answers: Iterable[Answer]) -> dict[str, Count]:
    """The rows, by question, in the order of the answers."""
    kept: dict[str, list[int]] = {}
    for answer in answers:
        row = kept.setdefault(answer.question, [0, 0, 0, 0])
        at = 0 if answer.planted else 2
        row[at] += bool(answer.found)
        row[at + 1] += 1
    return {question: Count(*row) for question, row in kept.items()}


def table(answers: Sequence[Answer]) -> str:
    """The rows, then each miss and each false alarm by name, with its reason."""
    counts = counted(answers)
    width = max(map(len, counts), default=0)
    text = [f"{question:<{width}}  {count}" for question, count in counts.items()]
    for answer in answers:
        if answer.wrong:
            what = "missed" if answer.planted else f"flagged ({', '.join(answer.found)})"
            text.append(f"  {what}: {answer.question}: {answer.case}" + (f": {answer.reason}" if answer.reason else ""))
    return "\n".join(text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text}: fetch the corpus (docs/reference/judges.md says whence)")
    return Path(text)


def arguments(doc: str) -> argparse.ArgumentParser:
    """The parser that all runners have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=_folder, help="the corpus, as it was fetched")
    parser.add_argument("--work", type=Path, help="a folder for PTX and for what is done, from which an interrupted run goes on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", default="", help="programs with this in their names; nothing is expected then")
    parser.add_argument("--json", type=Path)
    return parser


def finish(
    judge: Judge, options: argparse.Namespace, answers: Sequence[Answer], beyond: Mapping[str, str] | None = None, **more: Any
) -> int:
    """Print the table, write the JSON; 0 if the counts are the expected ones, 1 if not.

    judge: the corpus.
    options: of the command line.
    answers: of the programs that were run.
    beyond: why others are out of reach, by name: a line each, and in the JSON.
    more: for the JSON alone.
    """
    if not answers:
        what = f"has {options.only!r} in its name" if options.only else f"is in {options.folder}: is that {judge.source}?"
        print(f"no program of {judge.title} {what}", file=sys.stderr)
        return 1
    counts = counted(answers)
    print(table(answers))
    if beyond is not None:
        more["out_of_reach"] = dict(beyond)
        for name, why in beyond.items():
            print(f"  out of reach: {name}: {why}")
    if options.json:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        write(options.json, json.dumps({
            "judge": judge.name, "source": judge.source, "commit": commit(options.folder) or judge.commit, "date": date,
            "versions": versions(), **more, "counts": {question: asdict(count) for question, count in counts.items()},
            "answers": [asdict(answer) for answer in answers],
        }, indent=1) + "\n")  # fmt: skip
    if options.only:
        return 0
    differ = [name for name in {**judge.expected, **counts} if judge.expected.get(name) != counts.get(name)]
    for name in differ:
        print(f"expected of {name}: {judge.expected.get(name, 'nothing')}", file=sys.stderr)
    return int(bool(differ))


def keep(kept: Path | None, line: dict[str, Any]) -> None:
    """Append a result, {"case": name, "found": anything}, to the file from which an interrupted run goes on."""
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with kept.open("a") as file:
            file.write(json.dumps(line) + "\n")


def done(kept: Path | None) -> dict[str, Any]:
    """What an interrupted run has found, by case."""
    lines = kept.read_text().splitlines() if kept and kept.exists() else []
    return {line["case"]: line["found"] for line in map(json.loads, lines)}


def resumed(
    options: argparse.Namespace, tasks: Mapping[str, Callable[[Path], Any]], pool: type[Executor] = ProcessPoolExecutor
) -> dict[str, Any]:
    """Results of tasks, as JSON holds them (`restored` makes answers of it), by their names; an interrupted run goes on.

    options: of the command line; results are kept in its folder `work`, for this mmulator.
    tasks: by name; each is called with the folder for its files.
    pool: of processes or threads.
    """
    from mmulator.base.codegen.sources import fingerprint

    with TemporaryDirectory() as scratch, pool(options.jobs) as workers:  # type: ignore[call-arg]
        work = (options.work or Path(scratch)).resolve()
        kept = work / f"done-{fingerprint()[:16]}.jsonl"
        found = done(kept)
        waiting = {workers.submit(task, work): name for name, task in tasks.items() if name not in found}
        for number, future in enumerate(as_completed(waiting), 1):
            name, result = waiting[future], future.result()
            found[name] = json.loads(json.dumps(asdict(result) if isinstance(result, Answer) else result))
            keep(kept, {"case": name, "found": found[name]})
            if number % 50 == 0:
                print(f"{number} of {len(waiting)}", file=sys.stderr, flush=True)
    return {name: found[name] for name in tasks}


def restored(found: Mapping[str, Any]) -> Answer:
    """The answer of a task, as `resumed` gives it."""
    return Answer(**{**found, "found": tuple(found["found"])})


def compiled(source: str, work: Path | None, options: tuple[str, ...] = OPTIONS) -> str:
    """PTX of CUDA C++ by NVRTC; kept in a folder, by what it was made of. Raises RuntimeError with the compiler's log."""
    key = hashlib.sha256("\0".join([source, *options]).encode()).hexdigest()[:32]
    kept = work / f"{key}.ptx" if work else None
    if kept and kept.exists():
        return kept.read_text()
    from cuda.bindings import nvrtc

    program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])[1]
    status = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0]
    if int(status):
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.decode(errors="replace"))
    room = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, room)
    nvrtc.nvrtcDestroyProgram(program)
    ptx = bytes(room).rstrip(b"\0").decode()
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(ptx)
        part.rename(kept)
    return ptx


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DEVICE = re.compile(r"__(global|device|shared|constant)__|\b(constexpr|typedef|using|struct|enum|template)\b")


def device_code(source: str) -> str:
    """A .cu file without its functions of the host, which NVRTC does not take, and without what it includes."""
    text = re.sub(r"^\s*#\s*include[^\n]*", "", _COMMENT.sub("", source), flags=re.M)
    kept, item, depth = [], "", 0
    for part in re.split(r"(^\s*#(?:[^\n]*\\\n)*[^\n]*\n|[{};])", text, flags=re.M):
        depth += (part == "{") - (part == "}")
        item += part
        if depth == 0 and (part in ("}", ";") or part.lstrip().startswith("#")):
            if part != "}" or _DEVICE.search(item.partition("{")[0]):
                kept.append(item)
            item = ""
    return "".join(kept)


def sanitized(launch: Callable[[], Any]) -> tuple[tuple[str, ...], str]:
    """(rules that a sanitized launch breaks, errors and warnings; the error that it ended in, or "")."""
    from mmulator.errors import MmulatorError

    try:
        findings, error = launch().findings, ""
    except MmulatorError as raised:
        findings, error = raised.findings, f"{type(raised).__name__}: {raised}".split("\n")[0]
    return tuple(sorted({finding.rule for finding in findings})), error


def run_suite(options: argparse.Namespace, runner: str, device: str, words: Sequence[str], **environment: str) -> None:
    """Run tests of others with pytest, their launches sanitized.

    options: of the command line.
    runner: the module of evidence.judges that is a plug-in of these tests.
    device: of mmulator.
    words: tests and options of pytest.
    environment: more variables.
    """
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "src"), str(ROOT)]))
    command = [sys.executable, "-m", "pytest", "-p", f"evidence.judges.{runner}", "-p", "no:cacheprovider", "-q", "--tb=short"]
    command += [f"--mmulator={device}", "--sanitize", "--mmulator-timeout=300", *words]
    command += ["-k", options.only] * bool(options.only)
    subprocess.run(command, cwd=options.folder, env={**os.environ, "PYTHONPATH": path, **environment}, stdout=sys.stderr)


_RULES = re.compile(r"\[([a-z]+(?:-[a-z]+)+(?:,\s+[a-z]+(?:-[a-z]+)+)*)\]")


def program(
    sources: Sequence[str], name: str, work: Path, options: Sequence[str] = (), given: str = "", seconds: int = 120
) -> tuple[set[str], subprocess.CompletedProcess[str]]:
    """Compile a whole CUDA program with nvcc and run it with the sanitizer: (rules that it breaks, the process that ended).

    sources: files, named from work.
    name: of the executable.
    work: the folder in which nvcc and the program run.
    options: further options of nvcc.
    given: the program's standard input.
    seconds: limit for a launch.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    run = partial(subprocess.run, cwd=work, env=environment, capture_output=True, text=True)
    mmulator = [sys.executable, "-m", "mmulator"]
    made = run([*mmulator, "nvcc", "-arch=sm_80", "-lineinfo", *options, *sources, "-o", name])
    if made.returncode:
        raise RuntimeError(made.stderr)

    command = [*mmulator, "exec", "--device", "sm_80", "--sanitize", "--timeout", str(seconds), f"./{name}"]
    ended = run(command, input=given)
    return {rule.strip() for found in _RULES.findall(ended.stderr) for rule in found.split(",")}, ended
