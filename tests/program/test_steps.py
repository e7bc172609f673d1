"""Steps of addresses from lane to lane (program/steps.py): what is guessed of the ways in which compilers write addresses."""

import pytest

from mmulator.host.module import Module
from mmulator.ptx.program.blocks import build
from mmulator.ptx.program.steps import steps_of
from mmulator.ptx.program.uniform import uniform_registers


def step(lines: str) -> int | None:
    """The guessed step of the address %x."""
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data, .param .u32 n)
{{
  .reg .pred %p; .reg .b32 %a, %b, %c, %n; .reg .b64 %x, %y, %d;
  .shared .b8 s[64];
  ld.param.u64 %d, [data]; ld.param.u32 %n, [n]; mov.u32 %a, %tid.x;
  {lines}
  st.global.u32 [%x], %b; mov.u64 %x, %d; st.global.u32 [%x], %c;
  ret;
}}
"""
    tree = Module.load(text).tree
    function = build(tree, tree.functions[0]).functions["k"]
    first, last = (i for i in tree.functions[0].instructions if i.opcode == "st")
    steps = steps_of(function, uniform_registers(function, ()))
    assert steps[last] == 0
    return steps.get(first)


@pytest.mark.parametrize(("lines", "wanted"), [
    ("mul.wide.u32 %x, %a, 4; add.s64 %x, %x, %d;", 4),
    ("mul.wide.u32 %x, %n, 4; add.s64 %x, %x, %d;", 0),
    ("mov.u32 %b, %ctaid.x; mov.u32 %c, %ntid.x; mad.lo.s32 %b, %b, %c, %a; mul.wide.s32 %x, %b, 8; add.s64 %x, %d, %x;", 8),
    ("shl.b32 %b, %a, 2; and.b32 %b, %b, 508; or.b32 %b, %b, 512; mul.wide.s32 %x, %b, 4; sub.s64 %x, %x, -64;", 16),
    ("and.b32 %b, %a, 127; shl.b32 %b, %b, 4; cvt.u64.u32 %x, %b; add.s64 %x, %x, %d;", 16),
    ("mov.u32 %b, %laneid; cvt.u64.u32 %x, %b; shl.b64 %x, %x, 3; mov.u64 %y, s; add.s64 %x, %x, %y;", 8),
    ("mad.wide.u32 %x, %a, 12, %d;", 12),
    ("mul.wide.u32 %x, %a, 4; sub.s64 %x, %d, %x;", -4),
    ("mul.wide.u32 %x, %a, 4; xor.b64 %x, %x, 64;", None),  # half of the lanes change places with the others
    ("mul.wide.u32 %x, %a, 4; xor.b64 %x, %x, 128;", 4),
    ("mul.wide.u32 %x, %a, 4; or.b64 %x, %x, 3;", 4),
    ("and.b32 %b, %a, 7; mul.wide.u32 %x, %b, 4;", None),
    ("mul.wide.u32 %x, %a, %n;", None),
    ("mul.wide.u32 %x, %a, 4; ld.global.u64 %x, [%d];", None),
    ("mul.wide.u32 %x, %a, 4; xor.b64 %x, %x, %x;", None),
    ("mov.u32 %b, %tid.y; mul.wide.u32 %x, %b, 4;", None),
    ("shr.u32 %b, %a, 1; mul.wide.u32 %x, %b, 4;", None),
    ("mul.wide.u32 %x, %a, 65536; shl.b64 %x, %x, 16;", 1 << 32),
    ("mul.wide.u32 %x, %a, 65536; shl.b64 %x, %x, 17;", None),  # no access is so large, and steps are numbers of any length
    ("mov.b32 %b, %a;" + "mad.lo.u32 %b, %b, 1000003, 1;" * 4000 + "mul.wide.u32 %x, %b, 4;", None),
])  # fmt: skip
def test_a_step_is_guessed(lines: str, wanted: int | None) -> None:
    assert step(lines) == wanted
