"""Kernels with explicit arguments, without the plug-in; versions of Triton; what the import costs."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton

import mmulator as mm
from mmulator.base import versions
from mmulator.doors.torch.compiling import choose
from mmulator.doors.triton.arguments import Packer, slots
from mmulator.doors.triton.launcher import Utils
from mmulator.doors.triton.versions import TABLE, interface, known
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
    assert known("3.5.0").cluster_dims and not known("3.9.0").cluster_dims and known("9.9") == known("3.9.0+git") == interface()
    row = versions.TABLE["triton"]
    assert (min(TABLE), max(TABLE)) == (row.floor, row.newest) and versions.place("triton", triton.__version__) == versions.KNOWN


def test_no_other_driver_is_active_where_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a Triton that counts active drivers, beside a GPU."""
    from triton.backends import backends

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "mmulator")
    assert [name for name, b in backends.items() if b.driver.is_active()] == ["mmulator"]
    monkeypatch.delenv("TRITON_DEFAULT_BACKEND")
    assert [name for name, b in backends.items() if b.driver.is_active()] == ["nvidia"]
    table = SimpleNamespace(backends=dict(backends))
    assert [(name, choose(table))[0] for name in table.backends] == [*backends]  # torch is imported while Triton asks each
    assert next(iter(table.backends)) == "mmulator"


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
        "'numpy', 'llvmlite', 'mmulator.host', 'mmulator.runtime.native', 'mmulator.host.driver') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
