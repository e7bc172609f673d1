"""The error family. Each error says what is wrong, where, which rule of the specification it breaks, and what to do.

`MmulatorError` is the root; a user's mistake raises nothing else. `InternalError` stands beside the family: it is a mistake in
mmulator, and code that catches the user's mistakes does not catch it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from mmulator.base.location import Location
from mmulator.base.source import Span, printable

if TYPE_CHECKING:
    from mmulator.base.findings import Finding

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def shown(value: object) -> str:
    """A value as text for a message: short, and possible also where Python refuses to write an integer of thousands of digits.
    """
    if isinstance(value, int) and abs(value) >= 1 << 256:
        return f"a number of {value.bit_length()} bits"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # a number of thousands of digits inside
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:60]}..."


class MmulatorError(Exception):
    """Root of the family.

    message: what is wrong, one sentence.
    span: where in a source text, or None. location: what that was compiled from, as `mm.py:17`, or None.
    rule: the rule that is broken, as `section title (PTX ISA)` or a sentence.
    hint: what to do about it.
    launch: the line of the program that launched the kernel, as `run.py:17: add[grid](x, y)`, where a door knows it.
    findings: what the sanitizer had found until then, if the launch was sanitized.
    told: the rule of the finding that says the same and was printed, or "": then the text is short.
    """

    kind = "error"
    code = 1  # with which a command ends
    launch: str | None = None
    findings: tuple[Finding, ...] = ()
    told: str = ""

    def __init__(self, message: str, *, span: Span | None = None, rule: str | None = None, hint: str | None = None) -> None:
        from mmulator.base.demangle import unmangled

        self.message = unmangled(message)
        super().__init__(self.message)
        self.span = span
        self.rule = rule
        self.hint = hint

    @property
    def location(self) -> Location | None:
        """The line of the program that the PTX was compiled from, where `.loc` says so."""
        return self.span.location if self.span else None

    def __str__(self) -> str:
        location = self.location
        beside = f" ({location.brief})" if location else ""
        lines = [f"{self.span}{beside}: {self.message}" if self.span else self.message]
        if self.told:
            lines = [lines[0].partition("\n")[0], f"  the finding above says more [{self.told}]"]
            return printable("\n".join([*lines, f"  launch: {self.launch}"] if self.launch else lines))
        if self.span:
            lines += ["  " + line for line in self.span.caret().split("\n")]
        if location:
            lines += ["  " + line for line in location.lines()]
        if self.launch:
            lines.append(f"  launch: {self.launch}")
        if self.rule:
            lines.append(f"  rule: {self.rule}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        before = [f for f in self.findings if f.span != self.span]
        if before and not isinstance(self, UndefinedBehaviour):
            lines.append(f"  sanitizer: {_until_then(before)}")
        return printable("\n".join(lines))


def _until_then(findings: list[Finding]) -> str:
    from mmulator.base.findings import counted, ordered

    first = ordered(findings)[0]
    return f"{counted(findings)}, until then; the first at {first.location}: {first.message} [{first.rule}]"


def short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a MmulatorError of the function shows the caller's line and no line of mmulator.

    With $MMULATOR_TRACEBACK all lines are shown.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except MmulatorError as error:
            if os.environ.get("MMULATOR_TRACEBACK"):
                raise
            raise error.with_traceback(None)  # noqa: B904
        except KeyboardInterrupt as stop:
            if not stop.args or os.environ.get("MMULATOR_TRACEBACK"):  # an error of another origin than a launch
                raise
            raise stop.with_traceback(None)  # noqa: B904

    return call


class PtxSyntaxError(MmulatorError):
    """The text is not PTX: it cannot be read at all."""

    kind = "syntax error"


class InvalidInstructionError(MmulatorError):
    """The text can be read, but no such instruction is legal, or not for this .target or .version."""

    kind = "invalid instruction"


class UnsupportedError(MmulatorError):
    """Legal, but not implemented in mmulator, or not available on this device; the message says why."""

    kind = "unsupported"

    def __init__(self, message: str, *, span: Span | None = None, rule: str | None = None, hint: str | None = None) -> None:
        from mmulator.base.refusals import register

        super().__init__(message, span=span, rule=rule, hint=hint)
        register.enter(self.message)


class OperandError(MmulatorError, ValueError):
    """An array or value given to an instruction has the wrong shape, dtype or value."""

    kind = "operand error"


class LaunchError(MmulatorError, ValueError):
    """A launch that cannot start: grid, block, shared bytes or arguments are wrong."""

    kind = "launch error"


class ExecutionFault(MmulatorError, RuntimeError):
    """A running kernel did what the hardware would trap, or cannot go on (deadlock).

    fault: what happened, a name of runtime/native/state.py: FaultKind, or DEADLOCK, LIVELOCK, TIMEOUT.
    asserted: CUDA's line for each thread of the warp whose assertion failed.
    """

    kind = "execution fault"
    asserted: tuple[str, ...] = ()

    def __init__(
        self, message: str, *, span: Span | None = None, rule: str | None = None, hint: str | None = None, fault: str = ""
    ) -> None:
        super().__init__(message, span=span, rule=rule, hint=hint)
        self.fault = fault


class LimitReached(ExecutionFault):
    """A running kernel wants more than its limit: time, calls in calls, stack."""

    kind = "limit reached"


class UndefinedBehaviour(MmulatorError):
    """A running kernel did what the specification calls undefined behaviour."""

    kind = "undefined behaviour"


def undefined(findings: tuple[Finding, ...]) -> UndefinedBehaviour | None:
    """The first error among a sanitized launch's findings, as an exception that has all findings; None if all are warnings."""
    errors = [f for f in findings if f.is_error]
    if not errors:
        return None
    first = errors[0]
    more = f" (and {len(findings) - 1} more finding{'s' * (len(findings) > 2)})" if len(findings) > 1 else ""
    against = f", against {first.conflict}" if first.conflict else ""
    error = UndefinedBehaviour(
        f"{first.message}; by {first.threads}{against} [{first.rule}]{more}", span=first.span, rule=first.about.section,
        hint=first.hint,
    )
    error.findings = findings
    return error


