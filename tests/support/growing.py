"""Kernels of any number of instructions in twelve shapes, to see how the work of a compilation grows with their size."""

from collections.abc import Callable
from itertools import cycle, islice

HEAD = """.version 8.0
.target sm_90
.address_size 64
.file 1 "grown.cu"
{top}
.visible .entry k(.param .u64 p)
{{
.reg .f32 %f<{n}>; .reg .b32 %r<{n}>; .reg .b64 %rd<{n}>; .reg .pred %p<{n}>;
{variables}
ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
ld.global.f32 %f1, [%rd3]; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1; mov.u32 %r2, %r1; mov.u32 %r3, %r1;
setp.lt.u32 %p1, %r1, 5; mov.b64 %rd4, %rd3; mov.u32 %r4, 0;
{body}
st.global.f32 [%rd3], %f1; st.global.f32 [%rd3+4], %f2; st.global.u32 [%rd3+8], %r2; ret;
}}
"""


def _straight(n: int) -> list[str]:
    steps = "fma.rn.f32 %f1, %f1, %f2, %f1;", "add.f32 %f2, %f1, %f2;", "mul.f32 %f3, %f2, %f1;", "sub.f32 %f2, %f3, %f2;"
    return list(islice(cycle(steps), n))


def _accumulators(n: int) -> list[str]:
    return [f"mul.f32 %f{10 + i % 8}, %f{3 + i % 2}, %f4; add.f32 %f{1 + i % 2}, %f{1 + i % 2}, %f{10 + i % 8};"
            for i in range(n // 2)]  # fmt: skip


def _branches(n: int) -> list[str]:
    return [f"setp.gt.u32 %p2, %r2, {i}; @%p2 bra L{i}; add.u32 %r2, %r2, {i + 1}; L{i}:" for i in range(n // 3)]


def _registers(n: int) -> list[str]:
    early = [f"add.f32 %f{10 + i}, %f{1 + i % 4}, %f{2 + i % 3};" for i in range(n // 2)]
    return early + [f"add.f32 %f1, %f1, %f{10 + i};" for i in range(n // 2)]


def _products(n: int) -> list[str]:
    return [f"mul.lo.u32 %r{10 + i}, %r{9 + i if i else 2}, {3 + 2 * (i % 5)};" for i in range(n)] + [f"mov.u32 %r2, %r{9 + n};"]


def _calls(n: int) -> list[str]:
    return [f"call (%r2), f{i}, (%r2);" for i in range(n // 4)]


def _shared(n: int) -> list[str]:
    return [f"mov.u32 %r5, s{i}; st.shared.u32 [%r5], %r2; ld.shared.u32 %r6, [s{i}]; add.u32 %r2, %r2, %r6;"
            for i in range(n // 4)]  # fmt: skip


def _loops(n: int) -> list[str]:
    """Loops one after another, in each two more."""
    inner = "mov.u32 %r{b}, 0; B{i}: add.f32 %f1, %f1, %f2; add.u32 %r{b}, %r{b}, 1; setp.lt.u32 %p3, %r{b}, 2; @%p3 bra B{i};"
    outer = "mov.u32 %r{a}, 0; A{i}: {inner} add.u32 %r{a}, %r{a}, 1; setp.lt.u32 %p2, %r{a}, 2; @%p2 bra A{i};"
    return [outer.format(i=i, a=10 + 2 * i, inner=inner.format(i=i, b=11 + 2 * i)) for i in range(n // 9)]


def _predicated(n: int) -> list[str]:
    both = "setp.gt.s32 %p{p}, %r2, {i}; @%p{p} add.u32 %r2, %r2, 3; @!%p{p} add.f32 %f1, %f1, %f2;"
    return [both.format(i=i, p=2 + i % 6) for i in range(n // 3)]


def _mma(n: int) -> list[str]:
    d = ["{%f1, %f2, %f3, %f4}", "{%f11, %f12, %f13, %f14}"]
    first = "mov.f32 %f11, 0f00000000; mov.f32 %f12, %f11; mov.f32 %f13, %f11; mov.f32 %f14, %f11;"
    name = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    return [first] + [f"{name} {d[i % 2]}, {{%r1, %r2}}, {{%r3}}, {d[i % 2]};" for i in range(n)]


def _addresses(n: int) -> list[str]:
    step = "add.s64 %rd{to}, %rd{at}, {by}; ld.global.f32 %f3, [%rd{to}]; add.f32 %f1, %f1, %f3;"
    return [step.format(to=10 + i, at=9 + i if i else 3, by=4 * (i % 3)) for i in range(n // 3)]


def _lines(n: int) -> list[str]:
    both = ".loc 1 {i} 3\nadd.f32 %f1, %f1, %f2;\n.loc 1 {i} 9\n.loc 1 {i} 1\nmul.f32 %f2, %f2, %f1;"
    return [both.format(i=i + 1) for i in range(n // 2)]


SHAPES: dict[str, Callable[[int], list[str]]] = {
    "straight": _straight, "accumulators": _accumulators, "branches": _branches, "registers": _registers, "products": _products,
    "calls": _calls, "shared": _shared, "loops": _loops, "predicated": _predicated, "mma": _mma, "addresses": _addresses,
    "lines": _lines,
}  # fmt: skip


def grown(shape: str, n: int) -> str:
    """A module with a kernel of a shape, of about n instructions."""
    top = [f".func (.reg .b32 r) f{i}(.reg .b32 a) {{ add.u32 r, a, {i}; ret; }}" for i in range(n // 4) if shape == "calls"]
    variables = [f".shared .b32 s{i};" for i in range(n // 4) if shape == "shared"]
    return HEAD.format(n=n + 20, top="\n".join(top), variables="\n".join(variables), body="\n".join(SHAPES[shape](n)))
