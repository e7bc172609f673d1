"""Operands of the scalar vectors: edges, NaN payloads, subnormals, ties, huge shifts, relations, noise."""

import re
import zlib

import numpy as np

TILE_WORDS = 512  # of a block's shared tile, as in scalar_vectors.py

F32_EDGES = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000002, 0x00400000, 0x007FFFFF, 0x807FFFFF, 0x00800000,
    0x80800000, 0x00800001, 0x3F800000, 0xBF800000, 0x3F800001, 0x3F7FFFFF, 0x3F000000, 0xBF000000, 0x3F000001,
    0x3EFFFFFF, 0x3FC00000, 0x40200000, 0xC0200000, 0x40600000, 0x4AFFFFFF, 0x4B000001, 0x4B7FFFFF, 0x4B800001,
    0xCB000001, 0x42FF0000, 0x437F8000, 0x43000000, 0xC3008000, 0xC3000001, 0x46FFFF00, 0x477FFF00, 0x47800000,
    0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x4F7FFFFF, 0x4F800000, 0x5EFFFFFF, 0x5F000000, 0xDF000000,
    0x5F7FFFFF, 0x5F800000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FF001, 0x33000000, 0x33000001, 0x33800000,
    0x33C00000, 0x387FC000, 0x387FE000, 0x387FF000, 0x38800000, 0x38801000, 0x38803000, 0x43E00000, 0x43E7FFFF,
    0x43E80000, 0x43E80001, 0x43F00000, 0x47600000, 0x476FFFFF, 0x47700000, 0x47700001, 0x3A800000, 0x3B000000,
    0x3AFFFFFF, 0x37000000, 0x37800000, 0x36FFFFFF, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F801000, 0x3F803000,
    0x3F802FFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x7F7FF000, 0x7F7FEFFF, 0x7F800000, 0xFF800000,
    0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF812345, 0x7FA00000, 0x7FC12345, 0xFFC54321,
    0x1E3CE508, 0x20000000, 0x5F400000, 0x60000000, 0x7E800000, 0x00FFFFFF, 0x01000000, 0x41000000, 0x4B000000,
    0x4AFFFFFE, 0x47FFFFFF,
]  # fmt: skip
F64_EDGES = [
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001, 0x000FFFFFFFFFFFFF,
    0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x8010000000000000, 0x3FF0000000000000, 0xBFF0000000000000,
    0x3FF0000000000001, 0x3FEFFFFFFFFFFFFF, 0x3FE0000000000000, 0x3FF8000000000000, 0x4004000000000000,
    0xC004000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000,
    0x7FF8000000000000, 0xFFF8000000000000, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000001, 0xFFF4000000012345,
    0x7FF8ABCDEF012345, 0x41DFFFFFFFC00000, 0x41E0000000000000, 0xC1E0000000000000, 0xC1E0000000200000,
    0x41EFFFFFFFE00000, 0x41EFFFFFFFF00000, 0x41F0000000000000, 0x43DFFFFFFFFFFFFF, 0x43E0000000000000,
    0xC3E0000000000000, 0x43EFFFFFFFFFFFFF, 0x43F0000000000000, 0x47EFFFFFE0000000, 0x47EFFFFFEFFFFFFF,
    0x47EFFFFFF0000000, 0x47F0000000000000, 0x3810000000000000, 0x380FFFFFFFFFFFFF, 0x36A0000000000000,
    0x3690000000000000, 0x3690000000000001, 0x3FF0000010000000, 0x3FF0000030000000, 0x3FF000001FFFFFFF,
    0x40EFFE0000000000, 0x40EFFC0000000000, 0x3E60000000000000, 0x3E60000000000001, 0x3FF0020000000000,
    0x3FF0060000000000, 0x4330000000000001, 0x4340000000000001, 0x3F10000000000000, 0x3FB999999999999A,
]  # fmt: skip
F16_EDGES = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x0200, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x0401, 0x3C00, 0xBC00, 0x3C01, 0x3BFF,
    0x3800, 0x3801, 0x37FF, 0x3E00, 0x4100, 0xC100, 0x4300, 0x6400, 0x6401, 0x63FF, 0x67FF, 0x7BFF, 0xFBFF, 0x7C00,
    0xFC00, 0x7E00, 0xFE00, 0x7FFF, 0xFFFF, 0x7C01, 0xFD23, 0x57F8, 0x5BF8, 0xD808, 0x7B00, 0x5F00, 0x5F40, 0x5F41,
    0x77FF, 0x7B80, 0x1400,
]  # fmt: skip
BF16_EDGES = sorted({e >> 16 for e in F32_EDGES} | {0x7F81, 0x3F81, 0x3F7F, 0x3F01, 0x4B00, 0x4AFF, 0x437F, 0x4300, 0xC301})
SHIFTS = [
    0, 1, 2, 7, 8, 15, 16, 17, 30, 31, 32, 33, 47, 48, 62, 63, 64, 65, 127, 128, 255, 256, 257, 0x80000000,
    0xFFFFFFFF, 0x10000, 0x100000,
]  # fmt: skip


