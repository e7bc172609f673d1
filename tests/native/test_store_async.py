"""st.async and red.async: the bytes and the mbarrier as an H200 has them, late by seed, misuse by name."""

from typing import Any

import numpy as np
import pytest

from mmulator.host.module import Module
from tests.support.places import DATA

HEAD = """.version 8.7
.target sm_100
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 out)
{{
  .reg .b64 %g, %o, %s<4>, %v; .reg .b32 %t, %r<9>, %l<4>; .reg .f32 %f; .reg .pred %p, %first;
  .shared .align 16 .b8 data[32]; .shared .align 8 .b64 full;
  ld.param.u64 %g, [given]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0;
  mov.u32 %r0, %ctaid.x; mad.wide.u32 %g, %r0, 48, %g; mad.wide.u32 %o, %r0, 32, %o;
{}
  ret;
}}
"""
# Of each block: 32 bytes, an operand and an offset; the bytes afterwards.
CASE = """
  @!%first ret;
  ld.global.v2.b64 {{%s0, %s1}}, [%g]; st.shared.v2.b64 [data], {{%s0, %s1}};
  ld.global.v2.b64 {{%s0, %s1}}, [%g+16]; st.shared.v2.b64 [data+16], {{%s0, %s1}};
  ld.global.b64 %v, [%g+32]; mov.b64 {{%l0, %l1}}, %v; not.b32 %l2, %l0; not.b32 %l3, %l1; not.b64 %s2, %v; mov.b32 %f, %l0;
  ld.global.b32 %r1, [%g+40]; mov.u32 %r2, data; add.u32 %r2, %r2, %r1;
  mbarrier.init.shared.b64 [full], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [full], {size};
  {mnemonic} [%r2], {value}, [full];
W: mbarrier.try_wait.parity.shared.b64 %p, [full], 0;
  @!%p bra W;
  ld.shared.v2.b64 {{%s0, %s1}}, [data]; st.global.v2.b64 [%o], {{%s0, %s1}};
  ld.shared.v2.b64 {{%s0, %s1}}, [data+16]; st.global.v2.b64 [%o+16], {{%s0, %s1}};
"""
VALUES = {".v2.b64": ("{%v, %s2}", 16), ".v4.b32": ("{%l0, %l1, %l2, %l3}", 16), ".v2.b32": ("{%l0, %l1}", 8), ".f32": ("%f", 4),
          "64": ("%v", 8), "32": ("%l0", 4)}  # fmt: skip


def recorded() -> dict[str, np.ndarray]:
    """(32 bytes, operand, offset, 32 bytes) of each case, by the instruction."""
    with np.load(DATA / "store_async_h200.npz") as data:
        names, which, cases = (data[n] for n in ("mnemonics", "which", "cases"))
    return {str(name): cases[which == n] for n, name in enumerate(names)}


@pytest.mark.parametrize("mnemonic", recorded())
def test_bytes_are_an_h200s(mnemonic: str) -> None:
    value, size = next(v for end, v in VALUES.items() if mnemonic.endswith(end))
    cases = recorded()[mnemonic]
    out = np.zeros((len(cases), 4), np.uint64)
    kernel = Module.load(HEAD.format(CASE.format(mnemonic=mnemonic, value=value, size=size)))["k"]
    kernel.launch(len(cases), 32, [np.ascontiguousarray(cases[:, :6]), out], timeout=600)
    assert len(cases) > 40 and (out == cases[:, 6:]).all()


def run(body: str, **options: Any) -> np.ndarray:
    out = np.zeros(16, np.uint32)
    Module.load(HEAD.format(body), name="k.ptx")["k"].launch(1, 32, [np.arange(16, dtype=np.uint32), out], timeout=600, **options)
    return out


ALL = """
  mov.u32 %r1, data; and.b32 %r2, %t, 7; mad.lo.u32 %r1, %r2, 4, %r1; mov.u32 %r4, 0; st.shared.u32 [%r1], %r4;
  @%first mbarrier.init.shared.b64 [full], 1;
  bar.sync 0;
  @%first mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], 1, [full];
  {}
  ld.shared.u32 %r3, [%r1]; mul.wide.u32 %s0, %r2, 4; add.u64 %s0, %o, %s0; st.global.u32 [%s0], %r3;
"""
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p, [full], 0;\n  @!%p bra W;"


def test_lanes_add_up_and_who_does_not_wait_sees_less() -> None:
    assert all((run(ALL.format(WAIT), seed=seed)[:8] == 4).all() for seed in range(12))
    early = {tuple(run(ALL.format(""), seed=seed)[:8]) for seed in range(12)}
    assert len(early) > 3 and all(0 <= n <= 4 for seen in early for n in seen)


def test_generic_addresses() -> None:
    body = ALL.format(WAIT).replace("red.async.relaxed.cluster.shared::cluster.", "red.async.relaxed.cluster.")
    body = body.replace("[%r1], 1, [full];", "[%s1], 1, [%s2];").replace("  bar.sync 0;", """
  cvt.u64.u32 %s1, %r1; cvta.shared.u64 %s1, %s1; mov.u64 %s2, full; cvta.shared.u64 %s2, %s2;
  bar.sync 0;""")
    assert (run(body)[:8] == 4).all()


def test_to_global_memory() -> None:
    """st.async.release and red.async.release, which complete nothing, are done when the kernel is."""
    body = """
  mul.wide.u32 %s0, %t, 4; add.u64 %s0, %o, %s0; setp.ge.u32 %p, %t, 8;
  @%p ret;
  st.async.release.gpu.global.u32 [%s0], %t;
  red.async.release.gpu.global.add.u32 [%o+32], 3;
"""
    for seed in range(8):
        assert run(body, seed=seed).tolist() == [*range(8), 24, *[0] * 7]
