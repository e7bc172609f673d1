"""nvcc for tests that compile: as mmulator finds it, on PATH or among Python's packages."""

from __future__ import annotations

import subprocess

import pytest

from mmulator.errors import UnsupportedError
from mmulator.toolkit.home import start_of
from mmulator.toolkit.nvcc import find_nvcc

try:
    START: tuple[str, str] | None = start_of(find_nvcc())
except UnsupportedError:
    START = None
compiled = pytest.mark.skipif(START is None, reason="there is no nvcc, neither on PATH nor among Python's packages")


def nvcc(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    assert START is not None
    return subprocess.run([START[1], *arguments], executable=START[0], **options)  # type: ignore[call-overload, no-any-return]