class UnstableResult(MmulatorError):
    """A kernel left other bits under another seed, where the hardware is free to choose an order."""

    kind = "unstable result"


class NotFinite(ExecutionFault):
    """A launch that was to be stopped there stored a NaN, or an infinity, that it had made of other values."""

    kind = "not finite"
    code = 3


class InternalError(Exception):
    """Something happened that cannot happen: mmulator has a bug."""

    kind = "internal error"


def must_be(value: object, kind: type[T]) -> T:
    """The value itself, whose type has been checked elsewhere. Raises InternalError if it is not of the type."""
    if not isinstance(value, kind):
        raise InternalError(f"{shown(value)} where a {kind.__name__} must be")
    return value


def installs(extra: str) -> str:
    """The command that installs an optional part of mmulator."""
    return f"pip install '.[{extra}]' in a checkout of mmulator"


def similar(word: str, known: Iterable[str], count: int = 2, cutoff: float = 0.6) -> list[str]:
    """Known names that look most like a word, for a hint. Comparing takes time, so long words and the tails of long lists are
    left out.
    """
    from difflib import get_close_matches

    if len(word) > 64:
        return []
    near = (name for name in islice(known, 20000) if abs(len(name) - len(word)) <= 8)
    return get_close_matches(word, list(islice(near, 1000)), count, cutoff)


__all__ = [
    "ExecutionFault",
    "InternalError",
    "InvalidInstructionError",
    "LaunchError",
    "LimitReached",
    "MmulatorError",
    "NotFinite",
    "OperandError",
    "PtxSyntaxError",
    "UndefinedBehaviour",
    "UnstableResult",
    "UnsupportedError",
]  # fmt: skip
for _name in __all__:
    globals()[_name].__module__ = "mmulator.errors"  # where users import them from
