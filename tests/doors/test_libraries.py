"""Libraries of kernels, hints, batches and attributes of CUDA's runtime, and a program that is linked with the driver alone."""

import shutil
import subprocess
import sys
import types
from functools import cache
from pathlib import Path

import pytest

from mmulator.doors.library import files
from tests.support.places import ROOT

CC = shutil.which("cc")
RUNTIME = [
    "0 4 1 add 1 0",  # a kernel by its name and by its number; managed memory begins with zeros
    "0 11 3",  # a batch of two copies
    "0 1 -1 0 0 -2",  # mostly read, better on the host, used by the device, put on the device
    "0 2",
    "0 801",
]
DRIVER = [
    "0 4 0 7 11",  # a captured graph of four nodes does nothing before it is launched
    "0 1 2",
    "0 7070707 0 7070707 7070707 7070707",  # a copy of a box
    "1 CUDA_ERROR_INVALID_VALUE",
    "0",
]


@pytest.mark.skipif(CC is None, reason="needs a C compiler (cc)")
@pytest.mark.parametrize(("options", "expected"), [(["-lcudart"], RUNTIME), (["-DDRIVER", "-lcuda"], DRIVER)])
def test_libraries_and_hints(tmp_path: Path, options: list[str], expected: list[str]) -> None:
    source = ROOT / "tests" / "doors" / "programs" / "library_tour.c"
    subprocess.run([str(CC), str(source), "-o", str(tmp_path / "tour"), f"-L{files.folder()}", *options], check=True)
    command = [sys.executable, "-m", "mmulator", "exec", str(tmp_path / "tour")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.splitlines() == expected, done.stderr


def test_libraries_come_back_when_the_cache_was_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "store", lambda: types.SimpleNamespace(path=tmp_path))
    monkeypatch.setattr(files, "_folder", cache(files._folder.__wrapped__))
    place = files.folder()
    shutil.rmtree(place)
    assert files.folder() == place and (place / "libcuda.so").exists()
