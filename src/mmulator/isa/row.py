"""How an instruction is written down: a row of its chapter's table.

A `Row` is one line of a Syntax block of the specification: the slots of its name, what stands in them, its operands, since
which PTX version and for which targets it exists, in which section that is written, and whether the machine runs it. The
rows are in the files of this folder that are named after the chapters of the Instruction Set (PTX ISA 9.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from mmulator.isa.targets import TARGETS, Target

Kind = Literal[
    "dst",  # register written (or `_` where the row says so)
    "src",  # register or constant
    "reg",  # register only
    "imm",  # constant only
    "addr",  # [register or symbol + offset]
    "pred",  # predicate read, may be negated
    "size",  # register or constant, or a predicate (cp.async: src-size or ignore-src)
    "dstpair",  # d or d|p: p a predicate
    "pair",  # d|p
    "dstpred",  # p or p|q
    "move",  # source of mov: register, constant, special register, name of a variable, vector
    "symbol",  # register, or name of a variable whose address is meant
    "label",  # label of the function
    "targets",  # name of a .branchtargets list
    "callee",  # function, or register
    "arguments",  # (a, b, ...)
    "prototype",  # name of a .callprototype or .calltargets
    "vsrc",  # register with a byte or half selected, or constant
    "vsrc-",  # the same, perhaps negated
    "vneg",  # register or constant, perhaps negated
    "vmerge",  # register written, or a byte or half of it
    "vmask2",  # register written, or some of its two halves
    "vmask4",  # register written, or some of its four bytes
    "vsrc2",  # register, with two halves selected
    "vsrc4",  # register, with four bytes selected
    "any",  # not checked: unsupported instruction
]



@dataclass(frozen=True, slots=True)
class Section:
    """A section of the PTX ISA document: its title, and the version of the document."""

    title: str
    version: str = "9.1"

    def __str__(self) -> str:
        return f"{self.title} (PTX ISA {self.version})"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one modifier: one of `choices` must stand there, or may, if it is optional."""

    name: str
    choices: tuple[str, ...]
    optional: bool = False

    @property
    def maybe(self) -> Slot:
        return Slot(self.name, self.choices, True)


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """An operand of a row, and of a form: there `type` and `count` are what the form's modifiers say.

    type: a PTX type, or in a row the name of the slot that says it; `wide:SLOT` is twice as wide. count: elements of a
    vector; per: the slot that says it (`vec`). wider: a wider register may stand.
    sink: `_` may stand. lo, hi: bounds of a constant. values: the only constants allowed. when: the operand is there if
    and only if that slot is filled; without it, `optional` operands may be left out, the last ones first. since: the least
    PTX version and target with that operand.
    """

    name: str
    kind: Kind
    type: str = ""
    access: Literal["r", "w", "rw"] = "r"
    optional: bool = False
    count: int = 1
    per: str = ""
    wider: bool = False
    sink: bool = False
    lo: int | None = None
    hi: int | None = None
    values: tuple[int, ...] = ()
    when: str = ""
    since: tuple[tuple[int, int], int] = ((1, 0), 0)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What an instruction needs: a PTX version, and a set of targets.

    A target is admitted if its number is `minimum` or more, its suffix is one of `suffixes` (where any are given), and it
    is of one of the `families` (where any are given: the least target of each).
    """

    ptx: tuple[int, int] = (1, 0)
    minimum: int = 0
    suffixes: str = ""
    families: tuple[int, ...] = ()

    def admits(self, target: Target) -> bool:
        return (
            target.number >= self.minimum
            and (not self.families or self.of_family(target))
            and (not self.suffixes or (target.suffix != "" and target.suffix in self.suffixes))
        )

    def of_family(self, target: Target) -> bool:
        return any(target.number >= least and target.family() == Target(least).family() for least in self.families)

    def targets(self) -> tuple[Target, ...]:
        """Every known target that is admitted."""
        return tuple(t for t in sorted(TARGETS) if self.admits(t))

    def first_ptx(self, target: Target) -> tuple[int, int]:
        """First PTX version in which an admitted target has the instruction."""
        return max(self.ptx, TARGETS[target])

    def describe_targets(self) -> str:
        """`sm_80 or higher`, or the list of targets."""
        if self.suffixes or self.families:
            names = [str(t) for t in self.targets()]
            return names[0] if len(names) == 1 else "one of " + ", ".join(names)
        return f"sm_{self.minimum} or higher"


@dataclass(frozen=True, slots=True)
class Need:
    """A modifier that needs a newer PTX version or target than its row."""

    modifier: str
    ptx: tuple[int, int]
    sm: int


@dataclass(frozen=True, slots=True)
class Status:
    """Whether the machine runs an instruction. runs; unproven: it does, but no chip has been asked whether the bits are
    these; not modelled. reason: why not, or what was not asked."""

    state: Literal["runs", "unproven", "not modelled"] = "runs"
    reason: str = ""

    @property
    def runs(self) -> bool:
        return self.state != "not modelled"


RUNS = Status()
BLACKWELL = Status("unproven", "only chips from sm_100 on have it, and none of them has been asked")


TYPE_SLOTS = frozenset(("type", "dtype", "stype", "atype", "btype", "ctype"))


@dataclass(frozen=True)
class Row:
    """One line of the table. name: opcode with the modifiers that are always there, `cp.async.wait_group`.

    rule: says what is wrong with a combination of modifiers, or returns None. needs: modifiers that are newer than the row.
    open: takes any further modifiers and any operands. leading: the slot that stands directly after the opcode.
    free: the fixed modifiers may stand anywhere.
    """

    name: str
    slots: tuple[Slot, ...]
    operands: tuple[OperandSpec, ...]
    section: Section
    requires: Requirement = Requirement()
    needs: tuple[Need, ...] = ()
    rule: Callable[[Mapping[str, str]], str | None] | None = None
    status: Status = RUNS
    open: bool = False
    leading: str = ""
    free: bool = False

    @property
    def opcode(self) -> str:
        return self.name.partition(".")[0]

    @property
    def fixed(self) -> tuple[str, ...]:
        """Modifiers that are always there."""
        return tuple(self.name.split(".")[1:])
