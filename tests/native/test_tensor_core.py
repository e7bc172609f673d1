"""tcgen05: products in tensor memory against the numerics twin, all cells of tensor memory compared; moves; what goes wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.matrix.layouts.instruction_descriptor import KINDS, InstructionDescriptor, Variant
from mmulator.matrix.numerics.profiles import DotKey
from mmulator.matrix.twin.matrices import twin_matmul
from mmulator.runtime.launch.tensor_tables import key_of
from tests.support.tensor_cases import codes, draw, in_bytes, make, scale_factors, stored_bits
from tests.support.tensor_kernels import A_AT, B_AT, Product, cells, launched, run, shared_image


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_random_products(kind: str, number: int) -> None:
    """Shapes, types, swizzles, pairs, .ws, .sp: all of tensor memory is as it must be, whatever the seed, and products count."""
    rng = np.random.default_rng([number, KINDS.index(kind)])
    d = draw(rng, kind=kind)
    in_cells = not d.ws and not d.transpose_a and bool(rng.integers(4) == 0)
    case = make(rng, d, scale_factors(rng, d), in_cells)
    after, report = launched(case.product, case.before, seed=number)
    assert np.array_equal(after, case.behind), (case.product.text, d)
    assert report.macs == d.m * d.n * d.k
    said = {
        "tcgen05.mma.ws has the sums": d.ws, "4 bits are bits 2": in_cells and stored_bits(d) == 8 and d.atype == "e2m1",
        "6 bits are bits 0": in_cells and d.atype in ("e2m3", "e3m2"),
        "metadata of tcgen05.mma.sp with M": d.sparse and not d.ws and d.m == 64 << d.pair,
    }  # fmt: skip
    assert [any(f"inferred: {text}" in n or f"of {text}" in n for n in report.notes) for text in said] == [*said.values()]


def mask_of(m: int, n: int, starts: tuple[int, ...], firsts: tuple[int, ...], zero: int, used: int) -> np.ndarray:
    """The columns that a zero-column mask is to clear, as the examples of the specification have it."""
    parts = {128: 1, 64: 2, 32: 4}[m]
    found: list[int] = []
    for part in range(parts):
        run, bits = firsts[part], list[int]()
        while len(bits) < n + starts[part]:
            bits += [run] * ((zero if run else used) + 1)
            run ^= 1
        found += bits[starts[part] : starts[part] + n // parts]
    return np.array(found, bool)


@pytest.mark.parametrize("shift", [0, 5])
@pytest.mark.parametrize("m", [32, 64, 128])
def test_zero_columns(m: int, shift: int) -> None:
    rng = np.random.default_rng([m, shift])
    plain = {"atype": "f16", "btype": "f16", "dtype": "f32", "transpose_a": False, "transpose_b": False}
    d = draw(rng, kind="f16", ws=True, pair=False, sparse=False, m=m, negate_a=False, negate_b=False, **plain)
    starts, firsts, zero, used = (0, 1, 2, 1), (1, 1, 0, 0), 2, 3
    word = sum(s << 8 * i for i, s in enumerate(starts)) | sum(f << 32 + i for i, f in enumerate(firsts))
    word |= 1 << 39 | zero << 40 | used << 48 | shift << 56
    a, b = codes(rng, "f16", (m, 16)), codes(rng, "f16", (d.n + shift, 16))
    (a_image, a_desc), (b_image, b_desc) = (shared_image(in_bytes(x, "f16", "f16"), "32B", False) for x in (a, b))
    before = rng.standard_normal((1, 128, 512)).astype(np.float32).view(np.uint32)
    text = "tcgen05.mma.ws.cta_group::1.kind::f16"
    after = run(Product(text, d, a_image[None], b_image[None], a_desc, b_desc, after=hex(word)), before)
    b = b[shift:]
    b[mask_of(m, d.n, starts, firsts, zero, used)] = 0
    lane, column = cells(d)
    want = twin_matmul(key_of(d, Variant("f16", ws=True)), "sm_100", a, np.ascontiguousarray(b.T), before[0, lane, column])
    assert np.array_equal(after[0, lane, column], want)
    assert mask_of(32, 128, starts, firsts, zero, used)[:7].tolist() == [1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("pair", [False, True])
def test_lanes_that_are_not_written(pair: bool) -> None:
    rng = np.random.default_rng(7)
    d = draw(rng, kind="f16", ws=False, pair=pair, sparse=False)
    case = make(rng, d, 0)
    off = case.product.behind = tuple(int(x) for x in rng.integers(0, 1 << 32, 4 + 4 * pair))
    want = case.behind.copy()
    for rank in range(1 + pair):
        lanes = [lane for lane in range(128) if off[4 * rank + lane // 32] >> lane % 32 & 1]
        want[rank, lanes] = case.before[rank, lanes]
    assert np.array_equal(run(case.product, case.before), want)


@pytest.mark.parametrize(("kind", "dtype"), [("tf32", "f32"), ("f16", "f16")])
def test_the_accumulator_is_scaled(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(8)
    d = draw(rng, kind=kind, ws=False, pair=False, sparse=False, dtype=dtype, atype=kind, btype=kind)
    case = make(rng, d, 0)
    case.product.adds, case.product.after = True, "3"
    lane, column = cells(d)
    halved = case.before.copy()
    words = halved[0, lane, column]
    small = words.view(np.float32) if dtype == "f32" else words.astype(np.uint16).view(np.float16)
    halved[0, lane, column] = (small / small.dtype.type(8)).view(f"u{small.itemsize}")
    want = run(replace(case.product, after=""), halved)
    assert np.array_equal(run(case.product, case.before)[0, lane, column], want[0, lane, column])


LANES: dict[str, Callable[[int], list[int]]] = {  # of each row of shared memory
    "128x256b": lambda r: [r], "128x128b": lambda r: [r],
    "64x128b.warpx2::02_13": lambda r: [r, r + 64],
    "64x128b.warpx2::01_23": lambda r: [r + r // 32 * 32, r + r // 32 * 32 + 32],
    "32x128b.warpx4": lambda r: [r, r + 32, r + 64, r + 96], "4x256b": lambda r: [32 * r + 31],  # from the address's lane on
}  # fmt: skip


@pytest.mark.parametrize("form", ["", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64"])
@pytest.mark.parametrize("shape", LANES)
def test_copies(shape: str, form: str) -> None:
    """Rows of shared memory in their lanes; packed elements are spread to bytes."""
    rows, line = int(shape.split("x")[0]), 32 if "256b" in shape else 16
    rng = np.random.default_rng(9)
    given = rng.integers(0, 256, (rows, line)).astype(np.uint8)
    image, desc = shared_image(given, "none", False)
    before = rng.integers(0, 1 << 32, (1, 128, 512)).astype(np.uint32)
    product = Product("", InstructionDescriptor("f16", "f32", "f16", "f16"), image[None], image[None], desc, desc)
    lane = 0x1F0000 if shape == "4x256b" else 0
    last = 512 - line // 4  # the columns that it writes are the last ones that are allocated
    product.instead = f"add.u32 %n, %td, {lane | last}; tcgen05.cp.cta_group::1.{shape}{form} [%n], %da;"
    if form:
        bits = 6 if "6x16" in form else 4
        packed = given.reshape(rows, -1, 16)[..., : 2 * bits]
        groups = np.unpackbits(packed, axis=-1, bitorder="little").reshape(rows, -1, 16, bits)
        spread = (groups << np.arange(bits)).sum(-1).astype(np.uint8) << (2 if bits == 4 else 0)
        given = spread.reshape(rows, line).astype(np.uint8)
    want = before.copy()
    for r in range(rows):
        want[0, LANES[shape](r), last:] = np.ascontiguousarray(given[r]).view(np.uint32)
    assert np.array_equal(run(product, before), want)


INFERRED = {
    "add.u32 %n, %td, 31 << 16; tcgen05.cp.cta_group::1.4x256b [%n], %da;": "tcgen05.cp.4x256b writes a row in each quarter",
    "tcgen05.shift.cta_group::1.down [%td];": "tcgen05.shift moves 8 columns",
    "tcgen05.mma.cta_group::1.kind::f16 [%td], %da, %db, %word, 0, 3;": "scale-input-d divides D",
    "tcgen05.mma.cta_group::1.kind::f16.ashift [%td], [%ta], %db, %word, 0;": ".ashift moves A behind the product",
    "tcgen05.mma.cta_group::1.kind::f16 [%td], %da, %db, %word, 0;": "",
    "tcgen05.cp.cta_group::1.128x128b [%td], %da;": "",
}  # fmt: skip


@pytest.mark.parametrize("text", INFERRED)
def test_what_is_inferred_is_said(text: str) -> None:
    image, desc = shared_image(np.zeros((128, 32), np.uint8), "none", False)
    product = Product("", InstructionDescriptor("f16", "f32", "f16", "f16"), image[None], image[None], desc, desc, instead=text)
    said = [n for n in launched(product, np.zeros((1, 128, 512), np.uint32))[1].notes if n.startswith("inferred: ")]
    assert len(said) == bool(INFERRED[text]) and all(n.startswith(f"inferred: {INFERRED[text]}") for n in said)


def test_rows_that_are_shifted() -> None:
    before = np.arange(128 * 512, dtype=np.uint32).reshape(1, 128, 512)
    some = np.zeros((1, 1024), np.uint8)
    product = Product("", InstructionDescriptor("f16", "f32", "f16", "f16"), some, some, 0, 0)
    product.instead = "add.u32 %n, %td, 0x200010; tcgen05.shift.cta_group::1.down [%n];"
    want = before.copy()
    want[0, 32:63, 16:24] = before[0, 33:64, 16:24]
    assert np.array_equal(run(product, before), want)


@pytest.mark.parametrize(("pair", "m"), [(False, 128), (True, 128), (True, 256)])
def test_a_is_shifted_behind_the_product(pair: bool, m: int) -> None:
    """.ashift: the product has A as it is; then lanes 0 to 30 of each quarter have the cells of the next lane."""
    rng = np.random.default_rng([m, pair])
    plain: dict[str, Any] = {"atype": "f16", "btype": "f16", "dtype": "f32", "transpose_a": False, "ws": False, "sparse": False}
    case = make(rng, draw(rng, kind="f16", pair=pair, m=m, **plain), 0, in_cells=True)
    case.product.text += ".ashift"
    at = case.product.in_cells or 0
    want = case.behind.copy()
    lanes = np.arange(128)
    want[:, :, at : at + 8] = case.before[:, np.where(lanes % 32 == 31, lanes, lanes + 1), at : at + 8]
    assert np.array_equal(run(case.product, case.before), want)


def test_no_shift_of_64_rows() -> None:
    rng = np.random.default_rng(3)
    d = draw(rng, kind="f16", pair=False, m=64, atype="f16", btype="f16", dtype="f32", transpose_a=False, ws=False, sparse=False)
    case = make(rng, d, 0, in_cells=True)
    case.product.text += ".ashift"
    with pytest.raises(ExecutionFault, match="M is 128 or 256, and 256 if A is sparse in a pair"):
        run(case.product, case.before)


@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("kind", ["f16", "tf32"])
def test_the_selector_is_a_column(kind: str, selector: int) -> None:
    """One product in plain NumPy: A of ones and twos, metadata in one of two columns, the other one full of other metadata."""
    rng = np.random.default_rng(selector)
    tf32 = kind == "tf32"
    d = InstructionDescriptor(kind, "f32", kind, kind, n=8, sparse=True, selector=selector)
    stored = d.k // 2
    number = np.float32 if tf32 else np.float16
    a, b = rng.integers(1, 3, (128, stored)).astype(number), rng.integers(-4, 5, (8, d.k)).astype(number)
    if tf32:
        nibbles = rng.choice([0x4, 0xE], (128, 8))
        kept = np.where(nibbles == 0xE, 1, 0) + 2 * np.arange(8)
    else:
        nibbles = rng.choice([0x4, 0x8, 0xC, 0x9, 0xD, 0xE], (128, 8))
        kept = (np.stack([nibbles & 3, nibbles >> 2], -1) + 4 * np.arange(8)[:, None]).reshape(128, 16)
    before = np.zeros((1, 128, 512), np.uint32)
    before[0, :, 301 - selector] = 0x4444E4E4 if tf32 else 0x9C84DE4C
    for m, nibble in np.ndindex(128, 8):
        lane = m // 16 * 16 + m % 8 + nibble // 4 * 8
        before[0, lane, 300 + selector] |= np.uint32(int(nibbles[m, nibble]) << 16 * (m // 8 % 2) + 4 * (nibble % 4))
    (a_image, a_desc), (b_image, b_desc) = (shared_image(np.ascontiguousarray(x).view(np.uint8), "none", False) for x in (a, b))
    text = f"tcgen05.mma.sp.cta_group::1.kind::{kind}"
    product = Product(text, d, a_image[None], b_image[None], a_desc, b_desc, metadata=300, adds=False)
    want = np.einsum("ms,msn->mn", a.astype(float), b.T.astype(float)[kept])
    assert np.array_equal(run(product, before)[0, :, :8].view(np.float32), want)
    product.metadata = 301
    with pytest.raises(ExecutionFault, match="metadata at lane 0, column 301: it begins in an even column"):
        run(product, before)


@pytest.mark.parametrize("selector", [2, 3])
def test_selectors_that_no_source_explains(selector: int) -> None:
    d = InstructionDescriptor("f16", "f32", "f16", "f16", n=8, sparse=True, selector=selector)
    some = np.zeros((1, 4096), np.uint8)
    product = Product("tcgen05.mma.sp.cta_group::1.kind::f16", d, some, some, 1 << 46, 1 << 46)
    with pytest.raises(ExecutionFault, match=f"sparsity selector {selector}: which columns"):
        run(product, np.zeros((1, 128, 512), np.uint32))


@pytest.mark.parametrize("number", range(4))
def test_k_of_96(number: int) -> None:
    """Scale factors go on in cells further on; a line of 48 bytes may have its end at another address."""
    rng = np.random.default_rng(number)
    nv, ue8m0 = "mxf4nvf4", "ue8m0"
    kind, stype, vec = ((nv, "ue4m3", 4), (nv, ue8m0, 2), ("mxf4", ue8m0, 2), (nv, ue8m0, 4))[number]
    ids = {f"scale_{side}_id": int(rng.choice(range(0, 4, vec // 2))) for side in "ab"}
    d = draw(rng, kind=kind, stype=stype, pair=number == 1, m=128 << (number == 1), sparse=False, ws=False)
    d = replace(d, n=(96, 192, 16, 256)[number], k=96, **ids)
    case = make(rng, d, vec, in_cells=number == 2, device="sm_103")
    after, report = launched(case.product, case.before)
    assert np.array_equal(after, case.behind)
    assert report.macs == d.m * d.n * 96
    assert any(n.startswith(f"inferred: tcgen05.mma.kind::{kind} on sm_103: k = 96: six groups") for n in report.notes)


def test_k_of_96_across_a_line() -> None:
    """Lines begin 96 bytes into an atom of 128; their last 16 bytes are at another address. The sum in plain NumPy."""
    rng = np.random.default_rng(96)
    d = InstructionDescriptor("mxf4", "f32", "e2m1", "e2m1", stype="ue8m0", m=128, n=16, k=96)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    images, words, codes_of = [], [], []
    for lines in (128, 16):
        code = rng.integers(0, 16, (lines, 96))
        two = (code[:, ::2] | code[:, 1::2] << 4).astype(np.uint8)
        image = np.zeros(lines * 256, np.uint8)
        line, byte = np.divmod(np.arange(lines * 48), 48)
        address = 128 * line + np.where(byte < 32, 96 + byte, lines * 128 + byte - 32)
        image[address ^ (address >> 7 & 7) << 4] = two.reshape(-1)
        images.append(image[None])
        words.append(96 >> 4 | 1024 >> 4 << 32 | 1 << 46 | 1 << 52 | 2 << 61)
        codes_of.append(values[code])
    before = np.zeros((1, 128, 512), np.uint32)
    before[0, :, 300:340] = 0x7F7F7F7F  # scale factors of 1
    text = "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32"
    product = Product(text, d, images[0], images[1], *words, scales=(300, 320), adds=False, target="sm_103a")
    product.instead = "".join(
        f"add.u32 %n, %base, {at}; shr.u32 %n, %n, 4; cvt.u64.u32 %o, %n; shl.b64 %o, %o, 16; or.b64 {x}, {x}, %o; "
        for x, at in (("%da", A_AT + 128 * 128), ("%db", B_AT + 16 * 128))
    ) + f"{text} [%td], %da, %db, %word, [%sa], [%sb], %adds;"
    want = codes_of[0] @ codes_of[1].T
    assert np.array_equal(run(product, before)[0, :, :16].view(np.float32), want)
    product.a_desc ^= 1 << 49
    with pytest.raises(ExecutionFault, match="bit 52 is 1: the leading byte offset is an address for K = 96"):
        run(product, before)


def plain(kind: str, element: str, **given: Any) -> InstructionDescriptor:
    return InstructionDescriptor(kind, "f32", element, element, **given)


@pytest.mark.parametrize(("kind", "element"), [("f16", "f16"), ("f16", "bf16"), ("tf32", "tf32")])
def test_sums_are_those_of_mma_sync(kind: str, element: str) -> None:
    """A step along k of mma.sync on sm_100 has the same chunk: products, C and bits are the same."""
    rng = np.random.default_rng(11)
    d = plain(kind, element, m=128, n=32)
    a, b = codes(rng, element, (128, d.k)), codes(rng, element, (32, d.k))
    before = rng.standard_normal((1, 128, 512)).astype(np.float32).view(np.uint32)
    (a_image, a_desc), (b_image, b_desc) = (shared_image(in_bytes(x, kind, element), "32B", False) for x in (a, b))
    text = f"tcgen05.mma.cta_group::1.kind::{kind}"
    after = run(Product(text, d, a_image[None], b_image[None], a_desc, b_desc), before)
    key = DotKey("mma", element, element, "f32", "f32", d.k)
    assert np.array_equal(after[0, :, :32], twin_matmul(key, "sm_100", a, np.ascontiguousarray(b.T), before[0, :, :32]))


@pytest.mark.parametrize("rows", [64, 128])
def test_a_pair_is_two_products(rows: int) -> None:
    """M = 256 of a pair, and M = 128 of it: each CTA has the rows of a product of its own, with both halves of B."""
    rng = np.random.default_rng(rows)
    a, b = codes(rng, "f16", (2, rows, 16)), codes(rng, "f16", (2, 32, 16))
    first = rng.standard_normal((2, rows, 64)).astype(np.float32).view(np.uint32)
    a_images, b_images = ([shared_image(x[i].view(np.uint8), "none", False) for i in range(2)] for x in (a, b))
    whole, b_desc = shared_image(b.reshape(64, 16).view(np.uint8), "none", False)
    results = []
    for pair in (True, False):
        d = plain("f16", "f16", m=rows << pair, n=64, pair=pair)
        lane, column = cells(d)
        text, before = f"tcgen05.mma.cta_group::{1 + pair}.kind::f16", np.zeros((2, 128, 512), np.uint32)
        before[:, lane, column] = first
        if pair:
            images = [np.stack([image for image, _ in x]) for x in (a_images, b_images)]
            after = run(Product(text, d, *images, a_images[0][1], b_images[0][1]), before)
        else:
            after = np.concatenate([
                run(Product(text, d, image[None], whole[None], desc, b_desc), before[i : i + 1])
                for i, (image, desc) in enumerate(a_images)
            ])  # fmt: skip
        results.append(after[:, lane, column])
    assert np.array_equal(*results)


@pytest.mark.parametrize("m", [64, 128])
def test_weights_that_stay_change_no_bit(m: int) -> None:
    rng = np.random.default_rng(m)
    a, b = codes(rng, "f16", (m, 16)), codes(rng, "f16", (64, 16))
    first = rng.standard_normal((m, 64)).astype(np.float32).view(np.uint32)
    (a_image, a_desc), (b_image, b_desc) = (shared_image(x.view(np.uint8), "none", False) for x in (a, b))
    results = []
    for ws in (True, False):
        d = plain("f16", "f16", m=m, n=64, ws=ws)
        lane, column = cells(d)
        before = np.zeros((1, 128, 512), np.uint32)
        before[0, lane, column] = first
        text = f"tcgen05.mma{'.ws' * ws}.cta_group::1.kind::f16"
        results.append(run(Product(text, d, a_image[None], b_image[None], a_desc, b_desc), before)[0, lane, column])
    assert np.array_equal(*results)
