"""Graphs of CUDA's runtime: a program in C makes, changes, captures and launches them (programs/graph_tour.c)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mmulator.doors.cudart import rows, table
from mmulator.doors.graphs import captures, operations
from mmulator.doors.libcuda.abi import EDGED, ENTRIES, SHARED, resolve
from mmulator.doors.library import files
from tests.support.places import ROOT

CC = shutil.which("cc")
here = pytest.mark.skipif(CC is None, reason="needs a C compiler (cc)")


@pytest.fixture(scope="session")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("graphs") / "tour"
    source = ROOT / "tests" / "doors" / "programs" / "graph_tour.c"
    subprocess.run([str(CC), str(source), "-o", str(made), f"-L{files.folder()}", "-lcudart", "-lpthread"], check=True)
    return made


def run(program: Path, *words: str) -> tuple[list[str], str]:
    """(lines of standard output, standard error)."""
    command = [sys.executable, "-m", "mmulator", "exec", str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@here
def test_nodes_of_every_kind(tour: Path) -> None:
    lines, errors = run(tour, "nodes")
    assert lines == [
        "0 35 2 256",  # (3 + 4) * 5; two launches of 32 threads that add 4
        "7 0 4 2 5 1 3 1 edges 6 roots 1 1 1 1",
        "4 1 32 32 1",  # parameters are those of the time when the node was made
        "45 15 45 35",  # changed in the graph that runs, switched off, changed in a copy, updated from the first graph
        "910 2 0 1 0 1 1 801 cudaErrorNotSupported",
        "destroyed the user's",
        "0 1 0",
    ]
    assert "the dependencies of a graph's nodes form a circle" in errors and "conditional nodes of graphs are not" in errors


@here
def test_streams_are_captured(tour: Path) -> None:
    assert run(tour, "capture")[0] == ["1 1 1 2 12", "-1 0 7 7 3", "0 900 901 14 0"]


@here
def test_what_a_capture_forbids(tour: Path) -> None:
    lines, errors = run(tour, "errors")
    assert lines[:15] == [
        "900 401 0 401 0 ",  # the default stream; no capture; a second one
        "0 906 901 0 2 901 1 0 ",  # a copy of the default stream ends the capture; the stream can be used again
        "0 906 901 ",
        "0 0 0 ",  # a stream that does not wait for the default stream
        "0 900 901 ",
        "0 0 0 ",  # relaxed
        "0 0 0 0 2 0 ",  # a relaxed thread
        "0 900 901 ",
        "0 900 901 ",
        "0 905 901 ",
        "0 0 907 901 0 0 ",
        "0 0 0 0 0 904 0 ",
        "0 0 0 902 901 901 ",
        "0 0 0 903 901 ",
        "0 908 401 ",
    ]
    assert lines[15] == "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"
    assert "while a stream is captured: cudaMalloc may wait for streams" in errors


@here
def test_memory_that_a_graph_allocates(tour: Path) -> None:
    lines, errors = run(tour, "memory")
    assert lines == ["1 9 0 1 0 0 0 801 0 0 0", "700 cudaErrorIllegalAddress"]
    assert errors.count("128 bytes at") == 1 and "out of bounds: ld.global.u32" in errors


def test_both_libraries_have_the_functions_of_graphs() -> None:
    table.rows.complete()
    both = [name.removeprefix("cuda") for names, _, _ in SHARED for name in names.split() if "cudaGraph" in name]
    assert len(both) > 30
    for name in (*both, *EDGED):
        assert rows.ROWS[f"cuda{name}"].kind == rows.DOES and resolve(f"cu{name}", 13000), name
    for name, (signature, place, _) in EDGED.items():
        assert len(signature) > place and {f"cu{name}", f"cu{name}_v2"} <= {*ENTRIES}, name


def test_rules_of_captures_are_of_functions_that_there_are() -> None:
    known = {*rows.ROWS, *(e.base for e in ENTRIES.values())}
    assert not {*captures.RULES} - known
    assert all(operations.MADE[name] for name in ("kernel", "copy", "copy_in", "fill_4", "fill_plane_1"))
