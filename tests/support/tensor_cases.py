"""Random products for tcgen05.mma: operands as codes, their images in shared and tensor memory, and the words that come out."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmulator.isa.types import TYPES
from mmulator.matrix.layouts import tensor_memory as places
from mmulator.matrix.layouts.instruction_descriptor import KINDS, SCALED, InstructionDescriptor, Variant, known_m, known_n
from mmulator.matrix.layouts.swizzle import SWIZZLES5
from mmulator.matrix.twin.matrices import twin_matmul
from mmulator.runtime.launch.tensor_tables import key_of
from tests.support.tensor_kernels import Product, cells, shared_image

FLOATS8 = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
ELEMENTS = {"f16": ("f16", "bf16"), "tf32": ("tf32",), "i8": ("s8", "u8"), "f8f6f4": FLOATS8, "mxf8f6f4": FLOATS8}
FACTORS = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}  # scale factors of a row, for each chunk of K
NAN = {"e4m3": 0x7F, "e5m2": 0x7C}  # no number has all of these bits
COLUMNS, A_CELLS, METADATA, SCALE_A, SCALE_B = 512, 256, 300, 310, 330
Array = np.ndarray[Any, Any]


def stored_bits(d: InstructionDescriptor) -> int:
    """Bits of an element of A in tensor memory."""
    return 4 if d.kind in ("mxf4", "mxf4nvf4") else max(TYPES[d.atype].bits, 8)


def draw(rng: Any, **given: Any) -> InstructionDescriptor:
    """A random instruction descriptor of any kind. given: attributes that it must have."""
    while True:
        kind = given.get("kind") or str(rng.choice(KINDS))
        pair = bool(rng.integers(4) == 0)
        ws = bool(rng.integers(4) == 0) and not pair and kind not in SCALED
        sparse = bool(rng.integers(3) == 0)
        some = {"kind": kind, "pair": pair, "ws": ws, "sparse": sparse, **given}
        rows = known_m(some["kind"], some["pair"], some["ws"], some["sparse"])
        if rows:
            break
    types = ELEMENTS.get(kind, ("e2m1",))
    a, b = str(rng.choice(types)), str(rng.choice(types))
    b = a if kind == "f16" else b
    narrow = kind in ("f16", "f8f6f4") and a != "bf16" and bool(rng.integers(3) == 0)
    turned = {f"transpose_{side}": bool(rng.integers(2)) and TYPES[t].bits in (8, 16) for side, t in (("a", a), ("b", b))}
    some |= {"atype": a, "btype": b, "dtype": "s32" if kind == "i8" else "f16" if narrow else "f32", "m": int(rng.choice(rows))}
    some |= turned | {"saturate": kind == "i8" and bool(rng.integers(2))}
    some |= {f"negate_{side}": kind != "i8" and bool(rng.integers(2)) for side in "ab"}
    some["selector"] = int(rng.integers(2)) if some["sparse"] and kind in ("f16", "tf32") else 0
    if kind in SCALED:
        vec = int(rng.choice(FACTORS[kind]))
        some["stype"] = "ue4m3" if vec == 4 and rng.integers(2) else "ue8m0"
        some |= {f"scale_{side}_id": int(rng.choice(range(0, 4, vec))) for side in "ab"}
    some |= given
    first = InstructionDescriptor(**some, n=128)  # type: ignore[arg-type]
    return replace(first, n=int(rng.choice([n for n in known_n(first) if n <= 256])))


def scale_factors(rng: Any, d: InstructionDescriptor) -> int:
    """A number of scale factors of a row that goes with an instruction descriptor; 0 where it has none."""
    if d.kind not in SCALED:
        return 0
    fitting = [n for n in FACTORS[d.kind] if (d.stype == "ue8m0" or n == 4) and d.scale_a_id % n == d.scale_b_id % n == 0]
    return int(rng.choice(fitting))


def codes(rng: Any, kind: str, shape: tuple[int, ...]) -> Array:
    """Random elements of a type as bits: numbers only."""
    bits = TYPES[kind].bits
    if kind in ("f16", "bf16", "tf32"):
        numbers = rng.standard_normal(shape).astype(np.float32)
        if kind == "f16":
            return np.asarray(numbers.astype(np.float16).view(np.uint16))
        return np.asarray(numbers.view(np.uint32) if kind == "tf32" else (numbers.view(np.uint32) >> 16).astype(np.uint16))
    found = rng.integers(0, 1 << bits, shape).astype(np.uint8)
    if kind in NAN:
        found = np.where((found & NAN[kind]) == NAN[kind], found ^ 0x40, found)
    return np.asarray(found, np.uint8)


def in_bytes(elements: Array, kind: str, element: str) -> Array:
    """Rows along k as bytes, as K-major matrices have them in shared memory."""
    bits, rows = TYPES[element].bits, len(elements)
    if bits >= 8:
        return np.ascontiguousarray(elements).view(np.uint8).reshape(rows, -1)
    if kind in ("mxf4", "mxf4nvf4"):
        return np.asarray(elements[:, ::2] | elements[:, 1::2] << 4, np.uint8)
    groups = elements.reshape(rows, -1, 16)
    string = (groups[..., None] >> np.arange(bits)) & 1
    packed = np.packbits(string.reshape(*groups.shape[:2], -1).astype(np.uint8), axis=-1, bitorder="little")
    return np.pad(packed, ((0, 0), (0, 0), (0, 16 - packed.shape[-1]))).reshape(rows, -1)


def _images(rng: Any, x: Array, d: InstructionDescriptor, side: str) -> tuple[Array, int]:
    """(bytes [CTA][...], descriptor) of A or B, with a random swizzle."""
    element = getattr(d, f"{side}type")
    across = getattr(d, f"transpose_{side}")
    parts = []
    for half in np.split(x, 1 + d.pair):
        turned = np.ascontiguousarray(half.T)
        parts.append(turned.view(np.uint8).reshape(len(turned), -1) if across else in_bytes(half, d.kind, element))
    fitting = [s.name for s in SWIZZLES5.values() if s.unit == 16 and parts[0].shape[1] % s.width == 0]
    mode = str(rng.choice(fitting))
    made = [shared_image(part, mode, across) for part in parts]
    return np.stack([image for image, _ in made]), made[0][1]


@dataclass
class Case:
    """A product with tensor memory before it, and what tensor memory must be behind it."""

    product: Product
    before: Array
    behind: Array


def make(rng: Any, d: InstructionDescriptor, scale_vec: int, in_cells: bool = False, device: str = "sm_100") -> Case:
    """A case with random operands. in_cells: whether A is in tensor memory."""
    variant = Variant(d.kind, d.pair, d.ws, d.sparse, scale_vec)
    ctas, layout = 1 + d.pair, places.layout_id(d.m, d.pair, d.ws, d.sparse)
    rows, stored = d.m // ctas, d.k // 2 if d.sparse else d.k
    a, b = codes(rng, d.atype, (d.m, stored)), codes(rng, d.btype, (d.n, d.k))
    c: Array = {
        "f32": lambda: rng.standard_normal((d.m, d.n)).astype(np.float32).view(np.uint32),
        "f16": lambda: rng.standard_normal((d.m, d.n)).astype(np.float16).view(np.uint16),
        "s32": lambda: rng.integers(0, 1 << 32, (d.m, d.n)).astype(np.uint32),
    }[d.dtype]()
    before = rng.integers(0, 1 << 32, (ctas, places.LANES, COLUMNS)).astype(np.uint32)
    lane, column = cells(d)
    for rank in range(ctas):
        before[rank, lane, column] = c[rank * rows : (rank + 1) * rows]
    more: dict[str, Any] = {}
    given: dict[str, Any] = {}
    if in_cells:
        more["in_cells"] = A_CELLS
        _a_cells(before, a, d, layout, rows)
    if d.sparse:
        more["metadata"] = METADATA
        given["indices"] = _metadata(rng, before, d, layout, stored)
    if scale_vec:
        more["scales"] = SCALE_A, SCALE_B
        low, high = (100, 150) if d.stype == "ue8m0" else (0, 127)
        factors = scale_vec * 3 // 2 if d.k == 96 else scale_vec
        sa, sb = (rng.integers(low, high, (size, factors)).astype(np.uint8) for size in (d.m, d.n))
        given |= {"scale_a": sa, "scale_b": np.ascontiguousarray(sb.T)}
        for rank in range(ctas):
            _scales(before[rank], sa[rank * rows : (rank + 1) * rows], SCALE_A, d.scale_a_id, layout, "a")
            _scales(before[rank], sb, SCALE_B, d.scale_b_id, layout, "b")
    adds = bool(rng.integers(4))
    (a_image, a_desc), (b_image, b_desc) = _images(rng, a, d, "a"), _images(rng, b, d, "b")
    text = f"tcgen05.mma{'.ws' * d.ws}{'.sp' * d.sparse}.cta_group::{ctas}.kind::{d.kind}"
    block = f"block{64 // scale_vec}" if d.k == 96 else f"scale_vec::{scale_vec}X"
    text += f".block_scale.{block}" if scale_vec else ""
    product = Product(text, d, a_image, b_image, a_desc, b_desc, adds=adds, target=f"{device}a", **more)
    want = twin_matmul(
        key_of(d, variant), device, a, np.ascontiguousarray(b.T), c if adds else None,
        imm_scale_a=-1 if d.negate_a else 1, imm_scale_b=-1 if d.negate_b else 1, **given,
    )  # fmt: skip
    behind = before.copy()
    for rank in range(ctas):
        behind[rank, lane, column] = want[rank * rows : (rank + 1) * rows]
    return Case(product, before, behind)


def _a_cells(before: Array, a: Array, d: InstructionDescriptor, layout: str, rows: int) -> None:
    bits = TYPES[d.atype].bits
    if bits < 8 and stored_bits(d) == 8:  # a byte each; 4 bits in its middle
        lines = (a << 2 if bits == 4 else a).astype(np.uint8)
    else:
        lines = in_bytes(a, d.kind, d.atype)
    for rank in range(1 + d.pair):
        words = np.ascontiguousarray(lines[rank * rows : (rank + 1) * rows]).view(np.uint32)
        for copy in range(places.copies(layout)):
            lane = places.a_place(layout, stored_bits(d), np.arange(rows), 0, copy)[0]
            before[rank, lane, A_CELLS : A_CELLS + words.shape[1]] = words


def _metadata(rng: Any, before: Array, d: InstructionDescriptor, layout: str, stored: int) -> Array:
    """Write random metadata to tensor memory. Returns the dense k of each stored element."""
    bits, rows = stored_bits(d), d.m // (1 + d.pair)
    j = np.arange(stored)
    if bits == 32:
        choice = rng.integers(0, 2, (d.m, stored))
        index, code, width = 2 * j + choice, np.where(choice, 0xE, 0x4), 4
    else:
        group = 2 if bits == 4 else 1  # neighbours that one index chooses
        two = np.sort(rng.permuted(np.tile(np.arange(4), (d.m, stored // (2 * group), 1)), axis=2)[..., :2], axis=2)
        code = two.reshape(d.m, -1)[:, j // group]
        index, width = 4 * group * (j // (2 * group)) + group * code + j % group, 2
    m, every = np.meshgrid(np.arange(rows), j, indexing="ij")
    before[:, :, METADATA + d.selector : METADATA + (1 if bits >= 16 else 2) + d.selector] = 0
    for rank in range(1 + d.pair):
        values = (code[rank * rows : (rank + 1) * rows] & ((1 << width) - 1)).astype(np.uint32)
        for copy in range(places.copies(layout)):
            lane, column, shift = places.metadata_place(bits, m, every, layout, copy, d.selector)
            np.bitwise_or.at(before[rank], (lane, METADATA + column), values << shift.astype(np.uint32))
    return np.asarray(index, np.int32)


def _scales(before: Array, factors: Array, column: int, byte: int, layout: str, side: str) -> None:
    for first, lines, quarters in places.scale_parts(layout, side, len(factors)):
        for i in range(lines):
            for s, factor in enumerate(factors[first + i]):
                lane, away, number = places.scale_place(i, s + byte, lines)
                shift = 8 * number
                for quarter in quarters:
                    at = lane + 32 * quarter, column + away
                    before[at] = int(before[at]) & ~(0xFF << shift) | int(factor) << shift
