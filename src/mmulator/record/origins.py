"""Where the elements of a matrix product come from: names such as `A[3,0..255]`, back through registers and shared memory.

An origin is the element in device memory that was copied unchanged, or the instruction that computed the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from mmulator.isa.effects import Flow
from mmulator.ptx.tree import Immediate, Instruction, Operand, Reg
from mmulator.record.addresses import space_of
from mmulator.record.matrices import loaded_from
from mmulator.record.memory import last_write, loads
from mmulator.record.parts import part_of
from mmulator.record.trail import Trail, TrailStep

FAR = 64  # copies from place to place that are followed
PARTS = 6  # ranges that a summary names
_NAME = re.compile(r"(.*)\[([-\d,]+)\]")


@dataclass(frozen=True)
class InRegister:
    """An element in a register. lane, name, low: the lane, the register and the element's lowest bit."""

    lane: int
    name: str
    low: int


@dataclass(frozen=True)
class InMemory:
    """An element in memory. address: generic address. before: number of the step before which it was read."""

    address: int
    before: int


@dataclass(frozen=True)
class OperandOrigin:
    """Where a value comes from.

    name: element of device memory, or what computed it.
    address: of the element, or None.
    """

    name: str
    address: int | None = None


class Origins:
    """Answers about origins. trail: the steps. names: the name of a generic address of device memory."""

    def __init__(self, trail: Trail, names: Callable[[int], str]) -> None:
        self.trail, self.names = trail, names
        self._known: dict[tuple[object, ...], OperandOrigin] = {}

    def of(self, place: InRegister | InMemory, step: TrailStep, bits: int) -> OperandOrigin:
        """The origin of an element of `bits` bits that a step reads at a place."""
        if isinstance(place, InRegister):
            return self._register(step, place.lane, place.name, place.low, bits, 0)
        return self._memory(step, 0, place.address, place.before, bits, 0)

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
        return OperandOrigin(_computed(ins))

    def _operand(self, step: TrailStep, lane: int, operand: Operand, low: int, bits: int, far: int) -> OperandOrigin:
        if isinstance(operand, Reg):
            return self._register(step, lane, operand.name, low, bits, far)
        return OperandOrigin(f"the constant {operand.span.text}" if isinstance(operand, Immediate) else operand.span.text)

    def _memory(self, step: TrailStep, lane: int, address: int, before: int, bits: int, far: int) -> OperandOrigin:
        space = space_of(address)
        found = last_write(self.trail, before, address, (step, lane) if space == "local" else None) if far < FAR else None
        if found is None:
            return (
                OperandOrigin(self.names(address), address) if space == "global" else OperandOrigin(f"{space} memory as it was")
            )
        if found.source is not None:
            return self._memory(found.step, found.lane, found.source, found.step.number, bits, far + 1)
        if found.operand is None:
            return OperandOrigin("zeros outside of what is copied")
        return self._operand(found.step, found.lane, found.operand, 8 * found.byte, bits, far + 1)


def _computed(ins: Instruction) -> str:
    line = ins.original.span
    return f"{ins.original.mnemonic} at {line.source.name}:{line.line}" + (f" ({line.brief})" if line.brief else "")


def summary(names: Sequence[str]) -> str:
    """Names of neighbours as ranges: `A[3,0..15], A[3,32..47]`; a range of one index that grows by one."""
    runs: list[tuple[str, list[tuple[int, ...]]]] = []
    for name, group in groupby(names):
        count = len(list(group))
        found = _NAME.fullmatch(name)
        if found is None:
            runs.append((name if count == 1 else f"{name} ({count} times)", []))
            continue
        at = tuple(int(n) for n in found[2].split(","))
        for index in [at] * count:
            if runs and runs[-1][0] == found[1] and runs[-1][1] and _continues(runs[-1][1], index):
                runs[-1][1].append(index)
            else:
                runs.append((found[1], [index]))
    said = [name if not found else f"{name}[{_range(found)}]" for name, found in runs]
    more = f" and {len(said) - PARTS} more ranges" if len(said) > PARTS else ""
    return ", ".join(said[:PARTS]) + more


def _step_between(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(y - x for x, y in zip(a, b))


def _continues(run: list[tuple[int, ...]], index: tuple[int, ...]) -> bool:
    step = _step_between(run[-1], index)
    if sorted(map(abs, step))[-1:] != [1] or sum(map(abs, step)) != 1:
        return False
    return len(run) == 1 or step == _step_between(run[-2], run[-1])


def _range(run: list[tuple[int, ...]]) -> str:
    return ",".join(str(a) if a == b else f"{a}..{b}" for a, b in zip(run[0], run[-1]))
