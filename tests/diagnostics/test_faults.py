"""What goes wrong in a launch: one typed error that says what, where and what to do; nothing hangs, nothing is overwritten."""

import numpy as np
import pytest

from mmulator.errors import ExecutionFault, LaunchError, MmulatorError
from mmulator.host.module import Module
from mmulator.runtime.launch.values import Aggregate
from tests.support.ptx_text import STORE_R1, kernel


def run(body: str, *, out: np.ndarray | None = None, grid: object = 1, block: object = 32, **options: object) -> np.ndarray:
    out = np.zeros(32, np.uint32) if out is None else out
    Module.load(kernel(body), name="test.ptx")["k"].launch(grid, block, [out], timeout=20, **options)
    return out


# memory -------------------------------------------------------------------------------------------------------------
def test_one_buffer_never_reaches_another() -> None:
    a, b = np.zeros(4, np.uint32), np.full(4, 9, np.uint32)
    text = kernel("  st.global.u32 [%rd0+16], 1;", ".param .u64 out, .param .u64 other")
    with pytest.raises(ExecutionFault):
        Module.load(text)["k"].launch(1, 1, [a, b])
    assert (b == 9).all()


def test_nothing_is_stored_after_a_fault() -> None:
    out = np.zeros(32, np.uint32)
    with pytest.raises(ExecutionFault):
        run("  mov.u64 %rd1, 0;\n  ld.global.u32 %r1, [%rd1];\n  st.global.u32 [%rd0], 7;", out=out)
    assert not out.any()


def test_no_fragment_is_stored_after_a_fault() -> None:
    """The warp is together: the load that faults and the wmma.store are one block of code."""
    out = np.zeros(256, np.uint16)
    body = "".join(f"  mov.b32 %r{n}, 7;\n" for n in range(1, 5)) + """
  mov.u64 %rd5, 0;
  movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r1;
  ld.global.u32 %r9, [%rd5];
  wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {%r11, %r12, %r13, %r14}, [%rd5], 16;
  wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd0], {%r1, %r2, %r3, %r4}, 16;
"""
    with pytest.raises(ExecutionFault, match=r"null pointer: ld\.global\.u32"):
        Module.load(kernel(body))["k"].launch(1, 32, [out])
    assert not out.any()


# control ------------------------------------------------------------------------------------------------------------
def test_exited_threads_do_not_hold_a_barrier() -> None:
    body = "  mov.u32 %r1, %tid.x;\n  setp.ge.u32 %p1, %r1, 32;\n  @%p1 exit;\n  bar.sync 0;\n  mov.u32 %r1, 3;" + STORE_R1
    assert (run(body, block=64) == 3).all()


# launches -----------------------------------------------------------------------------------------------------------
K = Module.load(kernel("  ld.param.f32 %f1, [x];", ".param .u64 out, .param .f32 x, .param .u8 small"))["k"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([np.zeros(3), "x", 0], "pass a number"),
        ([np.zeros((4, 4)).T[1:], 1.0, 0], "not contiguous"),
        ([np.broadcast_to(np.zeros(1), 3), 1.0, 0], "not contiguous|read-only"),
        ([np.zeros(4, ">f4"), 1.0, 0], "the array is big-endian"),
        ([np.frombuffer(b"abcdefgh", np.uint8), 1.0, 0], "read-only"),
        ([np.array([None]), 1.0, 0], "Python objects"),
    ],
)
def test_arrays_that_no_kernel_takes(args: list[object], message: str) -> None:
    """Arrays are refused in Python; launches that cannot start for other reasons have their texts in tests/ub/refused."""
    with pytest.raises(LaunchError, match=message):
        K.launch(1, 32, args)


def test_aggregate_with_a_pointer() -> None:
    body = "  ld.param.u64 %rd1, [s+8];\n  ld.param.u32 %r1, [s];\n  st.global.u32 [%rd1], %r1;"
    target = np.zeros(1, np.uint32)
    k = Module.load(kernel(body, ".param .u64 out, .param .align 8 .b8 s[16]"))["k"]
    k.launch(1, 1, [None, Aggregate(b"\x2a" + bytes(15), {8: target})])
    assert target[0] == 42
    with pytest.raises(LaunchError, match="16 bytes, not 4"):
        k.launch(1, 1, [None, Aggregate(b"1234")])


def test_unreadable_files() -> None:
    with pytest.raises(MmulatorError, match="cannot read"):
        Module.load("/no/such/file.ptx")
