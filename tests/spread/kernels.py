"""Kernels whose blocks keep to themselves, or do not."""

from mmulator.host.module import Kernel, Module
from tests.support.ptx_text import entry


def kernel(body: str, params: str = ".param .u64 x, .param .u64 y", variables: str = "") -> Kernel:
    """Every thread has its number in the grid in %i, that of its block in %b, and the addresses of 32-bit elements %i in %x, %y
    for the arguments x and y."""
    names = [name for name in ("x", "y") if f".u64 {name}" in params]
    text = (
        ".reg .b32 %r<16>; .reg .b32 %i, %b; .reg .b64 %rd<8>; .reg .b64 %x, %y; .reg .f32 %f<4>; .reg .pred %p;\n"
        "mov.u32 %r0, %tid.x; mov.u32 %r1, %ntid.x; mov.u32 %b, %ctaid.x; mad.lo.u32 %i, %b, %r1, %r0;\n"
        "mul.wide.u32 %rd0, %i, 4;\n"
        + "".join(f"ld.param.u64 %{n}, [{n}]; add.u64 %{n}, %{n}, %rd0;\n" for n in names)
        + body
    )
    return Module.load(entry(text, params, "8.0", "sm_90", top=variables), name="k.ptx")["k"]


SQUARE = "ld.global.u32 %r2, [%x]; mul.lo.u32 %r2, %r2, %r2; st.global.u32 [%y], %r2;"
FIRST = "ld.param.u64 %x, [x];"  # the first element of x
