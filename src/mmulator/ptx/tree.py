"""The tree of a PTX module: the parser builds it, the verifier checks it, and the compiler translates it.

All nodes are frozen data (`node` of classes.py), and each has a `span`: the characters from which it was read.
State Spaces, Types, and Variables; Instruction Operands (PTX ISA 9.1).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from mmulator.base.classes import dataclass, node
from mmulator.base.lazy import cached_property
from mmulator.base.source import Source, Span
from mmulator.isa.effects import Effects
from mmulator.isa.fit import NoForm
from mmulator.isa.form import Form
from mmulator.isa.targets import Target
from mmulator.isa.types import type_bits
from mmulator.ptx.symbols import Linkage as Linkage
from mmulator.ptx.symbols import Parameter as Parameter
from mmulator.ptx.symbols import Space as Space
from mmulator.ptx.symbols import SymbolReference as SymbolReference
from mmulator.ptx.symbols import Variable as Variable
from mmulator.ptx.symbols import parameter_offsets

# Operands


@node(frozen=True, slots=True)
class Reg:
    """A declared register.

    name: unique in the function.
    type: declared type, such as `b32`, `pred`.
    component: selector of a video instruction (`b0`, `h1`, `b3210`), or "".
    negated: whether it is `-r`, as vmad allows.
    """

    name: str
    type: str
    span: Span
    component: str = ""
    negated: bool = False


@node(frozen=True, slots=True)
class Immediate:
    """A constant; `bits` converts it to the type of an operand.

    value: for literal `int` the signed or unsigned integer as written (-1, 0xffffffff); otherwise the bits of the format.
    literal: `int`, `f32` (0f...) or `f64` (0d..., 1.5).
    """

    value: int
    literal: Literal["int", "f32", "f64"]
    span: Span

    def bits(self, type: str) -> int:
        """Bits of the constant as an operand of PTX type `type` (without dot), as an unsigned integer.

        Integers wrap to the operand's size; a floating constant is rounded (to nearest even) to an f32 or f64 operand.
        """
        if self.literal == "int":
            if type == "pred":
                return int(self.value != 0)
            return self.value & ((1 << type_bits(type)) - 1)
        if type == "f64" and self.literal == "f32":
            number = struct.unpack("<f", self.value.to_bytes(4, "little"))[0]
            return int.from_bytes(struct.pack("<d", number), "little")
        if self.literal == "f64" and type in ("f32", "b32", "u32", "s32"):
            return f64_to_f32_bits(self.value)
        return self.value

    @property
    def number(self) -> int | float:
        """The constant as a Python number."""
        if self.literal == "int":
            return self.value
        size, code = (4, "<f") if self.literal == "f32" else (8, "<d")
        return float(struct.unpack(code, self.value.to_bytes(size, "little"))[0])


def f64_to_f32_bits(bits: int) -> int:
    """Bits of the f32 nearest (ties to even) to the f64 with these bits; overflow gives infinity."""
    number = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    try:
        return int.from_bytes(struct.pack("<f", number), "little")
    except OverflowError:
        return 0xFF800000 if number < 0 else 0x7F800000


@node(frozen=True, slots=True)
class Symbol:
    """A name that is not a register: a variable, parameter, function, prototype or branch-target list.

    name: the name.
    offset: bytes added to its address.
    space: state space; `func` for functions, `prototype` for labels of .callprototype, .calltargets and .branchtargets, "" for
        an undeclared name.
    """

    name: str
    offset: int
    space: Space
    span: Span


@node(frozen=True, slots=True)
class LabelRef:
    """A label of the function, by its unique name."""

    name: str
    span: Span


@node(frozen=True, slots=True)
class SpecialRegister:
    """A predefined read-only register. name: without the percent sign, `tid.x`, `laneid`, `clock64`."""

    name: str
    span: Span


@node(frozen=True, slots=True)
class Sink:
    """The operand `_`, for a result that is discarded."""

    span: Span


@node(frozen=True, slots=True)
class NegatedPredicate:
    """The source operand `!p`."""

    register: Reg
    span: Span


@node(frozen=True, slots=True)
class PredicatePair:
    """The destination `p|q`. p: the first result. q: the second result."""

    p: Reg | Sink
    q: Reg | Sink
    span: Span


@node(frozen=True, slots=True)
class VectorOperand:
    """The operand `{a, b, ...}`."""

    elements: tuple[Operand, ...]
    span: Span


@node(frozen=True, slots=True)
class Address:
    """The operand `[base + offset]`. offset: bytes.

    extra: operands after a comma inside the brackets: tensor coordinates, or a sampler.
    """

    base: Reg | Symbol | Immediate
    offset: int
    span: Span
    extra: tuple[Operand, ...] = ()

    @property
    def coordinates(self) -> tuple[Operand, ...]:
        """c0, c1, ... of `[map, {c0, c1, ...}]`, fastest dimension first; empty for any other address."""
        return self.extra[0].elements if self.extra and isinstance(self.extra[0], VectorOperand) else ()


@node(frozen=True, slots=True)
class ArgumentList:
    """`(a, b, ...)` of a call: its results or its arguments."""

    elements: tuple[Operand, ...]
    span: Span


Operand: TypeAlias = (
    Reg
    | Immediate
    | Symbol
    | LabelRef
    | SpecialRegister
    | Sink
    | NegatedPredicate
    | PredicatePair
    | VectorOperand
    | Address
    | ArgumentList
)


# Statements


@node(frozen=True, slots=True)
class Label:
    """A label in a function's body. name: unique in the function."""

    name: str
    span: Span


