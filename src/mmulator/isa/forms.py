"""The shape of the instruction tables: rows of qualifier choices, the forms they stand for, and what each form needs.

A `Row` is one line of a Syntax block of the specification: its qualifier slots in printing order, the choices of each
slot, and what the row requires. A `MatrixForm` is one instruction: one choice for every slot. Forms are made on
demand, so the tables stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Literal

from mmulator.isa.effects import ACTS, Effects
from mmulator.isa.targets import TARGETS, Target
from mmulator.isa.types import TYPES, ElementType
from mmulator.lazy import cached_property

OperandKind = Literal["registers", "register", "address", "descriptor", "predicate", "immediate", "integer", "group"]
Direction = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class Section:
    """A section of the PTX ISA document: its title, and the version of the document."""

    title: str
    version: str = "9.1"

    def __str__(self) -> str:
        return f"{self.title} (PTX ISA {self.version})"


@dataclass(frozen=True)
class OperandSpec:
    """One operand as written in the text.

    name: as the specification spells it (`a-desc`). kind:
      registers    a brace-enclosed vector of `count` registers
      register     one register without braces
      address      `[p]`
      descriptor   a 64-bit register holding a matrix descriptor, or an integer constant
      predicate    a predicate register, perhaps negated, or the constant 0 or 1
      immediate    an integer constant, one of `values`
      integer      an integer register, or an integer constant
      group        a brace-enclosed list, one element for each of `parts`
    types: register types that are accepted (for an address: of the register in it); the first is the one that the
      specification names.
    values: the constants that are accepted, or None for any.
    defined: the constants whose meaning the specification defines, where that is fewer than `values`.
    """

    name: str
    kind: OperandKind
    types: tuple[str, ...] = ()
    count: int = 1
    direction: Direction = "in"
    values: range | None = None
    defined: range | None = None
    parts: tuple[OperandSpec, ...] = ()

    @property
    def key(self) -> str:
        """The name as a Python keyword: `a_desc`."""
        return self.name.replace("-", "_")

    @property
    def type(self) -> str:
        """The register type that the specification names."""
        return self.types[0] if self.types else ""


@dataclass(frozen=True)
class Requirement:
    """What a row needs: a PTX version, and a set of targets.

    A target is admitted if its number is `minimum` or more, its family is `family` (where one is given), and its
    suffix is one of `suffixes` (where any are given).
    """

    ptx: tuple[int, int]
    minimum: int
    suffixes: str = ""
    family: int | None = None

    def admits(self, target: Target) -> bool:
        return (
            target.number >= self.minimum
            and (self.family is None or target.family() == self.family)
            and (not self.suffixes or (target.suffix != "" and target.suffix in self.suffixes))
        )

    def targets(self) -> tuple[Target, ...]:
        """Every known target that is admitted."""
        return tuple(t for t in sorted(TARGETS) if self.admits(t))

    def first_ptx(self, target: Target) -> tuple[int, int]:
        """First PTX version in which an admitted target has the row."""
        return max(self.ptx, TARGETS[target])

    def describe_targets(self) -> str:
        """`sm_80 or higher`, or the list of targets."""
        if self.suffixes or self.family is not None:
            names = [str(t) for t in self.targets()]
            return names[0] if len(names) == 1 else "one of " + ", ".join(names)
        return f"sm_{self.minimum} or higher"


@dataclass(frozen=True)
class Slot:
    """A place for one qualifier. The empty choice means that the qualifier may be left out.

    name: the form's field that it sets. category: slots of one category take the qualifiers of that category in order;
    qualifiers of different categories may come in any order, as ptxas has it.
    """

    name: str
    choices: tuple[str, ...]

    @property
    def category(self) -> str:
        return CATEGORIES.get(self.name, self.name)

    @property
    def optional(self) -> bool:
        return "" in self.choices


CATEGORIES = {
    **dict.fromkeys(("dtype", "atype", "btype", "ctype", "stype", "type"), "type"),
    **dict.fromkeys(("alayout", "blayout", "layout"), "layout"),
    **dict.fromkeys(("bit_op", "popc"), "bit_op"),
    **dict.fromkeys(("dst_fmt", "src_fmt"), "format"),
}


@dataclass(frozen=True)
class Row:
    """One line of a Syntax block. `implied` sets fields that no qualifier says."""

    family: str
    op: str
    slots: tuple[Slot, ...]
    requires: Requirement
    section: Section
    signatures: Callable[[MatrixForm], tuple[tuple[OperandSpec, ...], ...]] = field(compare=False, repr=False)
    implied: tuple[tuple[str, str], ...] = ()
    effects: Effects = ACTS

    @cached_property
    def by_category(self) -> dict[str, tuple[Slot, ...]]:
        out: dict[str, tuple[Slot, ...]] = {}
        for slot in self.slots:
            out[slot.category] = (*out.get(slot.category, ()), slot)
        return out

    def form(self, values: dict[str, str]) -> MatrixForm:
        """The form with these qualifiers, by slot name and without the dot; a slot that is missing is left out."""
        out: dict[str, object] = {}
        for name, text in (*self.implied, *((s.name, values.get(s.name, "")) for s in self.slots)):
            out.update(_FIELD.get(name, _same)(name, text))
        return MatrixForm(self.family, self.op, row=self, **out)  # type: ignore[arg-type]

    def forms(self) -> Iterator[MatrixForm]:
        """Every form of the row, each once."""
        seen = set()
        names = [slot.name for slot in self.slots]
        for choice in product(*(slot.choices for slot in self.slots)):
            form = self.form(dict(zip(names, choice)))
            if form not in seen:
                seen.add(form)
                yield form


@dataclass(frozen=True)
class MatrixForm:
    """One matrix instruction.

    family: `mma`, `wgmma`, `wmma`, `ldmatrix`, `stmatrix` or `movmatrix`; op: the rest of the opcode (`mma`,
    `mma_async`, `load.a`, `wait_group`, ...). m, n, k: the shape, 0 where the shape has no such extent; for sparse
    forms k counts the columns of the uncompressed A. atype, btype, ctype, dtype: element types, None where the
    instruction has no such matrix. layout: of the matrix in memory, for wmma.load and wmma.store. space: `""` is
    generic. num, trans, dst_fmt, src_fmt: of the matrix moves. scale_vec: columns of scale_A per row, 0 without
    block scaling. rounding: `rn`, `rz`, `rm` or `rp` for .f64, else `""`.
    """

    family: str
    op: str
    m: int = 0
    n: int = 0
    k: int = 0
    dtype: ElementType | None = None
    atype: ElementType | None = None
    btype: ElementType | None = None
    ctype: ElementType | None = None
    type: ElementType | None = None
    alayout: str = ""
    blayout: str = ""
    layout: str = ""
    sparse: bool = False
    ordered_metadata: bool = False
    kind: str = ""
    block_scale: bool = False
    scale_vec: int = 0
    stype: ElementType | None = None
    satfinite: bool = False
    bit_op: str = ""
    rounding: str = ""
    space: str = ""
    num: int = 0
    trans: bool = False
    dst_fmt: str = ""
    src_fmt: str = ""
    row: Row = field(compare=False, repr=False, kw_only=True)

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(str(getattr(self, f.name)) for f in fields(self) if f.compare))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.mnemonic

    @property
    def shape(self) -> str:
        """`m16n8k16`, or `m8n8` for a matrix move; empty for an instruction without a shape."""
        return f"m{self.m}n{self.n}" + (f"k{self.k}" if self.k else "") if self.m else ""

    @property
    def requires(self) -> Requirement:
        return self.row.requires

    @property
    def section(self) -> Section:
        return self.row.section

    @property
    def effects(self) -> Effects:
        return self.row.effects

    @cached_property
    def signatures(self) -> tuple[tuple[OperandSpec, ...], ...]:
        """The operand lists that are accepted, in the order of the text.

        More than one where an operand may be left out (`stride`) or take another place (`a` or `a-desc`).
        """
        return self.row.signatures(self)

    @property
    def operands(self) -> tuple[OperandSpec, ...]:
        """The first of `signatures`: the shortest spelling; for wgmma the one with A in shared memory."""
        return self.signatures[0]

    @cached_property
    def mnemonic(self) -> str:
        """The instruction's name with all its qualifiers, as the specification orders them."""
        parts = [self.family if self.op == self.family else f"{self.family}.{self.op}"]
        return ".".join((*parts, *filter(None, map(self.qualifier, self.row.slots))))

    def qualifier(self, slot: Slot) -> str:
        """What is written in a slot of the row; empty if nothing is."""
        text = _TEXT.get(slot.name, _same_text)(self, slot.name)
        return text if text in slot.choices else ""

    @property
    def lanes(self) -> int:
        """Threads that execute the instruction together: 128 for wgmma, else 32."""
        return 128 if self.family == "wgmma" else 32


