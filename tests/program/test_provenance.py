"""Through which pointer arguments a kernel writes: certain answers only."""

import pytest

import mmulator as mm
from mmulator.ptx.program.provenance import stored_through

A, B = ("a", 0), ("b", 0)
CASES = {
    "st.global.b32 [p], 0;": {A},
    "st.global.v2.b32 [q + 8], {0, 0}; red.global.add.u32 [p], 1;": {A, B},
    "ld.global.b32 r, [p]; st.shared.b32 [s], r; st.local.b32 [s], r;": set(),
    "add.u64 p, p, 64; cvta.to.global.u64 q, p; atom.global.add.u32 r, [q], 1;": None,  # q is of both
    "mul.wide.u32 x, r, 4; add.u64 y, q, x; st.global.b32 [y], 0;": {B},
    "mad.wide.u32 x, r, 4, q; st.global.b32 [x], 0;": {B},
    "ld.global.u64 x, [p]; st.global.b32 [x], 0;": None,
    "st.b32 [x], 0;": None,
    "sub.u64 x, q, p; add.u64 x, x, p; st.global.b32 [x], 0;": None,
    "st.shared::cta.b32 [s], r; cp.async.ca.shared.global [s], [p], 4;": set(),
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [p], 16, [s];": set(),
    "cp.async.bulk.global.shared::cta.bulk_group [p], [s], 16;": {A},
    "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [p, {r}], [s];": None,
    "{ call other, (p); }": None,
}


@pytest.mark.parametrize("body", CASES, ids=lambda body: body.partition(";")[0])
def test_written_arguments(body: str) -> None:
    text = f"""
.version 8.6
.target sm_90a
.address_size 64
.func other(.param .u64 x) {{ ret; }}
.visible .entry k(.param .u64 a, .param .u64 b) {{
  .reg .b64 p, q, x, y; .reg .b32 r, s;
  ld.param.u64 p, [a]; ld.param.u64 q, [b]; mov.u32 r, %tid.x;
  {body} ret; }}
"""
    kernel = next(f for f in mm.Module.load(text).tree.functions if f.name == "k")
    assert stored_through(kernel, {A: 0, B: 0}) == CASES[body]
