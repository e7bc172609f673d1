"""The judge: a kernel or a program comes in, with a reference that it never sees; one verdict leaves.

A source is compiled in one process, its PTX runs in another, which has the arguments and nothing else; each inside a fence and
with a folder of its own (child.py). Outputs are compared here. A whole program does what it likes, so its verdict rests on its
own word, and says so.
"""

import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mmulator.base.errors import LaunchError
from mmulator.evaluation.judging import handover
from mmulator.evaluation.judging.child import ChildEnd, Limits, function, python, run
from mmulator.evaluation.judging.children import filling
from mmulator.evaluation.judging.mutation import rated
from mmulator.evaluation.judging.strictness import narrowed, passes_without_work
from mmulator.evaluation.judging.verdict import JudgedOutput, Verdict, VerdictKind
from mmulator.host.jobs.comparison import Comparison, Expectation, Tolerance, check_expectation, compare
from mmulator.host.jobs.job import load_job, read_expectation, tolerance_of
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
    certify: bool = False, bounds: bool = False, mutate: float = 0.0,
) -> Verdict:  # fmt: skip
    """One verdict on a kernel or a program, from a child process within limits of time and memory.

    candidate: a kernel: a launch file (.toml), PTX as path or text, a .cu or another file with PTX, a .py with a kernel of
        Triton (`entry` names it). Or a program: a path without `entry` and `grid`, or its command line as a list.
    args: the arguments by name, in order: arrays, numbers, of Triton also constants and num_warps; or a function of a seed that
        makes them, called after the kernel has been compiled, with a seed that nobody knew before.
    reference: the expected outputs by name, a .npz of them, or a function of the arguments that computes them: it is called here
        with arg=value, after the kernel has been compiled, and for other inputs. The arrays that it has are the outputs.
    entry: the kernel, where the candidate has several.
    grid, block: blocks of the grid, threads of a block; of Triton the grid may be a function of the arguments.
    shared: dynamic shared memory, bytes.
    cluster, cooperative: as of Kernel.launch.
    device: whose arithmetic is used.
    kernel: PTX or a source in place of the one that a launch file names.
    nvcc: flags, for a .cu.
    inout: outputs whose contents before the launch the kernel uses; all others are filled with random bytes.
    seeds: of the scheduler, under how many it runs.
    sanitize: undefined behaviour is looked for, in every run.
    profile: what each line did is in the verdict's report.
    rtol, atol, ulp: what passes besides equal bits: |got - want| <= atol + rtol |want|, or steps of the type.
    draw: the seed of a function `args`; None: one is drawn.
    threads: of the host.
    limits: of compilation, and again of the run.
    certify: includes `sanitize`; the report has a certificate for every schedule, and a counterexample counts as undefined.
    bounds: the verdict says which tolerance rounding justifies (mm.tolerance), and how many elements are beyond it.
    mutate: seconds in which a right kernel is changed as people err, and each change is judged; 0: it is not.

    Raises LaunchError for a question that makes no sense; whatever the candidate does is in the verdict.
    """
    limits = limits or Limits()
    if not isinstance(seeds, int) or seeds < 1:
        raise LaunchError(f"seeds is {seeds!r}, not a number of runs")
    program = _program(candidate, grid, entry)
    if program is not None:
        return _judge_program(program, device, sanitize, certify, limits)
    said: dict[str, Any] = {
        "seeds": list(range(seeds)), "sanitize": sanitize or certify, "profile": profile, "inout": list(inout),
        "threads": threads, "device": None if device is None else as_device(device), "cluster": cluster,
        "cooperative": cooperative, "certify": certify, "mutate": mutate, "bounds": bounds,
    }  # fmt: skip
    tolerance = tolerance_of({"rtol": rtol, "atol": atol, "ulp": ulp}, "judge:")
    if isinstance(candidate, str | Path) and str(candidate).endswith(".toml"):
        return _launch_file(Path(candidate), kernel, reference, tolerance, said, limits, nvcc)
    if args is None or grid is None:
        raise LaunchError("a kernel needs grid= and args=", hint="or a launch file; a list of words is a program")
    return _Case(candidate, args, entry, grid, block, shared, nvcc, draw).verdict(reference, tolerance, said, limits)


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
    with _room() as where, _answer(where) as file:
        # standard output of exec is its report alone; the program's own goes to standard error
        call = "from mmulator.evaluation.judging.children import answer_to; answer_to(); from mmulator.cli import main; main()"
        command = python(call, file.fileno(), "exec", *options, *words)
        ended = run(command, limits, where, file, layer=str(Path.cwd()))
        said = handover.program(file)
    notes = ("a program compares its own results: this verdict rests on its word",)
    verdict = Verdict(
        VerdictKind.RIGHT, "", "program", as_device(device) if device else "", findings=tuple(said.get("findings", ())),
        report={"kernels": []} | {key: said[key] for key in ("kernels", "certificates") if key in said},
        seconds={"run": ended.seconds}, output=ended.told,
        notes=notes if looks else (*notes, _NOT_LOOKED_AT), not_enforced=ended.missing,
    )  # fmt: skip
    fine = f"the program ended with exit code 0{_counted(verdict.findings, sanitize or certify)}"
    return _limited(verdict, ended, limits) or _of_program(replace(verdict, message=fine), said, ended)


