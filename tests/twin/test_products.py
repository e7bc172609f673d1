"""Products of fragments in one compiled call against the same product step by step: fragments and shared memory to
matrices, the twin on whole matrices, the result back into a fragment. Every arrangement of registers, any bits, batches."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mmulator import MatrixDescriptor
from mmulator.errors import OperandError, UnsupportedError
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.instruction import execution
from mmulator.matrix.layouts import fragment, operand_addresses, sparse
from mmulator.matrix.numerics.profiles import dot_key, profile_for
from mmulator.matrix.twin.matrices import twin_matmul
from tests.support.raw_scales import raw_scales

DEVICES = ("sm_90", "sm_120", "sm_70")
SPECIAL = {
    16: (0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7F80, 0xFF80, 0x7FC0, 1, 0x8001),
    32: (0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F801000, 1, 0x007FFFFF, 0x7F7FFFFF),
    64: (0, 1 << 63, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000001, 1),
}


def device_of(form: Form) -> str | None:
    for device in DEVICES:
        try:
            execution.check_device(form, device)
            profile_for(dot_key(form), device)
        except UnsupportedError:
            continue
        return device
    return None


def cases() -> Iterator[tuple[str, Form, str]]:
    """One form for each arrangement of registers; of wgmma, three widths."""
    seen = set()
    for form in matrix_forms():
        if not form.atype or (form.family == "wgmma" and form.n not in (8, 24, 256)):
            continue
        b = (form.blayout, form.btype.bits) if form.family == "wgmma" and form.btype else fragment(form, "b")
        chunk = sparse.granularity(form) if form.sparse else None
        key = (form.family, form.n, form.k, fragment(form, "a"), b, fragment(form, "d"), chunk, form.scale_vec, form.ctype)
        if key not in seen and (device := device_of(form)):
            seen.add(key)
            yield str(form), form, device


CASES = list(cases())


def kind_of(form: Form) -> tuple[str, ...]:
    """What decides how a form's product is computed, but for its shape."""
    return str(form.atype), str(form.dtype), str(form.stype), str(form.sparse)


def thinned(cases: list[tuple[str, Form, str]]) -> list[Any]:
    """Cases as parameters (name, form, device): of each kind of form the first is quick, the others are marked slow."""
    first = {kind_of(form): name for name, form, _ in reversed(cases)}
    return [
        pytest.param(name, form, device, id=name, marks=pytest.mark.full if first[kind_of(form)] != name else ())
        for name, form, device in cases
    ]