def wide_int(rng: np.random.Generator, width: int, n: int) -> np.ndarray:
    """Edges, random bits, random lengths, small values of both signs."""
    top, full = 1 << (width - 1), (1 << width) - 1
    common = 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 0x1000001, 0x1000003, 0xFFFFFF
    edges = [
        0, 1, 2, 3, full, full - 1, top, top - 1, top + 1, 0x7F, 0x80, 0xFF, 0x100, full - 0x7F, full - 0x80, full - 0x81,
        0x5555555555555555 & full, 0xAAAAAAAAAAAAAAAA & full, *(min(c, full) for c in common),
        *(1 << i for i in range(3, width, 5)),
    ]  # fmt: skip
    whole = rng.integers(0, full, n, dtype=np.uint64, endpoint=True)
    choice = rng.integers(0, 4, n)
    short = whole >> rng.integers(0, width, n).astype(np.uint64)
    small = (rng.integers(-20, 21, n).astype(np.int64)).view(np.uint64)
    out = np.choose(choice, [rng.choice(np.array(edges, np.uint64), n), whole, short, small])
    return out.astype(f"u{width // 8}")


def floats(rng: np.random.Generator, width: int, mantissa: int, edges: list[int], n: int) -> np.ndarray:
    """Edges, random bits, values near one, halves and integers with ties."""
    bias = (1 << (width - mantissa - 2)) - 1
    whole = rng.integers(0, (1 << width) - 1, n, dtype=np.uint64, endpoint=True)
    sign = (whole >> np.uint64(width - 1)) << np.uint64(width - 1)
    fraction = whole & np.uint64((1 << mantissa) - 1)
    near = sign | (np.uint64(bias) + rng.integers(0, 9, n).astype(np.uint64) - np.uint64(4)) << np.uint64(mantissa) | fraction
    keep = rng.integers(0, mantissa, n).astype(np.uint64)  # few significant bits: ties
    reach = min(40, bias - 1)
    tied = sign | (np.uint64(bias) + rng.integers(0, 2 * reach, n).astype(np.uint64) - np.uint64(reach)) << np.uint64(mantissa)
    tied |= fraction >> keep << keep
    out = np.choose(rng.integers(0, 5, n), [rng.choice(np.array(edges, np.uint64), n), whole, near, tied, tied])
    return out.astype(f"u{width // 8}")


FLOAT = {"f32": (32, 23, F32_EDGES), "f64": (64, 52, F64_EDGES), "f16": (16, 10, F16_EDGES), "bf16": (16, 7, BF16_EDGES)}


