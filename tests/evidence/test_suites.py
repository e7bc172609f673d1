"""Running suites that others wrote (evidence/suites): what is chosen, what is said of each case, and the shadow behind a GPU."""

from __future__ import annotations

import ctypes
import json
import math
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from evidence.suites import page, run, shadow
from evidence.suites.known import LIMIT, OPEN, PASSED, SKIPPED, TIME, UNSUPPORTED, WRONG, classified
from evidence.suites.outcomes import chosen
from tests.support.places import PACKAGE

SUITE = """
import time, pytest

@pytest.mark.parametrize("n", range(9))
def test_passes(n): pass

@pytest.mark.skip("no reason")
def test_skipped(): pass

@pytest.mark.xfail
def test_expected(): assert 0

def test_instruction(): raise type("UnsupportedError", (Exception,), {})("k.ptx:61:2 (t.py:9): tensormap cannot be run: later")

def test_wrong(): assert 1 == 2

def test_slow():
    while True: time.sleep(0.01)

@pytest.fixture
def broken(): raise OSError("no such thing")

def test_setup(broken): pass
"""


def test_a_suite_of_someone_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the cases in each of two shards; together all, each with its class."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "test_it.py").write_text(SUITE)
    monkeypatch.setitem(run.SUITES, "liger", run.Suite(("test_it.py",), "a test"))
    parts = []
    for part in range(2):
        parts.append(tmp_path / f"{part}.json")
        options = ["liger", "--folder", str(tmp_path), "--shard", f"{part}/2", "--sample", "4", "--timeout", "1"]
        assert run.main([*options, "--through", sys.executable, "--json", str(parts[-1])]) == 0
    whole = tmp_path / "whole.json"
    run.main(["liger", "--merge", *map(str, parts), "--json", str(whole)])
    found = run.small(json.loads(whole.read_text()))
    assert found["counts"] == {PASSED: 5, SKIPPED: 1, UNSUPPORTED: 1, TIME: 1, OPEN: 2}
    assert found["reasons"][UNSUPPORTED] == {"`tensormap`": 1}
    assert set(found["reasons"][OPEN]) == {"assert 1 == 2", "OSError: no such thing"}
    assert "10 cases" in run.table(json.loads(whole.read_text()))


def test_a_sample_may_be_the_smallest_cases() -> None:
    names = ["a.py::t[B4-T1024-H8-0.5-float16]", "a.py::t[B1-T63-H2-1e-05-float16]", "a.py::t[2-128-16-0.5]", "a.py::u"]
    assert chosen(names, 1, small=True) == [False, True, False, True]
    assert chosen(names, 2, small=True) == [False, True, True, True]


def test_shards_are_parts() -> None:
    names = [f"t.py::test_{f}[{n}]" for f in "ab" for n in range(50)]
    parts = [chosen(names, 7, (part, 3)) for part in range(3)]
    assert [sum(column) for column in zip(*parts)] == [int(kept) for kept in chosen(names, 7)]
    assert sum(chosen(names, 7)) == 14 and all(chosen(names))


def test_reasons_are_told_from_mistakes() -> None:
    message = "UnsupportedError: kernel.ptx:12:1: .reqnctapercluster cannot be run: thread block clusters: later release"
    assert classified("t", "failed", message) == (UNSUPPORTED, "clusters of blocks")
    assert classified("test_atomic_poll[1]", "failed", "where 2 = count of str('ld.relaxed.sys')")[0] == LIMIT
    assert classified("test_else", "failed", "where 2 = count of str('ld.relaxed.sys')")[0] == OPEN


def test_scripts_end_in_an_error() -> None:
    text = 'warning\nTraceback (most recent call last):\n  File "a.py", line 1\n    x\nValueError: bad\n  more of it\n'
    assert run.last_error(text) == "ValueError: bad\n  more of it"


def test_the_page_is_current() -> None:
    assert page.PAGE.read_text() == page.page(), "run python -m evidence.suites.page"
    runs, _ = page.stored()
    assert not any(found["counts"].get(WRONG) for found in runs)


