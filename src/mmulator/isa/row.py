"""How an instruction is written down: a row of its chapter's table.

A `Row` is one line of a Syntax block of the specification: the slots of its name, what stands in them, its operands, since
which PTX version and for which targets it exists, in which section that is written, and whether the machine runs it. The
rows are in the files of this folder that are named after the chapters of the Instruction Set (PTX ISA 9.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from mmulator.errors import InternalError
from mmulator.isa.effects import LANEWISE, Effects
from mmulator.isa.targets import TARGETS, Target
from mmulator.isa.types import is_type
from mmulator.lazy import cached_property

Kind = Literal[
    "dst",  # register written (or `_` where the row says so)
    "src",  # register or constant
    "reg",  # register only
    "imm",  # constant only
    "addr",  # [register or symbol + offset]
    "tensor",  # [address of a tensor map, {coordinates}]: `count` of them
    "vector",  # {register or constant, ...}, in braces even if it is one
    "sink",  # _
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
    # of matrix instructions; each takes registers of its own `types`
    "registers",  # vector of `count` registers
    "register",  # register without braces
    "address",  # [p]
    "descriptor",  # 64-bit register that holds a matrix descriptor, or constant
    "predicate",  # predicate, perhaps negated, or the constant 0 or 1
    "immediate",  # constant
    "integer",  # integer register, or constant
    "group",  # list in braces, an element for each of `parts`
]



@dataclass(frozen=True)
class Section:
    """A section of the PTX ISA document: its title, and the version of the document."""

    title: str
    version: str = "9.1"

    def __str__(self) -> str:
        return f"{self.title} (PTX ISA {self.version})"


@dataclass(frozen=True)
class Slot:
    """A place for one modifier: one of `choices` must stand there, or may, if it is optional.

    default: what is meant where none is written. tacit: a mnemonic leaves the default out. twice: ptxas takes it twice.
    since: before this PTX version the default is implied and may not be written, from it on it must be.
    """

    name: str
    choices: tuple[str, ...]
    optional: bool = False
    default: str = ""
    tacit: bool = False
    twice: bool = False
    since: tuple[int, int] = (0, 0)

    @property
    def category(self) -> str:
        """Slots of one category take the modifiers of that category in order; others may come in any order."""
        return CATEGORIES.get(self.name, self.name)

    @property
    def meant(self) -> tuple[str, ...]:
        """What a form may have here; empty is nothing."""
        return ("", *self.choices) if self.optional and not self.default else self.choices


CATEGORIES = {
    **dict.fromkeys(("type", "dtype", "stype", "atype", "btype", "ctype"), "type"),
    **dict.fromkeys(("alayout", "blayout", "layout"), "layout"),
    **dict.fromkeys(("bit_op", "popc"), "bit_op"),
    **dict.fromkeys(("dst_fmt", "src_fmt"), "format"),
    **dict.fromkeys(("dst", "src"), "spaces"),
}
TYPE_SLOTS = frozenset(name for name, category in CATEGORIES.items() if category == "type")


@dataclass(frozen=True)
class OperandSpec:
    """An operand of a row, and of a form: there `type` and `count` are what the form's modifiers say.

    name: as the specification spells it (`a-desc`).
    type: a PTX type, or in a row the name of the slot that says it; `wide:SLOT` is twice as wide. types: the register types
    that are accepted, where those are other ones than type checking says; `type` is the first. count: elements of a
    vector; per: the slot that says it (`vec`, `dim`), minus `fewer`. wider: a wider register may stand. sink: `_` may stand.
    space: of an address, or the slot that says it; in a form the space, empty for generic. home: the space of variables that
    a generic address may name. lo, hi: bounds of a constant. values: the only constants allowed; later: more of them, and
    what each needs. defined: those whose meaning the specification defines, where that is fewer. when: the operand is there
    if and only if that slot is filled; without it, `optional` operands may be left out, the last ones first; one that is
    `between` may, whatever follows it. since: the least PTX version and target with that operand.
    parts: the elements of a group.
    """

    name: str
    kind: Kind
    type: str = ""
    access: Literal["r", "w", "rw"] = "r"
    optional: bool = False
    count: int = 1
    per: str = ""
    fewer: int = 0
    space: str = "space"
    home: str = ""
    wider: bool = False
    sink: bool = False
    lo: int | None = None
    hi: int | None = None
    values: tuple[int, ...] | range = ()
    later: tuple[tuple[int, Requirement], ...] = ()
    when: str = ""
    between: bool = False
    since: tuple[tuple[int, int], int] = ((1, 0), 0)
    types: tuple[str, ...] = ()
    defined: tuple[int, ...] | range = ()
    parts: tuple[OperandSpec, ...] = ()

    def but(self, **changes: Any) -> OperandSpec:
        return replace(self, **changes)

    @property
    def key(self) -> str:
        """The name as a Python keyword: `a_desc`."""
        return self.name.replace("-", "_")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Need:
    """A modifier that needs a newer PTX version or target than its row."""

    modifier: str
    ptx: tuple[int, int]
    sm: int


@dataclass(frozen=True)
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


Signature = tuple[OperandSpec, ...]


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the table. name: opcode with the modifiers that are always there, `cp.async.wait_group`.

    operands: what the instruction takes; signatures: the lists of operands of a form, where they follow from its shape and
    types. implied: slots that no modifier fills, and what is meant.
    rule: says what is wrong with a combination of modifiers, or returns None. needs: modifiers that are newer than the row.
    open: takes any further modifiers and any operands. leading: the slot that stands directly after the opcode.
    free: the fixed modifiers may stand anywhere. effects: what it does besides computing its results.
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
    effects: Effects = LANEWISE
    signatures: Callable[..., tuple[Signature, ...]] | None = None
    implied: tuple[tuple[str, str], ...] = ()

    @cached_property
    def opcode(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def op(self) -> str:
        """The rest of the name: `load.a`; the opcode if there is none."""
        return self.name.partition(".")[2] or self.name

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """Modifiers that are always there."""
        return tuple(self.name.split(".")[1:])

    @cached_property
    def implied_once(self) -> Slot | None:
        """The slot whose default was implied before some PTX version."""
        return next((slot for slot in self.slots if slot.since > (0, 0)), None)


def prove(row: Row) -> None:
    """What must hold of every row; raises InternalError at import if a table is wrong."""
    slots = {s.name for s in row.slots}
    if len(slots) != len(row.slots):
        raise InternalError(f"{row.name}: two slots of one name")
    for slot in row.slots:
        if slot.name in TYPE_SLOTS and row.name != "cvt.pack" and not all(map(is_type, slot.choices)):
            raise InternalError(f"{row.name}: {slot.choices} are not all types")
    for operand in row.operands:
        named = operand.type.removeprefix("wide:")
        if named and named not in slots and not is_type(named):
            raise InternalError(f"{row.name}: operand {operand.name} has type {operand.type}")
        for reference in (operand.when, operand.per):
            if reference and reference not in slots:
                raise InternalError(f"{row.name}: operand {operand.name} refers to {reference}")
        if operand.space not in slots and operand.space not in ("space", "shared"):
            raise InternalError(f"{row.name}: operand {operand.name} is in {operand.space}")
    if not any(map(row.requires.admits, TARGETS)):
        raise InternalError(f"{row.name}: no target admits {row.requires}")
    if not row.section.title or (row.open and row.status.runs):
        raise InternalError(f"{row.name}: no section, or no reason")
