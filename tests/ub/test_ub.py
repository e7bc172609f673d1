"""What is said of programs that are wrong: each finding at its line, under its rule, in these words; of right ones nothing."""

from pathlib import Path

import pytest

from mmulator.base.rules import RULES
from mmulator.base.rules.text import OF_LAUNCHES
from tests.support import breaches
from tests.support.nvcc import compiled

SEEDS = 0, 1, 2
PROGRAMS = [program for file in breaches.every() if file.suffix == ".ptx" for program in breaches.revisions(file)]


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=lambda number: str(PROGRAMS[number]))
def test_what_is_wrong_is_found_and_told(number: int, request: pytest.FixtureRequest) -> None:
    """Under another seed another instruction may be the first that breaks the rule. With --full one more is tried for every
    third program, with --release all for all.
    """
    program = PROGRAMS[number]
    seeds = SEEDS if request.config.option.release else SEEDS[: 1 + (request.config.option.full and number % 3 == 0)]
    first, *others = (breaches.launch(program.file, program.name, seed, **({} if seed else {"threads": 1})) for seed in seeds)
    assert breaches.marks_found(program.file, first) == program.marks, breaches.said(first)
    assert breaches.said(first) == breaches.texts(program.file).get(program.name, ""), "python -m tests.ub --bless"
    for result in others:
        assert {rule for _, rule in breaches.marks_found(program.file, result)} == program.rules, breaches.said(result)


@pytest.mark.full
@compiled
@pytest.mark.parametrize("file", [file for file in breaches.every() if file.suffix != ".ptx"], ids=lambda file: file.name)
def test_a_program_is_told_of_its_own_lines(file: Path) -> None:
    for words, library in {"import triton": "triton", "from numba import": "numba_cuda", "import torch": "torch"}.items():
        pytest.importorskip(library if words in file.read_text() else "mmulator")
    (program,), (text, marks) = breaches.revisions(file), breaches.output(file)
    assert marks == program.marks, text
    assert text == breaches.texts(file)[""], "python -m tests.ub --bless"


@pytest.mark.parametrize("file", breaches.every(), ids=lambda file: f"{file.parent.name}/{file.name}")
def test_each_text_is_of_a_program(file: Path) -> None:
    assert breaches.texts(file).keys() <= {revision.name for revision in breaches.revisions(file)}


def test_every_rule_is_broken_twice() -> None:
    rules = [rule for rule, about in RULES.items() if about not in OF_LAUNCHES]
    assert [rule for rule in rules if sum(rule in program.rules for program in PROGRAMS) < 2] == []
