"""Matrix instructions in a kernel against `Instruction.execute`: the same native code, handed operands in two ways.

Forms that hardware vectors cover are in test_machine_golden.py; here are those of devices without any.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mmulator import Module
from mmulator.instruction.execution import execute
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.layouts import sparse
from mmulator.layouts.operands import fragment

HEAD = ".version 9.1\n.target sm_120a\n.address_size 64\n"
CASES = 8


def registers(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def load(name: str, count: int) -> list[str]:
    """Registers of a thread from [cases][32][count] words."""
    head = [f"ld.param.u64 %p, [{name}];", f"mad.wide.u32 %p, %at, {4 * count}, %p;"]
    return head + [f"ld.global.b32 %{name}{i}, [%p+{4 * i}];" for i in range(count)]


def store(name: str, count: int) -> list[str]:
    head = [f"ld.param.u64 %p, [{name}];", f"mad.wide.u32 %p, %at, {4 * count}, %p;"]
    return head + [f"st.global.b32 [%p+{4 * i}], %{name}{i};" for i in range(count)]


def kernel(counts: dict[str, int], body: list[str], extra: str = "") -> Module:
    declared = " ".join(f".reg .b32 %{n}<{c}>;" for n, c in counts.items())
    params = ", ".join(f".param .u64 {n}" for n in counts)
    head = f"{declared} .reg .b64 %p, %q; .reg .b32 %at, %t, %s; {extra} mov.u32 %t, %tid.x; mov.u32 %at, %ctaid.x;"
    lines = [head, "mad.lo.u32 %at, %at, 32, %t;", *body, "ret;"]
    return Module.load(f"{HEAD}.visible .entry k({params})\n{{\n" + "\n".join(lines) + "\n}\n")


def run(module: Module, arrays: list[np.ndarray]) -> None:
    module["k"].launch(CASES, 32, arrays, device="sm_120", timeout=60)


def small_formats(form: Form) -> bool:
    return form.family == "mma" and bool(form.kind)


def operand(rng: np.random.Generator, form: Form, name: str) -> np.ndarray:
    """Random registers. f32 accumulators of moderate size: with random exponents C hides every product."""
    rule = fragment(form, name)
    if name == "c":
        values = rng.standard_normal((CASES, rule.rows, rule.columns)) * 4
        kind = np.float16 if form.ctype.name == "f16" else np.float32
        return rule.to_registers(values.astype(kind).view(f"u{np.dtype(kind).itemsize}"))
    return rng.integers(0, 1 << 32, (CASES, rule.lanes, rule.registers), dtype=np.uint32)


def metadata(rng: np.random.Generator, form: Form, selector: int) -> np.ndarray:
    lane, _ = sparse.places(form, selector)
    nibbles = rng.choice(sparse.granularity(form).nibbles, (CASES, *lane.shape)).astype(np.uint8)
    return sparse.to_registers(nibbles, form, selector)[..., None]


def selectors(rng: np.random.Generator, form: Form) -> dict[str, int]:
    bytes_allowed = {1: range(4), 2: (0, 2), 4: (0,)}[form.scale_vec]
    one = {"byte_id_a": bytes_allowed, "thread_id_a": (0, 1), "byte_id_b": bytes_allowed, "thread_id_b": range(4)}
    return {n: int(rng.choice(v)) for n, v in one.items()}


def check_mma(form: Form, seed: int, in_registers: bool = False) -> None:
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {n: operand(rng, form, n) for n in "abc"}
    text = [registers(n, fragment(form, n).registers) for n in "dabc"]
    if form.sparse:
        selector = seed % {4: 4, 8: 2, 16: 1}[form.k // sparse.granularity(form).chunk]
        given["e"] = metadata(rng, form, selector)
        text += ["%e0", str(selector)]
    arrays = dict(given)
    body: list[str] = []
    ids: dict[str, int] = {}
    if form.block_scale:
        ids = selectors(rng, form)
        for side in "ab":  # scales around 1, and a NaN now and then
            low, high, nan = (120, 135, 255) if str(form.stype) == "ue8m0" else (0x30, 0x48, 127)
            raw = rng.integers(low, high, (CASES, 32, 4))
            raw[rng.random(raw.shape) < 0.01] = nan
            arrays[f"s{side}"] = np.ascontiguousarray(raw.astype(np.uint8)).view(np.uint32)
            pair = [ids[f"byte_id_{side}"], ids[f"thread_id_{side}"]]
            if in_registers:
                body += [f"mov.u16 %{w}{side}, {v};" for w, v in zip("xy", pair)]
            names = f"{{%x{side}, %y{side}}}" if in_registers else f"{{{pair[0]}, {pair[1]}}}"
            text += [f"%s{side}0", names]
    counts = {n: v.shape[-1] for n, v in arrays.items()} | {"d": fragment(form, "d").registers}
    loads = [line for n in arrays for line in load(n, counts[n])]
    module = kernel(
        counts, [*loads, *body, f"{form.mnemonic} {', '.join(text)};", *store("d", counts["d"])], ".reg .b16 %xa, %ya, %xb, %yb;"
    )
    out = np.zeros((CASES, 32, counts["d"]), np.uint32)
    run(module, [*arrays.values(), out])
    if form.sparse:
        given |= {"f": selector}
    if form.block_scale:
        given |= {f"scale_{s}_data": arrays[f"s{s}"][..., 0] for s in "ab"} | ids
    assert np.array_equal(out, execute(form, "sm_120", given)), f"{form}"


FORMS = [f for f in matrix_forms() if small_formats(f)]


@pytest.mark.parametrize("part", range(8))
def test_block_scaled_and_small_formats(part: int) -> None:
    assert len(FORMS) > 100
    for seed, form in enumerate(FORMS[part::8]):
        check_mma(form, seed)


def test_scale_selectors_in_registers() -> None:
    scaled = [f for f in FORMS if f.block_scale]
    for seed, form in enumerate(scaled[:: len(scaled) // 12]):
        check_mma(form, seed, in_registers=True)


def byte_moves(family: str) -> list[Form]:
    return [f for f in matrix_forms() if f.family == family and (f.m, f.n) != (8, 8)]


@pytest.mark.parametrize("form", byte_moves("ldmatrix"), ids=str)
def test_byte_ldmatrix(form: Form) -> None:
    rng = np.random.default_rng(5)
    memory = rng.integers(0, 256, (CASES, 1024), dtype=np.uint8)
    p = (rng.permuted(np.tile(np.arange(32), (CASES, 1)), axis=1) * 32 + 16 * rng.integers(0, 2, (CASES, 32))).astype(np.uint32)
    count = fragment(form, "r").registers
    body = [
        *load("memory", 8), "mov.u32 %s, tile;", "mad.lo.u32 %s, %t, 32, %s;",
        *(f"st.shared.b32 [%s+{4 * i}], %memory{i};" for i in range(8)), "bar.sync 0;",
        *load("p", 1), "mov.u32 %s, tile;", "add.u32 %p0, %p0, %s;",
        *(["cvt.u64.u32 %q, %p0;", "cvta.shared.u64 %q, %q;"] if not form.space else []),
        f"{form.mnemonic} {registers('d', count)}, [{'%p0' if form.space else '%q'}];", *store("d", count),
    ]  # fmt: skip
    module = kernel({"memory": 8, "p": 1, "d": count}, body, ".shared .align 128 .b8 tile[1024];")
    out = np.zeros((CASES, 32, count), np.uint32)
    run(module, [memory.view(np.uint32), p, out])
    for case in range(CASES):
        expected = execute(form, "sm_120", {"memory": memory[case], "p": p[case]})
        assert np.array_equal(out[case], expected)


@pytest.mark.parametrize("form", byte_moves("stmatrix"), ids=str)
def test_byte_stmatrix(form: Form) -> None:
    rng = np.random.default_rng(6)
    count = fragment(form, "r").registers
    r = rng.integers(0, 1 << 32, (CASES, 32, count), dtype=np.uint32)
    p = (rng.permuted(np.tile(np.arange(32), (CASES, 1)), axis=1) * 32).astype(np.uint32)
    body = [
        "mov.u32 %s, tile;", "mad.lo.u32 %s, %t, 32, %s;", *(f"st.shared.b32 [%s+{4 * i}], 0;" for i in range(8)), "bar.sync 0;",
        *load("r", count), *load("p", 1), "mov.u32 %s, tile;", "add.u32 %p0, %p0, %s;",
        *(["cvt.u64.u32 %q, %p0;", "cvta.shared.u64 %q, %q;"] if not form.space else []),
        f"{form.mnemonic} [{'%p0' if form.space else '%q'}], {registers('r', count)};", "bar.sync 0;",
        "mov.u32 %s, tile;", "mad.lo.u32 %s, %t, 32, %s;",
        *(f"ld.shared.b32 %d{i}, [%s+{4 * i}];" for i in range(8)), *store("d", 8),
    ]  # fmt: skip
    module = kernel({"r": count, "p": 1, "d": 8}, body, ".shared .align 128 .b8 tile[1024];")
    out = np.zeros((CASES, 32, 8), np.uint32)
    run(module, [r, p, out])
    for case in range(CASES):
        memory = np.zeros(1024, np.uint8)
        execute(form, "sm_120", {"memory": memory, "p": p[case], "r": r[case]})
        assert np.array_equal(out[case].reshape(-1), memory.view(np.uint32))


@pytest.mark.parametrize(("bits", "shape"), [(4, "m8n8k32.global.s4"), (1, "m8n8k128.global.b1")])
@pytest.mark.parametrize("stride", [128, 129, 0, -1, -31, -128])
def test_small_elements_of_wmma_load_at_any_stride(bits: int, shape: str, stride: int) -> None:
    """Places are counted in elements: a line may begin within a byte, and before the address."""
    data = np.random.default_rng(1).integers(0, 256, 1024).astype(np.uint8)
    out = np.zeros(32, np.uint32)
    text = f""".version 8.0\n.target sm_80\n.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data) {{
  .reg .b64 %rd<4>; .reg .b32 %r<4>;
  ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [data];
  add.u64 %rd1, %rd1, 512; mov.b32 %r2, {stride};
  wmma.load.a.sync.aligned.row.{shape} {{%r1}}, [%rd1], %r2;
  mov.u32 %r3, %laneid; mad.wide.u32 %rd2, %r3, 4, %rd0;
  st.global.b32 [%rd2], %r1;
}}"""
    Module.load(text)["k"].launch(1, 32, [out, data])
    per = 32 // bits  # of a register: lane l has those of row l / 4 from column per * (l % 4)
    lane, element = np.arange(32)[:, None], np.arange(per)
    at = 512 * 8 // bits + lane // 4 * stride + per * (lane % 4) + element
    values = np.unpackbits(data, bitorder="little").reshape(-1, bits).dot(1 << np.arange(bits))
    assert (out == (values[at] << (bits * element)).sum(axis=1)).all()
