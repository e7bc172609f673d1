"""The description of an instruction: a row of its chapter's table.

A `Row` is one line of a Syntax block of the specification: the slots of its name and their modifiers, its operands, the PTX
versions and targets that have it, the section that defines it, and whether the machine runs it. The rows are in the files of
this folder that have the names of chapters of the Instruction Set (PTX ISA 9.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from mmulator.base.classes import dataclass
from mmulator.base.errors import InternalError
from mmulator.base.lazy import cached_property
from mmulator.isa.effects import LANEWISE, Effects
from mmulator.isa.targets import TARGETS, Target
from mmulator.isa.types import is_type

Kind = Literal[
    "dst",  # register written (or `_` where the row says so)
    "src",  # register or constant
    "reg",  # register only
    "imm",  # constant only
    "addr",  # [register or symbol + offset]
    "tensor",  # [address of a tensor map, {coordinates}]: `count` of them
    "vector",  # {register or constant, ...}, in braces even for a single element
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
    """A section of the PTX ISA document. title: of the section. version: of the document."""

    title: str
    version: str = "9.1"

    def __str__(self) -> str:
        return f"{self.title} (PTX ISA {self.version})"


@dataclass(frozen=True)
class Slot:
    """A place for one modifier.

    name: identifies the slot within the row.
    choices: the modifiers that it accepts.
    optional: whether it may be empty.
    default: the modifier that an empty slot means.
    tacit: whether mnemonics leave the default out.
    twice: whether ptxas accepts the modifier twice.
    since: PTX version from which the default must be written; before it, the default is implied and must not be written.
    silent: whether no element lies elsewhere for its modifiers, and none has another value.
    """

    name: str
    choices: tuple[str, ...]
    optional: bool = False
    default: str = ""
    tacit: bool = False
    twice: bool = False
    since: tuple[int, int] = (0, 0)
    silent: bool = False

    @property
    def category(self) -> str:
        """The slot's category. Modifiers of one category fill its slots in order; other modifiers may come in any order."""
        return CATEGORIES.get(self.name, self.name)

    @property
    def meant(self) -> tuple[str, ...]:
        """The modifiers that a form may have here; "" is an empty slot."""
        return ("", *self.choices) if self.optional and not self.default else self.choices


CATEGORIES = {
    **dict.fromkeys(("type", "dtype", "stype", "atype", "btype", "ctype"), "type"),
    **dict.fromkeys(("alayout", "blayout", "layout"), "layout"),
    **dict.fromkeys(("bit_op", "popc"), "bit_op"),
    **dict.fromkeys(("dst_fmt", "src_fmt"), "format"),
    **dict.fromkeys(("dst", "src"), "spaces"),
}
# State spaces of addresses whatever the modifiers are
FIXED_SPACES = ("shared", "tensor")
TYPE_SLOTS = frozenset(name for name, category in CATEGORIES.items() if category == "type")


@dataclass(frozen=True)
class Requirement:
    """The PTX version and the targets that an instruction requires.

    ptx: the least PTX version.
    minimum: the least number of a target.
    suffixes: the accepted suffixes of a target; "" accepts all.
    families: the least target of each accepted family; empty accepts all.
    chips: the accepted numbers; empty accepts all.
    """

    ptx: tuple[int, int] = (1, 0)
    minimum: int = 0
    suffixes: str = ""
    families: tuple[int, ...] = ()
    chips: tuple[int, ...] = ()

    def admits(self, target: Target) -> bool:
        return (
            target.number >= self.minimum
            and (not self.families or self.of_family(target))
            and (not self.chips or target.number in self.chips)
            and (not self.suffixes or (target.suffix != "" and target.suffix in self.suffixes))
        )

    def of_family(self, target: Target) -> bool:
        return any(target.number >= least and target.family() == Target(least).family() for least in self.families)

    def targets(self) -> tuple[Target, ...]:
        """Every known target that fulfils the requirement."""
        return self._targets

    @cached_property
    def _targets(self) -> tuple[Target, ...]:
        return tuple(t for t in sorted(TARGETS) if self.admits(t))

    def first_ptx(self, target: Target) -> tuple[int, int]:
        """First PTX version in which an accepted target has the instruction."""
        return max(self.ptx, TARGETS[target])

    def describe_targets(self) -> str:
        """The accepted targets in words: `sm_80 or higher`, or a list."""
        if self.suffixes or self.families:
            names = [str(t) for t in self.targets()]
            return names[0] if len(names) == 1 else "one of " + ", ".join(names)
        return f"sm_{self.minimum} or higher"