def one(rng: np.random.Generator, pool: str, n: int) -> np.ndarray:
    """n operands of a pool: a type, or one of the special pools below."""
    lane = np.arange(n) % 32
    match pool:
        case "f16x2" | "bf16x2":
            return one(rng, pool[:-2], n).astype(np.uint32) | one(rng, pool[:-2], n).astype(np.uint32) << 16
        case "pred":
            return rng.integers(0, 2, n, dtype=np.uint8)
        case "warppred":
            warp = np.repeat(rng.integers(0, 4, n // 32), 32)
            return np.choose(warp, [np.zeros(n), np.ones(n), rng.integers(0, 2, n), lane != 7]).astype(np.uint8)
        case "shift":
            some = rng.random(n) < 0.5
            return np.where(some, rng.choice(np.array(SHIFTS, np.uint32), n), rng.integers(0, 72, n)).astype(np.uint32)
        case "lane":
            return np.where(rng.random(n) < 0.9, rng.integers(0, 40, n), rng.integers(0, 2**32, n)).astype(np.uint32)
        case "lane2":
            return rng.integers(-20, 21, n).astype(np.int32).view(np.uint32)
        case "segment":
            segments = 0x1F, 0, 0x100F, 0x1000, 0x1807, 0x1800, 0x1C03, 0x1E01, 0x0F, 0x1F1F
            return np.repeat(rng.choice(np.array(segments, np.uint32), n // 32), 32)
        case "few":
            mixed = rng.choice(np.array([5, 9, 0x80000005], np.uint32), n)
            return np.where(np.repeat(rng.random(n // 32) < 0.3, 32), 5, mixed).astype(np.uint32)
        case "few64":
            mixed = rng.choice(np.array([1 << 40, 1, 1 << 32], np.uint64), n)
            return np.where(np.repeat(rng.random(n // 32) < 0.3, 32), 1 << 40, mixed).astype(np.uint64)
        case "row":
            return rng.integers(0, TILE_WORDS // 4, n).astype(np.uint32)
        case "rowonce":
            return np.concatenate([rng.permutation(TILE_WORDS // 4)[:32] for _ in range(n // 32)]).astype(np.uint32)
        case "tile":
            return rng.integers(0, 2**32, TILE_WORDS, dtype=np.uint32)
        case "tf32":
            return one(rng, "f32", n)
        case "b8" | "u8" | "s8":
            return rng.integers(0, 2**32, n, dtype=np.uint32)
    if pool.startswith("two-"):
        return one(rng, pool[4:], n).astype(np.uint64) | one(rng, pool[4:], n).astype(np.uint64) << np.uint64(32)
    if pool in FLOAT:
        return floats(rng, *FLOAT[pool], n)
    if pool in ("e4m3x2", "e5m2x2"):
        return (np.arange(n) % 256 | rng.permutation(np.arange(n) % 256) << 8).astype(np.uint16)
    return wide_int(rng, int(pool.strip("b")), n)


def relate(rng: np.random.Generator, pool: str, first: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Make a quarter of x resemble an earlier operand of its type: equal, negated, neighbour, exponents away."""
    if not first or first[0].dtype != x.dtype or len(first[0]) != len(x):
        return x
    if re.fullmatch(r"b(16|32|64)", pool):  # integers: equal, neighbours, complements
        like, n = first[0], len(x)
        with np.errstate(over="ignore"):
            which = rng.integers(0, 4, n)
            made = np.choose(which, [like, like, like + rng.integers(-1, 2, n).astype(np.int64).astype(x.dtype), ~like])
        return np.where(rng.random(n) < 0.2, made, x).astype(x.dtype)
    if pool not in (*FLOAT, "f16x2", "bf16x2"):
        return x
    word, n = x.dtype.type, len(x)
    like = first[0].copy()
    mantissa = {"f32": 23, "f64": 52, "f16": 10, "bf16": 7, "f16x2": 10, "bf16x2": 7}[pool]
    width = 16 if pool.endswith("x2") else x.dtype.itemsize * 8
    top = word(1 << (width - 1))
    how = rng.integers(0, 5, n)
    with np.errstate(over="ignore"):
        moved = like + (rng.integers(-mantissa - 3, mantissa + 3, n) << mantissa).astype(np.int64).astype(x.dtype)
        near = like + rng.integers(-3, 4, n).astype(np.int64).astype(x.dtype)
    turned = moved ^ (top * (rng.integers(0, 2, n).astype(x.dtype)))
    made = np.select([how == k for k in range(4)], [like, like ^ top, near, near ^ top], turned)
    return np.where(rng.random(n) < 0.3, made, x).astype(x.dtype)


def operands(pool: str, n: int) -> list[np.ndarray]:
    """The operand arrays of a signature such as "f32,f32": a function of the signature alone."""
    rng = np.random.default_rng(zlib.crc32(pool.encode()))
    made: list[np.ndarray] = []
    for p in pool.split(","):
        made.append(relate(rng, p, made, one(rng, p, n)))
    if pool in ("f32,f32,f32", "f64,f64,f64"):  # c cancels a*b: the low half of the product shows
        kind = np.dtype({"f32": np.float32, "f64": np.float64}[pool[:3]])
        with np.errstate(all="ignore"):
            product = (made[0].view(kind) * made[1].view(kind) * kind.type(-1)).view(made[0].dtype)
        made[2] = np.where(rng.random(n) < 0.3, product, made[2])
    return made
