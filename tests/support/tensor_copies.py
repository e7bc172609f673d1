"""Kernels that make one tensor copy, as an H200 was asked to make it, and what they leave.

    window = load(copied, seed)              # the shared memory afterwards
    memory = store(copied, "", seed)         # the memory that the tensor lies in; "add" and the like: of a reduction
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mmulator.host.module import Kernel, Module
from mmulator.matrix.layouts.tensormap import Encoded
from mmulator.ptx.program.addresses import FIRST_GLOBAL_SLOT, SLOT_SHIFT
from tests.data import tensormap_vectors as vectors

THREADS = 128
TENSOR = FIRST_GLOBAL_SLOT + 2 << SLOT_SHIFT  # address of the memory that the tensor lies in
# %r1 the window, %r2 the box in it, %r3 the mbarrier behind it; %r10... coordinates, %h0... offsets, of thread 0, which copies
_BEGIN = """
.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 window[];
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 begin, .param .u64 tensor, .param .u32 size, .param .u32 box,
  .param .u32 bytes, .param .u32 times, .param .align 4 .b8 at[20], .param .align 2 .b8 offsets[6], .param .u32 mask)
{
  .reg .b64 %rd<8>; .reg .b32 %r<40>; .reg .b16 %h<4>; .reg .pred %p<4>;
  mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd2, [begin];
  ld.param.u32 %r4, [size]; ld.param.u32 %r5, [box]; ld.param.u32 %r6, [bytes]; ld.param.u32 %r7, [times];
  ld.param.u32 %r10, [at]; ld.param.u32 %r11, [at+4]; ld.param.u32 %r12, [at+8]; ld.param.u32 %r13, [at+12];
  ld.param.u32 %r14, [at+16]; ld.param.u16 %h0, [offsets]; ld.param.u16 %h1, [offsets+2]; ld.param.u16 %h2, [offsets+4];
  mov.u32 %r1, window; add.u32 %r2, %r1, %r5; add.u32 %r3, %r1, %r4; mov.u32 %r8, %tid.x;
  setp.ne.u32 %p1, %r8, 0; shl.b32 %r9, %r8, 4;
IN: setp.ge.u32 %p2, %r9, %r4; @%p2 bra READY;
  cvt.u64.u32 %rd3, %r9; add.u64 %rd3, %rd2, %rd3; ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd3];
  add.u32 %r15, %r1, %r9; st.shared.v4.u32 [%r15], {%r20, %r21, %r22, %r23}; add.u32 %r9, %r9, 2048; bra IN;
READY: @%p1 not.b32 %r10, %r10; @%p1 not.b32 %r11, %r11; @%p1 not.b32 %r12, %r12; @%p1 not.b32 %r13, %r13;
  @%p1 not.b32 %r14, %r14; @%p1 not.b16 %h0, %h0; @%p1 not.b16 %h1, %h1; @%p1 not.b16 %h2, %h2;
  @!%p1 mbarrier.init.shared.b64 [%r3], 1; fence.proxy.async; bar.sync 0; @%p1 bra DONE;
"""
_AWAIT = "\nWAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0; @!%p3 bra WAIT;"
_OUT = """
DONE: bar.sync 0; shl.b32 %r9, %r8, 4;
OUT: setp.ge.u32 %p2, %r9, %r4; @%p2 ret;
  add.u32 %r15, %r1, %r9; ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r15];
  cvt.u64.u32 %rd3, %r9; add.u64 %rd3, %rd2, %rd3; st.global.v4.u32 [%rd3], {%r20, %r21, %r22, %r23};
  add.u32 %r9, %r9, 2048; bra OUT; }
"""
_GROUP = """ cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  sub.u32 %r7, %r7, 1; setp.ne.u32 %p3, %r7, 0; @%p3 bra AGAIN;
DONE: ret; }
"""


def _listed(prefix: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{first + n}" for n in range(count)) + "}"


def _at(rank: int, mode: str) -> str:
    return f"[%rd1, {_listed('r', 10, 5 if mode.endswith('4') else rank)}]"


@cache
def load_kernel(rank: int, mode: str, space: str = "cluster") -> Kernel:
    offsets = ", " + _listed("h", 0, rank - 2 if mode == "im2col" else 2) if mode.startswith("im2col") else ""
    return Module.load(
        f"{_BEGIN}  mbarrier.arrive.expect_tx.shared.b64 _, [%r3], %r6;\n"
        f"  cp.async.bulk.tensor.{rank}d.shared::{space}.global.{mode}.mbarrier::complete_tx::bytes "
        f"[%r2], {_at(rank, mode)}, [%r3]{offsets};{_AWAIT}{_OUT}"
    )["k"]


@cache
def store_kernel(rank: int, mode: str, op: str) -> Kernel:
    name, does = ("cp.reduce.async.bulk.tensor", f".{op}") if op else ("cp.async.bulk.tensor", "")
    what = f"{name}.{rank}d.global.shared::cta{does}.{mode}.bulk_group"
    return Module.load(f"{_BEGIN}AGAIN: {what} {_at(rank, mode)}, [%r2];{_GROUP}")["k"]


def launch(
    kernel: Kernel, fields: Encoded, window: np.ndarray, tensor: np.ndarray, offset: int, box: int, coordinates: tuple[int, ...],
    offsets: tuple[int, ...] = (), times: int = 1, bytes: int | None = None, device: str | None = None, seed: int = 0,
    run: Callable[..., Any] = Kernel.launch,
) -> None:  # fmt: skip
    """A launch with the map of a tensor that begins `offset` bytes into `tensor`. window: shared memory, before and after."""
    fields = replace(fields, address=TENSOR + offset)
    at = np.zeros(5, np.int32)
    at[: len(coordinates)] = coordinates
    more = np.zeros(3, np.uint16)
    more[: len(offsets)] = [offset & 0xFFFF for offset in offsets]
    expected = fields.transaction_bytes if bytes is None else bytes
    args = [fields.encode(), window, tensor, len(window), box, expected, times, at.tobytes(), more.tobytes(), 0]
    options = {} if device is None else {"device": device}
    run(kernel, 1, THREADS, args, shared=len(window) + 64, seed=seed, **options)


def load(c: vectors.Copied, seed: int) -> np.ndarray:
    window = vectors.before_a_load()
    kernel = load_kernel(c.fields.rank, "im2col" if c.fields.im2col else "tile")
    launch(kernel, c.fields, window, memory(c.kind), c.offset, c.shared, c.coordinates, c.offsets, seed=seed)
    return window


@cache
def memory(kind: str) -> np.ndarray:
    return vectors.loaded_from(kind)


def store(c: vectors.Copied, op: str, seed: int, times: int = 1) -> np.ndarray:
    tensor = vectors.before_a_store(c.kind)
    kernel = store_kernel(c.fields.rank, "im2col_no_offs" if c.fields.im2col else "tile", op)
    launch(kernel, c.fields, vectors.stored_from(c.kind), tensor, c.offset, c.shared, c.coordinates, times=times, seed=seed)
    return tensor
