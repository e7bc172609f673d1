"""The fingerprint of native functions: what runs, and what is read, while they are made lies in the files that it is of."""

import json
import os
import subprocess
import sys
from pathlib import Path

from mmulator.base.codegen import sources
from tests.support.places import ROOT

# Nothing is compiled or run. Functions are made by the works of a default wheel: all of its kernels, and some of its keys.
TRACE = """
import json, sys
from mmulator.base.codegen import engine, lang, loading
from tools import ship
from mmulator.base.codegen import shipped

seen, made, active = set(), set(), []
loading._enter = lambda codes, quick=(): loading._loaded.update(dict.fromkeys(codes, 1))

def note(frame, event, argument):
    if event == "call":
        seen.add(frame.f_code.co_filename)

def opened(event, arguments):
    if active and event == "open" and isinstance(arguments[0], str):
        seen.add(arguments[0])

def build(self, real=lang.Native.build):
    active.append(1)
    sys.setprofile(note)
    try:
        return real(self)
    finally:
        sys.setprofile(None)
        active.clear()

def begin(self, *arguments, real=lang.Native.__init__, **named):
    seen.add(sys._getframe(1).f_code.co_filename)
    real(self, *arguments, **named)
    made.add(self.name)

sys.addaudithook(opened)
lang.Native.build, lang.Native.__init__ = build, begin
shipped.file_of = lambda level: ship.ROOT / "none"  # of an installed wheel, functions would be found, not made
ship.collector("x86-64-v4", False)
engine._compile = lambda *_: b""
works, keys = ship.works(False), sum(map(ship.common, ship.keys()))
for work in works[:-keys] + works[-keys::6]:
    work()
print(json.dumps([len(made), sorted(seen)]))
"""


def test_all_that_makes_a_native_function_is_in_the_fingerprint(tmp_path: Path) -> None:
    environment = {**os.environ, "MMULATOR_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    count, seen = json.loads(done.stdout)
    package = f"{sources.PACKAGE}{os.sep}"
    ran = {path for path in seen if path.startswith(package) and "__pycache__" not in path}
    of = {*sources.native_files(sources._files(sources.FOLDERS))}
    assert count > 1000 and len(ran) > 80
    assert not {path[len(package) :] for path in ran - of}
    assert len(of) < 0.8 * len(sources._files(sources.FOLDERS))  # and not all there is
