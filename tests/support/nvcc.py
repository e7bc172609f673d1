"""nvcc for tests that compile: as mmulator finds it, on PATH or among Python's packages."""

import subprocess
from typing import Any

import pytest

from mmulator.errors import UnsupportedError
from mmulator.ptx.toolkit.nvcc import find_nvcc, start_of

try:
    START: tuple[str, str] | None = start_of(find_nvcc())
except UnsupportedError:
    START = None


def compiled(test: Any) -> Any:
    """A test that needs nvcc."""
    return pytest.mark.full(pytest.mark.skipif(START is None, reason="there is no nvcc on PATH, nor as a package")(test))


def nvcc(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    assert START is not None
    return subprocess.run([START[1], *arguments], executable=START[0], **options)  # type: ignore[call-overload, no-any-return]
