"""Whether an index of 32 bits explains an access out of bounds: from its offset, and the arithmetic that leads to it."""

import pytest

from mmulator.base.source import Source
from mmulator.ptx.parser import parse_module
from mmulator.sanitizer.diagnostics.faults.memory import wrapped

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n) {
  .reg .b32 %r<6>; .reg .b64 %a, %i;
  ld.param.u64 %a, [x]; ld.param.u32 %r0, [n]; mov.u32 %r1, %ctaid.x;
  shl.b32 %r2, %r1, 2;
LINE
  mul.wide.s32 %i, %r3, 4; add.s64 %a, %a, %i; st.global.u32 [%a], %r0; ret;
}
"""
MUL, GIB = "mad.lo.s32 %r3, %r0, %r1, %r2;", 1 << 30


def said(offset: int, size: int, line: str = MUL) -> str | None:
    function = parse_module(Source("k.ptx", TEXT.replace("LINE", line))).functions[0]
    access = next(i for i in function.instructions if i.mnemonic.startswith("st."))
    found = wrapped(function, access, offset, size)
    return found and found[0]


@pytest.mark.parametrize(
    ("offset", "size", "line", "wanted"),
    [
        (-2_094_006_272 * 4, 9 * GIB, MUL, "an i32 product passed 2^31 at k.ptx:8 (-2094006272 = 2200961024 - 2^32)"),
        (-2_094_006_272, 3 * GIB, MUL, "an i32 product passed 2^31 at k.ptx:8 (-2094006272 = 2200961024 - 2^32)"),
        (-(4 << 32), 64, "mul.lo.s32 %r3, %r0, 32768;",
         "an i32 product passed 2^31 at k.ptx:8 (2^32 elements of 4 bytes before byte 0)"),
        (-(8 << 32) + 8, 64, MUL, "an i32 product passed 2^31 at k.ptx:8 (2^32 elements of 8 bytes before byte 8)"),
        ((4 << 32) + 32, 64, "sub.u32 %r3, %r0, %r2;",
         "a u32 difference went below 0 at k.ptx:8 (2^32 elements of 4 bytes after byte 32)"),
        (-(4 << 32), 64, "add.s32 %r3, %r0, %r2;", "an i32 product passed 2^31 at k.ptx:7"),
        (-4, 64, MUL, None), (512, 64, MUL, None), (-(4 << 32) - 4, 64, MUL, None),
        (-(4 << 32), 64, "ld.global.u32 %r3, [%a];", None),  # an index from memory
    ],
)  # fmt: skip
def test_an_index_explains_it_or_not(offset: int, size: int, line: str, wanted: str | None) -> None:
    found = said(offset, size, line)
    assert found == wanted or (wanted is not None and found is not None and found.startswith(wanted))
