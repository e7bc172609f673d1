"""Making object code for a wheel (tools/ship.py): a first start compiles none of it again; it is of the present sources."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmulator.codegen import shipped, sources
from mmulator.codegen.cpus import level_of
from tests.support.places import ROOT
from tests.support.ptx_text import STORE_R1, kernel
from tools import ship

MAKE = """
import sys
from pathlib import Path
from mmulator.codegen import cpus, shipped
from mmulator.compiler.options import DEFAULT
from tools.ship import collect
level = cpus.level_of(*shipped.target_cpu())
shipped.write(Path(sys.argv[2]), collect(level, [Path(sys.argv[1])], (DEFAULT,)).entries)
"""
USE = """
import sys
from pathlib import Path
import numpy as np, mmulator as mm
from mmulator.codegen import lang, shipped
shipped.file_of = lambda level: Path(sys.argv[2])
def never(*_):
    raise AssertionError("text of a native function was written")
lang.parts = never
out = np.zeros(32, np.uint32)
mm.Module.load(sys.argv[1])["k"].launch(1, 32, [out])
assert (out == np.arange(32)).all()
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
    edited = tmp_path / "rules" / "0.py"
    for folder in sources.FOLDERS:
        (tmp_path / folder).mkdir()
        for number in range(2):
            (tmp_path / folder / f"{number}.py").write_text("")
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    monkeypatch.setattr(sources, "_BEGUN", time.time() + 1)
    made = ship.Collected()
    made.keep("one", b"code")

    def collect(*_: object) -> ship.Collected:
        if when == "meanwhile":
            edited.write_text("#")
        return made

    monkeypatch.setattr(ship, "collect", collect)
    sources.fingerprint.cache_clear()
    try:
        if when == "before":  # this process may have read what was there before
            os.utime(edited, (time.time() + 9,) * 2)
        if when == "never":
            ship.write(tmp_path, "level")
        else:
            with pytest.raises(SystemExit, match="changed while its object code was made"):
                ship.write(tmp_path, "level")
        assert (tmp_path / "level.bin").exists() == (when == "never")
    finally:
        sources.fingerprint.cache_clear()


def test_the_processes_of_a_build_find_what_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's isolated builds say by PYTHONPATH where NumPy is; an environment that has none otherwise builds, too."""
    given: list[str] = []

    class Process:
        def __init__(self, command: list[str], env: dict[str, str]) -> None:
            given.append(env["PYTHONPATH"])

        def wait(self) -> int:
            return 0

    monkeypatch.setenv("PYTHONPATH", "/isolated")
    monkeypatch.setattr(ship.subprocess, "Popen", Process)
    ship.main(tmp_path, ["x86-64-v3", "x86-64-v4"])
    assert given == [os.pathsep.join([str(ship.ROOT / "src"), "/isolated"])] * 2
