"""First and second starts: quick code and better code give the same bits, and nothing is written twice."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.codegen import loading, named, sources
from mmulator.base.codegen.lang import Instrument, Native, native
from mmulator.base.codegen.types import i64
from mmulator.compiler.kernel import CompiledKernel
from mmulator.runtime import code
from mmulator.runtime.native.threads.scheduler import run_warp
from tests.support.places import ROOT
from tests.support.ptx_text import STORE_R1, kernel
from tests.support.waiting import wait_until

# NaNs with payloads, zeros of both signs, infinities, subnormals, and what is cut when it is rounded
EDGES = np.array([0, 0x80000000, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC12345, 0x7FC00000, 0x3F800001,
                  0xBF7FFFFF, 0x7F7FFFFF, 0x00800000, 0x33800000, 0x4B000001, 0xCEFFFFFF], np.uint32)  # fmt: skip
OPS = ("add.f32", "sub.f32", "mul.rz.f32", "min.f32", "max.NaN.f32", "div.rn.f32", "add.ftz.f32", "max.f32")
MANY = "\n".join(
    ["mov.u32 %r1, %laneid;", "mul.wide.u32 %rd2, %r1, 4;", "add.u64 %rd2, %rd2, %rd0;", "ld.global.f32 %f1, [%rd2];",
     "ld.global.f32 %f2, [%rd2+128];", "mov.f32 %f3, %f1;"]
    + [f"{op} %f{4 + n}, %f{1 + n % 3}, %f2;" for n, op in enumerate(OPS)]
    + [f"st.global.f32 [%rd2+{256 + 128 * n}], %f{4 + n};" for n in range(len(OPS))]
)  # fmt: skip


def edges(quick: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, CompiledKernel]:
    monkeypatch.setattr(code, "QUICK", quick)
    loaded = mm.Module.load(kernel(MANY))["k"]
    found = []
    for turn in range(16):  # each number with each
        data = np.zeros((2 + len(OPS), 32), np.uint32)
        data[0], data[1] = np.tile(EDGES, 2), np.roll(np.tile(EDGES, 2), turn)
        loaded.launch(1, 32, [data])
        found.append(data)
    return np.array(found), loaded.compile()


def test_quick_code_has_the_bits_of_better_code(monkeypatch: pytest.MonkeyPatch) -> None:
    (quick, _), (better, _) = edges(True, monkeypatch), edges(False, monkeypatch)
    assert quick.tolist() == better.tolist()


def test_better_code_takes_the_place_of_quick_code_while_a_kernel_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx = kernel(f"mov.u32 %r2, %laneid; add.u32 %r1, %r2, {os.getpid()};" + STORE_R1)  # nobody has it in a cache
    monkeypatch.setattr(code, "LONG", 0.0)
    monkeypatch.setattr(code, "LONG_WORD", 0.0)
    loaded = mm.Module.load(ptx)["k"]
    compiled = loaded.compile()
    first = compiled.code.tolist()
    assert compiled.blocks.patience == 0
    out = np.zeros(32, np.uint32)
    wanted = np.arange(32) + os.getpid()

    def better() -> bool:
        loaded.launch(1, 32, [out])
        assert (out == wanted).all()
        out[:] = 0
        return compiled.blocks.best

    wait_until(better, "better code")
    assert not set(first) & set(compiled.code.tolist())
    again = mm.Module.load(ptx)["k"].compile()  # the store has it
    assert again.from_cache and again.blocks.best


def test_better_code_waits_until_the_running_has_paid_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's time grows with the records, which one long launch of a long kernel does not pay back."""
    blocks = mm.Module.load(kernel(MANY))["k"].compile().blocks
    if blocks.best:
        blocks = code.BlockCode(1)
        blocks._pieces, blocks._words = [object()], 100  # type: ignore[list-item]
    words, begun = blocks._words, [False]
    monkeypatch.setattr(blocks, "improve", lambda: begun.__setitem__(0, True))
    monkeypatch.setattr(code, "LONG", 0.1)
    monkeypatch.setattr(code, "LONG_WORD", 1.0)
    assert words > 10 and blocks.patience == words
    blocks.ran(words - 1.0)
    assert not begun[0] and blocks.patience == 1.0
    blocks.ran(1.0)
    assert begun[0] and not blocks.patience


