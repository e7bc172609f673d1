"""Questions of MMULATOR_WHY about the launches of a program: `z[999]`, `add:z[999]@3`, several apart by `;`.

Each launch of a kernel that has the array is asked; the answers of the last one that stored the element are told when the process
ends.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmulator.base.demangle import demangle
from mmulator.base.errors import ExecutionFault, LaunchError, MmulatorError
from mmulator.base.findings import WIDTH
from mmulator.host.driver.inquiries import Inquiry, ProgramLaunch, say
from mmulator.host.driver.memory import makers, numbers
from mmulator.host.report import Report
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.types import TYPES, type_bits
from mmulator.observation.record.launches.answers import NO_REFERENCE, REFERENCE, REFERENCES, About, WhyAnswer, other_of
from mmulator.observation.record.names import AUTO, Asked, DeviceArray, DeviceNames, Question, element_of, mapped, question
from mmulator.observation.record.values import dtype_of
from mmulator.ptx.program.calls import reached
from mmulator.ptx.program.parameters import called, kinds
from mmulator.runtime.launch.launch import Launch

if TYPE_CHECKING:
    from mmulator.host.settings import Settings
    from mmulator.observation.record.launches.rejections import Keeping
    from mmulator.sanitizer.diagnostics.watch import Watches


@dataclass
class Asking:
    """The questions of a process, and the newest answer to each.

    questions: as typed.
    depth: how many instructions are told one behind the other.
    to: a file for the answers, or "".
    launches: question -> number of launches that have its array.
    refused: question -> why a launch has no such element.
    missed: question -> why the newest launch did not store the element.
    answers: question -> (kernel, number of the launch, answer).
    kept: launches that are kept, to explain what comparisons reject; None: that was not asked.
    """

    questions: list[Question]
    depth: int
    to: str = ""
    launches: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    missed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answers: dict[str, tuple[str, int, WhyAnswer]] = field(default_factory=dict)
    kept: Keeping | None = None

    def about(self, one: ProgramLaunch) -> LaunchAsked | None:
        """The questions that a launch is asked; None if it is asked none."""
        launch, how, against = one.launch, one.how, one.settings.why_against
        name = demangle(launch.kernel.name)
        mine = [q for q in self.questions if q.kernel in name]
        if not mine:
            return None
        names = DeviceNames(one.arrays())
        found: list[tuple[Question, Asked]] = []
        for q in mine:
            try:
                asked = element_of(q, names, cache(lambda: stored_type(launch.kernel)))
            except LaunchError as error:
                said = error.message.removeprefix("why: ")
                self.refused[q.text] = said + (f" ({error.hint})" if error.hint else "")
                continue
            self.launches[q.text] = number = self.launches.get(q.text, 0) + 1
            if q.launch in (0, number):
                found.append((q, asked))
        if not found:
            return None
        compared = against if against != REFERENCE else ""  # of what an assert rejects alone (rejections.py)
        other = other_of(int(compared) if compared.isdigit() else compared, launch, how.seed) if compared else None
        about = About([a for _, a in found], launch, how, names, other)
        return LaunchAsked(self, name, [q for q, _ in found], about)

    def tell(self) -> None:
        """Write the newest answer to each question on standard error, as the process ends."""
        if self.process != os.getpid():
            return
        for q in self.questions:
            if q.text in self.answers:
                kernel, number, answer = self.answers[q.text]
                self._tell(q.text, f"why {q.text}, launch {number} of {kernel}:\n{answer.wrapped(WIDTH)}", kernel, answer)
            elif self.launches.get(q.text):
                count = self.launches[q.text]
                said = "".join(f"; {note}" for note in self.missed.get(q.text, ()))
                self._tell(q.text, f"why {q.text}: {count:,} launch{'es' * (count != 1)}, and none stored it{said}")
            else:
                nothing = f"no kernel {'with this name ' * bool(q.kernel)}was launched"
                self._tell(q.text, f"why {q.text}: {self.refused.get(q.text, nothing)}")
        told = [(kernel, answer) for kernel, _, answer in self.answers.values()]
        for lines, kernel, found in self.kept.told() if self.kept is not None else ():
            self._tell(AUTO, lines, kernel, found)
            told += [(kernel, found)] if found is not None else []
        if self.to and told:
            from mmulator.observation.record.tree import write_page

            kernels = ", ".join(sorted({kernel for kernel, _ in told}))
            try:
                write_page(Path(self.to), [a._repr_html_() for _, a in told], kernels)
            except MmulatorError as error:
                say(f"mmulator: {error}\n")

    def _tell(self, asked: str, said: str, kernel: str = "", answer: WhyAnswer | None = None) -> None:
        """Write an answer, or that there is none, and add it to the report of a process that waits for this one."""
        from mmulator.host.driver.findings import gathering

        say(f"mmulator: {said}\n")
        if (file := gathering()) is not None:
            file.explained({"asked": asked, "said": said, "kernel": kernel, "answer": answer.as_dict() if answer else None})

    def __post_init__(self) -> None:
        self.process = os.getpid()


@dataclass
class LaunchAsked:
    """The questions that one launch is asked. asking: of the process. kernel: its name. about: the launch."""

    asking: Asking
    kernel: str
    questions: Sequence[Question]
    about: About

    def failed(self) -> None:
        """Remember that the launch ended in a fault."""
        for q in self.questions:
            number = self.asking.launches[q.text]
            self.asking.missed[q.text] = (
                f"launch {number} of {self.kernel} ended in a fault: mend that first, or ask with --keep-going, which goes on "
                "after an access out of bounds, and says what such loads and indices make",
            )

    def answers(self, watches: Watches, report: Report) -> None:
        """Find the answers out, when the launch is over."""
        report.why = self.about.answers(watches, report, self.asking.depth)
        for q, answer in zip(self.questions, report.why):
            if answer.cause is not None:
                self.asking.answers[q.text] = self.kernel, self.asking.launches[q.text], answer
            else:
                self.asking.missed[q.text] = answer.notes


@cache
def asking(text: str, depth: int, to: str = "", against: str = "") -> Asking:
    """The questions of this process. Raises LaunchError for what is no question."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if against == REFERENCE and AUTO not in parts:
        raise LaunchError(NO_REFERENCE, hint=REFERENCES)
    made = Asking([question(part) for part in parts if part != AUTO], depth, to)
    if AUTO in parts:
        from mmulator.observation.record.launches.rejections import keeping

        made.kept = keeping(depth, against)
    return made


