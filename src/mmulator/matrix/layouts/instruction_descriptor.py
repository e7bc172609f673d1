"""Instruction descriptors of tcgen05.mma: 32 bits with the types, the shape and all else that the name leaves open; and what
the name says, as a number that native code carries.

Instruction descriptor, Tables 42 to 44; Matrix Shape, Table 39 (PTX ISA 9.1); CUTLASS, mma_sm100_desc.hpp, agrees.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.errors import OperandError, shown
from mmulator.isa.form import Form
from mmulator.isa.types import TYPES

RULE = "Instruction descriptor (PTX ISA 9.1)"
_SHAPES = "Matrix Shape (PTX ISA 9.1)"
Choices = Mapping[int, Any]


@dataclass(frozen=True)
class Field:
    """Bits of an instruction descriptor.

    name: of the attribute of InstructionDescriptor.
    low, bits: lowest bit, and how many.
    choices: the attribute's value, by the number in the bits.
    """

    name: str
    low: int
    bits: int
    choices: Choices

    @property
    def where(self) -> str:
        return f"bits {self.low}-{self.low + self.bits - 1}" if self.bits > 1 else f"bit {self.low}"


_YES_NO: Choices = {0: False, 1: True}
_NO: Choices = {0: False}
_FLOAT8: Choices = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
# (types of D, types of A and B), by kind.
_TYPES: dict[str, tuple[Choices, Choices]] = {
    "f16": ({0: "f16", 1: "f32"}, {0: "f16", 1: "bf16"}),
    "tf32": ({1: "f32"}, {2: "tf32"}),
    "f8f6f4": ({0: "f16", 1: "f32"}, _FLOAT8),
    "i8": ({2: "s32"}, {0: "u8", 1: "s8"}),
    "mxf8f6f4": ({}, _FLOAT8),
    "mxf4": ({}, {1: "e2m1"}),
    "mxf4nvf4": ({}, {1: "e2m1"}),
}
KINDS = tuple(_TYPES)
SCALED = tuple(kind for kind in KINDS if kind.startswith("mx"))  # kinds with .block_scale
_SCALES: dict[str, Choices] = {"mxf8f6f4": {1: "ue8m0"}, "mxf4": {1: "ue8m0"}, "mxf4nvf4": {0: "ue4m3", 1: "ue8m0"}}


def _format(kind: str) -> tuple[Field, ...]:
    """The fields of a kind, lowest bits first; what is between them is reserved and 0."""
    d, ab = _TYPES[kind]
    small = kind in ("mxf4", "mxf4nvf4")
    negate, transpose = _NO if kind == "i8" else _YES_NO, _NO if small else _YES_NO
    middle = (
        Field("negate_a", 13, 1, negate), Field("negate_b", 14, 1, negate),
        Field("transpose_a", 15, 1, transpose), Field("transpose_b", 16, 1, transpose),
        Field("n", 17, 6, {i: 8 * i for i in range(64)}),
    )  # fmt: skip
    if kind in SCALED:
        last = (Field("k", 31, 1, {0: 0, 1: 96}),) if small else ()
        ids = {i: i for i in range(4)}
        return (
            Field("sparse", 2, 1, _YES_NO), Field("scale_b_id", 4, 2, ids),
            Field("atype", 7, 3, ab), Field("btype", 10, 2 if small else 3, ab), *middle,
            Field("stype", 23, 1, _SCALES[kind]), Field("m", 27, 2, {i: 128 * i for i in range(4)}),
            Field("scale_a_id", 29, 2, ids), *last,
        )  # fmt: skip
    return (
        Field("selector", 0, 2, {i: i for i in range(4)} if kind in ("f16", "tf32") else {0: 0}),
        Field("sparse", 2, 1, _YES_NO), Field("saturate", 3, 1, _YES_NO if kind == "i8" else _NO), Field("dtype", 4, 2, d),
        Field("atype", 7, 3, ab), Field("btype", 10, 3, ab), *middle,
        Field("m", 24, 5, {i: 16 * i for i in range(32)}), Field("max_shift", 30, 2, {0: 0, 1: 8, 2: 16, 3: 32}),
    )  # fmt: skip


FORMATS: dict[str, tuple[Field, ...]] = {kind: _format(kind) for kind in KINDS}


@dataclass(frozen=True)
class InstructionDescriptor:
    """The product that a tcgen05.mma with a given instruction descriptor computes. Instruction descriptor (PTX ISA 9.1).

    kind: `f16`, `tf32`, `f8f6f4`, `i8`, `mxf8f6f4`, `mxf4` or `mxf4nvf4`; not in the descriptor, but in the instruction's name.
    dtype, atype, btype: types of D, A and B. stype: of the scale factors, `ue8m0` or `ue4m3`, or ``.
    m, n, k: shape, of both CTAs for a pair. k of 0: that of the kind; 96 is the only other.
    sparse, selector: whether A is sparse; sparsity selector.
    saturate: of an s32 result.
    negate_a, negate_b, transpose_a, transpose_b: transposed means M-major or N-major in shared memory.
    scale_a_id, scale_b_id: first byte of the scale factors in the cells that hold them.
    max_shift: for .ws, greatest shift of B's columns.
    pair, ws: whether the instruction has .cta_group::2, and .ws.

    Raises OperandError where no tcgen05.mma has this combination.
    """

    kind: str
    dtype: str
    atype: str
    btype: str
    stype: str = ""
    m: int = 128
    n: int = 64
    k: int = 0
    sparse: bool = False
    selector: int = 0
    saturate: bool = False
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    scale_a_id: int = 0
    scale_b_id: int = 0
    max_shift: int = 0
    pair: bool = False
    ws: bool = False

    def __post_init__(self) -> None:
        if not self.k and self.kind in FORMATS:
            object.__setattr__(self, "k", implied_k(self.kind, self.sparse))
        _check_values(self)
        _check_types(self)
        _check_shape(self)

    @property
    def unknown(self) -> str:
        """Behaviour of this descriptor that no source states; "" if there is none."""
        return unknown_selector(self.selector)


def unknown_selector(selector: int) -> str:
    """Why no source says what a sparsity selector selects; `` for 0 and 1, which name one of two columns (CuTe, Mosaic)."""
    return f"sparsity selector {selector}: which columns of the metadata it selects is only in a picture" if selector > 1 else ""


def implied_k(kind: str, sparse: bool) -> int:
    """K of a kind: 32 bytes of dense A (narrow elements take a byte, but in mxf4 and mxf4nvf4), or twice that if sparse."""
    return {"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}.get(kind, 32) * (1 + sparse)


def known_m(kind: str, pair: bool, ws: bool, sparse: bool) -> tuple[int, ...]:
    """M of a kind's instructions, smallest first; none where there is no such instruction. Table 39."""
    if ws:
        return () if pair or kind in SCALED else (32, 64, 128)
    if kind in SCALED:
        return ((256,) if sparse else (128, 256)) if pair else (128,)
    return (128, 256) if pair else (64, 128)


