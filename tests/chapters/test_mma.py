"""mma in a kernel against `Instruction.execute`: the same native code, handed operands in two ways.

Forms that hardware vectors cover are in kernels/test_matrix_golden.py; here are those of devices without any.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mmulator.base.source import Source
from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.instruction.execution import execute
from mmulator.matrix.layouts import sparse
from mmulator.matrix.layouts.operands import fragment
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.runnable import unsupported
from mmulator.ptx.program.static import static_findings
from mmulator.ptx.verify import verify
from tests.support.matrix_kernels import CASES, kernel, load, registers, run, store
from tests.support.one_block import LANES


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


def covering() -> list[Form]:
    """Chosen forms: of each group of forms that differ in the types of A and B alone, as many as there are types, each type once
    on either side. The next group has another choice, so that each pair of types occurs in some group."""
    alike: dict[str, list[Form]] = {}
    for form in FORMS:
        alike.setdefault(form.mnemonic.replace(f".{form.atype}.{form.btype}.", "."), []).append(form)
    out, seen = [], Counter[int]()
    for forms in alike.values():
        shift = seen[len(forms)]
        seen[len(forms)] += 1
        a, b = (list(dict.fromkeys(types)) for types in zip(*((f.atype, f.btype) for f in forms)))
        out += [f for f in forms if (a.index(f.atype) + shift) % len(a) == b.index(f.btype)]
    return out


COVERING = covering()


def test_every_pair_of_types_is_among_the_chosen_forms() -> None:
    assert {(f.atype, f.btype) for f in COVERING} == {(f.atype, f.btype) for f in FORMS} and len(COVERING) > 40


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 4))])
def test_block_scaled_and_small_formats(part: int) -> None:
    for seed, form in enumerate(COVERING[part::4]):
        check_mma(form, seed)


def test_scale_selectors_in_registers() -> None:
    scaled = [f for f in FORMS if f.block_scale]
    for seed, form in enumerate(scaled[:: len(scaled) // 12]):
        check_mma(form, seed, in_registers=True)


def test_a_sparsity_selector_that_the_chip_refuses_is_found_in_the_text_and_stops_a_launch() -> None:
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { .reg .b32 r<9>; .reg .f32 f<9>;\n"
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
        "{f1,f2,f3,f4}, {r1,r2,r3,r4}, {r1,r2,r3,r4}, {f1,f2,f3,f4}, r5, 2;\n"
        "ret; }\n"
    )
    tree = parse_module(Source("s.ptx", text))
    assert verify(tree) == () and unsupported(tree) == ()
    (named,) = static_findings(tree)
    with pytest.raises(ExecutionFault, match="0 to 1") as caught:
        Module.load(text)["k"].launch(1, LANES, sanitize=True)
    assert [f.rule for f in caught.value.findings if f.rule.startswith("sparse")] == [named.rule] and "0 to 1" in named.message
