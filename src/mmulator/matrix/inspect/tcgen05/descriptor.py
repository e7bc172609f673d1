"""Instruction descriptors of tcgen05.mma: fields, what the instruction computes with them, what is wrong."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mmulator.base.errors import OperandError
from mmulator.isa.form import Form
from mmulator.matrix.inspect.answer import Answer
from mmulator.matrix.inspect.descriptors.answer import DescriptorField
from mmulator.matrix.inspect.descriptors.checks import Diagnostic
from mmulator.matrix.inspect.search import descriptor_of, text_of
from mmulator.matrix.instruction import tcgen05
from mmulator.matrix.layouts.instruction_descriptor import FORMATS, RULE, InstructionDescriptor, check_scales, decode, encode
from mmulator.matrix.layouts.tensor_memory import layout_id

# Of a name that leaves the type of A to the descriptor.
_GUESSES: tuple[dict[str, str], ...] = ({}, {"atype": "f16"}, {"atype": "e4m3"}, {"atype": "s8"})


@dataclass(frozen=True)
class InstructionFields(Answer):
    """A word taken apart as an instruction descriptor.

    word: the 32 bits.
    instruction: the name of the instruction, with the shape and the types that the word says, where it says some.
    kind: of the instruction.
    fields: names, bits, numbers and values.
    descriptor: what it means, or None where the instruction does not take it.
    findings: what is wrong.
    """

    word: int
    instruction: str
    kind: str
    fields: tuple[DescriptorField, ...]
    descriptor: InstructionDescriptor | None
    findings: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return not any(f.level == "error" for f in self.findings)

    def lines(self) -> tuple[tuple[str, str], ...]:
        """(label, text) of what the instruction computes."""
        d = self.descriptor
        if d is None:
            return (("reads", f"the descriptor of a {self.instruction}"),)
        stored = f", {d.k // 2} of {d.k} columns stored" if d.sparse else ""
        a, b = (f"{'-' * getattr(d, f'negate_{s}')}{s.upper()}" for s in "ab")
        majors = ", ".join(f"{s.upper()} {'MN'[s == 'b'] if getattr(d, f'transpose_{s}') else 'K'}-major" for s in "ab")
        letter = layout_id(d.m, d.pair, d.ws, d.sparse)
        said = [
            ("read by", self.instruction),
            ("computes", f"D [{d.m}, {d.n}] of {d.dtype} = {a} [{d.m}, {d.k}] of {d.atype}{stored} * {b} [{d.k}, {d.n}] of "
             f"{d.btype} + D"),
            ("K", f"{d.k}, implied by the kind{' and .sp' * d.sparse}" if d.k != 96 else "96, by bit 31"),
            ("shared", f"{majors}, where the matrix is in shared memory"),
            ("layout", f"{letter} of Data Path Layout Organization; mmulator layout {self.instruction} d"),
        ]  # fmt: skip
        if d.stype:
            said.append(("scales", f"{d.stype}; of A from byte {d.scale_a_id}, of B from byte {d.scale_b_id} of a cell"))
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        return {
            "word": f"{self.word:#010x}",
            "instruction": self.instruction,
            "kind": self.kind,
            "fields": [{"name": f.name, "bits": f.bits, "raw": f.raw, "value": f.value} for f in self.fields],
            "descriptor": vars(self.descriptor) if self.descriptor else None,
            "ok": self.ok,
            "findings": [f.to_dict() for f in self.findings],
        }


def instruction_fields(word: int, instruction: str) -> InstructionFields:
    """Fields of a 32-bit word as the instruction descriptor of a tcgen05.mma.

    instruction: its name, or words such as `tcgen05 m128n64 f16`; shape and types that words say are compared with the word's.

    Raises InvalidInstructionError or OperandError for another instruction, OperandError for a word of more bits.
    """
    form = _form(instruction)
    fields, findings, descriptor = _fields(word, form), [], None
    try:
        descriptor = decode(
            word, form.kind, pair=form["cta_group"] == "cta_group::2", ws=form.op == "mma.ws", sparse=form.sparse,
            scale_vec=form.scale_vec,
        )  # fmt: skip
    except OperandError as error:
        if not isinstance(word, int) or not 0 <= word < 1 << 32:
            raise
        findings.append(Diagnostic("error", error.message.partition(": ")[2], str(error.rule), error.hint or ""))
    name = form.mnemonic
    if descriptor:
        findings += _differences(descriptor, descriptor_of(form), instruction)
        if descriptor.unknown:
            findings.append(Diagnostic("warning", descriptor.unknown, RULE, "mmulator refuses to run it"))
        name = text_of(_formed(form, descriptor))
    return InstructionFields(word, name, form.kind, fields, descriptor, tuple(findings))


def instruction_word(instruction: str, given: Mapping[str, Any]) -> int:
    """The instruction descriptor of a tcgen05.mma.

    instruction: its name with words, such as `tcgen05 m128n64 f16`.
    given: other values of InstructionDescriptor's attributes, such as transpose_b.

    Raises InvalidInstructionError for another instruction, OperandError for a value that it does not take.
    """
    form = _multiplies(tcgen05.parse(_named(instruction), None, None, {}))
    base = descriptor_of(form)
    names = [f.name for f in FORMATS[base.kind]]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in names:
            known = ", ".join(n for n in names)
            raise OperandError(f"{name} is no field of a descriptor of .kind::{base.kind}", rule=RULE, hint=f"fields: {known}")
        values[name] = type(getattr(base, name))(value)
    d = replace(base, **values)
    check_scales(d, form.scale_vec)
    return encode(d)


def _named(text: str) -> str:
    if not tcgen05.is_named(text):
        raise OperandError(f"{text} takes no instruction descriptor", rule=RULE, hint="tcgen05.mma does")
    return text


def _multiplies(form: Form) -> Form:
    if not form.kind:
        raise OperandError(f"{form} takes no instruction descriptor", rule=RULE, hint="tcgen05.mma does")
    return form


def _form(text: str) -> Form:
    """The form that a text names, which may leave the types to the descriptor."""
    wrong: list[OperandError] = []
    for given in _GUESSES:
        try:
            return _multiplies(tcgen05.parse(_named(text), None, None, given))
        except OperandError as error:
            wrong.append(error)
    raise wrong[0]


def _formed(form: Form, d: InstructionDescriptor) -> Form:
    """The form with the shape and the types of a descriptor."""
    own = {"dtype": d.dtype, "atype": d.atype, "btype": d.btype, "stype": d.stype, "shape": f"m{d.m}n{d.n}k{d.k}"}
    kept = tuple((slot, text) for slot, text in form.modifiers if slot not in (*own, "satfinite"))
    more = tuple((slot, text) for slot, text in own.items() if text)
    return Form(form.row, (*kept, *more, *((("satfinite", "satfinite"),) * d.saturate)))


def _fields(word: int, form: Form) -> tuple[DescriptorField, ...]:
    out = []
    for f in FORMATS[form.kind]:
        raw = word >> f.low & ((1 << f.bits) - 1)
        value = f.choices.get(raw, "no meaning")
        said = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        if f.name == "k":
            said = "96" if value else "64, sparse 128"
        out.append(DescriptorField(f.name, f.where.split()[1], raw, said))
    return tuple(out)


def _differences(d: InstructionDescriptor, named: InstructionDescriptor, text: str) -> list[Diagnostic]:
    """Findings where words say another shape or other types than the word."""
    words = re.split(r"[\s.,]+", text)
    said = {"m": r"m\d+.*", "n": r"(m\d+)?n\d+.*", "atype": re.escape(named.atype), "btype": re.escape(named.btype)}
    found = []
    for name, pattern in said.items():
        mine, other = getattr(d, name), getattr(named, name)
        if mine != other and any(re.fullmatch(pattern, w) for w in words):
            found.append(Diagnostic("error", f"{name} is {mine} in the descriptor, and {other} is said", RULE, "correct one"))
    return found
