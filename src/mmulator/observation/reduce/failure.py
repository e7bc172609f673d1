"""How a launch fails, told so that another launch can be asked whether it fails in the same way."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmulator.base.errors import ExecutionFault, InvalidInstructionError, LaunchError, MmulatorError, NotFinite, UnsupportedError
from mmulator.base.findings import ordered
from mmulator.base.source import Source, Span
from mmulator.host.jobs.inputs import Argument, at_address
from mmulator.host.jobs.job import Job, JobResult, run_job
from mmulator.host.jobs.judgement import SanitizerOptions
from mmulator.host.module import Module
from mmulator.host.text import Text, verified
from mmulator.observation.reduce.program import KernelLines
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import ParsedModule

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
_MNEMONIC = re.compile(r"\s*(?:@!?[\w%$]+\s+)?([a-z][\w.:]*)")


@dataclass(frozen=True)
class LaunchFailure:
    """One way in which a launch fails.

    kind: "finding", "fault", "error" (nothing was run), "bug" (of mmulator), "value" or "difference".
    name: the rule, the fault, what is wrong with the text, or the array's name.
    instruction: the name of the instruction; "" where none is to blame.
    against: of a finding, the name of the other instruction.
    at, bits: of a value, the number of the element and its bytes.
    words: the failure for people.
    spans: where the instructions stand.
    """

    kind: str
    name: str
    instruction: str = ""
    against: str = ""
    at: int = 0
    bits: bytes = b""
    words: str = field(default="", compare=False)
    spans: tuple[Span, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True)
class TrialQuestion:
    """How a launch is run to see whether it fails.

    sanitize: what is looked for; None: nothing.
    nan: as in Kernel.launch.
    other: gives the arrays of a launch with which this one's are compared; is called with a job and the text of the kernel.
    element: (name of an array, number of an element) whose bytes count as a failure.
    """

    sanitize: SanitizerOptions | None = None
    nan: str = ""
    other: Callable[[Job, str], Arrays] | None = None
    element: tuple[str, int] | None = None


class LoadedJob(Job):
    """A job whose kernel is a text. unwritten: how many registers it may read before they are written; None: any number."""

    text = ""
    unwritten: int | None = None

    def load(self, timeout: float | None = None) -> Module:
        tree = verified(Source(str(self.ptx), self.text))
        if self.unwritten is not None and unwritten(tree) > self.unwritten:
            raise LaunchError("a register is read before it is written")
        return Module(Text.of(tree), 0.0)


def unwritten(tree: ParsedModule) -> int:
    """How many registers of a verified module are read above the first instruction that writes them without reading them."""
    count = 0
    for f in tree.functions:
        known, bare = {p.name for p in f.params}, set[str]()
        for i in f.instructions:
            uses, defs = uses_and_defs(i)
            bare |= (uses - defs if i.guard else uses) - known
            known |= defs if i.guard else defs - uses
        count += len(bare)
    return count


def fresh(job: Job, text: str, allowed: int | None = None) -> LoadedJob:
    """A job with arrays of its own, which a launch may write, and with a text as its kernel. allowed: how many registers it may
    read before they are written; None: any number."""

    def own(a: Argument) -> Argument:
        if not isinstance(a.value, np.ndarray):
            return a
        return replace(a, value=a.value.copy()) if a.address is None else at_address(a, a.address, a.name)

    made = LoadedJob(**{name: value for name, value in vars(job).items() if name not in ("text", "unwritten")})
    made.arguments, made.memory, made.variables = ([own(a) for a in some] for some in (job.arguments, job.memory, job.variables))
    made.text, made.unwritten = text, allowed
    return made


def outcome(
    job: Job, text: str, ask: TrialQuestion, timeout: float | None, allowed: int | None = None
) -> tuple[list[LaunchFailure], JobResult | Exception]:
    """All failures of a launch, those first that others may follow from, and its result or what it raised.

    allowed: as in `fresh`.

    Raises LaunchError for a launch that cannot begin.
    """
    own = fresh(job, text, allowed)
    try:
        result = run_job(own, timeout=timeout, threads=1, sanitize=ask.sanitize, nan=ask.nan)
    except LaunchError:
        raise
    except MmulatorError as error:
        return [_of_error(error), *_findings(error.__dict__.get("judged"))], error
    except Exception as error:
        said = f"{type(error).__name__} in {traceback.extract_tb(error.__traceback__)[-1].name}"
        return [LaunchFailure("bug", said, words=f"mmulator has a bug: {said}: {error}")], error
    found = [*_findings(result.judged)]
    arrays = {**own.arrays(), **result.written}
    found += (_value(c.name, c.first, arrays[c.name], c.want) for c in result.comparisons if not c.ok and c.first is not None)
    if ask.element is not None:
        found += _held(*ask.element, arrays, own=job.arrays())
    if ask.other is not None:
        with suppress(ExecutionFault):  # a launch that does not end is no result to compare with
            found += _differences(arrays, ask.other(job, text))
    return found, result


def _of_error(error: MmulatorError) -> LaunchFailure:
    kind = "fault" if isinstance(error, ExecutionFault) else "error"
    words = "" if isinstance(error, NotFinite) else _said(error.message)  # which says where it came from
    name = f"{getattr(error, 'fault', '') or error.kind} {words}".strip()
    span = error.span
    found = _MNEMONIC.match(span.text) if span is not None else None
    where = (span,) if span is not None else ()
    return LaunchFailure(kind, name, found[1] if found else "", words=f"{error.kind}: {error.message}", spans=where)


def _said(message: str) -> str:
    """The words of a message without names, numbers and places."""
    return " ".join(re.sub(r"\(.*?\)|\S*[^\sa-z,;:]\S*|[,;:]", "", message).split())


def _findings(judged: Any) -> Iterator[LaunchFailure]:
    for f in ordered(judged.findings) if judged is not None else ():
        against = f.conflict.instruction if f.conflict else ""
        words = f"{f.severity}: {f.message} [{f.rule}]"
        spans = (s for s in (f.span, f.conflict.span if f.conflict else None) if s is not None)
        yield LaunchFailure("finding", f.rule, f.instruction, against, words=words, spans=tuple(spans))


def _value(name: str, at: tuple[int, ...], array: Array, want: Any) -> LaunchFailure:
    number = int(np.ravel_multi_index(at, array.shape)) if at else 0
    place = f"{name}[{', '.join(map(str, at))}]"
    got = array.reshape(-1)[number]
    return LaunchFailure("value", name, at=number, bits=got.tobytes(), words=f"{place} is {got} instead of {want}")


def _held(name: str, at: int, arrays: Arrays, own: Arrays) -> Iterator[LaunchFailure]:
    """The bytes of an element as the failure that it had them, if the launch has put them there. own: arrays before it."""
    array, before = arrays.get(name), own.get(name)
    if array is not None and at < array.size:
        bits = array.reshape(-1)[at].tobytes()
        if before is None or before.reshape(-1)[at].tobytes() != bits:
            yield LaunchFailure("value", name, at=at, bits=bits, words=f"element {at} of {name} is {array.reshape(-1)[at]}")


def _differences(ours: Arrays, theirs: Arrays) -> Iterator[LaunchFailure]:
    """A failure if arrays differ, whichever they are."""
    for name, array in ours.items():
        other = theirs.get(name)
        if other is None or other.nbytes != array.nbytes:
            continue
        raw = [np.frombuffer(a.tobytes(), np.uint8).reshape(-1, a.itemsize) for a in (array, other)]
        wrong = (raw[0] != raw[1]).any(axis=1)
        if wrong.any():
            at = int(np.argmax(wrong))
            values = " and ".join(str(a.reshape(-1)[at]) for a in (array, other))
            said = f"element {at} of {name} is {values}; {int(wrong.sum()):,} of {array.size:,} elements differ"
            yield LaunchFailure("difference", "", words=said)
            return


def is_no_failure(found: LaunchFailure, error: Exception | JobResult) -> str:
    """Why a launch that was ended cannot be made small; "" where it can."""
    if found.kind == "fault" and found.name.startswith("TIMEOUT"):
        return "a launch that does not end in time cannot be made small: there is no telling whether another would end"
    known = isinstance(error, ExecutionFault | InvalidInstructionError | UnsupportedError)
    return "" if found.kind != "error" or known else str(error)


class FailureTrial:
    """Whether a launch fails as another does.

    target: how it shall fail.
    ask: how that is seen.
    seconds: that the last launch took that did; others get ten times as long.
    allowed: as in `fresh`.
    tries: how many launches were tried.
    """

    def __init__(self, target: LaunchFailure, ask: TrialQuestion, seconds: float, allowed: int | None = None) -> None:
        self.target, self.ask, self.seconds, self.allowed, self.tries = target, ask, seconds, allowed, 0
        self.ended: bool | None = None  # whether the launch is ended by something else than what is meant

    def __call__(self, job: Job, lines: KernelLines) -> LaunchFailure | None:
        """The failure of a launch, if it is the wanted one."""
        self.tries += 1
        begun = time.monotonic()
        try:
            found, _ = outcome(job, lines.text(), self.ask, 1 + 10 * self.seconds, self.allowed)
        except LaunchError:
            return None
        same = next((f for f in found if f == self.target), None)
        ended = bool(found) and found[0].kind in ("fault", "error", "bug") and found[0] != self.target
        self.ended = ended if self.ended is None else self.ended
        if ended > self.ended:
            return None
        if same is not None:
            self.seconds = time.monotonic() - begun
        return same