_NOT_LOOKED_AT = "the sanitizer was off: undefined behaviour was not looked for"


def _counted(findings: Sequence[Mapping[str, Any]], sanitize: bool) -> str:
    """The words of a message about the sanitizer's findings, of which none is an error."""
    if not findings:
        return ", and the sanitizer found nothing" if sanitize else ""
    kinds = [f"{sum(f['severity'] == kind for f in findings)} of severity {kind}" for kind in dict.fromkeys(
        f["severity"] for f in findings)]  # fmt: skip
    rules = ", ".join(dict.fromkeys(f["rule"] for f in findings))
    return f"; findings of the sanitizer: {', '.join(kinds)} ({rules})"


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
    if not errors and not said["kernels"]:
        verdict = replace(verdict, message="the program ended with exit code 0; no launch of it was seen: nothing was looked at")
    if (certificates := said.get("certificates")) is not None:
        verdict = replace(verdict, message=f"{verdict.message}; certificate: {certificates['verdict']}")
    return _undefined(verdict, errors) if errors else verdict


def _contradicted(verdict: Verdict, rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict where a launch has a counterexample."""
    first = next((row for row in rows if row["verdict"] == "counterexample"), None)
    why = first["reasons"][0]["why"] if first and first["reasons"] else "another schedule does something else"
    return replace(verdict, outcome=VerdictKind.UNDEFINED, message=f"counterexample: {why}")


@contextmanager
def _room() -> Iterator[Path]:
    """A new folder for one child."""
    with tempfile.TemporaryDirectory(prefix="mmulator-judge-", ignore_cleanup_errors=True) as made:
        yield Path(made)


def _answer(where: Path) -> BinaryIO:
    """A new file for what a child hands over."""
    return (where / "answer").open("x+b")


# kernels --------------------------------------------------------------------------------------------------------------
def _launch_file(
    path: Path, kernel: str | Path | None, reference: Reference | None, tolerance: Tolerance, said: dict[str, Any],
    limits: Limits, nvcc: str,
) -> Verdict:  # fmt: skip
    """The verdict on a launch that a file describes.

    path: the launch file.
    kernel: PTX or a source in place of the file's.
    reference: in place of the file's.
    tolerance: in place of the file's, if it allows anything.
    said: what the child is told.
    limits: of time and memory.
    nvcc: flags.
    """
    job = load_job(path)
    ptx = Path(kernel) if kernel is not None else job.ptx
    said |= {"launch": str(path.absolute()), "ptx": str(ptx.absolute())}
    made: dict[str, Any] = {}
    if ptx.suffix in _SOURCES:
        if ptx.suffix == ".py":
            raise LaunchError("a kernel of Triton has no launch file: give grid= and args=")
        hidden = [path, *handover.files_named(path), *([Path(reference)] if isinstance(reference, str | Path) else [])]
        wish = {"source": str(ptx.absolute()), "entry": job.entry, "device": said["device"] or job.device, "nvcc": nvcc}
        compiled = _compile(wish, {}, limits, [name.absolute() for name in hidden if name.is_file() and name != ptx])
        if isinstance(compiled, Verdict):
            return compiled
        made = compiled
    expect = job.expect
    named = {a.name: a.value for a in job.named()}
    if reference is not None:
        expect = _expected(reference, named, tolerance)
    elif expect is not None and tolerance:
        expect.tolerance = tolerance
    arrays = {**{v.name: v.value for v in job.variables if isinstance(v.value, np.ndarray)}, **job.arrays()}
    if expect is not None:
        check_expectation(expect, arrays)
    said["outputs"] = list(expect.arrays) if expect is not None else job.outputs()
    return _finish(said, made, arrays, expect, limits)


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

    def verdict(self, reference: Reference | None, tolerance: Tolerance, said: dict[str, Any], limits: Limits) -> Verdict:
        """The verdict; parameters as of `_launch_file`."""
        is_text = isinstance(self.candidate, str) and "\n" in self.candidate
        path = Path(os.devnull) if is_text else Path(self.candidate).absolute()
        shapes = self.made(0) if callable(self.args) else self.made(None)
        triton = path.suffix == ".py"
        made: dict[str, Any] = {"ptx": self.candidate} if is_text else {}
        if path.suffix in _SOURCES:
            wish = {"source": str(path), "entry": self.entry, "device": said["device"] or "sm_90", "nvcc": self.nvcc,
                    "args": [_described(name, value) for name, value in shapes.items()]}  # fmt: skip
            hidden = [Path(reference).absolute()] if isinstance(reference, str | Path) and Path(reference).is_file() else []
            compiled = _compile(wish, shapes, limits, hidden)
            if isinstance(compiled, Verdict):
                return replace(compiled, drawn=self.draw)
            made = compiled
        given = self.made(self.draw)  # after the compilation
        grid = self.grid(given) if callable(self.grid) else self.grid
        said |= {"ptx": str(path), "entry": self.entry, "grid": grid, "block": self.block, "shared": self.shared}
        names = list(given)
        if triton:
            _check_alike(shapes, given, made["params"])
            said |= {key: made[key] for key in ("entry", "shared", "cooperative")} | {"block": made["threads"]}
            extents = [grid] if isinstance(grid, int) else [*grid]
            blocks = int(np.prod(extents))
            if (size := int(np.prod(made["cluster"]))) > 1:
                said |= {"cluster": made["cluster"], "grid": [extents[0] * size, *extents[1:]]}
            names = made["params"]
        elif self.block is None:
            raise LaunchError("a kernel needs block=, the threads of a block")
        said["args"] = [_described(name, given[name]) for name in names]
        if triton:
            said["args"] += [{"name": f"scratch{n}", **({"scratch": blocks * size} if size else {"value": None})}
                             for n, size in enumerate(made["scratch"])]  # fmt: skip
        arrays = {name: given[name] for name in names if isinstance(given[name], np.ndarray)}
        expect = None
        if reference is not None:
            expect = _expected(reference, given, tolerance)
            check_expectation(expect, arrays)
        said["outputs"] = list(expect.arrays) if expect is not None else []

        def other() -> Mapping[str, Any] | None:
            """The reference for inputs of another seed."""
            if not callable(self.args) or not callable(reference):
                return None
            return _expected(reference, self.made(1 + (self.draw or 0)), tolerance).arrays

        return replace(_finish(said, made, arrays, expect, limits, other), drawn=self.draw)


def _described(name: str, value: Any) -> dict[str, Any]:
    """An argument without its elements."""
    if isinstance(value, np.ndarray):
        return {"name": name, "type": value.dtype.name, "shape": list(value.shape)}
    return {"name": name, "value": value}


def _check_alike(told: Arguments, given: Arguments, params: Sequence[str]) -> None:
    """Check that a kernel of Triton was compiled for arguments like those that it gets, of another seed. Raises LaunchError.

    told: what it was compiled for. given: what it gets. params: those that are no constants.
    """

    def kind(name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.dtype.name
        if name in params and isinstance(value, int) and not isinstance(value, bool):  # Triton looks at no more of it
            return value == 1, value % 16 == 0, -(1 << 31) <= value < 1 << 31, value < 1 << 63
        return type(value).__name__ if name in params else value

    for name in dict.fromkeys((*told, *given)):
        if name not in told or name not in given or kind(name, told[name]) != kind(name, given[name]):
            raise LaunchError(
                f"args makes {name} of another kind for another seed, and a kernel of Triton is compiled for one kind",
                hint="the same types and constants for each seed; integers all 1, all multiples of 16, or none of both",
            )


def _store(said: dict[str, Any], arrays: Mapping[str, np.ndarray], where: Path) -> None:
    """Write the elements of arguments to files of a child's folder."""
    for number, item in enumerate(said.get("args", ())):
        if "shape" in item:
            item["array"] = f"arg{number}.npy"
            np.save(where / item["array"], np.frombuffer(arrays[item["name"]].tobytes(), np.uint8))
        elif not isinstance(item.get("value"), int | float | None):
            kind = type(item["value"]).__name__
            raise LaunchError(f"argument {item['name']} is a {kind}, not an array or a number", hint="or write a launch file")


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


def _compile(wish: dict[str, Any], names: Arguments, limits: Limits, hidden: Sequence[Path]) -> dict[str, Any] | Verdict:
    """The kernel that the compiling child hands over, or the verdict where there is none.

    wish: what to compile.
    names: the arguments by name.
    limits: of time and memory.
    hidden: files that the source must not read.
    """
    with _room() as where, _answer(where) as file:
        (where / "source.json").write_text(json.dumps(wish))
        ended = run(function("compile_source", where, file.fileno()), limits, where, file, hidden=hidden)
        made = None if ended.limit else handover.compiled(file, wish["source"].endswith(".py"), names)
    blank = Verdict(VerdictKind.REFUSED, "", seconds={"compile": ended.seconds}, output=ended.told, not_enforced=ended.missing)
    if made is None:
        crashed = replace(blank, outcome=VerdictKind.CRASHED, message=_silent("the compiler", ended))
        return _limited(blank, ended, limits) or crashed
    if "message" in made:
        return replace(blank, message=made["message"])
    return made | {"seconds": {"compile": ended.seconds}, "missing": ended.missing}


def _finish(
    said: dict[str, Any], made: Mapping[str, Any], arrays: Mapping[str, np.ndarray], expect: Expectation | None, limits: Limits,
    other: Callable[[], Mapping[str, Any] | None] = lambda: None,
) -> Verdict:  # fmt: skip
    """Run the child and compare what it leaves.

    said: what the child is told.
    made: the kernel that was compiled, or came as text; empty for a file with PTX.
    arrays: the arrays of the arguments by name.
    expect: the reference; None: nothing is compared.
    limits: of time and memory.
    other: the reference for other inputs.
    """
    for name in said["inout"]:
        if name not in said["outputs"]:
            hint = "outputs: " + (", ".join(said["outputs"]) or "none")
            raise LaunchError(f"inout names {name}, which is no output", hint=hint)
    said["fill"] = secrets.randbits(128)
    size = sum(arrays[name].nbytes for name in said["outputs"]) * len(said["seeds"])
    with _room() as where, _answer(where) as file:
        if "ptx" in made:
            said["ptx"] = "kernel.ptx"
            (where / "kernel.ptx").write_text(made["ptx"])
        _store(said, arrays, where)
        (where / "job.json").write_text(json.dumps(said))
        child = function("run_kernel", where, file.fileno())
        ended = run(child, limits, where, file, trusted=True, most=size + (1 << 30))
        found = None if ended.limit else handover.answered(file, arrays, said["outputs"], len(said["seeds"]))
    missing = dict.fromkeys((*made.get("missing", ()), *ended.missing))
    verdict = Verdict(
        VerdictKind.RIGHT, "", seeds=tuple(said["seeds"]), seconds={**made.get("seconds", {}), "run": ended.seconds},
        output=ended.told, not_enforced=tuple(missing) if made.get("missing") is not None else (),
    )  # fmt: skip
    if found is None:
        crashed = replace(verdict, outcome=VerdictKind.CRASHED, message=_silent("the run", ended))
        return _limited(verdict, ended, limits) or crashed
    answer, runs = found
    verdict = replace(
        verdict, device=answer.get("device", ""), findings=tuple(answer.get("findings", ())), report=answer.get("report", {})
    )
    if "error" in answer:
        return replace(verdict, outcome=VerdictKind(answer["error"]), message=answer["message"])
    verdict = replace(verdict, bounds=_bounded(handover.bounds(answer.get("bounds"), said["outputs"]), expect, runs[0]))
    verdict = _compared(verdict, answer, said, arrays, expect, runs, other)
    if verdict.ok and said["mutate"]:
        again = {**said, "mutate": 0, "bounds": False, "seeds": said["seeds"][:1], "profile": False}
        mutants = rated(verdict, lambda one: _finish(again | one, made, arrays, expect, limits), said["mutate"])
        verdict = replace(verdict, mutants=mutants)
    return verdict


def _bounded(found: Mapping[str, dict[str, Any]], expect: Any, run: Mapping[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Tolerances that rounding justifies, with how many elements are farther than that from the reference."""
    for name, row in found.items():
        want = expect.arrays.get(name) if expect is not None else None
        if want is not None and row["rtol"] is not None and row["atol"] is not None:
            row["beyond"] = compare(name, run[name], want, Tolerance(relative=row["rtol"], absolute=row["atol"])).beyond
    return dict(found)


def _compared(
    verdict: Verdict, answer: Mapping[str, Any], said: Mapping[str, Any], arrays: Mapping[str, np.ndarray],
    expect: Expectation | None, runs: Sequence[Mapping[str, np.ndarray]], other: Callable[[], Mapping[str, Any] | None],
) -> Verdict:  # fmt: skip
    """The verdict on outputs. runs: the outputs of each; other parameters as of `_finish`."""
    found: list[JudgedOutput] = []
    expect = expect or Expectation({})
    for name, want in expect.arrays.items():
        each = [_row(compare(name, got[name], want, expect.tolerance), seed) for got, seed in zip(runs, said["seeds"])]
        worst = max(each, key=lambda c: (not c.ok, c.beyond, c.wrong))
        found.append(replace(worst, stored=_stored(worst, said, runs)))
    verdict = replace(verdict, outputs=tuple(found))
    wrong = [c for c in found if not c.ok]
    if wrong:
        names = ", ".join(c.name for c in wrong)
        leans = any(len({r[c.name][c.first].tobytes() for r in runs}) > 1 for c in wrong if c.first is not None)
        hint = "; if the kernel adds to what is there, name it in inout" if leans else ""
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
    inputs = [name for name in arrays if name not in said["outputs"] or name in said["inout"]]
    idle = passes_without_work(expect, arrays, inputs, other)
    told = [f"the reference of {name} accepts {what}" for name, what in idle.items()]
    if idle and len(idle) == len(expect.arrays):
        message = f"{'; '.join(told)}: a kernel that reads nothing passes"
        return replace(verdict, outcome=VerdictKind.VACUOUS, message=message)
    narrow = [narrowed(name, runs[0][name], want) for name, want in expect.arrays.items() if expect.tolerance]
    if any(narrow):
        return replace(verdict, outcome=VerdictKind.WRONG, message="; ".join(filter(None, narrow)))
    notes = tuple(f"it writes to {name}, which is no output" for name in answer.get("changed", ()))
    notes += tuple(told) if said["sanitize"] else (*told, _NOT_LOOKED_AT)
    if moved:
        notes += (f"{', '.join(moved)}: other bits under another seed, within the tolerance",)
    what = "outputs are equal to the reference" if found else "it ran to its end; no reference was given"
    if any(c.wrong for c in found):
        what = "outputs are within the tolerance of the reference"
    what += f"; certificate: {certificate['verdict']}" if certificate else ""
    return replace(verdict, message=what + (_counted(verdict.findings, True) if verdict.findings else ""), notes=notes)


def _stored(c: JudgedOutput, said: Mapping[str, Any], runs: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """Whether the kernel stored to the first wrong element: in some run it does not hold what was there before."""
    if c.first is None or c.name in said["inout"]:
        return True
    number, like = said["outputs"].index(c.name), runs[0][c.name]
    before = (filling(said["fill"], n, number, like.nbytes).view(like.dtype).reshape(like.shape) for n in range(len(runs)))
    return any(r[c.name][c.first].tobytes() != b[c.first].tobytes() for r, b in zip(runs, before))


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