def known_n(d: InstructionDescriptor) -> tuple[int, ...]:
    """N that go with the rest of a descriptor, smallest first. Tables 39 and 52."""
    if d.ws:
        return (64, 128) if d.sparse else (64, 128, 256)
    step = 16 if d.pair else 8
    if d.kind == "i8":
        known: Iterable[int] = range(32, 257, 32) if d.pair else (8, 16, 24, *range(32, 257, 16))
    else:
        known = range(step, 257, step)
    if d.transpose_b and TYPES[d.btype].bits == 8:
        known = (n for n in known if n % (2 * step) == 0)
    return tuple(known)


def _named(d: InstructionDescriptor) -> str:
    """The part of an instruction's name that decides what a descriptor may say: `.kind::f16 with .sp, .cta_group::1`."""
    given = [*([".ws"] if d.ws else []), *([".sp"] if d.sparse else []), f".cta_group::{1 + d.pair}"]
    return f".kind::{d.kind} with {', '.join(given)}"


def _places(kind: str) -> dict[str, str]:
    return {f.name: f.where for f in FORMATS[kind]}


def _refuse(d: InstructionDescriptor, name: str, why: str, rule: str = RULE) -> OperandError:
    place = _places(d.kind).get(name)
    return OperandError(f"{name} is {shown(getattr(d, name))}" + (f" ({place})" if place else "") + f": {why}", rule=rule)


def _listed(values: Iterable[Any]) -> str:
    """Values as text; a long run with equal steps as first, second, last."""
    every = list(values)
    steps = {b - a for a, b in pairwise(every)} if len(every) > 4 and not isinstance(every[0], str) else set()
    if len(steps) == 1:
        return f"{every[0]} to {every[-1]} in steps of {steps.pop()}"
    return ", ".join(map(str, every))


