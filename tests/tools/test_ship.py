"""Making object code for a wheel (tools/ship.py): a first start compiles none of it again; it is of the present sources."""

import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmulator.base.codegen import shipped, sources
from mmulator.base.codegen.cpus import level_of
from mmulator.doors.library import files
from mmulator.doors.library.libraries import BLAS, RUNTIMES
from mmulator.errors import OperandError
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.layouts.instruction_descriptor import BLOCKS, FORMATS, KINDS, SCALED, Variant
from mmulator.matrix.numerics.profiles import dot_key
from mmulator.matrix.twin.places import commutes, key_of
from mmulator.runtime.launch import tensor_tables
from tests.support.places import ROOT
from tests.support.ptx_text import STORE_R1, kernel
from tools import ship

# fields of an instruction descriptor that no arithmetic depends on
PLAIN = {"m": 0, "n": 8, "selector": 0, "max_shift": 0, "scale_a_id": 0, "scale_b_id": 0}
MAKE = """
import sys
from pathlib import Path
from mmulator.base.codegen import cpus, shipped
from mmulator.runtime.options import DEFAULT
from tools.ship import collector, of_arrays, of_kernel
made = collector(cpus.level_of(*shipped.target_cpu()), False)
of_kernel(Path(sys.argv[1]), DEFAULT)()
of_arrays()
Path(sys.argv[2]).write_bytes(shipped.written(made.entries))
"""
USE = """
import sys
from pathlib import Path
import numpy as np, mmulator as mm
from mmulator.base.codegen import lang, shipped
shipped.file_of = lambda level: Path(sys.argv[2])
def never(*_):
    raise AssertionError("text of a native function was written")
lang.parts = never
out = np.zeros(32, np.uint32)
mm.Module.load(sys.argv[1])["k"].launch(1, 32, [out])
assert (out == np.arange(32)).all()
from mmulator.matrix.twin import philox
philox.fill(out.ctypes.data, 32, "normal", 1, 0, 256, "sm_90", (1.0, 0.0, 0.0))
"""


@pytest.mark.skipif(level_of(*shipped.target_cpu()) is None, reason="a CPU of no level")
def test_a_first_start_compiles_nothing_that_came_with_the_package(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(kernel("mov.u32 %r1, %laneid;" + STORE_R1))
    arguments = [str(tmp_path / "k.ptx"), str(tmp_path / "level.bin")]
    for program, cache in ((MAKE, "made"), (USE, "used")):
        environment = {**os.environ, "MMULATOR_CACHE": str(tmp_path / cache)}
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
    # the CPU; the package's files; the kernel's own block; what a next start wants of text and kernel
    assert len(list((tmp_path / "used").glob("*.o"))) == 5


@pytest.mark.parametrize("when", ["before", "meanwhile", "never"])
def test_objects_of_files_that_change_are_not_made(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = tmp_path / "matrix" / "twin" / "0.py"
    for folder in sources.FOLDERS:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for number in range(2):
            (tmp_path / folder / f"{number}.py").write_text("")
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    monkeypatch.setattr(sources, "_BEGUN", time.time() + 1)
    made = ship.Collected()
    made.entries[2, "one"] = b"code", []

    def work() -> None:
        if when == "meanwhile":
            edited.write_text("#")

    monkeypatch.setattr(ship, "collector", lambda level, release: made)
    monkeypatch.setattr(ship, "works", lambda release: [work])
    path = tmp_path / "level" / "0.part"
    path.parent.mkdir()
    sources.hashes.cache_clear()
    try:
        if when == "before":  # this process may have read what was there before
            os.utime(edited, (time.time() + 9,) * 2)
        if when == "never":
            ship.write(path, "level", False, 0, 1)
        else:
            with pytest.raises(SystemExit, match="changed while its object code was made"):
                ship.write(path, "level", False, 0, 1)
        assert path.exists() == (when == "never")
    finally:
        sources.hashes.cache_clear()


def test_what_the_processes_of_a_build_made_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, level: str, release: bool, number: int, count: int) -> None:
        name = f"{number} of {count}, {level}, {os.environ['MMULATOR_CACHE'].rpartition('/')[2]}"
        made = {(2, name): (name.encode(), []), (2, "of all"): (b"code", ["one"])}
        path.write_bytes(pickle.dumps((sources.of_natives(), made)))
        if bad and number:
            raise SystemExit(ship.CHANGED)

    bad = False
    monkeypatch.setattr(ship.os, "cpu_count", lambda: 5)
    monkeypatch.setattr(ship, "write", write)
    monkeypatch.setattr(ship, "levels_of", lambda architecture: ["x86-64-v3", "x86-64-v4"])
    monkeypatch.setattr(ship, "asked", lambda: f"{tmp_path}"[-60:])
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "x86-64-v2.bin").write_text("of an earlier build")
    for folder in (tmp_path / "first", tmp_path / "second"):  # the second finds what the first has kept
        ship.main(folder, "")
        found = shipped.of_file(folder / "x86-64-v3.bin")
        assert len(found) == 3 and found.find("of all", 2) == (b"code", ["one"])
        assert all(found.find(f"{n} of 2, x86-64-v3, cache", 2) for n in range(2))
        libraries = sorted(files.shipped(soname) for soname in (files.DRIVER, *RUNTIMES.values(), *BLAS))
        assert sorted(path.name for path in folder.iterdir()) == ["files.txt", *libraries, "x86-64-v3.bin", "x86-64-v4.bin"]
        bad = True
    monkeypatch.setattr(ship, "asked", lambda: "something else")
    with pytest.raises(SystemExit, match="could not be made"):
        ship.main(tmp_path / "third", "")


def test_each_work_is_taken_once(tmp_path: Path) -> None:
    done: list[int] = []
    works = [lambda n=n: done.append(n) for n in range(10)]  # type: ignore[misc]
    first, second = (ship.mine(works, number, 2, tmp_path) for number in range(2))  # type: ignore[arg-type]
    for one, other in zip(first, second):
        one(), other()
    for one in (*first, *second):
        one()
    assert done == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]


def test_a_release_has_the_arithmetic_of_every_matrix_instruction() -> None:
    """Every key of every chip that the numbers of numerics/profiles.py are for."""
    keys = {*ship.keys()}
    for form in matrix_forms():
        if form.atype:
            assert dot_key(form) in keys
            assert not commutes(form) or key_of(form, True) in keys
    chance, seen = random.Random(7), set()
    for _ in range(40_000):
        kind = chance.choice(KINDS)
        variant = Variant(kind, sparse=chance.random() < 0.5, scale_vec=chance.choice([*BLOCKS.get(kind, {0: 0}).values()]))
        parts = {f.name: chance.choice([*f.choices]) << f.low for f in FORMATS[kind] if f.name not in PLAIN}
        try:
            found = variant.decode(sum(parts.values()) | PLAIN["n"] << 17 | (8 << 24 if kind not in SCALED else 1 << 27))
        except OperandError:
            continue
        seen.add(tensor_tables.key_of(found, variant))
    assert seen <= keys and len(seen) > 150