# How a qualifier sets fields, and how a field prints as a qualifier. Slots that are not listed hold their text.
def _same(name: str, text: str) -> dict[str, object]:
    return {name: text} if text else {}


def _nothing(name: str, text: str) -> dict[str, object]:
    return {}


def _element(name: str, text: str) -> dict[str, object]:
    return {name: TYPES[text]} if text else {}


def _flag(name: str, text: str) -> dict[str, object]:
    return {name: bool(text)}


def _shape(name: str, text: str) -> dict[str, object]:
    numbers = [int(x) for x in text[1:].replace("n", " ").replace("k", " ").split()]
    return dict(zip("mnk", numbers))


def _sparse(name: str, text: str) -> dict[str, object]:
    return {"sparse": True, "ordered_metadata": text == "sp::ordered_metadata"}


def _suffix_number(name: str, text: str) -> dict[str, object]:
    return {name: int(text.removeprefix("scale_vec::").strip("xX"))} if text else {}


def _kind(name: str, text: str) -> dict[str, object]:
    return {name: text.removeprefix("kind::")} if text else {}


def _rounding(name: str, text: str) -> dict[str, object]:
    return {name: text or "rn"}


_FIELD: dict[str, Callable[[str, str], dict[str, object]]] = {
    **dict.fromkeys(("sync", "aligned", "popc"), _nothing),
    **dict.fromkeys(("dtype", "atype", "btype", "ctype", "stype", "type"), _element),
    **dict.fromkeys(("satfinite", "block_scale", "trans"), _flag),
    **dict.fromkeys(("scale_vec", "num"), _suffix_number),
    "shape": _shape,
    "sparse": _sparse,
    "kind": _kind,
    "rounding": _rounding,
}


