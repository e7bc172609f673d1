"""Where registers lie in a frame."""

import mmulator as mm
from mmulator.ptx.program.blocks import build
from mmulator.ptx.program.frames import LINE, allocate, liveness, slot_bytes

TEXT = """
.version 8.0
.target sm_80
.visible .entry k(.param .u64 out)
{
  .reg .pred %p<20>; .reg .b8 %b<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  DECLARED
L:
  bar.sync 0;
  USED
  @%p1 bra L;
  ret;
}
"""


def test_vectors_begin_with_a_line_and_nothing_overlaps():
    predicates = range(1, 19)  # more than a line holds
    declared = [f"setp.eq.u32 %p{n}, %r1, {n};" for n in predicates]
    declared += ["cvt.u16.u32 %h1, %r1;", "ld.global.b8 %b1, [%rd1];", "add.u32 %r2, %r1, 1;"]
    used = [f"@%p{n} st.global.u32 [%rd1], %r2;" for n in predicates]
    used += ["st.global.u16 [%rd1], %h1;", "st.global.b8 [%rd1], %b1;"]
    text = TEXT.replace("DECLARED", "\n  ".join(declared)).replace("USED", "\n  ".join(used))
    module = mm.Module.load(text)
    function = build(module.tree, module["k"].function).entry
    frame = allocate(function, liveness(function))
    sizes = {name: slot_bytes(frame.types[name]) for name in frame.slots}
    assert {4, 32, 64, 128, 256} <= set(sizes.values())
    taken: set[int] = set()
    for name, at in frame.slots.items():
        here = set(range(at, at + sizes[name]))
        assert not here & taken and max(here) < frame.bytes, name
        taken |= here
        assert at % min(sizes[name], LINE) == 0, (name, at)
