"""Kernels whose mma are done in groups against the same kernels whose mma are done one by one: random programs, registers that
are read, overwritten and reused at random."""

import numpy as np
import pytest

from mmulator.compiler import kernel
from mmulator.compiler.lowering import products
from mmulator.host.module import Module
from mmulator.ptx.program.products import delay

A, B, C = 4, 4, 6  # fragments that a program has
TYPES = {
    "f16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4, 2, "f32", 4),
    "half": ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", 2, 1, "b32", 2),
    "s8": ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", 4, 2, "s32", 4),
    "sparse": ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 4, 4, "f32", 4),
    "scaled": (
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", 4, 2, "f32", 4
    ),
    "f64": ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", 1, 1, "f64", 2),
}


def vector(name: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{name}{first * count + i}" for i in range(count)) + "}"


def program(rng: np.random.Generator, kind: str, length: int) -> str:
    """Statements; a loop runs them twice."""
    name, in_a, in_b, word, in_c = TYPES[kind]
    wide = word == "f64"
    lines = []
    for _ in range(length):
        a, b, c, d = (int(rng.integers(0, n)) for n in (A, B, C, C))
        what = rng.random()
        if what < 0.7:
            c = d if rng.random() < 0.7 else c
            last = f", %m{int(rng.integers(0, 2))}, {int(rng.random() < 0.3)}" if kind == "sparse" else ""
            if kind == "scaled":
                last = "".join(f", %m{rng.integers(0, 2)}, {{{rng.integers(0, 2)}, {rng.integers(0, 2)}}}" for _ in "ab")
            text = f"{name} {vector('c', d, in_c)}, {vector('a', a, in_a)}, {vector('b', b, in_b)}, {vector('c', c, in_c)}{last};"
            lines.append(text if rng.random() < 0.95 else f"@%q {text}")
        elif what < 0.78:  # another A or B
            name_, at = ("a", a * in_a) if rng.random() < 0.5 else ("b", b * in_b)
            lines.append(f"xor.b{64 if wide else 32} %{name_}{at}, %{name_}{at}, {2 if wide else '%k'};")
        elif what < 0.84:
            lines.append(f"mov.b{64 if wide else 32} %a{a * in_a}, %c{c * in_c};")
        elif what < 0.9:
            lines.append(f"mov.b{64 if wide else 32} %c{c * in_c}, %c{d * in_c + in_c - 1};")
        elif what < 0.95:
            lines.append(f"@%q mov.b{64 if wide else 32} %c{c * in_c}, %b{b * in_b};")
        else:
            lines.append("bar.warp.sync -1;" if what < 0.96 else "bar.sync 0;")
    return "\n".join(lines)


def text(rng: np.random.Generator, kind: str, length: int) -> tuple[str, int]:
    """A kernel that loads all registers, runs a program and stores them; and how many it has."""
    _, in_a, in_b, word, in_c = TYPES[kind]
    bits = 64 if word == "f64" else 32
    names = [f"%{n}{i}" for n, count in (("a", A * in_a), ("b", B * in_b), ("c", C * in_c)) for i in range(count)]
    factor = "f64" if bits == 64 else "b32"
    body = "\n".join((
        f".reg .{factor} %a<{A * in_a}>, %b<{B * in_b}>; .reg .{word} %c<{C * in_c}>; .reg .b32 %t, %k, %n, %m<2>;",
        ".reg .pred %q; .reg .b64 %p; mov.u32 %t, %tid.x; mov.u32 %k, 5; mov.u32 %n, 0;",
        f"ld.param.u64 %p, [p]; mad.wide.u32 %p, %t, {bits // 8}, %p;",
        *(f"ld.global.b{bits} {name}, [%p+{bits // 8 * 32 * i}];" for i, name in enumerate(names)),
        f"mov.u32 %m0, {'0x7e7f7e80' if kind == 'scaled' else '0x4e4e4444'}; mov.u32 %m1, 0x94949494;",
        "LOOP: setp.eq.u32 %q, %n, 1;", program(rng, kind, length),
        "add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 2; @%q bra LOOP;",
        *(f"st.global.b{bits} [%p+{bits // 8 * 32 * i}], {name};" for i, name in enumerate(names)),
    ))  # fmt: skip
    head = f".version 8.7\n.target {'sm_120a' if kind == 'scaled' else 'sm_80'}\n.address_size 64\n"
    return f"{head}.visible .entry k(.param .u64 p)\n{{\n{body}\nret;\n}}\n", len(names)


def registers(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    if kind == "f64":
        return rng.standard_normal((count, 32)).view(np.uint64)
    if kind == "s8":
        return rng.integers(0, 1 << 32, (count, 32), dtype=np.uint32)
    values = rng.standard_normal((count, 32, 2)).astype(np.float16)
    values[rng.random(values.shape) < 0.002] = np.inf
    return values.view(np.uint32)[..., 0]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(3))
def test_groups_have_the_bits_of_single_products(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    source, count = text(rng, kind, 50)
    given = registers(rng, kind, count)
    results = []
    for joins, behind in ((products.joins, delay), (lambda ins: False, lambda function: None)):
        monkeypatch.setattr(products, "joins", joins)
        monkeypatch.setattr(kernel, "delay", behind)
        memory = given.copy()
        report = Module.load(source)["k"].launch(1, 32, [memory], timeout=600)
        results.append((memory, report.macs, report.instructions))
    assert (results[0][0] == results[1][0]).all()
    assert results[0][1:] == results[1][1:] and (results[0][0] != given).any()
