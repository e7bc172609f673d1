"""Instructions that PTX 9.2 to 9.4 added for sm_90a, in one kernel and against plain Python: a chip was not asked for these."""

from __future__ import annotations

import numpy as np
import pytest

import mmulator as mm

SIZE = 64  # bytes that the bulk copy moves

TEXT = f"""
.version 9.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 out, .param .u64 sums, .param .u32 begin, .param .u32 left, .param .u32 right,
  .param .u32 count)
{{
  .reg .pred %p, %q, %first; .reg .b8 %value; .reg .b32 %t, %s, %w, %n, %begin, %left, %right, %count; .reg .f32 %f;
  .reg .b64 %source, %out, %sums, %at; .reg .b128 %wide;
  .shared .align 128 .b8 s[256]; .shared .align 8 .b64 copied, other;
  ld.param.u64 %source, [source]; ld.param.u64 %out, [out]; ld.param.u64 %sums, [sums];
  ld.param.u32 %begin, [begin]; ld.param.u32 %left, [left]; ld.param.u32 %right, [right]; ld.param.u32 %count, [count];
  mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0;
  cvt.s64.s32 %at, %begin; add.u64 %source, %source, %at;
  mov.u32 %s, s; mad.lo.u32 %s, %t, 4, %s;
  @!%first bra WAIT;
  mbarrier.init.layout::v0.shared::cta.b64 [copied], 1;
  mbarrier.init.layout::v1.shared::cta.b64 [other], %count;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [copied], {SIZE};
  cp.async.bulk.weak.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [s], [%source], {SIZE}, %left, %right, [copied];
  mbarrier.arrive.shared.b64 _, [other];
  mov.b128 %wide, {{%sums, %out}};
WAIT:
  bar.sync 0;
COPY: mbarrier.try_wait.parity.phase_type::primary.shared::cta.b64 %p|%q, %value, [copied], 0;
  @!%p bra COPY;
OTHER: mbarrier.test_wait.parity.phase_type::conditional.shared::cta.b64 %p, [other], 0;
  @!%p bra OTHER;
  mov.u32 %n, 0;
  @%q add.u32 %n, %n, 1;
  cvt.u32.u8 %w, %value; add.u32 %n, %n, %w;
  mbarrier.check_layout.layout::v1.shared::cta.b64 %p, [other]; @%p add.u32 %n, %n, 16;
  mbarrier.check_layout.layout::v0.shared::cta.b64 %p, [other]; @%p add.u32 %n, %n, 32;
  mbarrier.check_layout.layout::v1.shared.b64 %p, [copied]; @%p add.u32 %n, %n, 64;
  mbarrier.check_layout.layout::v0.shared.b64 %p, [copied]; @%p add.u32 %n, %n, 128;
  mul.wide.u32 %at, %t, 4; add.u64 %at, %out, %at;
  ld.shared.b32 %w, [%s]; st.global.b32 [%at], %w;
  st.global.b32 [%at+64], %n;
  prefetch.global.L1::32B.valid_addr [%source+16];
  ld.global.u32.proxy::readonly %w, [%sums+16]; st.global.b32 [%at+128], %w;
  mov.f32 %f, 0f00000003;
  red.global.add.noftz.f32 [%sums], %f;
  red.global.add.f32 [%sums+4], %f;
  atom.add.noftz.f32 %f, [%sums+8], %f;
  fence.proxy.async::generic.release.sync_restrict::shared::cluster::read.cta;
  ret;
}}
"""
KERNEL = mm.Module.load(TEXT, name="newest.ptx")["k"]


def run(size: int = SIZE, begin: int = 0, left: int = 0, right: int = 0, count: int = 1, sanitize: bool = False):
    """source: of so many bytes, of which the copy takes SIZE from `begin` on."""
    source = np.arange(1, size + 1, dtype=np.uint8)
    out, sums = np.zeros(48, np.uint32), np.array([0, 0, 0, 0, 77], np.uint32).view(np.float32)
    report = KERNEL.launch(1, 16, [source, out, sums, begin, left, right, count], sanitize=sanitize)
    return source, out, sums.view(np.uint32), report


@pytest.mark.parametrize("size, left, right", [(64, 0, 0), (49, 0, 15), (64, 4, 9), (57, 15, 7)])
def test_bytes_that_are_ignored_need_not_be_there(size: int, left: int, right: int) -> None:
    """The bytes between the ignored ends arrive. An ignored byte has no value; where all of them are in memory they arrive as on
    a chip, whose machine code (sm_90a) is a plain copy."""
    source, out, sums, report = run(size, left=left, right=right, sanitize=True)
    want = np.full(SIZE, 0xFF, np.uint8)
    ends = slice(None) if size == SIZE else slice(left, SIZE - right)
    want[ends] = source[ends]
    assert np.array_equal(out[:16].view(np.uint8), want)
    assert {f.rule for f in report.findings} == ({"uninitialized-store"} if left or right else set())
    assert set(out[16:32]) == {16 + 128} and set(out[32:]) == {77}
    assert sums[:3].tolist() == [16 * 3, 0, 16 * 3]  # without .noftz a chip's memory flushes subnormals


WRONG = [
    ({"size": 48, "right": 15}, "out of bounds"),  # a byte that is not ignored is not there
    ({"begin": -16, "left": 15}, "out of bounds"),
    ({"left": 16}, "is to ignore 16 bytes"),
    ({"count": 512}, "of 512 arrivals"),
]


@pytest.mark.parametrize("given, message", WRONG, ids=[m for _, m in WRONG])
def test_what_is_wrong_with_them(given: dict[str, int], message: str) -> None:
    with pytest.raises(mm.errors.ExecutionFault, match=message):
        run(**given)
