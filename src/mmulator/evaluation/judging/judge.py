"""The judge: a kernel or a program comes in, with a reference that it never sees; one verdict leaves.

A source is compiled in one process, its PTX runs in another, which has the arguments and nothing else. Outputs are compared
here. A whole program does what it likes, so its verdict rests on its own word, and says so.
"""

import json
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.base.errors import LaunchError
from mmulator.evaluation.judging.child import ChildEnd, Limits, python, run
from mmulator.evaluation.judging.verdict import JudgedOutput, Verdict, VerdictKind
from mmulator.host.jobs.comparison import Comparison, Expectation, Tolerance, check_expectation, compare
from mmulator.host.jobs.job import load_job, read_expectation
from mmulator.isa.chips import as_device

Arguments = Mapping[str, Any]
Reference = Mapping[str, Any] | str | Path | Callable[..., Mapping[str, Any]]
_SOURCES = (".cu", ".py")
_STARTS = (b"\x7fELF", b"#!")


def judge(
    candidate: Any, args: Arguments | Callable[[int], Arguments] | None = None, *, reference: Reference | None = None,
    entry: str | None = None, grid: Any = None, block: Any = None, shared: int = 0, cluster: Any = None,
    cooperative: bool = False, device: str | None = None, kernel: str | Path | None = None, nvcc: str = "",
    inout: Sequence[str] = (), seeds: int = 2, sanitize: bool = True, profile: bool = False, rtol: float = 0.0,
    atol: float = 0.0, ulp: int = 0, draw: int | None = None, threads: int | None = None, limits: Limits | None = None,
    certify: bool = False,
) -> Verdict:  # fmt: skip
    """One verdict on a kernel or a program, from a child process within limits of time and memory.

    candidate: a kernel: a launch file (.toml), PTX as path or text, a .cu or another file with PTX, a .py with a kernel of
        Triton (`entry` names it). Or a program: a path without `entry` and `grid`, or its command line as a list.
    args: the arguments by name, in order: arrays, numbers, of Triton also constants and num_warps; or a function of a seed that
        makes them, called after the kernel has been compiled, with a seed that nobody knew before.
    reference: the expected outputs by name, a .npz of them, or a function of the arguments that computes them: it is called here
        with arg=value, after the kernel has run. The arrays that it has are the outputs.
    entry: the kernel, where the candidate has several.
    grid, block: blocks of the grid, threads of a block; of Triton the grid may be a function of the arguments.
    shared: dynamic shared memory, bytes.
    cluster, cooperative: as of Kernel.launch.
    device: whose arithmetic is used.
    kernel: PTX or a source in place of the one that a launch file names.
    nvcc: flags, for a .cu.
    inout: outputs whose contents before the launch the kernel uses; all others are filled with NaNs, then with random bytes.
    seeds: of the scheduler, under how many it runs.
    sanitize: undefined behaviour is looked for, under the first seed.
    profile: what each line did is in the verdict's report.
    rtol, atol, ulp: what passes besides equal bits: |got - want| <= atol + rtol |want|, or steps of the type.
    draw: the seed of a function `args`; None: one is drawn.
    threads: of the host.
    limits: of compilation, and again of the run.
    certify: includes `sanitize`; the report has a certificate for every schedule, and a counterexample counts as undefined.

    Raises LaunchError for a question that makes no sense; whatever the candidate does is in the verdict.
    """
    limits = limits or Limits()
    if not isinstance(seeds, int) or seeds < 1:
        raise LaunchError(f"seeds is {seeds!r}, not a number of runs")
    program = _program(candidate, grid, entry)
    if program is not None:
        return _judge_program(program, device, sanitize, certify, limits)
    with tempfile.TemporaryDirectory(prefix="mmulator-judge-") as made:
        where = Path(made)
        said: dict[str, Any] = {
            "seeds": list(range(seeds)), "sanitize": sanitize or certify, "profile": profile, "inout": list(inout),
            "threads": threads,
            "device": None if device is None else as_device(device), "cluster": cluster, "cooperative": cooperative,
            "certify": certify,
        }  # fmt: skip
        tolerance = Tolerance(0.0, rtol, atol, ulp)
        if isinstance(candidate, str | Path) and str(candidate).endswith(".toml"):
            return _launch_file(Path(candidate), kernel, reference, tolerance, said, limits, where, nvcc)
        if args is None or grid is None:
            raise LaunchError("a kernel needs grid= and args=", hint="or a launch file; a list of words is a program")
        case = _Case(candidate, args, entry, grid, block, shared, nvcc, draw)
        return case.verdict(reference, tolerance, said, limits, where)


