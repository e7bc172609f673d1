"""Certificates: what holds of a launch in every schedule, or a schedule that breaks it (docs/reference/certificates.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mmulator.base.errors import ExecutionFault, LimitReached

if TYPE_CHECKING:
    from mmulator.sanitizer.diagnostics.certificates.evidence import Evidence, OpenPoint

CERTIFIED, EXPLORED, NOT_DECIDED, COUNTEREXAMPLE = "certified", "explored", "not decided", "counterexample"
NEEDED, NOT_NEEDED, NOT_KNOWN = "needed", "not needed", "not known"
NOT_TRIED = "stopped before this was tried"  # a reason of what is not known
VERDICTS = CERTIFIED, EXPLORED, NOT_DECIDED, COUNTEREXAMPLE  # from the strongest
VERY_MANY = 10**12
INPUTS = "these inputs, this shape and this device"
SHAPE = "this shape, these numbers and this device, for all contents of the buffers"
GIVEN = (
    INPUTS,
    "nothing else touches its memory meanwhile, neither the host nor other launches",
    "blocks that wait for each other run together, and every thread that can go on does so at last",
)


@dataclass(frozen=True)
class Schedule:
    """The record of a schedule: `launch(seed=..., order=..., threads=1)` runs it again.

    seed: of the scheduler's choices. order: of the order in which blocks begin; None: they begin in order. Several numbers:
        threads, by number in the grid, one for each access whose order matters; where clusters take over the work of others, for
        each cluster the one that does its work.
    """

    seed: int
    order: int | tuple[int, ...] | None = None

    @property
    def options(self) -> str:
        """The options of a command line that run it."""
        order = ",".join(map(str, self.order)) + "," * (len(self.order) == 1) if isinstance(self.order, tuple) else self.order
        return f"--seed {self.seed}" + (f" --order {order}" if order is not None else "")

    def __str__(self) -> str:
        if isinstance(self.order, tuple):
            return f"seed {self.seed}, {len(self.order)} choices by its order"
        return f"seed {self.seed}" + (f", blocks in the order of seed {self.order}" if self.order is not None else "")


@dataclass(frozen=True)
class OrderNeed:
    """The verdict on the barriers, fences, waits or commits of one name at one line: whether the launch needs them while all
    others stay.

    source: the line of the program, `mm.cu:31`; "" where it is not known.
    lines: of the PTX, one for each instruction, which are left out at once.
    instruction: the first of them, as the PTX has it.
    verdict: `needed`: the launch without it has a counterexample; `not needed`: it is certified without it, and leaves the same
        bytes; `not known`.
    reason: what breaks without it, or why nothing is known.
    rests_on: of what is not needed, what the certificate without it rests on besides.
    together: it is of those that can be left out at once.
    """

    source: str
    lines: tuple[int, ...]
    instruction: str
    verdict: str
    reason: str = ""
    rests_on: tuple[str, ...] = ()
    together: bool = False

    @property
    def is_free(self) -> bool:
        """Whether it is not needed, and the certificate without it rests on nothing more."""
        return self.verdict == NOT_NEEDED and not self.rests_on

    def __str__(self) -> str:
        what = f"{self.source} ptx:{', '.join(map(str, self.lines))}".strip()
        why = self.reason or (f"if the certificate may rest on this, too: {'; '.join(self.rests_on)}" if self.rests_on else "")
        return f"{what}: {self.instruction} {self.verdict}" + (f": {why}" if why else "")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"line": self.lines[0], "lines": list(self.lines), "rests_on": list(self.rests_on)}


@dataclass(frozen=True)
class Certificate:
    """The verdict on a launch.

    verdict: `certified`: no race, no deadlock, the same bytes in every schedule; `counterexample`: `schedule` breaks that;
        `explored`: every choice was run; `not decided`.
    reasons: why it is not certified, sentences with their lines; the first decides.
    rests_on: what is taken for granted.
    schedule: of a counterexample.
    tried: schedules that were run.
    needed: of a certified launch, where it was asked, whether it needs each barrier, fence, wait and commit, by line; else None.
    about: how many interleavings there are, about, where their exploration was begun and not ended; all that there are where
        it was.
    """

    verdict: str
    reasons: tuple[OpenPoint, ...] = ()
    rests_on: tuple[str, ...] = ()
    schedule: Schedule | None = None
    tried: int = 1
    needed: tuple[OrderNeed, ...] | None = None
    about: int = 0

    def __str__(self) -> str:
        if self.verdict == EXPLORED:
            many = f"all {self.about:,} interleavings" if self.about > 1 else "the only interleaving"
            return f"{EXPLORED}: no race, no deadlock and the same bytes in {many} of accesses whose order matters"
        if self.verdict == CERTIFIED:
            return f"{CERTIFIED}: no race, no deadlock and the same bytes in every schedule"
        more = f"; {len(self.reasons) - 1} more" if len(self.reasons) > 1 else ""
        why = f": {self.reasons[0]}{more}" if self.reasons else ""
        if self.verdict == COUNTEREXAMPLE:
            return f"{COUNTEREXAMPLE}, {self.schedule}{why}"
        tried = f"; {self.tried:,} schedules of {number(self.about)} left the same bytes" if self.tried > 1 else ""
        return f"{self.verdict}{why}{tried}"

    def lines(self) -> list[str]:
        """The certificate as text, a line each."""
        also, rests = (f"  also: {r}" for r in self.reasons[1:5]), (f"  rests on: {r}" for r in self.rests_on)
        return [f"certificate: {self}", *also, *rests, *self.lines_of_needed()]

    def lines_of_needed(self) -> list[str]:
        """The answer to what is needed as text: a line of counts, then one for each row, first what may be left out."""
        if self.needed is None:
            return []
        free, rest = [n for n in self.needed if n.is_free], [n for n in self.needed if not n.is_free]
        more, unknown, held = ([n for n in rest if n.verdict == v] for v in (NOT_NEEDED, NOT_KNOWN, NEEDED))
        left, together = sum(n.reason == NOT_TRIED for n in unknown), [n for n in self.needed if n.together]
        counts = f"{len(held)} needed, {len(free)} not needed while the others stay, "
        counts += f"{len(more)} more if it may rest on more, {len(unknown)} not known"
        told = [f"barriers, fences, waits and commits by line, in this launch: {counts}" + f" ({left} not tried)" * bool(left)]
        told += (f"  {row}" for row in (*free, *more, *unknown, *held))
        if len(free) > 1 and not together:
            told.append("  which of them can be left out at once was not tried")
        elif len(free) > 1:
            told.append(f"  can be left out at once: ptx:{', '.join(str(line) for n in together for line in n.lines)}")
        return told

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "verdict": self.verdict, "rests_on": list(self.rests_on), "tried": self.tried,
            "reasons": [asdict(point) for point in self.reasons],
            "schedule": asdict(self.schedule) if self.schedule else None,
            "needed": None if self.needed is None else [row.as_dict() for row in self.needed],
        }  # fmt: skip


def number(about: int) -> str:
    """How many schedules there are, about; 0: nobody knows."""
    if not about:
        return "an unknown number"
    return f"about {about:,}" if about < VERY_MANY else f"more than {VERY_MANY:,}"


def weakest(verdicts: Sequence[str]) -> str:
    """The verdict on a program, by those on its launches."""
    return max(verdicts, key=VERDICTS.index, default=CERTIFIED)


def of_fault(error: ExecutionFault, schedule: Schedule, tried: int = 1) -> Certificate:
    """The certificate of a launch that a fault, a deadlock or a limit of time has ended."""
    place = error.span.place if error.span is not None else ""
    why = reason(error.message, place, error.span.brief if error.span is not None else "")
    if isinstance(error, LimitReached):
        return Certificate(NOT_DECIDED, (why,), GIVEN, None, tried)
    return Certificate(COUNTEREXAMPLE, (why,), GIVEN, schedule, tried)


def reason(why: str, location: str = "", source: str = "") -> OpenPoint:
    """A reason why a launch is not certified; parameters as the fields of OpenPoint."""
    from mmulator.sanitizer.diagnostics.certificates.evidence import OpenPoint

    return OpenPoint(why, location, source)


def first_look(evidence: Evidence, schedule: Schedule) -> Certificate:
    """The certificate that one sanitized run justifies."""
    rests_on = (INPUTS if evidence.contents else SHAPE, *GIVEN[1:], *evidence.rests_on)
    broken = [f for f in evidence.findings if f.is_error]
    if broken:
        said = tuple(reason(f"{f.message} [{f.rule}]", f.location, f.source) for f in broken)
        return Certificate(COUNTEREXAMPLE, said, rests_on, schedule)
    return Certificate(NOT_DECIDED if evidence.reasons else CERTIFIED, evidence.reasons, rests_on)
