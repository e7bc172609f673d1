"""Wide products against the single products that they are made of, one after the other: every arrangement of registers."""

import ctypes
from typing import Any

import numpy as np
import pytest

from mmulator import Instruction
from mmulator.base.codegen.loading import address
from mmulator.errors import UnsupportedError
from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import DEVICES
from mmulator.matrix.instruction.execution import execute
from mmulator.matrix.layouts import fragment
from mmulator.matrix.layouts.operands import BY_REGISTER, operand_places
from mmulator.matrix.numerics.profiles import dot_key, profile_for
from mmulator.matrix.twin.fused import CORE_POINTERS, core_function
from mmulator.matrix.twin.lines import OWN, coarse
from mmulator.matrix.twin.places import commutes, key_of, scale_step
from mmulator.matrix.twin.plan import plan_for
from mmulator.matrix.twin.threads import pointer, room
from mmulator.matrix.twin.wide import chains, swaps, wide, wide_product, widens
from tests.twin.test_products import CASES as EVERY
from tests.twin.test_products import bits, operands, thinned

CASES = [case for case in EVERY if widens(case[1])]
SHAPES = ((1, 1, 1), (1, 8, 2), (2, 3, 3), (5, 1, 1), (4, 8, 1))


def fragments(form: Form, rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Any:
    rule = fragment(form, name)
    element = {"a": form.atype, "b": form.btype, "c": form.ctype}[name]
    return bits(rng, (*shape, rule.lanes, rule.registers), rule.register_bits, element)


def one_by_one(form: Form, device: str, a: Any, b: Any, c: Any, o: dict[str, Any]) -> Any:
    """a [steps, rows, lanes, registers], b [steps, columns, ...], c [rows, columns, ...], e and scale-a-data [rows, lanes]."""
    more = {x: o[x][:, None] for x in ("e", "scale_a_data") if x in o}
    more |= {x: v for x, v in o.items() if x not in ("a", "b", "c", *more)}
    for x, y in zip(a, b):
        c = execute(form, device, {"a": x[:, None], "b": y[None], "c": c, **more})
    return c


def as_one(form: Form, device: str, a: Any, b: Any, c: Any, o: dict[str, Any], split: int) -> Any:
    """The same by `wide`: registers lie in two memories in random order, D over some C."""
    (steps, rows), columns = a.shape[:2], b.shape[1]
    rng = np.random.default_rng(split)
    d = fragment(form, "d")
    word = {x: fragment(form, x).register_bits // 8 for x in "abcd"}
    shapes: dict[str, Any] = {"a": a.shape[:2], "b": b.shape[:2], "c": (rows, columns), "d": (rows, columns)}
    counts = {x: int(np.prod(shapes[x])) * fragment(form, x).registers for x in "abcd"}
    arrays = {"a": a, "b": b, "c": c}
    for name, key, count in (("e", "e", rows), ("scale_a", "scale_a_data", rows), ("scale_b", "scale_b_data", columns)):
        if key in o:
            shapes[name], counts[name], word[name], arrays[name] = (count,), count, 4, o[key][..., None]
    free = rng.permutation(sum(counts.values())) * 256
    memory = np.zeros((2, (len(free) + 1) * 256), np.uint8)
    at: dict[str, Any] = {}
    for name, array in arrays.items():
        places, free = free[: counts[name]], free[counts[name] :]
        own = rng.random(len(places)) < 0.5
        by_register = np.swapaxes(array, -1, -2).reshape(len(places), -1)
        for place, second, lanes in zip(places, own, by_register):
            memory[int(second), place : place + 32 * word[name]] = np.ascontiguousarray(lanes).view(np.uint8)
        at[name] = (places | np.where(own, OWN, 0)).reshape(*shapes[name], -1)
    places = free[: counts["d"]]
    over = at["c"].reshape(-1)
    same = rng.random(len(places)) < 0.5 if word["c"] == word["d"] and len(over) == len(places) else np.zeros(len(places), bool)
    at["d"] = np.where(same, over[: len(places)] if same.any() else 0, places | OWN).reshape(*shapes["d"], -1)
    for side, count in (("a", rows), ("b", columns)):
        if form.block_scale:
            step = o[f"byte_id_{side}"] + o[f"thread_id_{side}"] * scale_step(form, side)
            at[f"select_{side}"] = np.full(count, step)
    product = wide_product(form, device, rows, columns, steps, at, o.get("f", 0))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(address(wide))
    function(product.table.ctypes.data, room(product.scratch), pointer(memory[0]), pointer(memory[1]))
    out = np.empty((rows, columns, d.registers, d.lanes), f"<u{word['d']}")
    for index in np.ndindex(rows, columns, d.registers):
        place = int(at["d"][index])
        lanes = memory[place >> 31, place & (OWN - 1) :][: 32 * word["d"]]
        out[index] = lanes.view(out.dtype)
    return np.swapaxes(out, -1, -2)


@pytest.mark.parametrize(("name", "form", "device"), thinned(CASES))
def test_a_wide_product_has_the_bits_of_the_single_ones(name: str, form: Form, device: str) -> None:
    rng = np.random.default_rng(form.m * form.n * form.k)
    for n, (rows, columns, steps) in enumerate(SHAPES):
        steps = steps if chains(form) else 1
        more = operands(form, rng, {"e": (rows,)})
        if form.block_scale:
            near_one = rng.integers(0x76767676, 0x7F7F7F7F, (columns, 32), np.uint32)
            more["scale_b_data"] = near_one if str(form.stype) == "ue8m0" else near_one >> 1 & 0x3F3F3F3F
        a, b = fragments(form, rng, "a", (steps, rows)), fragments(form, rng, "b", (steps, columns))
        c = fragments(form, rng, "c", (rows, columns))
        wanted = one_by_one(form, device, a, b, c, more)
        assert np.array_equal(as_one(form, device, a, b, c, more, n), wanted), (rows, columns, steps)


def test_both_orientations_are_taken() -> None:
    forms = {str(form): form for _, form, _ in CASES}
    form = forms["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    assert swaps(form, 1, 1) and swaps(form, 4, 1) and not swaps(form, 1, 8) and not swaps(form, 4, 8)
    exact = next(form for form in forms.values() if str(form.atype) == "f64")
    assert not any(swaps(exact, rows, columns) for rows, columns, _ in SHAPES)


def test_transposed_products_have_the_same_arithmetic() -> None:
    mixed = 0
    for form in matrix_forms():
        if form.atype and commutes(form):
            mixed += form.atype != form.btype
            for device in DEVICES:
                try:
                    profile = profile_for(dot_key(form), device)
                except UnsupportedError:
                    continue
                assert profile_for(key_of(form, True), device) == profile, (form, device)
    assert mixed > 20


def test_pieces_are_as_large_as_lie_together() -> None:
    form = next(form for _, form, _ in CASES if str(form) == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    a = operand_places(form, "a", False, BY_REGISTER)[0]
    assert coarse(a, 16, 128)[0] == 128 and coarse(a, 16, 32)[0] == 32
    assert coarse(operand_places(form, "c", True, BY_REGISTER)[0], 32, 128)[0] == 32


@pytest.mark.parametrize("name", ["m16n8k16.row.col.f32.f16.f16.f32", "m16n8k32.row.col.s32.s8.s8.s32"])
def test_a_batch_that_shares_an_operand_has_the_bits_of_one_that_repeats_it(name: str) -> None:
    form = Instruction.parse(f"mma.sync.aligned.{name}").form
    rng = np.random.default_rng(7)
    every = {x: fragments(form, rng, x, (21,)) for x in "abc"}
    for shared in ("a", "b", "c", "ab", "abc"):
        given = {x: v[:1] if x in shared else v for x, v in every.items()}
        repeated = {x: np.ascontiguousarray(np.broadcast_to(v, every[x].shape)) for x, v in given.items()}
        singly = np.stack([execute(form, "sm_90", {x: v[n] for x, v in repeated.items()}) for n in range(21)])
        for operands_ in (given, repeated):
            found = execute(form, "sm_90", operands_)
            assert np.array_equal(np.broadcast_to(found, singly.shape), singly), shared


def test_what_batches_hand_to_the_core_of_a_dot_product_is_what_it_takes() -> None:
    form = Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").form
    core = core_function(plan_for(dot_key(form), profile_for(dot_key(form), "sm_90")), "dot")
    names = [name for name, _ in core.params]
    assert names[9] == "flags" and len(names) == 10 + CORE_POINTERS
    assert all(ty.kind == "ptr" for _, ty in core.params[10:])
