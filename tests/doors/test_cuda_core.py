"""cuda.core's programs run unmodified."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.support.tours import outcome, tries

if find_spec("cuda") is None or find_spec("cuda.core") is None:
    pytest.skip("cuda.core is not installed: pip install mmulator[cuda-core]", allow_module_level=True)
PROGRAM = "cuda_core_tour.py"


@pytest.mark.parametrize("what", tries(PROGRAM))
def test_program(what: str) -> None:
    told, _ = outcome("cuda_core", PROGRAM)
    wrong = told.get("", "") + told.get(what, "")
    assert not wrong, wrong
