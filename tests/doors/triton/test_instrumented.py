"""Kernels that Triton instruments (`TRITON_INSTRUMENTATION_MODE`): their checks run as any other code of theirs."""

from types import SimpleNamespace

import pytest
import torch
from triton import knobs
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from mmulator.doors.triton import versions
from mmulator.doors.triton.launcher import check_metadata
from mmulator.errors import ExecutionFault, UnsupportedError

ampere = pytest.importorskip("triton.experimental.gluon.language.nvidia.ampere")


@gluon.jit
def staged(x, o, WAIT: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    room = gl.allocate_shared_memory(gl.float32, [512], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    at = gl.arange(0, 512, layout=layout)
    ampere.async_copy.async_load(room, x + at)
    ampere.async_copy.commit_group()
    if WAIT:
        ampere.async_copy.wait_group(0)
    gl.store(o + at, room.load(layout))
    ampere.async_copy.wait_group(0)


@pytest.mark.skipif(versions.interface() is not versions.TABLE[3, 9], reason="later than this Triton")
def test_consan(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(knobs.compilation, "instrumentation_mode", "consan")
    x, o = torch.arange(512.0), torch.zeros(512)
    made = staged[(1,)](x, o, True)
    assert made.metadata.profile_scratch_size > 0 and torch.equal(x, o)
    with pytest.raises(ExecutionFault, match="assertion failed: Accessing buffer with pending access") as caught:
        staged[(1,)](x, o, False)
    assert "device-side assert triggered" in str(caught.value)
    assert "Assertion `Accessing buffer with pending access" in capfd.readouterr().err


def test_gsan_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"staged is instrumented \(gsan\)"):
        check_metadata(SimpleNamespace(name="staged", instrumentation_mode="consan,gsan"))