def _check_values(d: InstructionDescriptor) -> None:
    """Every attribute is one that the kind's format can hold."""
    if d.kind not in FORMATS:
        raise OperandError(f"kind is {shown(d.kind)}: no such kind", rule=RULE, hint=f"known: {', '.join(KINDS)}")
    known: dict[str, Iterable[Any]] = {f.name: f.choices.values() for f in FORMATS[d.kind]}
    known |= {"m": known_m(d.kind, d.pair, d.ws, d.sparse), "n": (d.n,), "k": _ks(d), "pair": (False, True)}
    if d.kind in SCALED:
        known["dtype"] = ("f32",)
    default = {f.name: f.default for f in fields(InstructionDescriptor)}
    for name in (f.name for f in fields(InstructionDescriptor) if f.name not in ("kind", "ws")):
        value, allowed = getattr(d, name), list(known.get(name, (default[name],)))
        if name == "m" and not allowed:
            raise OperandError(f"there is no {_named(d)}", rule=_SHAPES)
        if value not in allowed:
            have = _listed(dict.fromkeys(v for v in allowed if v != "")) or "none"
            raise _refuse(d, name, f"{_named(d)} takes {have}", _SHAPES if name in "mnk" else RULE)


def _ks(d: InstructionDescriptor) -> tuple[int, ...]:
    """K that go with the rest. 96: dense, and of pairs M = 256."""
    longer = d.kind in ("mxf4", "mxf4nvf4") and not d.sparse and d.m == (256 if d.pair else 128)
    return (implied_k(d.kind, d.sparse), *((96,) if longer else ()))


def _check_types(d: InstructionDescriptor) -> None:
    if d.kind == "f16" and d.dtype == "f16" and not d.atype == d.btype == "f16":
        raise _refuse(d, "dtype", f"A and B must be f16 then, and are {d.atype} and {d.btype}", _SHAPES)
    for side in "ab":
        if getattr(d, f"transpose_{side}") and TYPES[getattr(d, f"{side}type")].bits < 8:
            why = f"{getattr(d, f'{side}type')} cannot be transposed"
            raise _refuse(d, f"transpose_{side}", why, "Valid Combinations of Type-Size, Major-ness and Swizzling (PTX ISA 9.1)")
    if d.selector and not d.sparse:
        raise _refuse(d, "selector", "there is one only with .sp")
    if d.max_shift and not d.ws:
        raise _refuse(d, "max_shift", "there is one only with .ws")


def _check_shape(d: InstructionDescriptor) -> None:
    if d.n not in known_n(d):
        transposed = f" and B of {d.btype} transposed" if d.transpose_b and TYPES[d.btype].bits == 8 else ""
        raise _refuse(d, "n", f"{_named(d)}{transposed} takes {_listed(known_n(d))}", _SHAPES)
    if d.m == 32 and d.max_shift == 32:
        raise _refuse(d, "max_shift", "M = 32 takes at most 16", "Zero-Column Mask Descriptor (PTX ISA 9.1)")