@dataclass(frozen=True)
class OperandSpec:
    """An operand of a row or of a form. In a form, `type` and `count` are those that the modifiers determine.

    name: as the specification spells it (`a-desc`).
    kind: kind of operand, which selects its check.
    type: a PTX type, or in a row the name of the slot that determines it; `wide:SLOT` is twice as wide.
    access: "r", "w" or "rw".
    optional: whether it may be omitted; the last optional operands are omitted first.
    count: elements of a vector.
    per, times, fewer: the slot (`vec`, `dim`, `num`) whose number determines `count`, a factor, and a number that is subtracted.
    space: state space of an address, or the slot that determines it; in a form the space, "" for generic.
    home: state space of variables that a generic address may name.
    wider: whether a wider register is accepted.
    sink: whether `_` is accepted.
    lo, hi: bounds of a constant.
    values: the only constants that are accepted.
    later: further constants, each with its requirement.
    when: the slot that must be filled for the operand to exist; the operand is then not optional.
    between: whether it may be omitted even if other operands follow.
    since: the PTX versions and targets that have this operand.
    instead: the operand that this one may replace.
    types: the accepted register types, if they differ from the rules of type checking; `type` is the first.
    defined: the values whose meaning the specification defines, if these are fewer; for a `src` a range from 0 on.
    parts: the elements of a group.
    """

    name: str
    kind: Kind
    type: str = ""
    access: Literal["r", "w", "rw"] = "r"
    optional: bool = False
    count: int = 1
    per: str = ""
    times: int = 1
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
    since: Requirement = Requirement()
    instead: str = ""
    types: tuple[str, ...] = ()
    defined: tuple[int, ...] | range = ()
    parts: tuple[OperandSpec, ...] = ()

    def but(self, **changes: Any) -> OperandSpec:
        """The operand with other values of some fields, made in a tenth of the time of `dataclasses.replace`."""
        if not changes.keys() <= vars(self).keys():
            raise TypeError(f"an operand has no {' '.join(changes.keys() - vars(self).keys())}")
        made = object.__new__(OperandSpec)
        vars(made).update(vars(self), **changes)
        return made

    @property
    def key(self) -> str:
        """The name as a Python keyword: `a_desc`."""
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Need:
    """A modifier that requires a newer PTX version or target than its row, or, with `suffixes`, fewer kinds of targets."""

    modifier: str
    ptx: tuple[int, int]
    sm: int
    suffixes: str = ""


@dataclass(frozen=True)
class Status:
    """Whether the machine runs an instruction.

    state: "runs"; "unproven" if it runs but its bits have not been compared with a chip; "not modelled".
    reason: why it is not modelled, or why it is unproven.
    """

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
    """One line of the table of instructions.

    name: opcode with the modifiers that are always there, `cp.async.wait_group`.
    slots: places for the other modifiers.
    operands: the operands of the instruction.
    section: the section that defines it.
    requires: PTX version and targets.
    needs: modifiers that are newer than the row.
    rule: a function that returns the error in a combination of modifiers, or None.
    status: whether the machine runs it.
    open: whether it accepts any further modifiers and any operands.
    leading: the slot directly after the opcode.
    free: whether the fixed modifiers may be anywhere.
    effects: the effects besides computing results.
    signatures: a function from a form to its lists of operands, if these follow from its shape and types.
    implied: slots that no modifier fills, with their meaning.
    moves: a function of a move between registers, from the places of A's elements [matrix, row, column] to the places from which
        the elements of D come.
    inferred: modifiers, or the last operand, with a sentence on what no source says for certain of instructions with it.
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
    inferred: tuple[tuple[str, str], ...] = ()
    moves: Callable[[Any], Any] | None = None

    @cached_property
    def opcode(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def op(self) -> str:
        """The name without the opcode: `load.a`; the opcode itself if nothing is left."""
        return self.name.partition(".")[2] or self.name

    @cached_property
    def fixed(self) -> tuple[str, ...]:
        """The modifiers that are always there."""
        return tuple(self.name.split(".")[1:])

    @cached_property
    def implied_once(self) -> Slot | None:
        """The slot whose default was implied before some PTX version."""
        return next((slot for slot in self.slots if slot.since > (0, 0)), None)


def prove(row: Row) -> None:
    """Check the properties that every row must have. Raises InternalError, at import, if a table is wrong."""
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
        if operand.space not in slots and operand.space not in ("space", *FIXED_SPACES):
            raise InternalError(f"{row.name}: operand {operand.name} is in {operand.space}")
    if not any(map(row.requires.admits, TARGETS)):
        raise InternalError(f"{row.name}: no target admits {row.requires}")
    if not row.section.title or (row.open and row.status.runs):
        raise InternalError(f"{row.name}: no section, or no reason")