@node(frozen=True, slots=True, eq=False)
class Instruction:
    """One instruction of a function, equal to itself alone: tables are keyed by it.

    opcode: first word, `ld`.
    modifiers: the other words without dots, `("global", "v4", "b32")`.
    found: the form in the instruction tables, or the reason why there is none; looked up once, when the text is read.
    operands: as written. A call has (Arguments results, callee, Arguments arguments[, prototype]).
    guard: (predicate register, negated), or None.
    mnemonic_span: place of the opcode with its modifiers.
    made_from: the instruction in the text that a rewrite (ptx/program/as_ptxas) replaced by this one; None for an instruction of
        the text.
    used_bytes: bytes of a load that `.pragma "used_bytes_mask n"` says are used, a bit for each; None without it.
    accessed: a cache of ptx/program/uses.py.
    flat: a cache of `leaves`.
    effects: the effects that its row in isa/ declares, besides computing.
    """

    opcode: str
    modifiers: tuple[str, ...]
    found: Form | NoForm
    operands: tuple[Operand, ...]
    guard: tuple[Reg, bool] | None
    span: Span
    mnemonic_span: Span
    made_from: Instruction | None = None
    used_bytes: int | None = None
    accessed: tuple[frozenset[str], frozenset[str]] | None = field(default=None, init=False, repr=False, compare=False)
    flat: Sequence[Operand] | None = field(default=None, init=False, repr=False, compare=False)
    effects: Effects = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.effects = self.found.effects  # type: ignore[misc] # which is asked for forty times

    @property
    def form(self) -> Form:
        """The form; every instruction of a verified module has one. Raises InvalidInstructionError if there is none."""
        if isinstance(self.found, Form):
            return self.found
        raise self.found.error(self.mnemonic_span)

    @property
    def leaves(self) -> Sequence[Operand]:
        """The operands, flattened."""
        found = self.flat
        if found is None:
            found = self.flat = flatten(self.operands)  # type: ignore[misc]
        return found

    @property
    def original(self) -> Instruction:
        """The instruction in the text, which faults and reports name."""
        return self if self.made_from is None else self.made_from

    @property
    def mnemonic(self) -> str:
        """Opcode and modifiers joined by dots: `ld.global.v4.b32`."""
        return ".".join((self.opcode, *self.modifiers))


Statement: TypeAlias = Label | Instruction


# Declarations


@node(frozen=True, slots=True)
class Prototype:
    """A .callprototype: parameters and results of an indirect call."""

    name: str
    params: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    span: Span


