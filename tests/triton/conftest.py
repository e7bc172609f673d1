"""Tests of the plug-in need Triton and torch; without them they are left out by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed: its plug-in is not tried")
pytest.importorskip("torch", reason="PyTorch is not installed: Triton's plug-in is not tried")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Triton remembers where its sources were, so it gets a cache of its own, unless somebody chose one."""
    if "TRITON_CACHE_DIR" not in os.environ:
        os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    yield


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "mmulator")
