"""CuTe DSL's machine code, and the PTX that its compiler keeps beside it in a folder that a process removes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mmulator.base.codegen.store import store
from mmulator.doors import cute


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a process, and a cache of code."""
    monkeypatch.setenv("MMULATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUTE_DSL_DUMP_DIR", str(tmp_path))
    store.cache_clear()
    yield tmp_path
    store.cache_clear()


def test_the_ptx_of_a_kernel_is_found_by_a_later_process(folder: Path) -> None:
    cubin = b"\x7fELF machine code"
    (folder / "kernel.cubin").write_bytes(cubin)
    (folder / "kernel.ptx").write_text(".version 9.1\0")
    assert cute.ptx_of(b"\x7fELF another code") is None
    assert cute.ptx_of(cubin) == ".version 9.1"
    for path in folder.glob("kernel.*"):
        path.unlink()
    store.cache_clear()  # as in a new process
    assert cute.ptx_of(cubin) == ".version 9.1" and cute.ptx_of(b"\x7fELF another code") is None
