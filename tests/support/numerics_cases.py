"""Operands for the numerics tests: raw bits drawn from several adversarial distributions."""

from typing import Any

import numpy as np

from mmulator.isa.types import ElementType
from mmulator.matrix.numerics import DotKey
from mmulator.matrix.numerics.formats import container, element_type, infinity

DISTRIBUTIONS = ("normal", "bits", "powers", "tiny", "huge", "special", "full", "zeros", "wide")


def elements(kind: str, distribution: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Raw elements of a type."""
    if kind == "b1":
        return rng.integers(0, 2, shape).astype(np.uint8)
    t = element_type(kind)
    raw = rng.integers(0, 1 << t.bits, shape, dtype=np.uint64)
    if t.name == "ue8m0":
        raw = raw if distribution == "bits" else 127 + rng.integers(-9, 10, shape)
    elif t.is_float:
        raw = _floats(t, distribution, raw, shape, rng)
    elif distribution in ("huge", "full"):
        extreme = np.array([(1 << (t.bits - 1)) - 1, 1 << (t.bits - 1), (1 << t.bits) - 1], np.uint64)
        raw = np.where(rng.random(shape) < 0.8, extreme[rng.integers(0, 3, shape)], raw)
    return raw.astype(container(t))


def _floats(t: ElementType, distribution: str, raw: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    total = t.bits if t.name != "tf32" else 19
    low = total - 1 - t.exponent
    if t.name == "tf32":
        raw = raw >> np.uint64(13)
    top = (1 << t.exponent) - 1

    def put(field: Any, mantissa: Any) -> Any:
        sign = rng.integers(0, 2, shape, dtype=np.uint64) if t.has_sign else np.zeros(shape, np.uint64)
        field = np.clip(field, 0, top - (t.nan == "ieee")).astype(np.uint64)
        mantissa = np.asarray(mantissa, np.uint64)
        if t.nan == "all_ones":
            mantissa = np.where((field == top) & (mantissa == (1 << low) - 1), mantissa - np.uint64(low > 0), mantissa)
        return sign << np.uint64(total - 1) | field << np.uint64(low) | mantissa

    mantissa = raw & np.uint64((1 << low) - 1)
    match distribution:
        case "normal":
            raw = put(np.rint(t.bias - rng.exponential(1.4, shape)), mantissa)
        case "powers":
            raw = put(t.bias + rng.integers(-6, 7, shape), mantissa * np.uint64(0))
        case "tiny":
            raw = put(rng.integers(0, 4, shape), mantissa)
        case "huge":
            raw = put(rng.integers(top - 4, top + 1, shape), mantissa)
        case "full":  # significands near 2, equal exponents: the largest sums
            raw = put(np.full(shape, t.bias), (1 << low) - 1 - rng.integers(0, 2, shape) % (1 << low))
        case "special":
            raw = put(t.bias + rng.integers(-3, 3, shape), mantissa)
            if t.nan == "ieee":
                bad = np.array([infinity(t) >> (13 if t.name == "tf32" else 0)]) | (1 << low >> 1) * rng.integers(0, 2, shape)
            else:
                bad = np.full(shape, (1 << (total - 1)) - 1)
            bad = bad.astype(np.uint64) | (raw & np.uint64(1 << (total - 1)))
            raw = np.where(rng.random(shape) < 0.02, bad, raw)
        case "zeros":
            raw = put(t.bias + rng.integers(-2, 3, shape), mantissa)
            raw = np.where(rng.random(shape) < 0.9, raw & np.uint64(1 << (total - 1)), raw)
        case "wide":
            raw = put(rng.integers(0, top + 1, shape), mantissa)
        case _:
            pass
    if t.name == "tf32":
        raw = raw << np.uint64(13) | rng.integers(0, 1 << 13, shape, dtype=np.uint64)
    return raw


def operands(
    key: DotKey, m: int, n: int, k: int, seed: int, names: tuple[str, str, str] | None = None
) -> tuple[tuple[Any, Any, Any], dict[str, Any]]:
    """(A, B, C) and options of `matmul`, with distributions drawn by the seed or given by name."""
    rng = np.random.default_rng(seed)
    da, db, dc = names or rng.choice(DISTRIBUTIONS, 3)
    options: dict[str, Any] = {}
    columns = k
    if key.sparse:
        columns = k // 2
        if key.atype in ("s4", "u4"):
            pairs = np.sort(rng.permuted(np.tile(np.arange(4), (m, k // 8, 1)), axis=-1)[..., :2], axis=-1)
            base = 8 * np.arange(k // 8)[:, None] + 2 * pairs
            options["indices"] = np.stack([base, base + 1], axis=-1).reshape(m, columns)
        elif key.atype == "tf32":
            options["indices"] = 2 * np.arange(columns) + rng.integers(0, 2, (m, columns))
        else:
            pairs = rng.permuted(np.tile(np.arange(4), (m, k // 4, 1)), axis=-1)[..., :2]
            options["indices"] = (4 * np.arange(k // 4)[:, None] + pairs).reshape(m, columns)
    A, B = elements(key.atype, da, (m, columns), rng), elements(key.btype, db, (k, n), rng)
    C = elements(key.ctype, dc, (m, n), rng)
    if element_type(key.ctype).is_float and rng.random() < 0.3:  # C of another order of magnitude in each element
        C = np.where(rng.random(C.shape) < 0.5, C, elements(key.ctype, "wide", (m, n), rng))
    if key.scale_blocks:
        blocks = k // key.k * key.scale_blocks
        stype = key.stype or "ue8m0"
        style = rng.choice(["normal", "bits", "wide"])
        options["scale_a"] = elements(stype, style, (m, blocks), rng)
        options["scale_b"] = elements(stype, style, (blocks, n), rng)
    if element_type(key.atype).is_float and key.family in ("wgmma", "tcgen05"):
        options["imm_scale_a"], options["imm_scale_b"] = (int(x) for x in rng.choice([-1, 1], 2))
    return (A, B, C), options
