"""Matrix rows are all that rules, forms and verdicts are made of: no list elsewhere names it, and none lacks it."""

from functools import cache
from itertools import count

import pytest

from mmulator.base.source import Source
from mmulator.compiler.kernel import meanings
from mmulator.compiler.lowering.binding import meaning_of
from mmulator.errors import MmulatorError
from mmulator.evaluation.conformance.subjects import ORDERING, forms, subjects
from mmulator.host.text import verified
from mmulator.isa import tcgen05
from mmulator.isa.form import Form, forms_of
from mmulator.isa.match import match, row_of
from mmulator.isa.matrix import MATRIX_ROWS
from mmulator.isa.names.words import legal_forms
from mmulator.isa.row import Row
from mmulator.isa.targets import PTX_VERSIONS, TARGETS, Target
from mmulator.matrix.inspect.explanation.explain import explain_form
from mmulator.matrix.inspect.explanation.paste import paste_target, ptx_text
from mmulator.matrix.inspect.layouts.layout import layout, operands
from mmulator.matrix.instruction.execution import _function
from tools.pages.spec_map import spec_map

_numbers = count()
ROWS = {f"{row.name} {next(_numbers)}": row for row in (*MATRIX_ROWS, *tcgen05.ROWS) if row.status.runs}
each = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
each_of_registers = pytest.mark.parametrize("row", MATRIX_ROWS, ids=list(ROWS)[: len(MATRIX_ROWS)])


def ends(row: Row) -> list[Form]:
    """The first form of a row and the last one."""
    every = list(forms_of(row))
    return every[:: max(1, len(every) - 1)]


def module(form: Form, target: Target, ptx: tuple[int, int]) -> str:
    return f".version {ptx[0]}.{ptx[1]}\n.target {target}\n.address_size 64\n.visible .entry k()\n{{\n{ptx_text(form)}ret;\n}}\n"


@cache
def named() -> frozenset[Form]:
    return frozenset(legal_forms())


@cache
def compared(target: Target) -> frozenset[Form]:
    return frozenset(forms(target)[0])


@cache
def page() -> str:
    return spec_map()


@each
def test_names_are_read(row: Row) -> None:
    meanings()  # fills what meaning_of reads
    for form in ends(row):
        words = tuple(form.mnemonic.split(".")[1:])
        assert match(form.opcode, words) == form and row_of(row.opcode, words) is row
        assert meaning_of(form).function.__module__.startswith("mmulator.compiler.meaning.")


@each_of_registers
def test_targets_and_versions_are_judged(row: Row) -> None:
    for form in ends(row):
        target, first = paste_target(form)
        assert verified(Source("k.ptx", module(form, target, first))).entries
        older = [v for v in PTX_VERSIONS if TARGETS[target] <= v < form.requires.first_ptx(target)]
        lacking = [t for t in sorted(TARGETS) if TARGETS[t] <= first and not form.requires.admits(t)]
        for other, version in (*((target, v) for v in older[-1:]), *((t, first) for t in lacking[-1:])):
            with pytest.raises(MmulatorError):
                verified(Source("k.ptx", module(form, other, version)))


@each_of_registers
def test_views_show_it(row: Row) -> None:
    for form in ends(row):
        assert form in named()  # what `list` and the explorer show
        assert form.mnemonic in str(explain_form(form))
        for name in operands(form):
            assert str(layout(form, name))
        assert operands(form) or form.op in ORDERING


@each_of_registers
def test_it_runs_without_a_kernel_and_is_compared_with_chips(row: Row) -> None:
    for form in ends(row):
        if form.op not in ORDERING:
            assert callable(_function(form)) and subjects(form)
            assert form in compared(form.requires.targets()[-1])


@each
def test_the_map_of_the_specification_names_it(row: Row) -> None:
    assert f"| {row.section.title} | " in page() if row in MATRIX_ROWS else f"`{row.opcode}`" in page()
