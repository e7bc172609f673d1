"""Moves, permutations of bytes, addresses of one space in another."""

import numpy as np

from tests.support.integers import any_operands, edges, known_operands
from tests.support.one_block import LANES, launch


def permuted(a: int, b: int, c: int) -> int:
    both, out = (a & 0xFFFFFFFF) | b << 32, 0
    for n in range(4):
        pick = c >> 4 * n & 15
        byte = both >> 8 * (pick & 7) & 255
        out |= (255 * (byte >> 7) if pick & 8 else byte) << 8 * n
    return out


FORMS = {"prmt.b32": permuted}


test_edges = edges(FORMS)
test_any_operands = any_operands(FORMS, 10)


KNOWN = [
    *(("prmt.b32", {"c": c}) for c in (0x3210, 0x5410, 0x7632, 0x0123, 0xFEDC, 0x8888, 0x4444, 0x9A10, 0x765C3)),
    *((f"prmt.b32.{m}", {"c": c}) for m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16") for c in range(5)),
]


test_known_operands_change_nothing = known_operands(KNOWN)


def test_moves_of_vectors() -> None:
    body = "ld.global.b32 r1, [in0]; add.u32 r2, r1, 1; mov.v2.b32 {r3, r4}, {r1, r2}; mov.v4.u32 {r5, r6, r7, r8}, %tid;"
    source = np.arange(LANES, dtype=np.uint32) * 7
    results, _ = launch(body + "st.global.v4.b32 [out], {r3, r4, r5, r8};", source)
    assert np.array_equal(results, np.stack([source, source + 1, np.arange(LANES), 0 * source], 1))
