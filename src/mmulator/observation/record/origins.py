"""Where the elements of a matrix product come from: names such as `A[3,0..255]`, back through registers and shared memory.

An origin is the element in device memory that was copied unchanged, or the instruction that computed the value.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from mmulator.isa.effects import Flow
from mmulator.observation.record.addresses import InCell, InRegister, Place, space_of
from mmulator.observation.record.memory import last_write, loaded_from, loads
from mmulator.observation.record.parts import part_of
from mmulator.observation.record.tensor_cells import CopiedCell, MovedCell, StoredCell, cells_of, copied_from, loads_cells
from mmulator.observation.record.trail import Trail, TrailStep
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg

Named = Callable[[int, int], str]
FAR = 64  # copies from place to place that are followed
PARTS = 6  # ranges that a summary names
_NAME = re.compile(r"(.*)\[([-\d,]+)\]")


@dataclass(frozen=True)
class OperandOrigin:
    """Where a value comes from.

    name: element of device memory, or what computed it.
    address: of the element, or None.
    reader: the step and the lane that read it there.
    """

    name: str
    address: int | None = None
    reader: tuple[TrailStep, int] | None = None


class Origins:
    """Answers about origins. trail: the steps. names: the name of a generic address of device memory, and bytes read there."""

    def __init__(self, trail: Trail, names: Named) -> None:
        self.trail, self.names = trail, names
        self._known: dict[object, OperandOrigin] = {}

    def of(self, place: Place, step: TrailStep, bits: int) -> OperandOrigin:
        """The origin of an element of `bits` bits that a step reads at a place."""
        if isinstance(place, InRegister):
            return self._register(step, place.lane, place.name, place.low, bits, 0)
        if isinstance(place, InCell):
            return self._cell(place, bits, 0)
        if (place, bits) not in self._known:
            self._known[place, bits] = self._memory(step, 0, place.address, place.before, bits, 0)
        return self._known[place, bits]

    def _cell(self, place: InCell, bits: int, far: int) -> OperandOrigin:
        if place not in self._known:
            self._known[place] = self._made_cell(place, bits, far)
        return self._known[place]

    def _made_cell(self, place: InCell, bits: int, far: int) -> OperandOrigin:
        found = cells_of(self.trail).last(place) if far < FAR else None
        match found:
            case None:
                return OperandOrigin("tensor memory that was never written")
            case StoredCell():
                return self._operand(found.step, found.lane, found.operand, found.low + place.low, bits, far + 1)
            case MovedCell():
                return self._cell(replace(found.place, low=place.low), bits, far + 1)
            case CopiedCell():
                (at, *_), *_ = copied_from(found, self.trail.kernel.executed[found.operation.site], place.low, bits)
                assert found.operation.step is not None
                return self._memory(found.operation.step, 0, at.address, at.before, bits, far + 1)
        return OperandOrigin(_computed(self.trail.kernel.executed[found.operation.site]))

    def _register(self, step: TrailStep, lane: int, name: str, low: int, bits: int, far: int) -> OperandOrigin:
        writer = self.trail.writer(step, name, lane)
        if writer is None:
            return OperandOrigin("a register that was never written")
        key = writer.number, lane, name, low
        if key not in self._known:
            self._known[key] = self._made(writer, lane, name, low, bits, far)
        return self._known[key]

    def _made(self, step: TrailStep, lane: int, name: str, low: int, bits: int, far: int) -> OperandOrigin:
        ins = self.trail.instruction(step)
        flow = ins.effects.flow
        part = part_of(ins, name, low, bits)
        if part is not None and far < FAR:
            return self._operand(step, lane, part[0], part[1], bits, far + 1)
        if flow in (Flow.ROWS, Flow.TILE):
            address = loaded_from(self.trail, step, lane, name, low)
            if address is not None:
                return self._memory(step, lane, address, step.number, bits, far + 1)
        if flow is Flow.LOADED and not ins.form["space"].startswith("param"):
            for target, at, _, _ in loads(self.trail, step):
                if isinstance(target, Reg) and target.name == name:
                    return self._memory(step, lane, int(at[lane]) + low // 8, step.number, bits, far + 1)
        if loads_cells(ins):
            cells = cells_of(self.trail).loaded(step, lane, name)
            if cells:
                cell = cells[low // 16 if len(cells) > 1 else 0]
                return self._cell(replace(cell, low=low % 16 if len(cells) > 1 else low), bits, far + 1)
        return OperandOrigin(_computed(ins))

    def _operand(self, step: TrailStep, lane: int, operand: Operand, low: int, bits: int, far: int) -> OperandOrigin:
        if isinstance(operand, Reg):
            return self._register(step, lane, operand.name, low, bits, far)
        return OperandOrigin(f"the constant {operand.span.text}" if isinstance(operand, Immediate) else operand.span.text)

    def _memory(self, step: TrailStep, lane: int, address: int, before: int, bits: int, far: int) -> OperandOrigin:
        space = space_of(address)
        found = last_write(self.trail, before, address, (step, lane) if space == "local" else None) if far < FAR else None
        if found is None:
            if space != "global":
                return OperandOrigin(f"{space} memory as it was")
            return OperandOrigin(self.names(address, bits // 8), address, (step, lane))
        if found.source is not None:
            return self._memory(found.step, found.lane, found.source, found.step.number, bits, far + 1)
        if found.operand is None:
            return OperandOrigin("zeros outside of what is copied")
        return self._operand(found.step, found.lane, found.operand, 8 * found.byte, bits, far + 1)


def _computed(ins: Instruction) -> str:
    line = ins.original.span
    return f"{ins.original.mnemonic} at {line.place}" + (f" ({line.brief})" if line.brief else "")


def summary(names: Sequence[str]) -> str:
    """Names of neighbours as ranges: `A[3,0..15], A[3,32..47]`, `A[3,0..62 by 2]`; one index grows in a range."""
    said = [_said(run) for run in _joined(_runs(names))]
    more = f" and {len(said) - PARTS} more ranges" if len(said) > PARTS else ""
    return ", ".join(said[:PARTS]) + more


@dataclass
class _Run:
    """Elements of one array at equal steps of one index; without indices the name says all."""

    name: str
    at: list[tuple[int, ...]]
    step: tuple[int, ...] = ()


def _runs(names: Sequence[str]) -> Iterator[_Run]:
    """Runs of neighbours. Further bytes of an element are that element."""
    run = None
    for name, group in groupby(names):
        count = len(list(group))
        found = _NAME.fullmatch(name.partition(", byte ")[0])
        at = tuple(int(n) for n in found[2].split(",")) if found else ()
        known = found is not None and run is not None and run.name == found[1]
        if found is not None and ", byte " in name:
            if known and run is not None and run.at[-1:] == [at]:
                continue
            found = None
        if found is None:
            if run is not None:
                yield run
            run = _Run(name if count == 1 else f"{name} ({count} times)", [])
            continue
        for _ in range(count):
            if known and run is not None and run.at and (step := _continues(run, at)):
                run.at.append(at)
                run.step = step
                continue
            if run is not None:
                yield run
            run, known = _Run(found[1], [at]), True
    if run is not None:
        yield run


def _joined(runs: Iterator[_Run]) -> list[_Run]:
    """Runs, where three or more single elements at equal steps are one."""
    found: list[_Run] = []
    for run in runs:
        last = found[-1] if found else None
        if last is not None and len(run.at) == 1 and last.name == run.name and last.at:
            step = _step_between(last.at[-1], run.at[0])
            if len(last.at) > 1 and step == _step_between(last.at[-2], last.at[-1]) and _single(step):
                last.at += run.at
                continue
            before = found[-2] if len(found) > 1 else None
            alike = before is not None and len(last.at) == len(before.at) == 1 and before.name == run.name and _single(step)
            if alike and before is not None and step == _step_between(before.at[0], last.at[0]):
                before.at += last.at + run.at
                del found[-1]
                continue
        found.append(run)
    return found


def _step_between(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(y - x for x, y in zip(a, b)) if len(a) == len(b) else ()


def _single(step: tuple[int, ...]) -> int:
    """The step of the only index that changes; 0 if several do, or none."""
    moving = [n for n in step if n]
    return moving[0] if len(moving) == 1 else 0


def _continues(run: _Run, index: tuple[int, ...]) -> tuple[int, ...]:
    """The step from the end of a run to an index that goes on with it; () if it does not."""
    step = _step_between(run.at[-1], index)
    return step if (step == run.step if run.step else abs(_single(step)) == 1) else ()


def _said(run: _Run) -> str:
    if not run.at:
        return run.name
    by = _single(_step_between(run.at[0], run.at[1])) if len(run.at) > 1 else 0
    at = ",".join(str(a) if a == b else f"{a}..{b}" for a, b in zip(run.at[0], run.at[-1]))
    return f"{run.name}[{at}{f' by {abs(by)}' if abs(by) > 1 else ''}]"
