"""No thread but the program's own parses Python for better code: of threads that make syntax trees at once CPython 3.11 may fail
one ("AST constructor recursion depth mismatch"), perhaps that of the program."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT

PROGRAM = """
import ast, builtins, sys, threading
from pathlib import Path
from shutil import copytree

parsed = set()

def compile(source, filename, mode, flags=0, *more, real=builtins.compile, **named):
    if flags & ast.PyCF_ONLY_AST:
        parsed.add(threading.current_thread().name)
    return real(source, filename, mode, flags, *more, **named)

builtins.compile = compile
from mmulator.base.codegen import engine, loading, shipped, store
from mmulator.runtime.options import CompileOptions
from mmulator.host.module import Module
from mmulator.sanitizer.instrument import SANITIZE
from tests.support.places import KERNELS
from tests.support.waiting import wait_until

shipped.file_of = lambda level: Path("none")  # of an installed wheel
loading.LONG = 1e9
texts, better = [], set()

def compiled(text, *more, real=engine._compile):
    texts.append(text)
    return real(text, *more)

def note(name, *more, real=loading._better):
    real(name, *more)
    better.add(name)
    return b""

engine._compile, loading._better = compiled, note
kernel = Module.load(KERNELS / "ptx" / "algorithms.ptx")["block_scan"]
blocks = [kernel.compile(options=CompileOptions(events=events)).blocks for events in (None, SANITIZE)]
quick, stored = {*loading._quick}, all(one.cached for one in blocks)
if not stored:
    assert "MainThread" in parsed
    copytree(store.store().path, sys.argv[1])
texts.clear()
parsed.clear()
for one in blocks:
    one.improve()
    wait_until(lambda: one.best, "better code of blocks")
rows = [name for name in blocks[0].natives if "_row_" in name]  # whose straight paths are there
assert rows and all(any(f" @{name}(" in line for text in texts for line in text.split("\\n")
                        if line.startswith("define internal ")) for name in rows)  # fmt: skip
loading.improve()
wait_until(lambda: better == quick, "better code of native functions")
assert not parsed and not loading._quick, parsed
print(len(quick), stored)
"""


def test_no_thread_parses_for_better_code(tmp_path: Path) -> None:
    """In the process that made the quick code, and in one that found it, whose blocks are written again."""
    folders, said = [str(tmp_path / name) for name in ("made", "found")], []
    for folder in folders:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, folders[1]], capture_output=True, text=True, cwd=ROOT, check=False,
            env={**os.environ, "MMULATOR_CACHE": folder},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert all(int(count) > 50 for count, _ in said) and [stored for _, stored in said] == ["False", "True"]
