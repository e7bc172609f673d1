"""Kernels with explicit arguments, without the plug-in; versions of Triton; what the import costs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import triton

import mmulator as mm
from mmulator.doors.triton.arguments import Packer, slots
from mmulator.doors.triton.launcher import Utils
from mmulator.doors.triton.versions import NEWEST, OLDEST, interface, known
from mmulator.errors import InternalError, LaunchError, MmulatorError, UnsupportedError
from tests.doors.triton import kernels

X = np.arange(100, dtype=np.float32)


def test_compile_and_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    config, other = triton.runtime.driver, object()
    before = config.active
    monkeypatch.setattr(config, "_active" if "_active" in vars(config) else "active", other)
    made = mm.triton.compile(kernels.add, "*fp32:16, *fp32:16, *fp32:16, i32", {"BLOCK": 128}, device="sm_80", num_warps=2)
    assert ".target sm_80" in made.ptx and "tt.func" in made.ttgir and made.metadata.num_warps == 2
    o = np.zeros_like(X)
    report = made.launch(1, X, X, o, 100, seed=7)
    assert (o == 2 * X).all() and (report.device, report.block, report.seed) == ("sm_80", (64, 1, 1), 7)
    p = np.zeros_like(X)
    report = mm.triton.launch(
        kernels.add, lambda meta: (triton.cdiv(100, meta["BLOCK"]),), X, o, p, n=100, BLOCK=128, num_warps=1
    )
    assert (p == 3 * X).all() and report.device == "sm_90"
    with pytest.raises(MmulatorError, match=r"argument 0 \(x_ptr\), which has 40"):
        made.launch(1, X[:10].copy(), X, o, 100)
    assert config.active is other is not before


def test_launch_of_a_tuned_kernel() -> None:
    tuned = triton.autotune(configs=[triton.Config({"BLOCK": 128}, num_warps=1)], key=[])(
        triton.heuristics({"n": lambda args: len(args["x_ptr"])})(kernels.copy)
    )
    o = np.zeros_like(X)
    assert mm.triton.launch(tuned, 1, X, o).block == (32, 1, 1) and (o == X).all()


WRONG: list[tuple[Any, str]] = [
    (lambda: mm.triton.compile(kernels.copy, "*fp32", {"BLOCK": 64}), "the signature has 1 types, and copy takes 3"),
    (lambda: mm.triton.compile(kernels.copy, {"x_ptr": "*fp32"}, {"BLOCK": 64}), "no type for o_ptr, n"),
    (lambda: mm.triton.compile(kernels.copy, "*fp31,*fp32,i32", {"BLOCK": 64}), "Triton has no type"),
    (lambda: mm.triton.compile(kernels.copy, "i32", {"BLOK": 64}), "no parameter BLOK"),
    (lambda: mm.triton.compile(kernels.copy, "*fp32,*fp32,i32", {"BLOCK": 64}, device="sm_91"), "unknown device"),
    (lambda: mm.triton.launch(kernels.copy, 1, X, X, 100, BLOCK=128, warps=4), "no parameter warps"),
    (lambda: mm.triton.launch(print, 1), "is no kernel of Triton"),
]


@pytest.mark.parametrize("call, words", WRONG, ids=[w[1] for w in WRONG])
def test_what_is_refused(call: Any, words: str) -> None:
    with pytest.raises((LaunchError, UnsupportedError), match=words):
        call()


def test_versions() -> None:
    assert known("3.4.0", []).scratch == 1 and known("3.9.0", []) == known("4.1.0+git", [])
    with pytest.raises(UnsupportedError, match=r"Triton 3\.3\.1 is too old: the plug-in works with 3\.4 to 3\.9"):
        known("3.3.1", [])
    with pytest.raises(UnsupportedError, match=r"Triton 5\.0 has no triton\.a\.b, which the plug-in uses: it works with"):
        known("5.0", ["triton.a.b"])
    found = tuple(int(n) for n in triton.__version__.split(".")[:2])
    assert found >= OLDEST and (found <= NEWEST or pytest.skip(f"Triton {triton.__version__} is newer than the table"))


def test_parameters_that_do_not_fit_a_signature_are_an_error_of_ours() -> None:
    wanted = list(slots({"x": "*fp32", "n": "i32", "B": "constexpr", "t": ("fp32", ("constexpr", "i64"))}, interface(), None))
    assert [(s.ty, s.label, s.path) for s in wanted] == [
        ("*fp32", "argument 0 (x)", (0,)), ("i32", "argument 1 (n)", (1,)), ("fp32", "argument 3 (t), item 0", (3, 0)),
        ("i64", "argument 3 (t), item 1, item 1", (3, 1, 1)),
    ]  # fmt: skip
    with pytest.raises(InternalError, match="k has 0 parameters where Triton's signature has 4"):
        Packer("k", wanted, [], [], 0)


def test_no_cubin_says_nothing() -> None:
    assert Utils().load_binary("k", b"not ELF", 0, 0)[2:] == (0, 0, 1024)


def test_import_of_triton_stays_light() -> None:
    """The plug-in's modules that `import triton` loads import neither NumPy nor the machine."""
    code = (
        "import sys, triton; print([m for m in ("
        "'numpy', 'llvmlite', 'mmulator.host', 'mmulator.native', 'mmulator.driver') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