# programs -------------------------------------------------------------------------------------------------------------
def _program(candidate: Any, grid: Any, entry: str | None) -> list[str] | None:
    """The command line of a program; None for a kernel."""
    if isinstance(candidate, list | tuple):
        return [str(word) for word in candidate]
    if grid is not None or entry is not None or not isinstance(candidate, str | Path) or "\n" in str(candidate):
        return None
    path = Path(candidate)
    if path.suffix == ".py" and not path.exists():
        raise LaunchError(f"cannot read {path}: No such file or directory")
    if path.suffix == ".py" or (path.is_file() and path.suffix != ".toml" and path.read_bytes()[:4].startswith(_STARTS)):
        return [str(path)]
    return None


def _judge_program(words: list[str], device: str | None, sanitize: bool, certify: bool, limits: Limits) -> Verdict:
    looks = ["--certify"] if certify else ["--sanitize"] if sanitize else []
    options = ["--json", *looks, *(["--device", as_device(device)] if device else [])]
    with tempfile.TemporaryDirectory(prefix="mmulator-judge-") as made:
        answer = Path(made, "answer.json")
        # standard output of exec is its report alone; the program's own goes to standard error
        line = 'exec "$0" -m mmulator exec "$@" > "$ANSWER"'
        command = ["/bin/sh", "-c", line, sys.executable, *options, *words]
        ended = run(command, limits, Path(made), {**os.environ, "ANSWER": str(answer)})
        try:
            said = json.loads(answer.read_text())
        except (OSError, ValueError):
            said = {}
    fine = "the program ended with exit code 0, and nothing was found"
    verdict = Verdict(
        VerdictKind.RIGHT, fine, "program", as_device(device) if device else "", findings=tuple(said.get("findings", ())),
        report={"kernels": []} | {key: said[key] for key in ("kernels", "certificates") if key in said},
        seconds={"run": ended.seconds}, output=ended.told,
        notes=("a program compares its own results: this verdict rests on its word",),
    )  # fmt: skip
    return _limited(verdict, ended, limits) or _of_program(verdict, said, ended)


def _of_program(verdict: Verdict, said: Mapping[str, Any], ended: ChildEnd) -> Verdict:
    errors = [f for f in verdict.findings if f["severity"] == "error"]
    if "exit_code" not in said:
        return replace(verdict, outcome=VerdictKind.CRASHED, message=_silent("it", ended))
    if said["exit_code"]:
        return replace(verdict, outcome=VerdictKind.FAILED, message=f"the program ended with exit code {said['exit_code']}")
    missing = [r["why"] for r in said.get("refused", ()) if not r["handled"]]
    if missing and not errors:
        return replace(verdict, outcome=VerdictKind.REFUSED, message=f"the program does not know of refused work: {missing[0]}")
    if not errors and said.get("certificates", {}).get("verdict") == "counterexample":
        return _contradicted(verdict, said["certificates"]["open"])
    if (certificates := said.get("certificates")) is not None:
        verdict = replace(verdict, message=f"{verdict.message}; certificate: {certificates['verdict']}")
    return _undefined(verdict, errors) if errors else verdict


