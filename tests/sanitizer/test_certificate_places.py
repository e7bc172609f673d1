"""Where tcgen05.alloc finds columns, for a certificate: an address of tensor memory is no choice, a number that shows is one."""

import numpy as np
import pytest

import mmulator as mm
from mmulator.host.certificate import CERTIFIED, COUNTEREXAMPLE, NOT_DECIDED

TEXT = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) {
  .reg .b32 t, at, d, v, n; .reg .b64 p, q; .reg .pred one;
  .shared .align 4 .b8 place[4];
  ld.param.u64 p, [out];
  mov.u32 t, %tid.x;
  mul.wide.u32 q, t, 4; add.u64 q, p, q;
  mov.u32 at, place;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [at], 32;
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  bar.sync 0;
  ld.shared.u32 d, [at];
  add.u32 n, d, 4;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [n], {t};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {v}, [n];
  tcgen05.wait::ld.sync.aligned;
  MORE
  st.global.u32 [q], v;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 d, 32;
  ret;
}
"""


def verdict(more: str) -> str:
    kernel = mm.Module.load(TEXT.replace("MORE", more))["k"]
    found = kernel.launch(2, 32, [np.zeros(32, np.uint32)], certify=True).certificate
    assert found is not None
    return found.verdict


def test_an_address_of_tensor_memory_is_no_choice() -> None:
    assert verdict("") == CERTIFIED
    assert verdict("shr.u32 t, n, 21; add.u32 v, v, t;") == CERTIFIED  # the lane


@pytest.mark.parametrize("more", [
    "mov.u32 v, d;", "add.u32 v, v, n;", "shr.u32 t, n, 2; add.u32 v, v, t;",
    "ld.shared.u32 v, [place];", "setp.eq.u32 one, d, 0; @one st.global.u32 [q], v;",
    "st.shared.u32 [place], d;", "shl.b32 t, d, 16; shr.u32 v, t, 16;", "mul.lo.u32 t, d, 65536; shr.u32 v, t, 16;",
    "and.b32 t, d, 0xffff; mul.lo.u32 t, t, t; shr.u32 v, t, 16;",
    "mov.b64 q, {t, d}; shr.u64 q, q, 16; cvt.u32.u64 v, q; mul.wide.u32 q, t, 4; add.u64 q, p, q;",
    "shl.b32 t, n, 16; shr.u32 v, t, 21;",
])  # fmt: skip
def test_a_number_that_shows_is_one(more: str) -> None:
    assert verdict(more) in (NOT_DECIDED, COUNTEREXAMPLE)


@pytest.mark.parametrize("place", ["add.u32 n, d, d;", "mad.lo.u32 n, d, 3, 4;", "sub.u32 n, 0, d;", "shl.b32 n, d, 1;"])
def test_columns_are_added_once(place: str) -> None:
    """Where the columns begin at 0, as they do in the run, such addresses are within them; elsewhere they are not."""
    kernel = mm.Module.load(TEXT.replace("MORE", "").replace("add.u32 n, d, 4;", place))["k"]
    found = kernel.launch(2, 32, [np.zeros(32, np.uint32)], certify=True).certificate
    assert found is not None and found.verdict != CERTIFIED
