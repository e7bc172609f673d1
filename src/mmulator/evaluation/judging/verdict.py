"""The verdict on a kernel or a program, as data, as text and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from mmulator.base.location import printable
from mmulator.base.schemas import document


class VerdictKind(StrEnum):
    """The kinds of verdicts. RIGHT alone is good."""

    RIGHT = "right"  # it ran to its end, and what was compared is equal
    WRONG = "wrong"  # an output differs from the reference
    VACUOUS = "vacuous"  # it is right, and so is a kernel that reads nothing
    UNDEFINED = "undefined"  # the sanitizer has a finding of severity error
    UNSTABLE = "unstable"  # another seed gave other bits
    FAULT = "fault"  # an access out of bounds, a deadlock, a trap
    REFUSED = "refused"  # not legal, not supported, or not compiled
    TIMEOUT = "timeout"  # the limit of time
    MEMORY = "memory"  # the limit of memory
    FAILED = "failed"  # a program ended with another exit code than 0
    CRASHED = "crashed"  # the child process ended by itself, without an answer


@dataclass(frozen=True)
class JudgedOutput:
    """One output beside its reference, in the worst of all runs.

    name: of the argument.
    seed: of the run.
    size, wrong, beyond: elements; those whose bits differ; those that are outside the tolerance.
    first: index of the first of these, or None. got, want: values there.
    ulps: the largest distance, in steps of the type; None where a value is NaN or infinite on one side only.
    ok: nothing is outside the tolerance.
    stored: the kernel stored to the first of these.
    """

    name: str
    seed: int
    size: int
    wrong: int
    beyond: int
    first: tuple[int, ...] | None
    got: Any
    want: Any
    ulps: int | None
    ok: bool
    stored: bool = True

    def __str__(self) -> str:
        if not self.wrong:
            return f"{self.name}: {self.size:,} elements, bits equal"
        far = "NaN or infinite on one side" if self.ulps is None else f"up to {self.ulps:,} ULP"
        where = ", ".join(map(str, self.first or ()))
        if not self.stored:
            told = f"{self.name}[{where}] is not stored, the reference has {_number(self.want)}"
            return f"{self.name}: {self.wrong:,} of {self.size:,} elements differ: {told}"
        said = f"{self.name}[{where}] is {_number(self.got)} instead of {_number(self.want)}"
        return f"{self.name}: {self.wrong:,} of {self.size:,} elements differ, {far}{'' if self.ok else f': {said}'}"


def _number(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _justified(row: Mapping[str, Any]) -> str:
    """A sentence about the tolerance that rounding justifies."""
    if row["rtol"] is None or row["atol"] is None:
        return f"no bound of the rounding errors is known: {row['reason']}"
    said = f"rounding justifies rtol={row['rtol']:g}, atol={row['atol']:g}"
    if row["unbounded"]:
        said += f"; {row['unbounded']:,} elements have no bound: {row['reason']}"
    beyond = row.get("beyond")
    return said if beyond is None else f"{said}; {beyond:,} elements are farther from the reference"


@dataclass(frozen=True)
class Verdict:
    """The verdict.

    outcome: what is wrong, or RIGHT.
    message: one sentence about it.
    kind: "kernel", which cannot influence the verdict, or "program", which can.
    device: whose arithmetic was used.
    seeds: of the scheduler, under which it ran.
    drawn: the seed that the inputs were made of after the kernel had been compiled; None: inputs were given.
    outputs: the outputs beside the reference.
    findings: of the sanitizer, as dictionaries.
    report: what the launch executed, as a dictionary; of a program its kernels.
    seconds: that the child took, by phase.
    output: the end of what a program or a compiler printed.
    notes: what a reader should know.
    not_enforced: what the system does not let the judge keep a candidate from, each as a sentence of what did not hold for sure.
    bounds: the tolerance that rounding justifies, by output (mm.tolerance), with the number of elements `beyond` it.
    mutants: how strict the check is (mutation.py); empty if that was not asked.
    """

    outcome: VerdictKind
    message: str
    kind: str = "kernel"
    device: str = ""
    seeds: tuple[int, ...] = ()
    drawn: int | None = None
    outputs: tuple[JudgedOutput, ...] = ()
    findings: tuple[dict[str, Any], ...] = ()
    report: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    output: str = ""
    notes: tuple[str, ...] = ()
    not_enforced: tuple[str, ...] = ()
    bounds: dict[str, Any] = field(default_factory=dict)
    mutants: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.outcome is VerdictKind.RIGHT

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON can hold it."""
        return document("judge", {"ok": self.ok, **asdict(self), "outcome": str(self.outcome)})

    def __str__(self) -> str:
        lines = [f"{self.outcome}: {self.message}"]
        lines += [f"  {line}" for line in self.outputs]
        told = [f"  {f['location']}: {f['severity']}: {f['message']} [{f['rule']}]" for f in self.findings]
        lines += dict.fromkeys(told)
        last = printable(self.output.strip().rpartition("\n")[2][:200])
        lines += [f"  it printed last: {last}"] if last and self.outcome is VerdictKind.FAILED else []
        lines += [f"  {name}: {_justified(row)}" for name, row in self.bounds.items()]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  not enforced: {what}" for what in self.not_enforced]
        lines += self._of_mutants()
        return "\n".join(lines)

    @property
    def weak(self) -> bool:
        """Whether a changed kernel passes, too, that an input tells from this one."""
        return any(row["state"] == "survived" for row in self.mutants.get("mutants", ()))

    def _of_mutants(self) -> list[str]:
        if not self.mutants:
            return []
        counts = ", ".join(f"{count} {state}" for state, count in self.mutants["counts"].items()) or "none"
        lines = [f"  mutants: {counts}" + ("; the time was over before the last" if self.mutants["more"] else "")]
        for row in self.mutants["mutants"]:
            if row["state"] != "noticed":
                lines += [f"    {row['state']}: {row['place']}: {row['change']}", f"      {row['words']}"]
        return lines
