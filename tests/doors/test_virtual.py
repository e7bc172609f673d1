"""Virtual memory of CUDA's driver: a program in C reserves addresses and maps memory there (programs/virtual_tour.c)."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mmulator.doors.library import files
from tests.support.places import ROOT

CC = shutil.which("cc")
here = pytest.mark.skipif(CC is None, reason="needs a C compiler (cc)")
SEEN = [
    "0 1 2097152 3 1",  # attribute 102, the granularity, pieces of it in use
    "0 0 2",  # neighbours are one range
    "0 12 7 0 2 0 0",  # bytes stay; memory is free when nothing holds it
    "1 1 101 801 801 2 1 1 1 1 ",
    "0 801 801 1 0 801 0 1 1 1 1 1 1 1 0 0 0 1 0 ",  # cuMemFree is carried out, and refused, later
]


@pytest.fixture(scope="session")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("virtual") / "tour"
    source = ROOT / "tests" / "doors" / "programs" / "virtual_tour.c"
    for flags, name in (((), made), (("-shared", "-fPIC"), made.with_suffix(".so"))):
        subprocess.run([str(CC), *flags, str(source), "-o", str(name), f"-L{files.folder()}", "-lcuda"], check=True)
    return made


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mmulator", "exec", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@here
def test_memory_is_mapped(tour: Path) -> None:
    done = run(str(tour))
    assert done.returncode == 0 and done.stdout.splitlines() == [*SEEN, "700 "]
    for said in (
        "memory of the host that is mapped", "a second mapping of one allocation", "a part of an allocation",
        "is no handle of cuMemCreate",
        "are not what was mapped there, as a whole", "store to read-only memory", "of mapped memory, which has 4194304",
    ):  # fmt: skip
        assert said in done.stderr, said


@here
def test_the_host_cannot_read_it(tour: Path) -> None:
    done = run(str(tour), "host")
    assert done.returncode == -signal.SIGSEGV and "the host reads or writes device memory" in done.stderr


@here
def test_memory_is_mapped_inside_python(tour: Path) -> None:
    """There the host may read what is mapped."""
    for words, last in ((1, "700 "), (2, "-842150451")):  # fresh memory
        done = run(sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(tour.with_suffix('.so'))!r}).main({words}, 0)")
        assert done.returncode == 0 and done.stdout.splitlines() == [*SEEN, last], done.stderr
