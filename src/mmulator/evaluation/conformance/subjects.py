"""Subjects: a form together with everything that its text fixes (where A lies, immediates)."""

from dataclasses import dataclass
from typing import Any

from mmulator.base.errors import MmulatorError
from mmulator.base.lazy import cached_property
from mmulator.evaluation.conformance.values import MatrixProblem
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import PTX_VERSIONS, Target
from mmulator.isa.types import F16
from mmulator.matrix.layouts import sparse
from mmulator.matrix.numerics.profiles import dot_key, profile_for

ORDERING = ("fence", "commit_group", "wait_group")  # wgmma operations without a result


@dataclass(frozen=True)
class Subject:
    """One instruction as written. signature: index in form.signatures. immediates: operand key and value, in order."""

    form: Form
    signature: int = 0
    immediates: tuple[tuple[str, int], ...] = ()

    @cached_property
    def name(self) -> str:
        """The mnemonic, and what tells the subject from others of the form."""
        parts = [self.form.mnemonic]
        if self.form.lanes > 32:
            parts.append("a" if self.a_in_registers else "a-desc")
        return " ".join([*parts, *(f"{k.replace('_', '-')}={v}" for k, v in self.immediates)])

    @property
    def specs(self) -> tuple[OperandSpec, ...]:
        return self.form.signatures[self.signature]

    @property
    def a_in_registers(self) -> bool:
        return self.form.lanes > 32 and self.signature == 1

    @cached_property
    def fixed(self) -> dict[str, int]:
        return dict(self.immediates)


_CLASSES = {
    **dict.fromkeys(("e4m3", "e5m2"), "FP8"), **dict.fromkeys(("s8", "u8"), "s8/u8"), **dict.fromkeys(("s4", "u4"), "s4/u4"),
}  # fmt: skip


def group(form: Form) -> str:
    """The line of a report that a form belongs to: family, spelling and types."""
    name = form.family + ".sp" * form.sparse + "::ordered" * form.ordered_metadata
    if form.effects.opaque and not form.atype:
        return f"{name}.{form.op}"
    if not form.atype:
        return form.family
    factors = dict.fromkeys(_CLASSES.get(str(t), str(t)) for t in (form.atype, form.btype))
    types = f"kind::{form.kind}" if form.kind else " x ".join(factors)
    c = f", C {form.ctype}" if form.ctype and form.ctype is not form.dtype else ""
    return f"{name} {types} -> {form.dtype}{c}"


def _signs(form: Form, number: int) -> list[dict[str, int]]:
    """Choices of signs and transposes, so that every pair of values of any two of them comes up. number: rotates the choices."""
    keys = [s.key for s in form.signatures[number] if s.key.startswith(("imm_scale", "imm_trans"))]
    rows = ((0, 0, 0, 0), (1, 0, 1, 1), (0, 1, 1, 0), (1, 1, 0, 1))
    turn = form.n // 8 % 2
    out = []
    for row in rows if keys else rows[:1]:
        values = {}
        for position, key in enumerate(keys):
            bit = row[position] ^ (turn and position == 3)
            values[key] = 1 - 2 * bit if key.startswith("imm_scale") else bit
        out.append(values)
    return out


def subjects(form: Form) -> list[Subject]:
    """The subjects of a form: every selector; for wgmma A in both places, signs and transposes."""
    out = []
    for number, specs in enumerate(form.signatures):
        if form.effects.opaque and not form.atype and number == 0:
            continue  # without a stride: the other has the default stride among its cases
        selector = next((s for s in specs if s.key in ("f", "sp_sel")), None)
        selectors = list(selector.defined or selector.values or range(1)) if selector else [0]
        choices = _signs(form, number)
        for position in range(max(len(choices), len(selectors))):
            given: dict[str, int] = {}
            if selector:
                given[selector.key] = selectors[position % len(selectors)]
            given |= choices[position % len(choices)]
            for spec in specs:
                if spec.kind == "group":
                    given |= {part.key: int((part.values or range(1))[0]) for part in spec.parts}
            out.append(Subject(form, number, tuple(given.items())))
    return out


def forms(target: Target, newest: tuple[int, int] = PTX_VERSIONS[-1]) -> tuple[list[Form], list[Form]]:
    """(forms that a target has and that can be compared, forms that it lacks). newest: the newest .version that the driver
    reads.
    """
    there: list[Form] = []
    missing: list[Form] = []
    for form in matrix_forms():
        if form.op in ORDERING:
            continue
        known = form.requires.admits(target) and form.requires.first_ptx(target) <= newest
        (there if known else missing).append(form)
    return there, missing


def problem(form: Form, device: str) -> MatrixProblem:
    """Shapes, types and arithmetic of a multiplication; defaults where the arithmetic is not known."""
    p: Any = None
    try:
        p = profile_for(dot_key(form), device)
    except MmulatorError:
        p = None
    columns = form.k // 2 if form.sparse else form.k
    shape = (form.m, form.n, form.k, columns)
    types = (form.atype, form.btype, form.ctype or form.dtype, form.dtype)
    if form.atype.name == "f64":
        return MatrixProblem(*shape, *types, fraction=53, floor=-1074, keep=52)
    if p is None or not p.fraction:
        return MatrixProblem(*shape, *types)
    keep = F16.mantissa if form.dtype.name == "f16" else p.keep
    return MatrixProblem(*shape, *types, fraction=p.fraction, floor=p.floor, keep=keep)


def chunks(form: Form) -> int:
    """Nibbles of metadata in a row of A."""
    return form.k // sparse.granularity(form).chunk