class WhyInquiry(Inquiry):
    """The wish to know why elements have their values: `Settings.why`."""

    def begin(self, settings: Settings, listeners: list[Callable[[Report], object]]) -> None:
        atexit.register(asking(*settings.asked).tell)

    def around(self, one: ProgramLaunch, run: Callable[[], Report]) -> Report:
        asked = asking(*one.settings.asked).about(one)
        if asked is None:
            return run()
        from mmulator.sanitizer.diagnostics.watch import Watches

        watches = Watches([], one.launch.arguments, asked.about.places)
        try:
            report = one.run(watches)
        except ExecutionFault:
            asked.failed()
            raise
        asked.answers(watches, report)
        return report


WHY = WhyInquiry()


def device_arrays(launch: Launch, known: Sequence[DeviceArray]) -> list[DeviceArray]:
    """The memory that pointers among the parameters lead to, from where they point on, and all that has a name. known: arrays
    of which the door knows more.
    """
    arguments, kernel = launch.arguments, launch.kernel
    out, starts, regions = [*known], {a.start for a in known}, arguments.regions
    if len(out) < len(kernel.signature.params):
        kind = stored_type(kernel)
        size = max(1, type_bits(kind) // 8) if kind else 1
        given = [name.removeprefix(f"{kernel.name}_") for name in called(kernel.function)]
        each = kinds(kernel.name) or [("", False)] * len(given)
        for name, (element, points), p, at in zip(given, each, kernel.signature.params, kernel.signature.offsets):
            also = p.name.removeprefix(f"{kernel.name}_")
            if p.size != 8:
                continue
            address = int.from_bytes(arguments.params[at : at + 8].tobytes(), "little")
            region = next((r for r in (*regions.given, *regions) if r.start <= address < r.end), None)
            if region is not None and address not in starts:
                dtype = dtype_of(element) if element and points else None
                itemsize = dtype.itemsize if dtype else size
                out.append(DeviceArray(name, address, region.end - address, (), itemsize, dtype, also=also))
        out += (a for a in mapped(launch, given) if a.start not in starts)
    starts = {a.start for a in out}
    for r in (*regions.given, *regions):
        if r.start not in starts:
            starts.add(r.start)
            name = f"alloc_{numbers[r.start]}" if r.start in numbers else r.label
            same = sum(a.name.partition(" (")[0] == name for a in out)
            maker = makers.get(r.start, str)
            out.append(DeviceArray(f"{name} ({same + 1})" if same else name, r.start, r.size, maker=maker))
    return out


def stored_type(kernel: Any) -> str:
    """The type in which a kernel stores to global memory, if there is one; else "". Floating point counts before bits."""
    kinds = {
        i.form["type"]
        for f in reached(kernel.module.tree, kernel.function).functions.values()
        for i in f.instructions
        if i.effects.memory in (MemoryEffect.WRITE, MemoryEffect.ATOMIC) and i.form["space"] in ("", "global") and i.form["type"]
    }
    sizes = {type_bits(k) for k in kinds}
    floats = [k for k in kinds if k in TYPES and TYPES[k].kind == "float"]
    return (floats or sorted(kinds))[0] if len(sizes) == 1 else ""