START = """
import numpy as np, mmulator as mm
import mmulator.base.codegen.lang as lang, mmulator.base.codegen.engine as engine
{before}
out = np.zeros(32, np.uint32)
mm.Module.load({ptx!r})["k"].launch(1, 32, [out], sanitize={sanitize})
assert (out == np.arange(32)).all()
"""
NOTHING = """
def never(*_):
    raise AssertionError("written or compiled again")
lang.parts = engine._compile = lang.Native.build = never
"""


@pytest.mark.parametrize("sanitize", [False, True])
def test_a_second_start_writes_no_text_of_native_functions(tmp_path: Path, sanitize: bool) -> None:
    ptx = kernel("mov.u32 %r1, %laneid;" + STORE_R1)
    environment = {**os.environ, "MMULATOR_CACHE": str(tmp_path / "cache")}
    for before in ("", NOTHING):
        program = START.format(before=before, ptx=ptx, sanitize=sanitize)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT)
        assert done.returncode == 0, done.stderr


def test_another_version_of_the_package_has_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"test_{os.getpid()}"
    named.keep(name, b"code", ["other"])
    found = named.find(name)
    assert found == named.NamedCode(b"code", ("other",))
    assert named.find(name + "x") is None and named.find(name, [named.QUICK]) is None
    monkeypatch.setattr(named, "of_natives", lambda: "changed")
    assert named.find(name) is None
    monkeypatch.setattr(named, "of_natives", lambda: "")  # the package is not there as files
    named.keep(name, b"code")
    assert named.find(name) is None


def test_the_fingerprint_is_of_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of native functions is of the files that define them, what these import, and data beside it."""
    for folder in sources.FOLDERS:
        (tmp_path / folder / "below").mkdir(parents=True)
        for name in ("a.py", "below/b.py", "below/c.json"):
            (tmp_path / folder / name).write_text(name)
    (tmp_path / "top.py").write_text("")
    typed = tmp_path / "matrix/twin/a.py"
    typed.write_text("\nif TYPE_CHECKING:\n    from mmulator.host import a\n\n    import mmulator.ptx.a\n#")
    importing = tmp_path / "matrix/twin/below" / "b.py"
    importing.write_text("def f():\n    from mmulator.isa.below import (\n        b,\n    )\n")
    monkeypatch.setattr(sources, "PACKAGE", tmp_path)
    monkeypatch.setattr(sources, "_BEGUN", float("inf"))
    seen = set()

    def now() -> tuple[str, str]:
        sources.hashes.cache_clear()
        return sources.fingerprint(), sources.of_natives()

    try:
        first = now()
        assert now() == first and first[0] == sources.contents(sources._files(sources.FOLDERS))  # kept, and computed
        for path in sorted(tmp_path.rglob("*.*")):
            kept = path.read_text()
            path.write_text(kept + "#")
            seen.add(now())
            name = str(path.relative_to(tmp_path))
            makes = name.startswith(sources.NATIVE) or name in ("isa/below/b.py", "isa/below/c.json")
            assert (now()[1] != first[1]) == makes, name
            path.write_text(kept)
        assert now() == first and first not in seen
        assert len(seen) == 3 * len(sources.FOLDERS) + 1
        (tmp_path / "objects").mkdir()
        (tmp_path / "objects" / sources.LIST).write_text(sources.listed())
        (tmp_path / "top.py").write_text("so that nothing is kept")
        with monkeypatch.context() as wheel:
            wheel.setattr(sources, "native_files", None)  # no import is read
            assert now()[1] == first[1]
        importing.write_text("from mmulator.ptx import a")
        assert now()[1] == sources.contents(sources.native_files(sources._files(sources.FOLDERS))) != first[1]
        (tmp_path / "top.py").rename(tmp_path / "pot.py")
        assert now()[0] not in {first[0], *(f for f, _ in seen)}
        monkeypatch.setattr(sources, "_BEGUN", (tmp_path / "pot.py").stat().st_mtime + 1)
        assert all(now())
        os.utime(tmp_path / "pot.py", (time.time() + 9,) * 2)  # somebody edits it while this process runs what it was
        assert now() == ("", "")
    finally:
        sources.hashes.cache_clear()


def test_only_the_packages_own_functions_are_known_by_their_names() -> None:
    @native
    def of_a_test(x: i64) -> i64:
        return x

    assert loading.says_all(run_warp) and not loading.says_all(of_a_test)
    own = Native(run_warp.function, "run_warp.tested")
    own.instrument = Instrument("tested", {"accessed": of_a_test})
    assert not loading.says_all(own)
