"""Forms of every instruction that is not a matrix instruction: how a row is written, and how a mnemonic is matched.

The rows are in `scalar_*.py`, one file per chapter of Instruction Set (PTX ISA 9.1). A row says which modifiers an
instruction takes, which operands, since which PTX version and target, and in which section that is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from mmulator.errors import similar
from mmulator.isa.types import TYPES

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

# Register-sized packed types and others that are no single element.
_PACKED_BITS: Mapping[str, int] = {
    "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16, "e2m1x2": 8, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "s2f6x2": 16,
    "e4m3x4": 32, "e5m2x4": 32, "e2m3x4": 32, "e3m2x4": 32, "e2m1x4": 16, "f32x2": 64, "u16x2": 32, "s16x2": 32,
    "u8x4": 32, "s8x4": 32,
}  # fmt: skip


def type_bits(name: str) -> int:
    """Size in bits of a PTX type, packed types included; `pred` is 1. Raises KeyError for an unknown name."""
    packed = _PACKED_BITS.get(name)
    return TYPES[name].bits if packed is None else packed


def is_type(name: str) -> bool:
    return name in TYPES or name in _PACKED_BITS


@dataclass(frozen=True, slots=True)
class Group:
    """Modifiers of which one may stand (or must, if not optional). name: its key in `ScalarForm`."""

    name: str
    alternatives: tuple[str, ...]
    optional: bool = False

    @property
    def maybe(self) -> Group:
        return Group(self.name, self.alternatives, True)


@dataclass(frozen=True, slots=True)
class OperandRule:
    """An operand of a row. type: a PTX type, or the name of the group that says it; `wide:GROUP` is twice as wide.

    count: elements of a vector operand, or the group that says it (`vec`). wider: a wider register may stand.
    sink: `_` may stand. lo, hi: bounds of a constant. values: the only constants allowed. when: the operand is there if
    and only if that group is; without it, `optional` operands may be left out, the last ones first. since: the least PTX
    version and target with that operand.
    """

    name: str
    kind: Kind
    type: str
    access: Literal["r", "w", "rw"] = "r"
    optional: bool = False
    count: int | str = 1
    wider: bool = False
    sink: bool = False
    lo: int | None = None
    hi: int | None = None
    values: tuple[int, ...] = ()
    when: str = ""
    since: tuple[tuple[int, int], int] = ((1, 0), 0)


@dataclass(frozen=True, slots=True)
class Need:
    """A modifier that needs a newer PTX version or target than its row."""

    modifier: str
    ptx: tuple[int, int]
    sm: int


@dataclass(frozen=True)
class Row:
    """One line of the table. name: opcode with the modifiers that are always there, `cp.async.wait_group`.

    rule: says what is wrong with a combination of modifiers, or returns None. specific: needs an `a` or `f` target.
    chip: needs an `a` target. families: least target of each family that has it; empty if all have.
    unsupported: why the machine does not run it; empty if it does. open: takes any further modifiers and any operands.
    leading: the group that stands directly after the opcode. free: the fixed modifiers may stand anywhere.
    """

    name: str
    groups: tuple[Group, ...]
    operands: tuple[OperandRule, ...]
    section: str
    ptx: tuple[int, int] = (1, 0)
    sm: int = 0
    needs: tuple[Need, ...] = ()
    rule: Callable[[Mapping[str, str]], str | None] | None = None
    specific: bool = False
    chip: bool = False
    families: tuple[int, ...] = ()
    unsupported: str = ""
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


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """An operand of a matched form: an `OperandRule` with its type and count resolved."""

    name: str
    kind: Kind
    type: str
    access: Literal["r", "w", "rw"]
    optional: bool
    count: int
    wider: bool
    sink: bool
    lo: int | None
    hi: int | None
    values: tuple[int, ...]
    since: tuple[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class ScalarForm:
    """A matched mnemonic.

    name: of the row: `add`, `cp.async`, `cp.async.wait_group`, `bar.sync`, `cvta.to`.
    modifiers: (group, modifier) in the order of the row; `form["rnd"]` is the modifier, or "" if it is not written.
    operands: what the instruction takes. ptx, sm: the least PTX version and target it needs; specific, chip, families:
    what else of the target, as in the row.
    section: its section of the specification. unsupported: why the machine does not run it, or "".
    """

    name: str
    modifiers: tuple[tuple[str, str], ...]
    operands: tuple[OperandSpec, ...]
    ptx: tuple[int, int]
    sm: int
    specific: bool
    chip: bool
    families: tuple[int, ...]
    section: str
    unsupported: str
    open: bool

    def __getitem__(self, group: str) -> str:
        for name, modifier in self.modifiers:
            if name == group:
                return modifier
        return ""

    @property
    def opcode(self) -> str:
        return self.name.partition(".")[0]

    @property
    def since_blackwell(self) -> bool:
        """Only chips from sm_100 on have it: none of which has been asked what it computes."""
        return self.sm >= 100 or bool(self.families)

    def __str__(self) -> str:
        return ".".join((self.name, *(m for _, m in self.modifiers)))


@dataclass(frozen=True, slots=True)
class NoForm:
    """Why no row matches. position: index of the offending modifier, or None. message, hint, rule: for an error."""

    message: str
    position: int | None = None
    hint: str | None = None
    section: str | None = None


TYPE_GROUPS = frozenset(("type", "dtype", "stype", "atype", "btype", "ctype"))


def _assign(row: Row, modifiers: tuple[str, ...]) -> dict[str, str] | tuple[int, str]:
    """Modifiers to groups. As in ptxas, order between groups is free but for types, fixed modifiers and `leading`.

    Returns group -> modifier, or (how many modifiers fit, what is wrong).
    """
    fixed = list(row.fixed)
    free = list(row.groups)
    taken: dict[str, str] = {}
    for position, modifier in enumerate(modifiers):
        if modifier in fixed and (row.free or modifier == fixed[0]):
            fixed.remove(modifier)
            continue
        if fixed and not row.free and not (position == 0 and row.leading):
            break
        types = 0
        for group in free:
            types += group.name in TYPE_GROUPS
            if group.name == row.leading and position:
                continue
            if modifier in group.alternatives and (types <= 1 or group.name not in TYPE_GROUPS):
                taken[group.name] = modifier
                free.remove(group)
                break
        else:
            if not row.open:
                return position, f".{modifier} cannot stand here"
    if fixed:
        return -1, f".{fixed[0]} is missing"
    for group in free:
        if not group.optional:
            choices = ", ".join(f".{a}" for a in group.alternatives[:12])
            more = ", ..." if len(group.alternatives) > 12 else ""
            return len(modifiers), f"a modifier is missing: one of {choices}{more}"
    return taken


def _resolve_type(rule: str, taken: Mapping[str, str]) -> str:
    if rule.startswith("wide:"):
        name = taken[rule[5:]]
        return name[0] + str(int(name[1:]) * 2)
    return taken.get(rule, rule)


def _form(row: Row, taken: dict[str, str]) -> ScalarForm:
    operands = []
    for o in row.operands:
        if o.when and o.when not in taken:
            continue
        if isinstance(o.count, int):
            count = o.count
        else:
            count = int(taken[o.count][1:]) if o.count in taken else 1
        operands.append(
            OperandSpec(
                o.name, o.kind, _resolve_type(o.type, taken), o.access, o.optional, count, o.wider, o.sink, o.lo, o.hi,
                o.values, o.since,
            )
        )  # fmt: skip
    ptx, sm = row.ptx, row.sm
    present = set(taken.values())
    for need in row.needs:
        if need.modifier in present:
            ptx, sm = max(ptx, need.ptx), max(sm, need.sm)
    ordered = tuple((g.name, taken[g.name]) for g in row.groups if g.name in taken)
    return ScalarForm(
        row.name, ordered, tuple(operands), ptx, sm, row.specific or row.chip, row.chip, row.families, row.section,
        row.unsupported, row.open,
    )  # fmt: skip


@lru_cache(maxsize=8192)
def match(opcode: str, modifiers: tuple[str, ...]) -> ScalarForm | NoForm:
    """The form of a mnemonic: `match("ld", ("global", "v4", "b32"))`. A `NoForm` says why there is none."""
    found = _find(opcode, modifiers)
    return found if isinstance(found, NoForm) else _form(*found)


def row_of(opcode: str, modifiers: tuple[str, ...]) -> Row | None:
    """The line of the tables that a mnemonic belongs to: the first that fits."""
    found = _find(opcode, modifiers)
    return None if isinstance(found, NoForm) else found[0]


def _find(opcode: str, modifiers: tuple[str, ...]) -> tuple[Row, dict[str, str]] | NoForm:
    """The first row that fits, with its modifiers by group."""
    from mmulator.isa.table import ROWS

    rows = ROWS.get(opcode)
    if rows is None:
        return NoForm(f"there is no instruction {opcode!r}", None, _similar(opcode, ROWS))
    best: tuple[int, str, Row] | None = None
    for row in rows:
        taken = _assign(row, modifiers)
        if isinstance(taken, dict):
            wrong = row.rule(taken) if row.rule else None
            if wrong is None:
                return row, taken
            fit, message = len(modifiers) + 1, wrong
        else:
            fit, message = taken
        if best is None or fit > best[0]:
            best = fit, message, row
    assert best is not None  # every opcode has a row
    fit, message, row = best
    position = fit if 0 <= fit < len(modifiers) else None
    return NoForm(f"{'.'.join((opcode, *modifiers))}: {message}", position, section=row.section)


def _similar(opcode: str, rows: Mapping[str, object]) -> str | None:
    close = similar(opcode, rows, 3)
    return f"did you mean {' or '.join(close)}?" if close else None
