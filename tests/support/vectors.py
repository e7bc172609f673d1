"""Recorded vectors, by the chapter of the instruction that they are about: what a GPU computed, replayed.

Each is replayed once in every way that there is: a statement of scalar_vectors in a kernel, and where it is lane-wise by its
meaning alone, without a machine; a statement of row_vectors in a kernel.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from mmulator.compiler.meaning import meaning_of
from mmulator.host.module import Module
from mmulator.isa.form import Form
from mmulator.isa.match import match, row_of
from mmulator.isa.row import Row
from mmulator.isa.table import CHAPTERS
from mmulator.isa.types import type_bits
from tests.data import scalar_vectors
from tests.support import row_statements
from tests.support.places import DATA
from tests.support.scalar_harness import bits, execute, form_of, run

GROUP = 40  # statements in one module, so that parsing and compiling are shared
KERNELS = 6  # of row vectors in one test
Replay = Callable[[], Iterable[str]]  # what is wrong
# Chapters of what stands around the statement that a text is about: the last of these, if there is nothing else.
AROUND = ("control", "barrier", "memory", "integer", "logic", "compare", "move", "convert")
NAMES = {module.__name__.rpartition(".")[2]: module for module in CHAPTERS}


def of_chapter(chapter: str) -> Iterator[tuple[str, Replay]]:
    """Each replay of a chapter's vectors, with its name."""
    yield from _scalar(chapter)
    yield from _rows(chapter)


def measured(*corners: tuple[str, tuple[int, ...], int]) -> Callable[..., None]:
    """A test of corners that the captured draw does not reach: (instruction, operands, result), measured on an NVIDIA H200."""

    @pytest.mark.parametrize(("mnemonic", "operands", "want"), corners)
    def test(mnemonic: str, operands: tuple[int, ...], want: int) -> None:
        sizes = [type_bits(o.type) // 8 for o in form_of(mnemonic).operands[1:]]
        got = run(mnemonic, *(np.array([v], f"u{size}") for v, size in zip(operands, sizes)))
        assert int(bits(got)[0]) == want, f"{int(bits(got)[0]):#x}, not {want:#x}"

    return test


# chapters -----------------------------------------------------------------------------------------------------------
@cache
def _chapter_of_row() -> dict[Row, str]:
    return {row: name for name, module in NAMES.items() for row in module.ROWS}


def _mnemonics(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for part in re.split(r"[;{}]", text):
        if found := row_statements.MNEMONIC.match(part):
            opcode, *words = found[1].split(".")
            yield opcode, tuple(words)


def chapter_of(text: str) -> str:
    """The chapter of the statement that a text is about."""
    rows = [row for m in _mnemonics(text) if (row := row_of(*m)) is not None]
    chapters = [_chapter_of_row()[row] for row in rows]
    return max(chapters, key=lambda c: AROUND.index(c) if c in AROUND else len(AROUND))


@cache
def recorded() -> dict[row_statements.Statement, str]:
    """Statements made from rows, and digests of what an H100 computed."""
    return {
        row_statements.Statement(text, tuple(sources.split()), tuple(results.split()), kind): digest
        for text, sources, results, kind, digest in json.loads((DATA / "row_vectors.json").read_text())
    }


@cache
def _by_chapter() -> dict[str, tuple[list[Any], list[row_statements.Statement]]]:
    found: dict[str, tuple[list[Any], list[row_statements.Statement]]] = {}
    for case in scalar_vectors.load():
        found.setdefault(chapter_of(case.text), ([], []))[0].append(case)
    for statement in recorded():
        found.setdefault(chapter_of(statement.text), ([], []))[1].append(statement)
    return found


# single statements --------------------------------------------------------------------------------------------------
def _scalar(chapter: str) -> Iterator[tuple[str, Replay]]:
    cases, _ = _by_chapter().get(chapter, ([], []))
    if alone := [c for c in cases if is_lanewise(c.text)]:
        yield "meaning", partial(_by_meaning, alone)
    for n in range(0, len(cases), GROUP):
        yield f"machine-{n // GROUP}", partial(_by_machine, cases[n : n + GROUP])


def is_lanewise(text: str) -> bool:
    """Can the harness compute every statement from its registers?"""
    forms = [match(*m) for m in _mnemonics(text)]
    return "{" not in text and all(isinstance(f, Form) and not f.is_matrix and meaning_of(f).lanewise for f in forms)


def _difference(case: Any, register: str, got: np.ndarray, want: np.ndarray) -> Iterator[str]:
    different = np.flatnonzero(got != want)
    if different.size:
        i = int(different[0])
        ins = ", ".join(f"{r} = {int(o[i]):#x}" for r, o in case.operands().items() if i < o.size)
        yield f"{case.text}: {register} is {int(got[i]):#x}, not {int(want[i]):#x}, for {ins}; {different.size} differ"


def _as_word(value: np.ndarray, size: int) -> np.ndarray:
    """A result in a register of `size` bytes, extended by its own sign."""
    if value.dtype.itemsize == size:
        return bits(value)
    return bits(value.astype(f"{'i' if value.dtype.kind == 'i' else 'u'}{size}"))


def _by_meaning(cases: list[Any]) -> Iterator[str]:
    for case in cases:
        registers: dict[str, Any] = dict(case.operands())
        carry = np.zeros(case.count, bool)
        for statement in filter(str.strip, case.text.split(";")):
            written, carry = execute(statement, registers, carry)
            registers |= written
        for register, want in case.results().items():
            yield from _difference(case, register, _as_word(registers[register], want.dtype.itemsize), want)


def _by_machine(cases: list[Any]) -> Iterator[str]:
    module = Module.load(scalar_vectors.HEAD + "\n".join(c.body() for c in cases), name="vectors.ptx")
    for case in cases:
        expected = case.results()
        outputs = [np.zeros_like(w) for w in expected.values()]
        operands = [a.copy() for a in case.operands().values()]
        module[case.entry].launch(case.grid, case.block, [*operands, *outputs], device="sm_90", timeout=600)
        for (register, want), got in zip(expected.items(), outputs):
            yield from _difference(case, register, got, want)


# statements made from rows ------------------------------------------------------------------------------------------
def _rows(chapter: str) -> Iterator[tuple[str, Replay]]:
    _, statements = _by_chapter().get(chapter, ([], []))
    kernels = row_statements.kernels(statements)
    for n in range(0, len(kernels), KERNELS):
        yield f"rows-{n // KERNELS}", partial(_by_digest, kernels[n : n + KERNELS])


def _by_digest(kernels: list[row_statements.Kernel]) -> Iterator[str]:
    for kernel in kernels:
        module = Module.load(row_statements.HEAD + kernel.body(), name=kernel.name)
        results = np.full((kernel.words, row_statements.THREADS), 0xEEEEEEEEEEEEEEEE, np.uint64)
        module[kernel.name].launch(1, row_statements.THREADS, [*kernel.inputs(), results], device="sm_90", timeout=600)
        yield from (s.text for s, digest in kernel.digests(results) if digest != recorded()[s])