def _contradicted(verdict: Verdict, rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict where a launch has a counterexample."""
    first = next(row for row in rows if row["verdict"] == "counterexample")
    why = first["reasons"][0]["why"] if first["reasons"] else "another schedule does something else"
    return replace(verdict, outcome=VerdictKind.UNDEFINED, message=f"counterexample: {why}")


# kernels --------------------------------------------------------------------------------------------------------------
def _launch_file(
    path: Path, kernel: str | Path | None, reference: Reference | None, tolerance: Tolerance, said: dict[str, Any],
    limits: Limits, where: Path, nvcc: str,
) -> Verdict:  # fmt: skip
    """The verdict on a launch that a file describes.

    path: the launch file.
    kernel: PTX or a source in place of the file's.
    reference: in place of the file's.
    tolerance: in place of the file's, if it allows anything.
    said: what the child is told.
    limits: of time and memory.
    where: a folder for both sides.
    nvcc: flags.
    """
    job = load_job(path)
    ptx = Path(kernel) if kernel is not None else job.ptx
    said |= {"launch": str(path.absolute()), "ptx": str(ptx.absolute())}
    seconds = {}
    if ptx.suffix in _SOURCES:
        if ptx.suffix == ".py":
            raise LaunchError("a kernel of Triton has no launch file: give grid= and args=")
        compiled = _compile({"source": str(ptx.absolute()), "entry": job.entry, "device": said["device"] or job.device,
                             "nvcc": nvcc, "args": []}, limits, where)  # fmt: skip
        if isinstance(compiled, Verdict):
            return compiled
        seconds = compiled["seconds"]
        said["ptx"] = "kernel.ptx"
    expect = job.expect
    if reference is not None:
        expect = _expected(reference, {a.name: a.value for a in job.named()}, tolerance)
    elif expect is not None and tolerance:
        expect.tolerance = tolerance
    arrays = job.arrays()
    if expect is not None:
        check_expectation(expect, {**{v.name: v.value for v in job.variables}, **arrays})
    said["outputs"] = list(expect.arrays) if expect is not None else job.outputs()
    return _finish(said, arrays, expect, limits, where, seconds)


class _Case:
    """A kernel that the caller described by arguments of `judge`, which have the names of its fields."""

    def __init__(
        self, candidate: Any, args: Any, entry: str | None, grid: Any, block: Any, shared: int, nvcc: str, draw: int | None
    ) -> None:
        self.args, self.entry, self.grid, self.block, self.shared, self.nvcc = args, entry, grid, block, shared, nvcc
        self.draw = secrets.randbits(32) if draw is None and callable(args) else draw
        if hasattr(candidate, "module"):  # a Kernel
            self.entry = self.entry or candidate.name
            candidate = candidate.module.source.text
        self.candidate = candidate

    def made(self, seed: int | None) -> dict[str, Any]:
        """The arguments. seed: of a function that makes them."""
        made = self.args(seed) if callable(self.args) else self.args
        if not isinstance(made, Mapping):
            raise LaunchError(f"args is a {type(made).__name__}, not a dictionary of arguments by name, in order")
        return {n: np.ascontiguousarray(a) if hasattr(a, "__array__") and not np.isscalar(a) else a for n, a in made.items()}

    def verdict(
        self, reference: Reference | None, tolerance: Tolerance, said: dict[str, Any], limits: Limits, where: Path
    ) -> Verdict:
        """The verdict; parameters as of `_launch_file`."""
        is_text = isinstance(self.candidate, str) and "\n" in self.candidate
        path = Path(os.devnull) if is_text else Path(self.candidate).absolute()
        shapes = self.made(0) if callable(self.args) else self.made(None)
        triton = path.suffix == ".py"
        compiled: Any = {"seconds": {}}
        if is_text:
            (where / "kernel.ptx").write_text(self.candidate)
        elif path.suffix in _SOURCES:
            wish = {"source": str(path), "entry": self.entry, "device": said["device"] or "sm_90", "nvcc": self.nvcc,
                    "args": [_described(name, value) for name, value in shapes.items()]}  # fmt: skip
            compiled = _compile(wish, limits, where)
            if isinstance(compiled, Verdict):
                return compiled
        given = self.made(self.draw)  # after the compilation
        grid = self.grid(given) if callable(self.grid) else self.grid
        said |= {
            "ptx": "kernel.ptx" if is_text or path.suffix in _SOURCES else str(path), "entry": self.entry,
            "grid": grid, "block": self.block, "shared": self.shared, "args": [],
        }  # fmt: skip
        names = list(given)
        if triton:
            said |= {key: compiled[key] for key in ("entry", "shared", "cooperative")} | {"block": compiled["threads"]}
            extents = [grid] if isinstance(grid, int) else [*grid]
            blocks = int(np.prod(extents))
            if (size := int(np.prod(compiled["cluster"]))) > 1:
                said |= {"cluster": compiled["cluster"], "grid": [extents[0] * size, *extents[1:]]}
            names = compiled["params"]
        elif self.block is None:
            raise LaunchError("a kernel needs block=, the threads of a block")
        said["args"] = [_stored(name, given[name], n, where) for n, name in enumerate(names)]
        if triton:
            said["args"] += [{"name": f"scratch{n}", **({"scratch": blocks * size} if size else {"value": None})}
                             for n, size in enumerate(compiled["scratch"])]  # fmt: skip
        arrays = {name: given[name] for name in names if isinstance(given[name], np.ndarray)}
        expect = None
        if reference is not None:
            expect = _expected(reference, given, tolerance)
            check_expectation(expect, arrays)
        said["outputs"] = list(expect.arrays) if expect is not None else []
        found = _finish(said, arrays, expect, limits, where, compiled["seconds"])
        return replace(found, drawn=self.draw)


def _described(name: str, value: Any) -> dict[str, Any]:
    """An argument without its elements."""
    if isinstance(value, np.ndarray):
        return {"name": name, "type": value.dtype.name, "shape": list(value.shape)}
    return {"name": name, "value": value}


def _stored(name: str, value: Any, number: int, where: Path) -> dict[str, Any]:
    """An argument whose elements are in a file of the folder."""
    said = _described(name, value)
    if isinstance(value, np.ndarray):
        said["array"] = f"arg{number}.npy"
        np.save(where / said["array"], np.frombuffer(value.tobytes(), np.uint8))
    elif value is not None and not isinstance(value, int | float):
        raise LaunchError(f"argument {name} is a {type(value).__name__}, not an array or a number", hint="or write a launch file")
    return said


def _expected(reference: Reference, given: Arguments, tolerance: Tolerance) -> Expectation:
    """The expected outputs."""
    if callable(reference):
        copies = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in given.items()}
        reference = reference(**copies)
    if isinstance(reference, str | Path):
        return read_expectation(Path(reference), tolerance)
    if not isinstance(reference, Mapping) or not reference:
        raise LaunchError("the reference has no outputs: it is a dictionary of arrays by the names of arguments")
    arrays = {name: np.asarray(a) for name, a in reference.items()}
    cast = {n: a.astype(given[n].dtype) if n in given and a.dtype.kind == "f" and tolerance else a for n, a in arrays.items()}
    return Expectation(cast, tolerance)


def _compile(wish: dict[str, Any], limits: Limits, where: Path) -> dict[str, Any] | Verdict:
    """The answer of the compiling child, or the verdict where there is none."""
    (where / "source.json").write_text(json.dumps(wish))
    ended = run(python("compile_source", where), limits, where)
    blank = Verdict(VerdictKind.REFUSED, "", seconds={"compile": ended.seconds}, output=ended.told)
    try:
        made: dict[str, Any] = json.loads((where / "compiled.json").read_text())
    except (OSError, ValueError):
        return _limited(blank, ended, limits) or replace(
            blank, outcome=VerdictKind.CRASHED, message=_silent("the compiler", ended)
        )
    if "message" in made:
        return replace(blank, message=made["message"])
    return made | {"seconds": {"compile": ended.seconds}}


def _finish(
    said: dict[str, Any], arrays: Mapping[str, np.ndarray], expect: Expectation | None, limits: Limits, where: Path,
    seconds: Mapping[str, float],
) -> Verdict:  # fmt: skip
    """Run the child and compare what it leaves.

    said: what the child is told.
    arrays: the arrays of the arguments by name, for shapes and types.
    expect: the reference; None: nothing is compared.
    limits: of time and memory.
    where: the folder of the child.
    seconds: of the compilation.
    """
    for name in said["inout"]:
        if name not in said["outputs"]:
            hint = "outputs: " + (", ".join(said["outputs"]) or "none")
            raise LaunchError(f"inout names {name}, which is no output", hint=hint)
    (where / "job.json").write_text(json.dumps(said))
    ended = run(python("run_kernel", where), limits, where)
    verdict = Verdict(
        VerdictKind.RIGHT, "", seeds=tuple(said["seeds"]), seconds={**seconds, "run": ended.seconds}, output=ended.told
    )
    try:
        answer = json.loads((where / "answer.json").read_text())
    except (OSError, ValueError):
        return _limited(verdict, ended, limits) or replace(
            verdict, outcome=VerdictKind.CRASHED, message=_silent("the run", ended)
        )
    verdict = replace(
        verdict, device=answer.get("device", ""), findings=tuple(answer.get("findings", ())), report=answer.get("report", {})
    )
    if "error" in answer:
        return replace(verdict, outcome=VerdictKind(answer["error"]), message=answer["message"])
    return _compared(verdict, answer, said, arrays, expect, where)


def _compared(
    verdict: Verdict, answer: Mapping[str, Any], said: Mapping[str, Any], arrays: Mapping[str, np.ndarray],
    expect: Expectation | None, where: Path,
) -> Verdict:  # fmt: skip
    runs = []
    for run_number, _ in enumerate(said["seeds"]):
        with np.load(where / f"seed{run_number}.npz", allow_pickle=False) as kept:
            runs.append({n: kept[n].view(arrays[n].dtype).reshape(arrays[n].shape) for n in said["outputs"]})
    found: list[JudgedOutput] = []
    expect = expect or Expectation({})
    for name, want in expect.arrays.items():
        each = [_row(compare(name, got[name], want, expect.tolerance), seed) for got, seed in zip(runs, said["seeds"])]
        found.append(max(each, key=lambda c: (not c.ok, c.beyond, c.wrong)))
    verdict = replace(verdict, outputs=tuple(found))
    wrong = [c for c in found if not c.ok]
    if wrong:
        names = ", ".join(c.name for c in wrong)
        hint = "; if the kernel adds to what is there, name it in inout" if _untouched(wrong, runs) else ""
        message = f"{names} {'differs' if len(wrong) == 1 else 'differ'} from the reference{hint}"
        return replace(verdict, outcome=VerdictKind.WRONG, message=message)
    errors = [f for f in verdict.findings if f["severity"] == "error"]
    if errors:
        return _undefined(verdict, errors)
    certificate = verdict.report.get("certificate", {})
    if certificate.get("verdict") == "counterexample":
        return _contradicted(verdict, [certificate])
    moved = [n for n in said["outputs"] if any(r[n].tobytes() != runs[0][n].tobytes() for r in runs)]
    if moved and not expect.tolerance:
        return replace(verdict, outcome=VerdictKind.UNSTABLE, message=f"{', '.join(moved)}: other bits under another seed")
    notes = tuple(f"it writes to {name}, which is no output" for name in answer.get("changed", ()))
    if moved:
        notes += (f"{', '.join(moved)}: other bits under another seed, within the tolerance",)
    what = "outputs are equal to the reference" if found else "it ran to its end; no reference was given"
    what += f"; certificate: {certificate['verdict']}" if certificate else ""
    return replace(verdict, message=what, notes=notes)


def _untouched(wrong: Sequence[JudgedOutput], runs: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """Whether a wrong element is NaN, as outputs are before the first run."""
    return any(
        c.first is not None and runs[0][c.name].dtype.kind not in "iu" and bool(np.isnan(runs[0][c.name][c.first].astype(float)))
        for c in wrong
    )


def _row(c: Comparison, seed: int) -> JudgedOutput:
    return JudgedOutput(c.name, seed, c.size, c.wrong, c.beyond, c.first, c.got, c.want, None if c.specials else c.most, c.ok)


def _undefined(verdict: Verdict, errors: Sequence[Mapping[str, Any]]) -> Verdict:
    rules = ", ".join(dict.fromkeys(str(f["rule"]) for f in errors))
    return replace(verdict, outcome=VerdictKind.UNDEFINED, message=f"undefined behaviour: {rules}")


def _silent(who: str, ended: ChildEnd) -> str:
    """A sentence about a child that left no answer, with the last line that it printed."""
    last = ended.told.strip().rpartition("\n")[2][:200]
    return f"{who} ended without an answer, with code {ended.code}" + (f": {last}" if last else "")


def _limited(verdict: Verdict, ended: ChildEnd, limits: Limits) -> Verdict | None:
    """The verdict on what reached a limit; None if nothing did."""
    if not ended.limit:
        return None
    what = f"{limits.seconds:g} s" if ended.limit == "timeout" else f"{limits.bytes / (1 << 20):,.0f} MiB of memory"
    return replace(verdict, outcome=VerdictKind(ended.limit), message=f"it was ended at the limit of {what}")

