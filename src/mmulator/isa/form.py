"""An instruction as a program has it: a row of the tables, and what stands in its slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mmulator.isa.row import BLACKWELL, OperandSpec, Requirement, Row, Section, Status


@dataclass(frozen=True, slots=True)
class Form:
    """A matched mnemonic.

    name: of the row: `add`, `cp.async`, `cp.async.wait_group`, `bar.sync`, `cvta.to`.
    modifiers: (slot, modifier) in the order of the row; `form["rnd"]` is the modifier, or "" if it is not written.
    operands: what the instruction takes. requires: the least PTX version and the targets it needs.
    section: its section of the specification. status: whether the machine runs it.
    """

    name: str
    modifiers: tuple[tuple[str, str], ...]
    operands: tuple[OperandSpec, ...]
    requires: Requirement
    section: Section
    status: Status
    open: bool

    def __getitem__(self, slot: str) -> str:
        for name, modifier in self.modifiers:
            if name == slot:
                return modifier
        return ""

    @property
    def opcode(self) -> str:
        return self.name.partition(".")[0]

    def __str__(self) -> str:
        return ".".join((self.name, *(m for _, m in self.modifiers)))


def _resolve_type(rule: str, taken: Mapping[str, str]) -> str:
    if rule.startswith("wide:"):
        name = taken[rule[5:]]
        return name[0] + str(int(name[1:]) * 2)
    return taken.get(rule, rule)


def _operand(o: OperandSpec, taken: Mapping[str, str]) -> OperandSpec:
    type = _resolve_type(o.type, taken)
    if o.per:
        return replace(o, type=type, count=int(taken[o.per][1:]) if o.per in taken else 1)
    return o if type == o.type else replace(o, type=type)


def form_of(row: Row, taken: Mapping[str, str]) -> Form:
    """The form of a row whose slots hold these modifiers."""
    operands = tuple(_operand(o, taken) for o in row.operands if not o.when or o.when in taken)
    requires, present = row.requires, set(taken.values())
    for need in row.needs:
        if need.modifier in present:
            requires = replace(
                requires, ptx=max(requires.ptx, need.ptx), minimum=max(requires.minimum, need.sm)
            )
    status = row.status
    if status.state == "runs" and requires.minimum >= 100:
        status = BLACKWELL
    ordered = tuple((s.name, taken[s.name]) for s in row.slots if s.name in taken)
    return Form(row.name, ordered, operands, requires, row.section, status, row.open)
