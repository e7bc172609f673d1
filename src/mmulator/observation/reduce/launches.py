"""From a launch to a smaller one in a folder: which failure is meant, the search, and the files that fail in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mmulator.base.errors import LaunchError, MmulatorError, NotFinite
from mmulator.base.names import choose
from mmulator.host.jobs.comparison import Expectation
from mmulator.host.jobs.job import Job, load_job, run_job
from mmulator.host.jobs.judgement import SanitizerOptions
from mmulator.observation.record.launches.capture import LAUNCH
from mmulator.observation.reduce.failure import (
    Arrays,
    FailureTrial,
    LaunchFailure,
    TrialQuestion,
    fresh,
    is_no_failure,
    outcome,
    unwritten,
)
from mmulator.observation.reduce.files import plain, write_launch
from mmulator.observation.reduce.program import KernelLines, lines_of
from mmulator.observation.reduce.search import Reduction
from mmulator.ptx.parser import parse_module
from mmulator.ptx.text import read_source
from mmulator.ptx.verify import verify

_EVERY = 1.0  # seconds between two writings of the smallest launch so far
NOTHING = "the launch does not fail"
_NEXT = "it may under another --seed, or in another way: --nan, --against reference, a DEVICE or another kernel"


@dataclass(frozen=True)
class ReductionRequest:
    """A launch that is to become smaller.

    job: the launch.
    to: the folder for what is found.
    rules: of the sanitizer, which are looked for.
    asked: whether findings of these alone are meant.
    nan: as in Kernel.launch; a NaN alone is meant.
    reference: whether a difference from what the launch file expects is meant.
    other, name: gives the arrays with which those of the launch are compared, as in `TrialQuestion`; whose they are.
    seconds: after which the search ends.
    """

    job: Job
    to: Path
    rules: frozenset[str]
    asked: bool = False
    nan: str = ""
    reference: bool = False
    other: Callable[[Job, str], Arrays] | None = None
    name: str = ""
    seconds: float = float("inf")


@dataclass(frozen=True)
class ReducedLaunch:
    """The outcome of a search: how the small launch fails, and how small it is.

    failure: how it fails.
    before, after: sizes, by what they are of.
    options: with which `mmulator run` shows the failure.
    again: whether the launch in the files fails in the same way.
    tries: launches that were tried.
    whole: whether the search came to its end.
    """

    failure: str
    rule: str
    instruction: str
    options: tuple[str, ...]
    again: bool
    before: dict[str, int | str] = field(default_factory=dict)
    after: dict[str, int | str] = field(default_factory=dict)
    tries: int = 0
    whole: bool = True


def sizes(job: Job, lines: KernelLines) -> dict[str, int | str]:
    """The size of a launch, by what it is of."""
    text = lines.text()
    arrays = [a.value for a in job.named() if isinstance(a.value, np.ndarray)]
    grid, block = ("x".join(map(str, [n] if isinstance(n, int) else n)) for n in (job.grid, job.block))
    return {"instructions": lines.instructions, "lines": text.count("\n"), "bytes": len(text), "grid": grid, "block": block,
            "arrays": len(arrays), "bytes of arrays": sum(a.nbytes for a in arrays)}  # fmt: skip


def _meant(wanted: ReductionRequest, text: str) -> tuple[LaunchFailure, TrialQuestion, float]:
    """The failure that is meant, how it is seen, and the seconds that this takes. Raises LaunchError if there is none."""
    job, begun = wanted.job, time.monotonic()
    if wanted.other is not None:
        found, result = outcome(replace(job, expect=None), text, ask := TrialQuestion(other=wanted.other), None)
        found = [f for f in found if f.kind != "value"]
    else:
        found, result = outcome(job, text, ask := TrialQuestion(nan=wanted.nan), None)
        wrong = [f for f in found if f.kind == "value"]
        if not (wanted.reference or wanted.nan) and (wanted.asked or len(wrong) == len(found)):
            begun = time.monotonic()
            ask = TrialQuestion(SanitizerOptions(rules=wanted.rules))
            found, result = outcome(replace(job, expect=None), text, ask, None)
            found = [f for f in found if f.kind == "finding"] if wanted.asked else found
            found.sort(key=lambda f: f.kind == "finding" and not f.words.startswith("error"))
            if wrong and not (found and found[0].words.startswith("error")):
                found, ask = wrong, TrialQuestion()
    if wanted.nan and not isinstance(result, NotFinite):
        hint = f"it fails in another way: {found[0]}; without --nan this is made small" if found else ""
        raise LaunchError("the launch stores no NaN that it makes", hint=hint)
    if not found:
        raise LaunchError(NOTHING if not wanted.asked else f"{NOTHING} by these rules", hint=_NEXT)
    if said := is_no_failure(found[0], result):
        raise LaunchError(said)
    target = found[0]
    if target.kind == "value":
        target, ask = _of_value(replace(job, expect=None), text, target)
    return target, ask, time.monotonic() - begun


def _of_value(job: Job, text: str, target: LaunchFailure) -> tuple[LaunchFailure, TrialQuestion]:
    """The failure behind a wrong value: the instruction that makes a NaN, where it is one; else its bits."""
    array = np.frombuffer(target.bits, job.arrays()[target.name].dtype) if target.name in job.arrays() else np.zeros(1)
    if array.dtype.kind not in "iub" and np.isnan(array.astype(np.float64)).any():
        found, result = outcome(job, text, ask := TrialQuestion(nan="nan"), None)
        if isinstance(result, NotFinite):
            return found[0], ask
    return target, TrialQuestion(element=(target.name, target.at))


def reduced(wanted: ReductionRequest, smaller: Callable[[Reduction], None] = lambda _: None) -> ReducedLaunch:
    """Make a launch smaller, and write it. smaller: as in `Reduction`.

    Raises LaunchError for a launch that does not fail, PtxSyntaxError for what is no PTX, KeyboardInterrupt for Ctrl-C before
    anything smaller was found.
    """
    begun, job = time.monotonic(), wanted.job
    tree = parse_module(read_source(job.ptx, None, job.device, job.entry, job.nvcc.split()))
    names = [f.name for f in tree.entries]
    if job.entry is None and len(names) != 1:
        raise LaunchError(f"{job.ptx} has {len(names)} kernels: say which", hint="kernels: " + ", ".join(names))
    entry = choose(names, job.entry, f"{job.ptx} has no kernel") if job.entry else names[0]
    wanted = replace(wanted, job=plain(job, tree.source.text))
    target, ask, seconds = _meant(wanted, tree.source.text)
    verified = not verify(tree)
    lines = lines_of(tree, entry, verified)
    job = _stored(replace(wanted.job, expect=None, suppress=[], entry=entry), target)
    trial = FailureTrial(target, ask, seconds, unwritten(tree) if verified else None)
    failure = trial(job, lines)
    if failure is None:
        raise MmulatorError("written anew, the launch fails in another way: it cannot be made small")
    before, written = sizes(job, lines), [begun]

    def found(r: Reduction) -> None:
        if time.monotonic() - written[0] > _EVERY:
            _write(wanted, r, target, ask)
            written[0] = time.monotonic()
        smaller(r)

    search = Reduction(job, lines, trial, failure, found, begun + wanted.seconds)
    search()
    if not search.whole and not search.taken and time.monotonic() < search.until:
        raise KeyboardInterrupt
    options = _write(wanted, search, target, ask)
    again = trial(load_job(wanted.to / LAUNCH, expecting=False), search.lines) is not None
    return ReducedLaunch(
        str(search.failure), target.name if target.kind == "finding" else "", target.instruction, options, again, before,
        sizes(search.job, search.lines), trial.tries, search.whole,
    )  # fmt: skip


def _stored(job: Job, target: LaunchFailure) -> Job:
    """The launch with another value where it stores a wrong one that was there before."""
    for n, a in enumerate(job.arguments):
        wrong = target.kind == "value" and a.name == target.name and isinstance(a.value, np.ndarray)
        if wrong and a.value.reshape(-1)[target.at].tobytes() == target.bits:
            value = a.value.copy()
            value.reshape(-1)[target.at] = 1
            return replace(job, arguments=[*job.arguments[:n], replace(a, value=value), *job.arguments[n + 1 :]])
    return job


def _write(wanted: ReductionRequest, found: Reduction, target: LaunchFailure, ask: TrialQuestion) -> tuple[str, ...]:
    """Write the smallest launch so far. Returns the options with which `mmulator run` shows its failure."""
    job, text, expect = found.job, found.lines.text(), wanted.job.expect
    options: tuple[str, ...] = ()
    if target.kind == "finding":
        options = ("--sanitize", "--rules", target.name, *(("--strict",) if not found.failure.words.startswith("error") else ()))
    elif ask.nan:
        options = ("--nan",) if ask.nan == "nan" else (f"--nan={ask.nan}",)
    elif target.kind in ("value", "difference"):
        own = fresh(job, text)
        result = arrays_of(own)
        if target.kind == "value" and expect is not None:
            wrong = result[target.name].copy()
            wrong.reshape(-1)[target.at] = expect.arrays[target.name].reshape(-1)[target.at]
            job = replace(job, expect=Expectation({target.name: wrong}, source=expect.source))
        elif ask.other is not None:
            theirs = ask.other(job, text)
            job = replace(job, expect=Expectation({n: a for n, a in theirs.items() if n in result}, source=wanted.name))
    said = " ".join(("mmulator run launch.toml", *options))
    words = f"Made small by mmulator reduce: {found.failure.words.splitlines()[0]}"
    write_launch(wanted.to, job, text, [words, f"See it: {said}"])
    return options


def arrays_of(job: Job) -> Arrays:
    """The arrays of a launch that runs to its end, by name, with the module's variables that it has written."""
    result = run_job(job, threads=1)
    return {**job.arrays(), **result.written}

