"""Instructions that lanes of a warp execute together."""

from itertools import product

import numpy as np

from tests.support.one_block import LANES, launch


def test_redux_of_numbers() -> None:
    """-0 is below +0; NaN counts only with .NaN, or where there is nothing else."""
    rng = np.random.default_rng(1)
    plain = rng.integers(0, 1 << 32, LANES, dtype=np.uint32) & 0xBFFFFFFF
    zeros = np.where(np.arange(LANES) % 2, 0x80000000, 0).astype(np.uint32)
    some = np.where(np.arange(LANES) == 7, 0xFFC01234, plain).astype(np.uint32)
    nans = np.full(LANES, 0x7F800001, np.uint32)
    body = "ld.global.b32 f1, [in0]; redux.sync.{m}.f32 f2, f1, -1; st.global.b32 [out], f2;"
    for source in (plain, zeros, some, nans):
        nan = (source & 0x7FFFFFFF) > 0x7F800000
        for op, size, quiet in product(("min", "max"), ("", ".abs"), ("", ".NaN")):
            bits = source & 0x7FFFFFFF if size else source
            keys = [int(v) ^ (0x7FFFFFFF if v >> 31 else 0) for v in bits[~nan].tolist()]
            ordered = sorted(zip([k - (1 << 32) if k >> 31 else k for k in keys], bits[~nan].tolist()))
            want = 0x7FFFFFFF if nan.all() or (quiet and nan.any()) else ordered[0 if op == "min" else -1][1]
            got, _ = launch(body.replace("{m}", op + size + quiet), source, target="sm_100a")
            assert (got[:, 0] == want).all(), (op, size, quiet)


def test_shfl_by_constants_is_shfl_by_registers() -> None:
    """With numbers in the text lanes are shuffled where the block is compiled; with registers when it runs."""
    rng = np.random.default_rng(2)
    values = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
    pairs = [(by, clamp) for by in (0, 1, 2, 5, 16, 31, 33) for clamp in (31, 0, 7, 0x1F00, 0x181F, 0x1C03, 0x100F)]
    pairs += [(int(a), int(b)) for a, b in rng.integers(0, 1 << 13, (15, 2))]
    for mode in ("up", "down", "bfly", "idx"):
        for at in range(0, len(pairs), 8):
            some = pairs[at : at + 8]
            line = "shfl.sync.{0}.b32 r2|p1, r1, {1}, {2}, -1; selp.u32 r3, 1, 0, p1;"
            body = "ld.global.b32 r1, [in0]; mov.b32 r6, 0; mov.b32 r7, 0;"
            for by, clamp in some:
                for b, c in ((str(by), str(clamp)), ("r4", "r5")):
                    body += f"mov.b32 r4, {by}; mov.b32 r5, {clamp};" + line.format(mode, b, c)
                    body += "mad.lo.u32 r6, r6, 3, r2; mad.lo.u32 r6, r6, 3, r3;"
                    body += "xor.b32 r7, r7, r2; add.u32 r7, r7, r3; neg.s32 r7, r7;"
            got, _ = launch(body + "st.global.v2.b32 [out], {r6, r7};", values)
            want = np.zeros((LANES, 2), np.uint64)
            for by, clamp in some:
                sources, inside = _shfl(mode, by, clamp)
                for _ in range(2):
                    want[:, 0] = (want[:, 0] * 9 + values[sources] * np.uint64(3) + inside) & 0xFFFFFFFF
                    want[:, 1] = -((want[:, 1] ^ values[sources]) + inside) & 0xFFFFFFFF
            assert (got[:, :2] == want).all(), (mode, some)


def _shfl(mode: str, by: int, clamp: int) -> tuple[np.ndarray, np.ndarray]:
    """Source lanes, and whether they are in range, as the PTX ISA has it (shfl.sync)."""
    lane, b, segment, limit = np.arange(LANES), by & 31, clamp >> 8 & 31, clamp & 31
    highest = (lane & segment) | (limit & ~segment)
    j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": (lane & segment) | (b & ~segment)}[mode]
    inside = j >= highest if mode == "up" else j <= highest
    return np.where(inside, j, lane), inside.astype(np.uint64)