def check_scales(d: InstructionDescriptor, scale_vec: int) -> None:
    """Raise OperandError unless types and IDs of the scale factors go with the instruction's .scale_vec.

    scale_vec: 1, 2 or 4 factors for each row; 0 for none given. At K = 96, 2 is .block32 and 4 is .block16.
    """
    if d.kind not in SCALED:
        return
    size = scale_vec or {"mxf8f6f4": 1, "mxf4": 2}.get(d.kind, 4)
    if d.stype == "ue4m3" and size != 4:
        raise _refuse(d, "stype", f".scale_vec::{size}X takes ue8m0", "Block Scaling for tcgen05.mma (PTX ISA 9.1)")
    allowed = range(0, 4, {1: 1, 2: 2, 4: 4}[size] if d.k != 96 else size // 2)
    for name in ("scale_a_id", "scale_b_id"):
        if getattr(d, name) not in allowed:
            factors = f".scale_vec::{size}X" if d.k != 96 else f"K = 96 and .block{64 // size}"
            raise _refuse(d, name, f"{factors} takes {_listed(allowed)}", "Scale Factor A ID; Scale Factor B ID (PTX ISA 9.1)")


def _word(value: Any) -> int:
    try:
        word = operator.index(value)
    except TypeError:
        word = -1
    if not 0 <= word < 1 << 32:
        hint = f"int({value!r}, 0)" if isinstance(value, str) else None
        said = f"instruction descriptor {shown(value)}: an integer from 0 to 2**32 - 1 is needed"
        raise OperandError(said, rule=RULE, hint=hint)
    return word


def decode(
    word: int, kind: str, *, pair: bool = False, ws: bool = False, sparse: bool = False, scale_vec: int = 0
) -> InstructionDescriptor:
    """Fields of a word that a tcgen05.mma reads.

    word: the 32 bits.
    kind: without `kind::`.
    pair: whether the instruction has .cta_group::2.
    ws, sparse: whether the instruction has .ws, and .sp.
    scale_vec: factors for each row that the instruction's .scale_vec or .block says, or 0.

    Raises OperandError, which names the bits and the rule, for a word that the instruction does not take.
    """
    word = _word(word)
    try:
        d = _decoded(word, kind, pair, ws)
        if d.sparse != sparse:
            raise _refuse(d, "sparse", f"the instruction has {'' if sparse else 'no '}.sp")
        check_scales(d, scale_vec)
    except OperandError as error:
        message = f"instruction descriptor {word:#010x}: {error.message}"
        raise OperandError(message, rule=error.rule, hint=error.hint) from None
    return d


def _decoded(word: int, kind: str, pair: bool, ws: bool) -> InstructionDescriptor:
    if kind not in FORMATS:
        raise OperandError(f"kind is {shown(kind)}: no such kind", rule=RULE, hint=f"known: {', '.join(KINDS)}")
    values: dict[str, Any] = {"dtype": "f32"}
    reserved = word
    for f in FORMATS[kind]:
        mask = (1 << f.bits) - 1
        raw = word >> f.low & mask
        reserved &= ~(mask << f.low)
        if raw not in f.choices:
            known = ", ".join(f"{number} ({_text(value)})" for number, value in f.choices.items())
            are = "are" if f.bits > 1 else "is"
            raise OperandError(f"{f.where} ({f.name}) {are} {raw}: .kind::{kind} takes {known}", rule=RULE)
        values[f.name] = f.choices[raw]
    if reserved:
        low = (reserved & -reserved).bit_length() - 1
        raise OperandError(f"bit {low} is 1: it is reserved for .kind::{kind} and must be 0", rule=RULE)
    return InstructionDescriptor(kind, pair=pair, ws=ws, **values)


def _text(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def encode(d: InstructionDescriptor) -> int:
    """The 32-bit word."""
    word = 0
    for f in FORMATS[d.kind]:
        value = getattr(d, f.name)
        if f.name == "k":
            value = 96 if value == 96 else 0
        word |= next(number for number, known in f.choices.items() if known == value) << f.low
    return word


# what the name of an instruction says --------------------------------------------------------------------------------------
_FACTORS = {"": 0, "1X": 1, "2X": 2, "4X": 4}
BLOCKS = {"mxf8f6f4": {32: 1}, "mxf4": {32: 2}, "mxf4nvf4": {32: 2, 16: 4}}  # factors of a row, by elements of a block


@dataclass(frozen=True)
class Variant:
    """Properties that the name of a tcgen05.mma states.

    kind: without `kind::`.
    pair: whether it has .cta_group::2.
    ws, sparse: whether it has .ws, and .sp.
    scale_vec: scale factors of a row of A; 0 without block scaling.
    """

    kind: str
    pair: bool = False
    ws: bool = False
    sparse: bool = False
    scale_vec: int = 0

    @property
    def number(self) -> int:
        """The variant as an integer of 9 bits."""
        return KINDS.index(self.kind) | self.pair << 3 | self.ws << 4 | self.sparse << 5 | self.scale_vec << 6

    @classmethod
    def of_number(cls, number: int) -> Variant:
        return cls(KINDS[number & 7], bool(number >> 3 & 1), bool(number >> 4 & 1), bool(number >> 5 & 1), number >> 6)

    @classmethod
    def of_form(cls, form: Form) -> Variant:
        words = form.row.name.split(".")
        size = form["scale_vec"]
        if size.startswith("block"):
            factors = BLOCKS[form.kind][int(size.removeprefix("block").removeprefix("::"))]
        else:
            factors = _FACTORS[size.removeprefix("scale_vec::")]
        scaled = form.kind in BLOCKS
        return cls(
            form.kind, form["cta_group"] == "cta_group::2", "ws" in words, form.sparse,
            (factors or next(iter(BLOCKS[form.kind].values()))) if scaled else 0,
        )  # fmt: skip

    def decode(self, word: int) -> InstructionDescriptor:
        """Fields of an instruction descriptor for this variant. Raises OperandError for one that it does not take."""
        return decode(word, self.kind, pair=self.pair, ws=self.ws, sparse=self.sparse, scale_vec=self.scale_vec)
