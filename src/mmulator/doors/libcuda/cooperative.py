"""What CUDA's device runtime has for grids that wait for each other, as PTX of our own: a barrier of all blocks of a grid."""

from __future__ import annotations

BARRIER = "__mmulator_grid_barrier"  # two words: blocks that arrived, and barriers that are over

# The first thread of each block arrives for it, and waits until the number of barriers changes; the last to arrive changes it.
GRID = """
.visible .global .align 8 .u32 __mmulator_grid_barrier[2];

.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
	.reg .b64 %rd<2>;
	mov.b64 %rd1, 1;
	st.param.b64 [handle], %rd1;
	ret;
}

.visible .func (.param .b32 outcome) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
	.reg .pred %p<4>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<4>;
	bar.sync 0;
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %tid.y;
	mov.u32 %r3, %tid.z;
	or.b32 %r4, %r1, %r2;
	or.b32 %r4, %r4, %r3;
	setp.ne.u32 %p1, %r4, 0;
	@%p1 bra $together;
	mov.u64 %rd1, __mmulator_grid_barrier;
	mov.u32 %r5, %nctaid.x;
	mov.u32 %r6, %nctaid.y;
	mov.u32 %r7, %nctaid.z;
	mul.lo.u32 %r8, %r5, %r6;
	mul.lo.u32 %r8, %r8, %r7;
	sub.u32 %r8, %r8, 1;
	ld.volatile.global.u32 %r9, [%rd1+4];
	membar.gl;
	atom.global.add.u32 %r10, [%rd1], 1;
	setp.ne.u32 %p2, %r10, %r8;
	@%p2 bra $wait;
	st.volatile.global.u32 [%rd1], 0;
	membar.gl;
	atom.global.add.u32 %r11, [%rd1+4], 1;
	bra $over;
$wait:
	ld.volatile.global.u32 %r12, [%rd1+4];
	setp.eq.u32 %p3, %r12, %r9;
	@%p3 bra $wait;
$over:
	membar.gl;
$together:
	bar.sync 0;
	mov.b32 %r13, 0;
	st.param.b32 [outcome], %r13;
	ret;
}
"""


def grid_functions(header: str) -> str:
    """The functions as a module. header: `.version` and `.target` of a module that calls them."""
    return f"{header}\n.address_size 64\n{GRID}"
