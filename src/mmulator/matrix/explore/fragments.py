"""The view of layouts: which lane and register, or cell of tensor memory, holds which element of an operand."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from mmulator.base.errors import MmulatorError
from mmulator.isa.form import Form, forms_of
from mmulator.isa.names.words import legal_forms
from mmulator.isa.targets import DEVICES
from mmulator.isa.tcgen05 import ROWS
from mmulator.matrix.explore.view import Choices, Document, View, facts, grid, takes, text
from mmulator.matrix.inspect.explanation.arithmetic import runs_on
from mmulator.matrix.inspect.layouts.answer import Layout
from mmulator.matrix.inspect.layouts.layout import layout, operands
from mmulator.matrix.inspect.listing import opcode
from mmulator.matrix.inspect.search import text_of
from mmulator.matrix.inspect.views.layout import subtitle
from mmulator.matrix.instruction import tcgen05
from mmulator.matrix.layouts import element_of, fragment
from mmulator.matrix.layouts.instruction_descriptor import FORMATS, known_m

FIRST = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"  # what a reader sees first
COLUMNS = (16, 64, 128, 256)  # N of tcgen05.mma that are shown
_METADATA, _ONLY = ("e", "sp_meta"), "as it is"
_NUMBERED = ("selector", "byte id", "thread id")


@cache
def forms() -> dict[str, Form]:
    """The forms that have layouts, by their names; of tcgen05.mma those that differ in shape and types, with some N."""
    every = {text_of(form): form for form in (*legal_forms(), *_tcgen05()) if operands(form)}
    return {FIRST: every[FIRST]} | every


def _tcgen05() -> Iterator[Form]:
    for form in (form for row in ROWS for form in forms_of(row)):
        if not form.kind:
            yield form
        elif not any(slot.silent and form[slot.name] for slot in form.row.slots):
            yield from _shaped(form)


def _shaped(form: Form) -> Iterator[Form]:
    """A tcgen05.mma with each M, some N, and each type of D and A."""
    pair, fields = form["cta_group"] == "cta_group::2", {f.name: f.choices.values() for f in FORMATS[form.kind]}
    types = product(fields.get("dtype", ("f32",)), fields["atype"], fields.get("stype", (None,)))
    for (dtype, atype, stype), m, n in product(types, known_m(form.kind, pair, form.op == "mma.ws", form.sparse), COLUMNS):
        given = {"m": m, "n": n, "dtype": dtype, "atype": atype, "btype": atype, "stype": stype}
        try:
            yield tcgen05.parse(form.mnemonic, None, None, given)
        except MmulatorError:
            continue


def family(form: Form) -> str:
    """The heading under which a form is found: `mma.sp`, `tcgen05.ld`."""
    return opcode(form)


@cache
def _variants(form: Form, operand: str) -> dict[str, dict[str, Any]]:
    """Arguments of `layout` for each layout that an operand has, by a text for people."""
    scaled = operand.startswith("scale")
    asked = {"selector": 4 if operand in _METADATA else 1, "byte_id": 4 if scaled else 1, "thread_id": 2 if scaled else 1}
    found = {}
    for numbers in product(*map(range, asked.values())):
        given: dict[str, Any] = dict(zip(asked, numbers))
        if max(asked.values()) > 1 and not takes(layout, form, operand, **given):
            continue
        said = [f"{name} {number}" for name, number, most in zip(_NUMBERED, numbers, asked.values()) if most > 1]
        found[", ".join(said) or _ONLY] = given
    return found


def variants(form: Form, operand: str) -> dict[str, dict[str, Any]]:
    """Arguments of `layout` for each layout that an operand has, by a text for people; forms of one shape and types agree."""
    size = () if form.effects.tensor else (form.m, form.n)
    return _variants(_FIRST.setdefault((operand, *size, *_shape(form)), form), operand)


_FIRST: dict[object, Form] = {}


def _shape(form: Form) -> tuple[object, ...]:
    """All of a form that decides where metadata and scale factors lie, but M and N."""
    return (form.family, form.op, form.k, form.atype, form.btype, form.stype, form.scale_vec, form.sparse,
            form.kind, form["cta_group"])  # fmt: skip


@cache
def choices() -> Choices:
    tree: Choices = {}
    for name, form in forms().items():
        held = {operand: dict.fromkeys(variants(form, operand)) for operand in operands(form)}
        tree.setdefault(family(form), {})[name] = held
    return tree


def chips() -> dict[str, int]:
    """For each instruction a number whose bit n says whether device n has it."""
    return {name: sum(runs_on(form, d) << n for n, d in enumerate(DEVICES)) for name, form in forms().items()}


def answer(instruction: str, operand: str, variant: str) -> Layout:
    """The layout that a choice means."""
    form = forms()[instruction]
    return layout(form, operand, **variants(form, operand)[variant])


def document(family: str, instruction: str, operand: str, variant: str) -> Document:
    found = answer(instruction, operand, variant)
    evidence = {d: _evidence(instruction, operand, d) for d in DEVICES} if instruction.startswith("wmma") else {}
    said = dict.fromkeys(evidence.values()) or {found.evidence: None}
    return [
        text(subtitle(found)),
        grid(found),
        facts([*found.rule, *((("CuTe", f"{found.cute}: {found.cute_note}"),) if found.cute else ())], "rule"),
        text(*found.notes, *(f"{found.section}: {words}." for words in said)),
    ]


def _evidence(instruction: str, operand: str, device: str) -> str:
    return layout(forms()[instruction], operand, device=device).evidence


def same(family: str, instruction: str, operand: str, variant: str) -> object:
    """Key of a choice: choices of one key have one document."""
    form = forms()[instruction]
    if form.effects.tensor:
        if not form.kind:
            return instruction
        kept = {"d": (form.n, form.dtype), "scale_b": (form.n,)}.get(operand, ())
        inner = () if operand == "d" else (form.kind, form.k, form.atype, form.stype, form.scale_vec)
        return operand, variant, form.op, form["cta_group"], form.sparse, form.m, *kept, *inner
    key = (form.family, form.section, operand, variant, form.sparse, form.trans, form.dst_fmt)
    if operand in _METADATA or operand.startswith("scale"):
        return *key, form.m, form.n, *_shape(form)
    return *key, fragment(form, operand), element_of(form, operand), form.k if form.sparse else 0


VIEW = View(
    "layout", "Layouts",
    "Which lane and register holds which element of a matrix, its metadata or its scale factors: the tables of mmulator layout.",
    (("family", "Family"), ("instruction", "Instruction"), ("operand", "Operand"), ("variant", "Selector or byte")),
    choices, document, chips=chips, same=same,
)  # fmt: skip
