"""Laws over every row of the scalar tables: what runs and what is refused, and which hardware vectors there are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mmulator.errors import UnsupportedError
from mmulator.isa.form import Form
from mmulator.isa.row import Row
from mmulator.isa.targets import PTX_VERSIONS, Target
from mmulator.machine.compile.kernel import Jit
from mmulator.machine.launch.limits import default_device
from mmulator.machine.module import Module
from mmulator.machine.runnable import unsupported
from mmulator.program.image import ModuleImage
from mmulator.ptx import parse_module
from mmulator.ptx.verify import verify
from mmulator.source import Source
from tests.data import scalar_vectors
from tests.support.places import DATA, ROOT
from tools.capture import row_forms
from tools.capture import rows as row_vectors
from tools.ptxas.verdicts import Ptxas, Statement, compare

VECTORS = DATA / "row_vectors.json"
DECLARED = "".join(
    f".reg .{t} %{t}_<40>; " for t in ("b8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64",
                                       "pred", "b128")
)  # fmt: skip
# Control flow and what stands in a list of its own
WRITTEN = {
    "bra": "bra L; L:", "brx": "TARGETS: .branchtargets L; brx.idx %u32_1, TARGETS; L:", "ret": "ret;", "exit": "exit;",
    "call": "call (%b32_1), f, (%b32_2);", "trap": "trap;",
}  # fmt: skip


def target_of(form: Form) -> str:
    """A target that has the form, and a device."""
    if form.requires.families:
        return f"sm_{form.requires.families[-1]}a"
    return "sm_100a" if form.requires.minimum > 90 else "sm_90a"


def text_of(statements: list[str], target: str) -> str:
    version = "{}.{}".format(*PTX_VERSIONS[-1])
    return (
        f".version {version}\n.target {target}\n.address_size 64\n.func (.reg .b32 r) f(.reg .b32 a) {{ mov.b32 r, a; ret; }}\n"
        f".visible .entry k()\n{{ {DECLARED}\n" + "\n".join(statements) + "\nret; }\n"
    )


def lower_all(text: str) -> None:
    """Write the code of every instruction of the kernel, without compiling it."""
    tree = parse_module(Source("rows.ptx", text))
    kernel = next(f for f in tree.functions if f.is_entry)
    jit = Jit(tree, kernel, ModuleImage(tree), default_device(tree.target))
    for block in jit.program.blocks:
        jit._write(block)


def groups(row: Row) -> Iterator[tuple[str, list[str], bool]]:
    """(target, statements, whether they are supported) of the forms of a row."""
    found: dict[tuple[str, bool], list[str]] = {}
    for words, form in row_forms.forms(row, 30):
        if row.opcode == "cvta" and "u32" in words:
            continue  # of modules with addresses of 32 bits
        text = WRITTEN.get(row.opcode) or row_forms.statement(row.opcode, words, form)
        found.setdefault((target_of(form), form.status.runs), []).append(text)
        if row.opcode in WRITTEN:
            break
    for (target, runs), statements in found.items():
        yield target, statements, runs


@pytest.mark.parametrize("chapter", range(8))
def test_every_form_is_lowered_or_refused_with_one_reason(chapter: int) -> None:
    """`check` and a launch agree on every row: what check lets through is written to the end, what it names is raised."""
    every = row_forms.rows()
    for row in every[chapter::8]:
        for target, statements, runs in groups(row):
            if runs:
                text = text_of(statements, target)
                tree = parse_module(Source("rows.ptx", text))
                assert verify(tree) == (), row_forms.row_key(row)
                assert unsupported(tree) == (), row_forms.row_key(row)
                lower_all(text)
                continue
            for statement in statements:
                text = text_of([statement], target)
                named = unsupported(parse_module(Source("rows.ptx", text)))
                assert [u.name for u in named] == [row.name]
                with pytest.raises(UnsupportedError) as caught:
                    lower_all(text)
                assert caught.value.message == f"{row.name} cannot be run: {named[0].reason}"


@pytest.mark.skipif("MMULATOR_PTXAS" not in os.environ, reason="MMULATOR_PTXAS names no ptxas")
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_103f", "sm_107a", "sm_110a", "sm_120f"])
def test_ptxas_takes_the_forms_that_we_take(target: str, tmp_path: Path) -> None:
    """Forms of every row, of those that the target lacks too."""
    ptxas = Ptxas(os.environ["MMULATOR_PTXAS"], tmp_path)
    version = next(v for v in reversed(PTX_VERSIONS) if ptxas.knows_version(v))
    made = []
    for row in row_forms.rows():
        if row.open or row.opcode in WRITTEN or row.opcode == "cvta":  # cvta.u32 is taken in modules of 64-bit addresses
            continue
        for words, form in row_forms.forms(row, 40):
            mnemonic, _, operands = row_forms.statement(row.opcode, words, form).removesuffix(";").partition(" ")
            if "b128" not in operands:
                made.append(Statement(mnemonic, (operands,) if operands else (), Target.parse(target), version))
    wrong = [f"{s.text}: here {a}, ptxas {b}" for s, a, b in compare(made, ptxas) if (a is None) != (b is None)]
    assert len(made) > 3000 and not wrong, "\n".join(wrong)


# Vectors ------------------------------------------------------------------------------------------------------------
@cache
def recorded() -> dict[row_vectors.Statement, str]:
    return {
        row_vectors.Statement(text, tuple(sources.split()), tuple(results.split()), kind): digest
        for text, sources, results, kind, digest in json.loads(VECTORS.read_text())
    }


@pytest.mark.parametrize("part", range(6))
def test_rows_have_the_bits_of_an_h100(part: int) -> None:
    wrong = []
    for kernel in row_vectors.kernels(recorded())[part::6]:
        module = Module.load(row_vectors.HEAD + kernel.body(), name=kernel.name)
        results = np.full((kernel.words, row_vectors.THREADS), 0xEEEEEEEEEEEEEEEE, np.uint64)
        module[kernel.name].launch(1, row_vectors.THREADS, [*kernel.inputs(), results], device="sm_90", timeout=60)
        wrong += [s.text for s, digest in kernel.digests(results) if digest != recorded()[s]]
    assert not wrong, "\n".join(wrong)


# Rows without a vector of their own: opcode or name, why, and the test that stands for it.
EXCUSES: tuple[tuple[str, str, str], ...] = (
    ("atom red", "atomic operations have vectors of their own", "data/atomic_vectors.npz"),
    ("bra brx.idx call ret exit", "no result of its own: real kernels", "kernels/test_kernels.py"),
    ("bar.sync bar.arrive barrier.sync barrier.arrive", "no result of its own: order of threads", "kernels/test_kernels.py"),
    ("membar fence griddepcontrol", "no result of its own: order of memory", "laws/test_rows.py"),
    ("prefetch prefetchu.L1 applypriority discard createpolicy", "no result: hints to caches", "laws/test_rows.py"),
    ("nanosleep brkpt pmevent pmevent.mask setmaxnreg", "no result of its own", "laws/test_rows.py"),
    ("trap", "ends the launch", "machine/test_faults.py"),
    ("cp.async", "the result depends on time", "machine/test_asynchrony.py"),
)  # fmt: skip


def excuse_of(row: Row) -> str:
    for names, why, _ in EXCUSES:
        if any(row.name == n or row.opcode == n or row.name.startswith(n + ".") for n in names.split()):
            return why
    return ""


def test_every_row_and_operation_has_a_vector_or_an_excuse() -> None:
    """Each modifier of each row, and any two that can stand together, in a statement that a GPU was asked for."""
    have = row_vectors.covered([*(c.text for c in scalar_vectors.load()), *(s.text for s in recorded())])
    missing, used = [], set()
    for row in row_forms.rows():
        if not row.status.runs:
            continue
        wanted = set(row_vectors.wanted(row))
        if not wanted:  # no chip before sm_100 has it
            assert row.requires.minimum > 90 or row.requires.families or any(n.sm > 90 for n in row.needs), row_forms.row_key(row)
            continue
        gap = wanted - have.get(row, set())
        if gap and (why := excuse_of(row)):
            used.add(why)
        elif gap:
            missing.append(f"{row_forms.row_key(row)[:100]}: {sorted(gap)[:3]}")
    assert not missing, "\n".join(missing)
    assert used == {why for _, why, _ in EXCUSES}
    assert all((ROOT / "tests" / test).exists() for _, _, test in EXCUSES if not test.startswith("data/"))