@node(frozen=True, slots=True)
class TargetList:
    """A list of .branchtargets (labels) or .calltargets (functions)."""

    name: str
    targets: tuple[LabelRef | Symbol, ...]
    span: Span


@dataclass(frozen=True)
class Function:
    """An .entry (kernel) or .func.

    registers: name -> declared type.
    body: statements in order.
    variables: .local, .shared, .param, .const and .global variables that are declared inside.
    directives: directives without dot -> arguments: `maxntid` -> (128, 1, 1), `noreturn` -> ().
    is_defined: False for a prototype.

    Registers, variables and labels of an inner `{ }` have a unique name, `name@1`; names of the outermost scope are as written.
    """

    name: str
    is_entry: bool
    params: tuple[Parameter, ...]
    returns: tuple[Parameter, ...]
    registers: Mapping[str, str]
    body: tuple[Statement, ...]
    variables: tuple[Variable, ...]
    prototypes: Mapping[str, Prototype]
    targets: Mapping[str, TargetList]
    directives: Mapping[str, tuple[int | str, ...]]
    linkage: Linkage
    is_defined: bool
    span: Span

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(s for s in self.body if isinstance(s, Instruction))

    @cached_property
    def places(self) -> dict[str, int]:
        """Offset of each parameter in the parameter memory, by its name."""
        return dict(zip((p.name for p in self.params), parameter_offsets(self.params)))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """All names in its instructions, except registers."""
        return frozenset(o.name for i in self.instructions for o in i.leaves if isinstance(o, Symbol))

    @cached_property
    def _variables(self) -> dict[str, Variable]:
        return {v.name: v for v in reversed(self.variables)}

    def variable(self, name: str) -> Variable | None:
        """The variable with this (unique) name that the function declares, or None."""
        return self._variables.get(name)

    @cached_property
    def labels(self) -> dict[str, int]:
        """Name of each label -> its index in `body`."""
        return {s.name: i for i, s in enumerate(self.body) if isinstance(s, Label)}


@dataclass(frozen=True)
class ParsedModule:
    """A PTX module.

    version: (major, minor) of .version.
    options: words of .target besides the architecture (`debug`).
    aliases: alias -> name of the function.
    """

    version: tuple[int, int]
    target: Target
    address_size: int
    variables: tuple[Variable, ...]
    functions: tuple[Function, ...]
    source: Source = field(repr=False)
    options: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    known: dict[str, object] = field(default_factory=dict, repr=False, compare=False)  # what was found out about it once

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels, in order."""
        return tuple(f for f in self.functions if f.is_entry and f.is_defined)

    def function(self, name: str) -> Function | None:
        """The function or kernel with this name (its definition, if there is one), or None."""
        return self._functions.get(self.aliases.get(name, name))

    def variable(self, name: str) -> Variable | None:
        """The module-level variable with this name, or None."""
        return self._variables.get(name)

    @cached_property
    def _functions(self) -> dict[str, Function]:
        """Functions by name; of several with one name the first definition, or else the first prototype."""
        last = [f for f in self.functions if not f.is_defined], [f for f in self.functions if f.is_defined]
        return {f.name: f for some in last for f in reversed(some)}

    @cached_property
    def _variables(self) -> dict[str, Variable]:
        last = [v for v in self.variables if v.linkage == "extern"], [v for v in self.variables if v.linkage != "extern"]
        return {v.name: v for some in last for v in reversed(some)}


_WHOLE = frozenset((Reg, Immediate, Symbol, LabelRef, SpecialRegister, Sink))


def flatten(operands: Sequence[Operand]) -> Sequence[Operand]:
    """Operands, with vectors, arguments, pairs and addresses replaced by their parts."""
    if _WHOLE.issuperset(map(type, operands)):  # as in most instructions
        return operands
    found: list[Operand] = []
    for o in operands:
        match o:
            case VectorOperand(elements=elements) | ArgumentList(elements=elements):
                found += flatten(elements)
            case PredicatePair(p=p, q=q):
                found += p, q
            case Address(base=base, extra=extra):
                found.append(base)
                found += flatten(extra)
            case NegatedPredicate(register=register):
                found.append(register)
            case _:
                found.append(o)
    return found