# the shadow ---------------------------------------------------------------------------------------------------------
ADD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u32 n, .param .u64 scratch, .param .u64 profile) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;
    ld.param.u64 %rd0, [x]; ld.param.u32 %r0, [n];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 4;
    add.u64 %rd2, %rd0, %rd1;
    ld.global.u32 %r2, [%rd2];
    add.u32 %r2, %r2, %r0;
    st.global.u32 [%rd2], %r2;
    ret;
}
"""


class Host(shadow.Cuda):
    """Memory of the host stands for a GPU's."""

    def __init__(self) -> None:
        pass

    def copy(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def extent(self, address: int) -> tuple[int, int] | None:
        return None

    def device(self) -> str:
        return "sm_80"

    def synchronize(self) -> None:
        pass

    def capturing(self) -> bool:
        return False


class Tensor:
    """As much of torch's as is asked for."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def untyped_storage(self) -> Tensor:
        return self

    def nbytes(self) -> int:
        return self.array.nbytes


class Launcher:
    """As Triton's. It adds what it is told to, as the "GPU"."""

    def __init__(self, ptx: str, add: Any) -> None:
        self.add = add
        kept = object.__new__(shadow.Kept)
        kept.name, kept.ptx, kept.hash, kept.scratch, kept.maps = "add", ptx, "0", 0, ()
        kept.signature = {"x": "*i32", "n": "i32", "SHAPE": "constexpr"}
        self._shadow = kept

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> None:
        rest[3].array[:] += self.add()


def test_each_launch_has_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.setattr(shadow, "LAUNCHES", 5)
    out = tmp_path / "out.jsonl"
    behind = shadow.Shadow(str(out), Host())
    counter = iter(range(100))
    unsupported = ADD.replace("ret;", "multimem.red.relaxed.gpu.global.add.u32 [%rd2], %r2; ret;").replace("8.0", "8.3")
    cases: list[tuple[str, Launcher, int]] = [
        ("same", Launcher(ADD, lambda: 5), 32),
        ("differ", Launcher(ADD, lambda: 6), 32),
        ("not deterministic", Launcher(ADD, lambda: next(counter)), 32),
        ("fault", Launcher(ADD, lambda: 5), 16),
        ("not supported", Launcher(unsupported.replace("sm_80", "sm_90"), lambda: 5), 32),
        ("not compared", Launcher(ADD, lambda: 5), 32),
    ]
    for _, launcher, size in cases:
        x = Tensor(np.arange(size, dtype=np.int32))
        behind.launch(launcher, Launcher.__call__, 1, 1, 1, 0, None, ((1, 1, 0), None, None, None, x, 5, (1, 2)))
    model = behind.model
    assert model is not None
    assert model.ask({"verdict": "nothing that can be run"}, 10)["verdict"] == "failed"
    model.process.kill()
    assert model.ask({}, 10)["verdict"] == "crash" and not model.alive
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["verdict"] for line in found] == [verdict for verdict, _, _ in cases]
    assert found[1]["reason"].startswith("x *i32: 32 of 32 elements: [0] GPU 6 (0x6) model 5 (0x5)")
    assert "more than 5 launches" in found[-1]["reason"]
    assert "same" in shadow.table(found)


def test_memory_of_a_launch() -> None:
    assert shadow.merged([(100, 10), (0, 5), (105, 20), (3, 1), (50, 0)]) == [(0, 5), (100, 25)]
    assert shadow.scalar("bf16", 1.99999) == struct.pack("<H", 0x3FFF)
    with pytest.raises(shadow.NotCompared, match="a tensor map"):
        shadow.Launch(Host(), {"d": "nvTmaDesc"}, (None,), 0)


@pytest.mark.full
def test_descriptors_of_a_launch() -> None:
    """The map that Triton would make, shape and strides; the memory of the descriptor's base."""
    pytest.importorskip("triton")
    x = np.zeros((8, 64), np.float16)
    described = SimpleNamespace(base=Tensor(x), shape=[8, 64], strides=[64, 1], padding="zero")
    meta = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [8, 64], "fp4_padded": False}
    found = shadow.Launch(Host(), {"d": "tensordesc<fp16[8, 64]>", "n": "i32"}, (described, 7), 0, [meta])
    made = mm.TensorMap.tiled(x, (8, 64), swizzle="128B", l2_promotion="128B").encode(x.ctypes.data)
    words = [struct.pack("<i", 8), struct.pack("<i", 64), struct.pack("<q", 64), struct.pack("<q", 1), struct.pack("<i", 7)]
    assert found.params[:6] == [made, *words]
    assert found.extents == [(x.ctypes.data, 1024)]


@pytest.mark.full
def test_operators_that_differ_by_more_than_rounding_are_told() -> None:
    torch = pytest.importorskip("torch")
    from evidence.suites.operators import compare, kept

    def of(*values: float, dtype: Any = torch.float32) -> tuple[str, Any]:
        return "value", kept(torch.tensor(values, dtype=dtype))

    pairs = {
        "equal": (of(1.0, math.nan), of(1.0, math.nan)), "rounded": (of(1.0, 3e-7), of(1.0000001, 4e-7)),
        "apart": (of(1.0, 2.0), of(1.0, 2.001)), "infinite": (of(1.0, 3e38), of(1.0, math.inf)),
        "integers": (of(7, dtype=torch.int64), of(8, dtype=torch.int64)), "raised": (of(1.0), ("error", "TypeError", "no")),
        "turned": (("value", kept(torch.ones(2, 3))), ("value", kept(torch.ones(3, 2).t()))),
    }  # fmt: skip
    gpu, other = ({f"{name} | float32 | sample 0 | forward": pair[n] for name, pair in pairs.items()} for n in (0, 1))
    counts, lines = compare(gpu, other)
    assert {line["operator"]: line["kind"] for line in lines} == {
        "apart": "value", "infinite": "not finite", "integers": "value", "raised": "raises here", "turned": "strides",
    }  # fmt: skip
    assert counts["equal, or rounded"] == 2