def _same_text(form: MatrixForm, name: str) -> str:
    value = getattr(form, name)
    return "" if value is None else str(value)


def _own_name(form: MatrixForm, name: str) -> str:
    return name


def _flag_text(form: MatrixForm, name: str) -> str:
    return name if getattr(form, name) else ""


_TEXT: dict[str, Callable[[MatrixForm, str], str]] = {
    **dict.fromkeys(("sync", "aligned", "popc"), _own_name),
    **dict.fromkeys(("satfinite", "block_scale", "trans"), _flag_text),
    "sparse": lambda f, n: "sp::ordered_metadata" if f.ordered_metadata else "sp",
    "kind": lambda f, n: f"kind::{f.kind}",
    "scale_vec": lambda f, n: f"scale_vec::{f.scale_vec}X",
    "rounding": lambda f, n: "" if f.rounding == "rn" else f.rounding,
    "num": lambda f, n: f"x{f.num}",
}


def slots(**choices: str | tuple[str, ...]) -> tuple[Slot, ...]:
    """Slots in printing order, from `name="choice"` or `name=("one", "another")`."""
    return tuple(Slot(name, (c,) if isinstance(c, str) else c) for name, c in choices.items())


def optional(*choices: str) -> tuple[str, ...]:
    """Choices of a qualifier that may be left out."""
    return ("", *choices)


def check_rows(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """What must hold of every table; raises AssertionError at import if a table is wrong."""
    known = {f.name for f in fields(MatrixForm)} | set(_FIELD)
    for row in rows:
        names = [s.name for s in row.slots]
        if len(set(names)) != len(names) or not set(names) <= known:
            raise AssertionError(f"{row.family}.{row.op}: slots {names}")
        for slot in row.slots:
            if slot.category == "type" and not set(slot.choices) <= set(TYPES):
                raise AssertionError(f"{row.family}.{row.op}: {slot.name} has unknown types {slot.choices}")
        if not any(map(row.requires.admits, TARGETS)):
            raise AssertionError(f"{row.family}.{row.op}: no target admits {row.requires}")
    return rows


# Register types that ptxas takes for a vector of elements, the specification's own first.
REGISTERS_F16 = ("f16x2", "b32")
REGISTERS_B32 = ("b32",)
REGISTERS_F32 = ("f32", "b32")
REGISTERS_F64 = ("f64", "b64")
REGISTERS_ANY64 = ("f64", "b64", "u64", "s64")
REGISTERS_S32 = ("s32", "u32", "b32")
REGISTERS_INTEGER = ("b32", "u32", "s32")
REGISTERS_ANY32 = ("b32", "u32", "s32", "f32", "f16x2")
REGISTERS_ADDRESS = ("b64", "u64", "s64", "b32", "u32", "s32")
REGISTERS_OFFSET = (*REGISTERS_ADDRESS, "b16", "u16", "s16", "b8", "u8", "s8")
