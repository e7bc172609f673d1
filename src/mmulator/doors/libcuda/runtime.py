"""Functions that kernels call and that a GPU's driver or CUDA's device runtime would define, as PTX: a barrier of all blocks of a
grid, malloc and free.
"""

import re

from mmulator.ptx.toolkit.joining import join

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

HEAP = 8 << 20  # bytes of each module's heap, CUDA's default

# Blocks are powers of two; before each stand its logarithm and the next free one. The first word of 64 bits of a list counts how
# often it changed, so that a list that changed and changed back is noticed.
MEMORY = """
.visible .global .align 64 .b8 __mmulator_heap[8388608];
.visible .global .align 8 .u64 __mmulator_heap_used = 32;
.visible .global .align 8 .u64 __mmulator_heap_free[32];

.visible .func (.param .b64 address) malloc(.param .b64 size)
{
	.reg .pred %p<6>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<20>;
	ld.param.b64 %rd1, [size];
	max.u64 %rd1, %rd1, 16;
	mov.b64 %rd19, 0;
	setp.gt.u64 %p1, %rd1, 4194304;
	@%p1 bra $done;
	add.u64 %rd2, %rd1, 15;
	clz.b64 %r1, %rd2;
	sub.u32 %r1, 64, %r1;
	mov.b64 %rd3, 1;
	shl.b64 %rd3, %rd3, %r1;
	mov.u64 %rd4, __mmulator_heap;
	mov.u64 %rd5, __mmulator_heap_free;
	mul.wide.u32 %rd6, %r1, 8;
	add.u64 %rd5, %rd5, %rd6;
$again:
	ld.volatile.global.u64 %rd7, [%rd5];
	and.b64 %rd8, %rd7, 4294967295;
	setp.eq.u64 %p2, %rd8, 0;
	@%p2 bra $fresh;
	add.u64 %rd9, %rd4, %rd8;
	ld.volatile.global.u32 %rd10, [%rd9+4];
	shr.u64 %rd11, %rd7, 32;
	add.u64 %rd11, %rd11, 1;
	shl.b64 %rd11, %rd11, 32;
	or.b64 %rd11, %rd11, %rd10;
	atom.global.cas.b64 %rd12, [%rd5], %rd7, %rd11;
	setp.ne.u64 %p3, %rd12, %rd7;
	@%p3 bra $again;
	bra $found;
$fresh:
	mov.u64 %rd13, __mmulator_heap_used;
	atom.global.add.u64 %rd8, [%rd13], %rd3;
	add.u64 %rd14, %rd8, %rd3;
	setp.gt.u64 %p4, %rd14, 8388608;
	@%p4 bra $done;
	add.u64 %rd9, %rd4, %rd8;
	st.volatile.global.u32 [%rd9], %r1;
$found:
	add.u64 %rd9, %rd9, 16;
	cvta.global.u64 %rd19, %rd9;
$done:
	st.param.b64 [address], %rd19;
	ret;
}

.visible .func free(.param .b64 address)
{
	.reg .pred %p<4>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<16>;
	ld.param.b64 %rd1, [address];
	setp.eq.u64 %p1, %rd1, 0;
	@%p1 bra $done;
	cvta.to.global.u64 %rd1, %rd1;
	mov.u64 %rd2, __mmulator_heap;
	sub.u64 %rd1, %rd1, 16;
	ld.volatile.global.u32 %r1, [%rd1];
	sub.u64 %rd3, %rd1, %rd2;
	mov.u64 %rd4, __mmulator_heap_free;
	mul.wide.u32 %rd5, %r1, 8;
	add.u64 %rd4, %rd4, %rd5;
$again:
	ld.volatile.global.u64 %rd6, [%rd4];
	and.b64 %rd7, %rd6, 4294967295;
	st.volatile.global.u32 [%rd1+4], %rd7;
	shr.u64 %rd8, %rd6, 32;
	add.u64 %rd8, %rd8, 1;
	shl.b64 %rd8, %rd8, 32;
	or.b64 %rd8, %rd8, %rd3;
	membar.gl;
	atom.global.cas.b64 %rd9, [%rd4], %rd6, %rd8;
	setp.ne.u64 %p2, %rd9, %rd6;
	@%p2 bra $again;
$done:
	ret;
}
"""
_PARTS = {GRID: ("cudaCGGetIntrinsicHandle", "cudaCGSynchronize"), MEMORY: ("malloc", "free")}
_HEAD = re.compile(r"^\s*\.(?:version|target)[^\n]*", re.MULTILINE)


def with_runtime(ptx: str) -> str:
    """A module together with the functions of the runtime that it calls."""
    declared = set(re.findall(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)", ptx))
    parts = [text for text, names in _PARTS.items() if declared & set(names)]
    if not parts:
        return ptx
    head = "\n".join(_HEAD.findall(ptx)[:2]) + "\n.address_size 64\n"
    return join([ptx, *(head + text for text in parts)])
