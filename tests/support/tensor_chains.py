"""Random lists of tcgen05.mma and tcgen05.cp on one accumulator, two of A and two of B in each CTA."""

from typing import Any

import numpy as np

from mmulator.matrix.layouts.instruction_descriptor import InstructionDescriptor
from tests.support.tensor_kernels import Product, shared_image

OTHER, A_CELLS = 64, 192  # columns of a second accumulator, and of an A in tensor memory
SIZE = 4096  # bytes of an A or B of 128 rows or columns, which are 32 bytes each
TYPES = {"f16": np.float16, "tf32": np.float32}


def step(rng: Any, d: InstructionDescriptor) -> str:
    """One product, or a copy: mostly to the accumulator at column 0, and mostly adding."""
    group = f"cta_group::{1 + d.pair}"
    if rng.integers(12) == 0:
        return f"add.u32 %n, %td, {A_CELLS}; tcgen05.cp.{group}.32x128b.warpx4 [%n], %da;"
    d_at = 0 if rng.integers(6) else OTHER
    text = f"setp.{'eq' if rng.integers(6) else 'ne'}.u32 %q, %t, %t; add.u32 %n, %td, {d_at}; "
    for name in ("%da", "%db"):
        text += f"add.u64 {name}, {name}, {SIZE >> 4}; " if rng.integers(2) else ""
    a = "%da"
    if rng.integers(5) == 0:
        text += f"add.u32 %ta, %td, {int(rng.choice([A_CELLS, A_CELLS, d_at, OTHER - d_at]))}; "
        a = "[%ta]"
    masks = after = ""
    if rng.integers(8) == 0:
        count = 4 * (1 + d.pair)
        text += "".join(f"mov.u32 %x{n}, {int(rng.integers(1 << 32)):#x}; " for n in range(count))
        masks = "{" + ", ".join(f"%x{n}" for n in range(count)) + "}, "
    elif rng.integers(8) == 0:
        after = ", 1"
    back = "".join(f"sub.u64 {name}, {name}, {SIZE >> 4}; " for name in ("%da", "%db") if f"add.u64 {name}," in text)
    return f"{text}tcgen05.mma.{group}.kind::{d.kind} [%n], {a}, %db, %word, {masks}%q{after}; {back}"


def chain(rng: Any, kind: str, pair: bool, m: int) -> tuple[Product, np.ndarray, list[str]]:
    """(operands, tensor memory before, instructions): `instead` of the product takes instructions."""
    d = InstructionDescriptor(kind, "f32", kind, kind, m=m, n=int(rng.choice([16, 64])), pair=pair)
    ctas = 1 + pair
    mode = str(rng.choice(["none", "32B"]))

    def image(lines: int) -> tuple[np.ndarray, int]:
        """Two matrices in each CTA, SIZE bytes apart, and their descriptor."""
        out = np.zeros((ctas, 2, SIZE), np.uint8)
        for rank, which in np.ndindex(ctas, 2):
            values = (rng.standard_normal((lines, d.k)) / 8).astype(TYPES[kind])
            bytes, desc = shared_image(values.view(np.uint8), mode, False)
            out[rank, which, : len(bytes)] = bytes
        return out.reshape(ctas, -1), desc

    (a, a_desc), (b, b_desc) = image(m // ctas), image(d.n // ctas)
    before = (rng.standard_normal((ctas, 128, 256)) / 8).astype(np.float32).view(np.uint32)
    steps = [step(rng, d) for _ in range(int(rng.integers(3, 12)))]
    text = f"tcgen05.mma.cta_group::{ctas}.kind::{kind}"
    return Product(text, d, a, b, a_desc, b_desc, in_cells=0), before, steps
