"""Scalar semantics against an NVIDIA H200, one statement at a time and without the machine."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from mmulator.codegen.types import ptr_to, void
from mmulator.codegen.values import Builder, constant, module_text
from mmulator.isa.form import Form
from mmulator.isa.match import match
from mmulator.isa.row import Row
from mmulator.isa.table import ROWS
from mmulator.isa.types import type_bits
from mmulator.machine.compile.block import vector_type
from mmulator.machine.meaning.vocabulary import SEMANTICS
from tests.data import scalar_vectors
from tests.support.scalar_harness import BOOL, HarnessScope, bits, execute, form_of, run

FAMILIES = ("integer", "extended", "logic", "compare", "float", "half", "convert", "narrow")
ELSEWHERE = ("{", "[", "mov.b16 d, 0")


def cases(family: str) -> list[Any]:
    return [c for c in scalar_vectors.load() if c.family == family and not any(word in c.text for word in ELSEWHERE)]


def as_word(value: np.ndarray, size: int) -> np.ndarray:
    """A result in a register of `size` bytes, extended by its own sign."""
    if value.dtype.itemsize == size:
        return bits(value)
    return bits(value.astype(f"{'i' if value.dtype.kind == 'i' else 'u'}{size}"))


def wrong(case: Any) -> str | None:
    registers: dict[str, Any] = dict(case.operands())
    carry = np.zeros(case.count, bool)
    for statement in filter(str.strip, case.text.split(";")):
        written, carry = execute(statement, registers, carry)
        registers |= written
    for register, want in case.results().items():
        got = as_word(registers[register], want.dtype.itemsize)
        different = np.flatnonzero(got != want)
        if different.size:
            i = int(different[0])
            ins = ", ".join(f"{r} = {int(o[i]):#x}" for r, o in case.operands().items())
            off = f"{register} is {int(got[i]):#x}, not {int(want[i]):#x}"
            return f"{case.text}: {off}, for {ins}; {different.size} differ"
    return None


@pytest.mark.parametrize("family", FAMILIES)
def test_statements_have_the_bits_of_an_h200(family: str) -> None:
    found = [w for w in map(wrong, cases(family)) if w]
    assert not found, "\n".join(found)


# Corners that the captured draw does not reach: (instruction, operands, result), measured on an NVIDIA H200.
QUIET, SIGNALING = 0x7FF8000000000005, 0xFFF000000000000B
MEASURED = [
    # .ftz flushes what is subnormal after rounding with any exponent, though as a subnormal it would round up
    ("mul.rn.ftz.f32", (0x203BE54A, 0x9FAE6508), 0x80000000),
    ("mul.rn.f32", (0x203BE54A, 0x9FAE6508), 0x80800000),
    ("mul.rm.ftz.f32", (0x0E247D13, 0xB1C7361E), 0x80000000),
    ("mul.rp.ftz.f32", (0x346AB513, 0x0B8B9CB7), 0x00000000),
    ("fma.rn.ftz.f32", (0x11D4A1EB, 0x221A1B33, 0x80800000), 0x80000000),
    ("div.rp.ftz.f32", (0x19EDC0E4, 0x58EDC0E5), 0x00000000),
    ("cvt.rn.ftz.f32.f64", (0xB80FFFFFE0000000,), 0x80000000),
    ("cvt.rp.ftz.f32.f64", (0x380FFFFFD0000000,), 0x00000000),
    ("mul.ftz.f16", (0x1449, 0x2B77), 0x0000),
    ("fma.rn.ftz.f16", (0x2267, 0x0A29, 0x8427), 0x8000),
    # but a subnormal .f32 is no zero to a conversion to .f16
    ("cvt.rp.ftz.f16.f32", (0x00000001,), 0x0001),
    # which NaN an .f64 operation passes on: of b, c, a the first; of a quotient the dividend
    ("add.f64", (QUIET, SIGNALING), SIGNALING | 1 << 51),
    ("sub.f64", (SIGNALING, QUIET), QUIET),
    ("fma.rn.f64", (QUIET, SIGNALING, QUIET + 4), SIGNALING | 1 << 51),
    ("fma.rn.f64", (QUIET, 0x3FF0000000000000, SIGNALING), SIGNALING | 1 << 51),
    ("div.rn.f64", (QUIET, SIGNALING), QUIET),
    ("max.f64", (QUIET, QUIET + 4), QUIET + 4),
    ("fma.rn.f64", (0x7FF0000000000000, 0, 0), 0xFFF8000000000000),
    # the NaN that stands for what lies outside a tensor
    ("fma.rn.oob.f16", (0x7FF7, 0x3C00, 0x3C00), 0x0000),
    ("fma.rn.oob.bf16", (0x3F80, 0xFFF7, 0x3F80), 0x0000),
    ("fma.rn.oob.f16", (0x3C00, 0x3C00, 0x7FF7), 0x7FFF),
    ("fma.rn.oob.f16", (0xFFFF, 0x3C00, 0x3C00), 0x7FFF),
    ("testp.normal.f32", (0x00000000,), 1),
    ("testp.normal.f64", (0x8000000000000000,), 1),
    ("testp.normal.f32", (0x00000001,), 0),
    ("fns.b32", (0x704E5E1B, 3, 0x80000000), 0),
]  # fmt: skip


@pytest.mark.parametrize(("mnemonic", "operands", "want"), MEASURED)
def test_corner_measured_on_an_h200(mnemonic: str, operands: tuple[int, ...], want: int) -> None:
    form = form_of(mnemonic)
    sizes = [type_bits(o.type) // 8 for o in form.operands[1:]]
    got = run(mnemonic, *(np.array([v], f"u{size}") for v, size in zip(operands, sizes)))
    assert int(bits(got)[0]) == want


CHAPTERS = ("Integer Arithmetic", "Extended-Precision", "Floating-Point", "Half Precision", "Comparison", "Logic")


def rows() -> list[Row]:
    """Rows of the chapters whose instructions only compute, and conversions."""
    found = [r for group in ROWS.values() for r in group if r.status.runs]
    return [r for r in found if r.section.title.startswith(CHAPTERS) or r.name in ("cvt", "cvt.pack", "prmt")]


def forms_of(row: Row) -> dict[str, Form]:
    """Every legal choice of modifiers."""
    choices = [(*g.choices, "") if g.optional else g.choices for g in row.slots]
    found = {}
    for words in product(*choices):
        chosen = tuple(filter(None, words))
        for modifiers in ((*row.fixed, *chosen), (*chosen, *row.fixed)):
            form = match(row.opcode, modifiers)
            if isinstance(form, Form) and form.status.runs:
                found[str(form)] = form
    return found


@pytest.mark.parametrize("name", sorted({r.name for r in rows()}))
def test_every_form_can_be_written(name: str) -> None:
    """Results have the type of the destination, sign included (it says how a wider register is filled), and LLVM
    takes the text, that of the functions which are called as well."""
    written: dict[str, Builder] = {}
    forms = {k: f for r in rows() if r.name == name for k, f in forms_of(r).items()}
    for number, form in enumerate(forms.values()):
        sources = [o for o in form.operands if "w" not in o.access for _ in range(o.count)]
        types = [vector_type(o.type) for o in sources if o.kind != "imm"]
        b = Builder(f"form{number}", void, [(f"p{n}", ptr_to(ty)) for n, ty in enumerate(types)])
        with b:
            scope = HarnessScope(b, constant(b, BOOL, 0))
            values = iter(b.load(ty, p) for ty, p in zip(types, b.params))
            result = SEMANTICS[form.opcode](scope, form, *(0x96 if o.kind == "imm" else next(values) for o in sources))
            b.ret()
        first = result[0] if isinstance(result, tuple) else result
        assert first.ty == vector_type(form.operands[0].type), str(form)
        written[b.name] = b
        written |= {n: f.build()[0] for n, f in scope.natives.items() if n not in written}
    assert forms
    import llvmlite.binding

    llvmlite.binding.parse_assembly(module_text(list(written.values()))).verify()
