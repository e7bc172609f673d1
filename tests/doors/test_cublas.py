"""cuBLAS for programs of C: its names and arguments, an H200's bits of products, and every routine on whole numbers."""

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mmulator.doors.cublas import names, rows, table
from mmulator.doors.library import files
from mmulator.doors.library.libraries import BLAS
from tests.support.places import DATA, ROOT

CC = shutil.which("cc")
PROGRAMS = ROOT / "tests" / "doors" / "programs"
needs_cc = pytest.mark.skipif(CC is None, reason="needs a C compiler (cc)")


def run(source: str, place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    built = [str(CC), "-std=gnu11", "-w", str(PROGRAMS / source), "-o", str(place / "program"), f"-L{files.folder()}", *options]
    subprocess.run([*built, "-lcudart", "-lcublas", "-lcublasLt", "-lm"], check=True)
    command = [sys.executable, "-m", "mmulator", "exec", str(place / "program")]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_rows_take_the_arguments_that_the_libraries_have() -> None:
    """Each row is a function that one of the libraries exports, and takes as many arguments as its declaration has."""
    exported = {name: signature for library, _ in BLAS.values() for name, (signature, _) in names.exports(library).items()}
    assert table.CHAPTERS and len(rows.ROWS) > 300
    for name, call in rows.ROWS.items():
        assert exported[name] != "-", name
        inspect.signature(call).bind(*range(len(exported[name].rstrip(">."))))
    for soname in BLAS:
        assert all(callable(rows.ROWS.get(name) or rows.refusal(name)) for name in names.slots(soname))


@needs_cc
def test_products_have_the_bits_of_a_gpu(tmp_path: Path) -> None:
    done = run("cublas_tour.c", tmp_path)
    assert done.stdout == (DATA / "cublas_sm_90.txt").read_text()
    assert done.stderr == ""  # the order of all of them is known


@needs_cc
@pytest.mark.parametrize("letter", "SDCZ")
def test_every_routine_on_whole_numbers(tmp_path: Path, letter: str) -> None:
    """Sums of whole numbers are exact in any order: an H200's results, of matrices, triangles, steps and transpositions."""
    wanted = dict(part.split("\n", 1) for part in (DATA / "cublas_routines_sm_90.txt").read_text().split("== ")[1:])
    done = run("cublas_routines.c", tmp_path, f"-DT={letter}", *["-DCOMPLEX_TYPES=1"] * (letter in "CZ"))
    assert done.stdout == wanted[letter]


@needs_cc
@pytest.mark.parametrize("letter", "SDCZ")
def test_packed_banded_and_small_matrices(tmp_path: Path, letter: str) -> None:
    """They give what full matrices do, whose results are an H200's; systems of equations are solved."""
    done = run("cublas_storage.c", tmp_path, f"-DT={letter}", f"-DCOMPLEX_TYPES={int(letter in 'CZ')}")
    assert (done.stdout, done.returncode) == ("0 wrong\n", 0), done.stderr


@needs_cc
def test_products_of_fp8_gelu_and_a_change_of_layout(tmp_path: Path) -> None:
    done = run("cublas_lt.c", tmp_path)
    assert done.stdout == "fp8: 0, 0 wrong, largest right, 1 4\ngelu: 0, 0 wrong\nlayout: 0, 1 4 2 5 3 6\n"


REST = """
extern int cublasCreate_v2(void **), cublasDestroy_v2(void *);
extern int cublasSgeqrfBatched(void *, int, int, void *, int, void *, void *, int);
extern int cublasSgemm(char, char, int, int, int, float, void *, int, void *, int, float, void *, int), printf(const char *, ...);
extern const char *cublasGetStatusString(int);
int main(void) {
    void *handle, *gone = (void *)8;
    int a = cublasCreate_v2(&handle), b = cublasSgeqrfBatched(handle, 1, 1, 0, 1, 0, 0, 1), c = cublasDestroy_v2(gone);
    printf("%d %d %d %s\\n", a, b, c, cublasGetStatusString(b));
    return 0;
}
"""


@needs_cc
def test_a_function_that_is_not_written_is_refused_and_counted(tmp_path: Path) -> None:
    (tmp_path / "rest.c").write_text(REST)
    done = run(str(tmp_path / "rest.c"), tmp_path)
    assert done.stdout == "0 15 1 the requested functionality is not supported\n"
    assert done.returncode == 4
    assert "cublasSgeqrfBatched: this function of cuBLAS is not written" in done.stderr
    assert "1 call was refused" in done.stderr
