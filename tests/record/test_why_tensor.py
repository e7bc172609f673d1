"""Why an element has its value, through tensor memory: products, copies, moves. What the model makes of the operands that were
found has to be what the machine made (an InternalError says if not).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.matrix.layouts.instruction_descriptor import KINDS, InstructionDescriptor
from mmulator.matrix.layouts.tensor_memory import MOVES, columns_of
from mmulator.observation.record.cause import Cause
from mmulator.observation.record.launches.answers import WhyAnswer
from tests.native.test_tensor_memory import HEAD, TAKE, loads, stores
from tests.support.tensor_cases import draw, make, scale_factors
from tests.support.tensor_chains import A_CELLS, TYPES, chain
from tests.support.tensor_kernels import Product, cells, launched, shared_image

Cell = tuple[int, int, int]


def answers(
    product: Product, before: np.ndarray, some: Sequence[Cell], behind: np.ndarray | None = None, **how: Any
) -> Iterator[tuple[Cell, WhyAnswer]]:
    """The answer about each of some cells of tensor memory behind a product.

    product: whose operands are asked for.
    before: tensor memory before it.
    some: the cells.
    behind: tensor memory behind it; None: what a run without questions leaves.
    how: of the launch.
    """
    plain = launched(product, before, **how)[0] if behind is None else behind
    out, report = launched(product, before, why=[f"out[{a},{b},{c}]" for a, b, c in some], **how)
    assert np.array_equal(out, plain)
    for cell, answer in zip(some, report.why, strict=True):
        assert answer.cause is not None and answer.cause.bits == out[cell] and not answer.notes
        yield cell, answer


def causes(answer: WhyAnswer) -> list[Cause]:
    return [*answer.cause.walk()] if answer.cause else []


def sources(answer: WhyAnswer) -> str:
    return next(s for s in answer.sources if s.startswith("computed from"))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_products_of_every_kind(kind: str, number: int) -> None:
    """Shapes, types, swizzles, pairs, .ws, .sp, scale factors, A in tensor memory: operands by their names, and the sum."""
    rng = np.random.default_rng([number, KINDS.index(kind)])
    d = draw(rng, kind=kind)
    in_cells = not d.ws and not d.transpose_a and bool(rng.integers(3) == 0)
    vec = scale_factors(rng, d)
    case = make(rng, d, vec, in_cells)
    lane, column = cells(d)
    some = []
    for _ in range(3):
        m, n = (int(rng.integers(size)) for size in lane.shape)
        some.append((int(rng.integers(1 + d.pair)), int(lane[m, n]), int(column[m, n])))
    for _, answer in answers(case.product, case.before, some, case.behind):
        (product,) = (c for c in causes(answer) if c.element is not None)
        assert product.element is not None and product.element.device == "sm_100" and product.products == 1
        said = dict(r.split(": ", 1) for r in product.remarks if ": " in r)
        assert said["row of A"].startswith("image[" if in_cells else "a[") and said["column of B"].startswith("b[")
        assert bool(vec) == ("scale factors of A" in said) and all(said[x].startswith("image[") for x in said if "factors" in x)


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize(("pair", "m"), [(False, 64), (False, 128), (True, 128), (True, 256)])
@pytest.mark.parametrize("kind", TYPES)
def test_chains(kind: str, pair: bool, m: int, number: int) -> None:
    """Products behind each other on two accumulators, A among them, with copies, lanes left out, a C that is halved."""
    rng = np.random.default_rng([number, m, pair, len(kind)])
    product, before, steps = chain(rng, kind, pair, m)
    some = [(int(rng.integers(1 + pair)), int(rng.integers(128)), int(rng.integers(256))) for _ in range(6)]
    some += [(0, 5, 3), (0, 70, A_CELLS + 2)]
    for _, answer in answers(replace(product, instead="\n  ".join(steps)), before, some, seed=number):
        assert re.fullmatch(r"computed from ((a|b|image)\[[^]]*\](, byte \d)?|and \d+ more ranges|[, ])+", sources(answer))


@pytest.mark.parametrize("form", ["", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64"])
@pytest.mark.parametrize(
    "shape", ["128x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23", "32x128b.warpx4", "4x256b"]
)
def test_copies(shape: str, form: str) -> None:
    """A cell that tcgen05.cp wrote has the bits of the bytes that are named."""
    rows, line = int(shape.split("x")[0]), 32 if "256b" in shape else 16
    rng = np.random.default_rng(9)
    image, desc = shared_image(rng.integers(0, 256, (rows, line)).astype(np.uint8), "none", False)
    product = Product("", InstructionDescriptor("f16", "f32", "f16", "f16"), image[None], image[None], desc, desc)
    product.instead = f"add.u32 %n, %td, {0x1F0000 if shape == '4x256b' else 0}; tcgen05.cp.cta_group::1.{shape}{form} [%n], %da;"
    before = rng.integers(0, 1 << 32, (1, 128, 512)).astype(np.uint32)
    some = [(0, lane, int(rng.integers(line // 4))) for lane in (31, 63, 95, 127)]
    for _, answer in answers(product, before, some):
        named = [c for c in causes(answer) if c.how == "as the launch found it"]
        parts = [int(re.fullmatch(r"a\[0,(\d+)\]", c.name)[1]) for c in named]  # type: ignore[index]
        word = answer.cause.bits  # type: ignore[union-attr]
        if not form:
            assert int.from_bytes(image[parts[0] : parts[0] + 4].tobytes(), "little") == word == named[0].bits
            continue
        bits = 6 if "6x16" in form else 4
        assert [c.bits for c in named] == image[parts].tolist() and len(parts) == bits // 2
        raw = sum(int(image[at]) << 8 * n for n, at in enumerate(parts))
        elements = [raw >> bits * n & (1 << bits) - 1 for n in range(4)]
        assert elements == [word >> 8 * n + (2 if bits == 4 else 0) & (1 << bits) - 1 for n in range(4)]


def test_shifts() -> None:
    """A row that tcgen05.shift moved, and A that .ashift moved behind its product."""
    before = np.arange(128 * 512, dtype=np.uint32).reshape(1, 128, 512)
    some = np.zeros((1, 1024), np.uint8)
    product = Product("", InstructionDescriptor("f16", "f32", "f16", "f16"), some, some, 0, 0)
    product.instead = "add.u32 %n, %td, 0x200010; tcgen05.shift.cta_group::1.down [%n];"
    for (_, lane, column), answer in answers(product, before, [(0, 40, 17), (0, 63, 17), (0, 40, 24), (0, 70, 17)]):
        from_ = lane + ((lane, column) == (40, 17))
        assert sources(answer) == f"computed from image[0,{from_},{column}]"
    rng = np.random.default_rng(3)
    plain: dict[str, Any] = {"atype": "f16", "btype": "f16", "dtype": "f32", "transpose_a": False, "ws": False, "sparse": False}
    case = make(rng, draw(rng, kind="f16", pair=False, m=128, **plain), 0, in_cells=True)
    case.product.text += ".ashift"
    at = case.product.in_cells or 0
    for (_, lane, column), answer in answers(case.product, case.before, [(0, 3, at + 1), (0, 31, at + 1), (0, 3, at + 8)]):
        from_ = lane + ((lane, column) == (3, at + 1))
        assert sources(answer) == f"computed from image[0,{from_},{column}]"


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("shape", MOVES)
def test_registers_that_went_through_tensor_memory(shape: str, half: bool) -> None:
    """st of a shape and ld of whole rows: each register is in its cell, or half of it."""
    count, columns = MOVES[shape][0] * 4, columns_of(shape, 4)
    apart = ", 16" if shape == "16x32bx2" else ""
    names, rows = (", ".join(f"%x{n}" for n in range(size)) for size in (count, 64))
    pack, unpack = (".pack::16b", ".unpack::16b") if half else ("", "")
    body = (
        TAKE + loads(count) + f"  tcgen05.st.sync.aligned.{shape}.x4{unpack}.b32 [%at]{apart}, {{{names}}};\n"
        f"  tcgen05.wait::st.sync.aligned;\n  tcgen05.ld.sync.aligned.{shape}.x4{pack}.b32 {{{names}}}, [%at]{apart};\n"
        f"  tcgen05.wait::ld.sync.aligned;\n" + stores(count) + f"  tcgen05.ld.sync.aligned.32x32b.x64.b32 {{{rows}}}, [%at];\n"
        "  tcgen05.wait::ld.sync.aligned; ld.param.u64 %b, [c];\n" + stores(64)
    )  # fmt: skip
    given = np.random.default_rng(1).integers(0, 1 << 32, (128, count)).astype(np.uint32)
    back, cells = np.zeros_like(given), np.zeros((128, 64), np.uint32)
    ask = [f"{name}[{t},{n}]" for name, size in (("b", count), ("c", 64)) for t in (0, 15, 37, 98, 127) for n in range(size)]
    kernel = mm.Module.load(HEAD + body + "  ret;\n}\n")["k"]
    report = kernel.launch(1, 128, [given, back, cells], why=ask, names={"a": given, "b": back, "c": cells})
    assert np.array_equal(back, given) and columns
    known = 0
    for text, answer in zip(ask, report.why, strict=True):
        t, n = map(int, re.findall(r"\d+", text))
        if text.startswith("b"):
            assert sources(answer) == f"computed from a[{t},{n}]"
            continue
        leaf = [*causes(answer)][-1]
        if leaf.how == "as the launch found it":
            known += 1
            at = tuple(map(int, re.findall(r"\d+", leaf.name.partition(", byte")[0])))
            assert cells[t, n] in ((given[at] & 0xFFFF, given[at] >> 16) if half else (given[at],))
        else:
            assert leaf.how == "never written: whatever was there"
    assert known


def test_a_value_that_was_stored_into_an_accumulator_begins_a_chain() -> None:
    rng = np.random.default_rng(5)
    product, before, _ = chain(rng, "f16", False, 128)
    step = "setp.eq.u32 %q, %t, %t; tcgen05.mma.cta_group::1.kind::f16 [%td], %da, %db, %word, %q;"
    for _, answer in answers(replace(product, instead=f"{step}\n{step}\n{step}"), before, [(0, 5, 3)]):
        (sum_,) = (c for c in causes(answer) if c.element is not None)
        assert sum_.products == 3 and causes(answer)[-1].name == "image[0,5,3]"
