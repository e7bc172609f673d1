"""cuda.core's programs run unmodified."""

from importlib.util import find_spec

import pytest

from tests.support.tours import trying

if find_spec("cuda") is None or find_spec("cuda.core") is None:
    pytest.skip("cuda.core is not installed: pip install mmulator[cuda-core]", allow_module_level=True)
test_program = trying("cuda_core", "cuda_core_tour.py")