def bits(generator: np.random.Generator, shape: tuple[int, ...], word: int, element: Any) -> Any:
    """Random words; a quarter of the elements of 16 bits and more are special, or ordinary numbers near one."""
    raw = generator.integers(0, 1 << 8, (*shape, word // 8), np.uint8).view(f"<u{word // 8}")[..., 0]
    size = max(16, element.bits if element else 16)
    if not element or element.bits < 16 or element.kind in ("signed", "unsigned"):
        return raw
    lanes = np.ascontiguousarray(raw[..., None]).view(f"<u{size // 8}")
    special = generator.choice(np.array(SPECIAL[size], lanes.dtype), lanes.shape)
    lanes[...] = np.where(generator.random(lanes.shape) < 0.02, special, lanes)
    near_one = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "tf32": 0x3F800000, "f64": 0x3FF << 52}[element.name]
    keep = {16: 0x83FF, 32: 0x807FFFFF, 64: 0x800FFFFFFFFFFFFF}[size]
    calm = lanes & lanes.dtype.type(keep) | lanes.dtype.type(near_one)
    lanes[...] = np.where(generator.random((*shape[:-2], 1, 1, 1)) < 0.5, calm, lanes)
    return lanes.view(f"<u{word // 8}")[..., 0]


def operands(form: Form, generator: np.random.Generator, batch: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Random operands; `batch` gives the leading dimensions of some."""
    wgmma = form.family == "wgmma"
    types = {"a": form.atype, "b": form.btype, "c": form.ctype, "d": form.dtype}
    out: dict[str, Any] = {}
    for name in ("a", "d") if wgmma else ("a", "b", "c"):
        rule = fragment(form, name)
        out[name] = bits(generator, (*batch.get(name, ()), rule.lanes, rule.registers), rule.register_bits, types[name])
    if wgmma:
        out["shared"] = generator.integers(0, 256, (*batch.get("b", ()), 65536), np.uint8)
        out["b_desc"] = MatrixDescriptor(1024, 4096, 512, 0, "32B")
    if form.sparse:
        g = sparse.granularity(form)
        chunks = form.k // g.chunk
        nibbles = generator.choice(np.array(g.nibbles, np.uint8), (*batch.get("e", ()), form.m, chunks))
        selectors = {4: 4, 8: 2, 16: 1}[chunks]
        selector = int(generator.integers(0, selectors))
        out |= dict(zip(("sp_meta", "sp_sel") if wgmma else ("e", "f"), (sparse.to_registers(nibbles, form, selector), selector)))
    if form.block_scale:
        for side, threads in (("a", 2), ("b", 4)):
            out[f"scale_{side}_data"] = generator.integers(0, 1 << 32, (*batch.get("e", ()), 32), np.uint32)
            out[f"byte_id_{side}"] = {1: 3, 2: 2, 4: 0}[form.scale_vec]
            out[f"thread_id_{side}"] = threads - 1
    return out


# step by step -------------------------------------------------------------------------------------------------------
def from_shared(o: dict[str, Any], name: str, form: Form) -> Any:
    """Raw A or B' of a wgmma, byte by byte."""
    rows, k, element = (form.m, form.k // (1 + form.sparse), form.atype) if name == "a" else (form.n, form.k, form.btype)
    address = operand_addresses(o[f"{name}_desc"], rows, k, element.bits, bool(o.get(f"imm_trans_{name}", 0)))
    address = address - o.get("shared_base", 0)
    if element.bits < 8:
        return o["shared"][..., address] >> (np.arange(k) * element.bits % 8).astype(np.uint8) & np.uint8(1)
    size = element.bits // 8
    return np.ascontiguousarray(o["shared"][..., address[..., None] + np.arange(size)]).view(f"<u{size}")[..., 0]


def step_by_step(form: Form, device: str, o: dict[str, Any]) -> Any:
    more: dict[str, Any] = {}
    wgmma = form.family == "wgmma"
    a = fragment(form, "a").to_matrix(o["a"]) if "a" in o else from_shared(o, "a", form)
    b = np.swapaxes(from_shared(o, "b", form), -1, -2) if wgmma else fragment(form, "b").to_matrix(o["b"])
    c = fragment(form, "d").to_matrix(o["d"]) if wgmma else fragment(form, "c").to_matrix(o["c"])
    if form.sparse:
        e, f = (o["sp_meta"], o["sp_sel"]) if wgmma else (o["e"], o["f"])
        index = sparse.indices(sparse.from_registers(e, form, f), form)
        batch = np.broadcast_shapes(a.shape[:-2], index.shape[:-2])
        a, more["indices"] = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, index))
    if form.block_scale:
        for side in "ab":
            ids = o[f"byte_id_{side}"], o[f"thread_id_{side}"]
            more[f"scale_{side}"] = raw_scales(o[f"scale_{side}_data"], form, side, *ids)
    return fragment(form, "d").to_registers(twin_matmul(dot_key(form), device, a, b, c, **more))


@pytest.mark.parametrize(("name", "form", "device"), thinned(CASES))
def test_every_arrangement_of_registers(name: str, form: Form, device: str) -> None:
    generator = np.random.default_rng(len(name))
    leading: list[dict[str, tuple[int, ...]]] = [{}, {"a": (3, 1), "b": (2,), "e": (1, 2), "c": (), "d": (3, 2)}]
    if form.n <= 8:
        leading.append(dict.fromkeys(("a", "b", "c", "d", "e"), (300,)))  # all threads
    for batch in leading:
        given = operands(form, generator, batch)
        d = execution.execute(form, device, given)
        plain = step_by_step(form, device, given)
        assert d.dtype == plain.dtype
        assert np.array_equal(d, plain)
        assert len(np.unique(d)) > 1


def test_wgmma_takes_operands_from_shared_memory() -> None:
    generator = np.random.default_rng(1)
    seen = set()
    for form in matrix_forms():
        assert form.family != "wgmma" or not form.atype or form.n % 8 == 0
        if form.family != "wgmma" or not form.atype or form.n != 16 or (form.atype.bits, form.sparse) in seen:
            continue
        seen.add((form.atype.bits, form.sparse))
        given = operands(form, generator, {"b": (2,)})
        del given["a"]
        transposes = (0, 1) if form.atype.bits == 16 and form.atype.is_float else (0,)
        for base in (0, 256, 3):
            for swizzle in ("none", "32B", "64B", "128B"):
                for turned in transposes:
                    more = {"imm_trans_a": turned, "imm_trans_b": 1 - turned} if len(transposes) > 1 else {}
                    given |= {"a_desc": MatrixDescriptor(2048, 512, 1024, 1, swizzle), "shared_base": base, **more}
                    d = execution.execute(form, "sm_90", given)
                    assert np.array_equal(d, step_by_step(form, "sm_90", given))
    assert len(seen) >= 7


def test_empty_batches_give_empty_results() -> None:
    form = next(f for f in matrix_forms() if f.family == "mma" and f.k == 16 and not f.sparse)
    given = operands(form, np.random.default_rng(0), dict.fromkeys("abc", (0, 2)))
    assert execution.execute(form, "sm_90", given).shape == (0, 2, *fragment(form, "d").maps[0].shape[:2])


def test_leading_dimensions_that_do_not_fit() -> None:
    form = next(f for f in matrix_forms() if f.family == "mma" and f.k == 16 and not f.sparse)
    given = operands(form, np.random.default_rng(9), {"a": (2,), "b": (3,)})
    with pytest.raises(OperandError, match=r"leading dimensions do not broadcast: a \(2,\), b \(3,\), c \(\)"):
        execution.execute(form, "sm_90", given)
