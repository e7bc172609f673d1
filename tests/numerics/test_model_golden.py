"""The exact model against hardware vectors (optional, folder MMULATOR_GOLDEN): not one bit may differ.

Decoding of registers and shared memory is done here, apart from the package's layouts, to check numerics alone.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.isa.types import TYPES
from mmulator.matrix.numerics import DotKey
from mmulator.matrix.numerics.formats import container, element_type, numpy_dtype
from tests.support.matrix_model import model_matmul

SIZES = {"b1": 1, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16, "f64": 64}
DEVICES = {"V100": "sm_70", "A100": "sm_80", "A2": "sm_86", "Ada": "sm_89", "L40S": "sm_89", "H100": "sm_90",
           "H200": "sm_90", "B200": "sm_100"}  # fmt: skip


@dataclass
class Case:
    name: str
    key: DotKey
    device: str
    A: Any
    B: Any
    C: Any
    D: Any
    options: dict[str, Any] = field(default_factory=dict)


def folder() -> Path:
    path = os.environ.get("MMULATOR_GOLDEN")
    if not path or not Path(path).is_dir():
        pytest.skip("hardware vectors: set MMULATOR_GOLDEN to their folder")
    return Path(path)


def load(name: str) -> tuple[dict[str, Any], Any]:
    root = folder()
    if not (root / f"{name}.npz").exists():
        pytest.skip(f"hardware vectors: {name}.npz is not in MMULATOR_GOLDEN")
    return json.loads((root / f"{name}.json").read_text()), np.load(root / f"{name}.npz")


def elements(kind: str, words: Any) -> Any:
    """uint32 words [..., w] to raw elements [..., w * 32 / bits]."""
    if kind == "f64":
        return np.ascontiguousarray(words).view(np.uint64)
    t = element_type(kind)
    size = 8 if t.bits == 6 else t.bits
    values = np.ascontiguousarray(words, "<u4")
    if size >= 8:
        return values.view(f"<u{size // 8}")
    per = 32 // size
    parts = values[..., None] >> (np.arange(per, dtype=np.uint32) * np.uint32(size)) & np.uint32((1 << size) - 1)
    return parts.astype(np.uint8).reshape(*values.shape[:-1], -1)


def bits(kind: str) -> int:
    return SIZES.get(kind, 32)


# Fragments: g = lane >> 2, t = lane & 3, E elements a register --------------------------------------------------------
LANE = np.arange(32)
G, T = LANE >> 2, LANE & 3


def a_matrix(kind: str, regs: Any, m: int, k: int) -> Any:
    """Registers [tests, 32, r] to [tests, m, k]."""
    x = elements(kind, regs)
    e = max(32 // bits(kind), 1)
    out = np.zeros((len(x), m, k), x.dtype)
    high = m // 8
    for j in range(x.shape[-1]):
        r, i = divmod(j, e)
        row, col = G + 8 * (r % high), (r // high) * 4 * e + T * e + i
        out[:, row, col] = x[:, :, j]
    return out


def b_matrix(kind: str, regs: Any, k: int) -> Any:
    x = elements(kind, regs)
    e = max(32 // bits(kind), 1)
    out = np.zeros((len(x), k, 8), x.dtype)
    for j in range(x.shape[-1]):
        r, i = divmod(j, e)
        out[:, r * 4 * e + T * e + i, G] = x[:, :, j]
    return out


def c_matrix(kind: str, regs: Any, m: int, n: int) -> Any:
    """Accumulator registers [tests, lanes, r]; 128 lanes are four warps of 16 rows each."""
    x = elements(kind, regs)
    out = np.zeros((len(x), m, n), x.dtype)
    warp, lane = np.divmod(np.arange(x.shape[1]), 32)
    for i in range(x.shape[-1]):
        half = (i // 2) % 2 if m >= 16 else 0
        block = i // 4 if m >= 16 else i // 2
        out[:, 16 * warp + (lane >> 2) + 8 * half, 8 * block + 2 * (lane & 3) + i % 2] = x[:, :, i]
    return out


# Sparse metadata ------------------------------------------------------------------------------------------------------
def fields16(kind: str, k: int, words: Any, selector: int) -> Any:
    """Metadata words [tests, 32] to nibbles [tests, 16 rows, chunks]."""
    size = bits(kind)
    chunks = k // (2 if size == 32 else 8 if size == 4 else 4)
    out = np.zeros((len(words), 16, chunks), np.int64)
    nibble = lambda w, i: (w >> np.uint32(4 * i)) & np.uint32(15)  # noqa: E731
    for g in range(8):
        if size >= 16:
            parts = chunks // 4
            for p in range(parts):
                w = words[:, 4 * g + (selector if parts == 1 else 2 * selector + p)]
                for i in range(4):
                    out[:, g, 4 * p + i], out[:, g + 8, 4 * p + i] = nibble(w, i), nibble(w, 4 + i)
        else:
            lanes = 2 if chunks == 8 else 4
            for p in range(lanes):
                w = words[:, 4 * g + (2 * selector + p if lanes == 2 else p)]
                for i in range(8):
                    out[:, g + 8 * (p % 2), 8 * (p // 2) + i] = nibble(w, i)
    return out


def indices(kind: str, nibbles: Any) -> Any:
    """Nibbles [..., chunks] to the dense k of each compressed element [..., k/2]."""
    chunk = np.arange(nibbles.shape[-1])
    match bits(kind):
        case 32:
            return 2 * chunk + (nibbles == 0b1110)
        case 4:
            pairs = np.stack([nibbles & 3, nibbles >> 2], axis=-1)
            k = (8 * chunk)[:, None] + 2 * pairs
            return np.stack([k, k + 1], axis=-1).reshape(*nibbles.shape[:-1], -1)
        case _:
            pairs = np.stack([nibbles & 3, nibbles >> 2], axis=-1)
            return ((4 * chunk)[:, None] + pairs).reshape(*nibbles.shape[:-1], -1)


# Shared memory of wgmma -----------------------------------------------------------------------------------------------
def from_shared(kind: str, smem: Any, desc: int, rows: int, k: int, mn_major: bool) -> Any:
    """The operand [rows, k] a descriptor names."""
    w = bits(kind) // 8 if kind != "b1" else 1
    kk = k // 8 if kind == "b1" else k
    start, lbo, sbo = ((desc >> s & 0x3FFF) * 16 for s in (0, 16, 32))
    base, mode = desc >> 49 & 7, desc >> 62
    S = {0: 16, 1: 128, 2: 64, 3: 32}[mode]
    mask = {0: 0, 1: 7, 2: 3, 3: 1}[mode]
    r, c = np.meshgrid(np.arange(rows), np.arange(kk), indexing="ij")
    if not mn_major:
        byte = c * w
        x = (r % 8) * S + (r // 8) * sbo + (byte // S) * lbo + byte % S
    else:
        t = 16 // w
        if mode == 0:
            x = (r % t) * w + (r // t) * sbo + (c % 8) * 16 + (c // 8) * lbo
        else:
            x = (r % t) * w + ((r // t) % (S // 16)) * 16 + (r // (t * S // 16)) * lbo + (c % 8) * S + (c // 8) * sbo
    x = x + start
    x = x ^ ((((x >> 7) - base) & mask) << 4)
    raw = sum(smem[x + i].astype(np.uint32) << np.uint32(8 * i) for i in range(w))
    if kind == "b1":
        return np.unpackbits(raw.astype(np.uint8), axis=1, bitorder="little")
    return raw.astype(f"u{w}")


# Cases ----------------------------------------------------------------------------------------------------------------
def mma_key(text: str) -> tuple[DotKey, int, int]:
    parts = text.split(".")
    m, n, k = map(int, re.search(r"m(\d+)n(\d+)k(\d+)", text).groups())  # type: ignore[union-attr]
    types = [p for p in parts if p in SIZES or p in ("f32", "tf32", "s32")]
    family = parts[0]
    if family == "wgmma":
        d, a, b = types
        c = d
    elif family == "wmma" and len(types) == 2:
        (d, c), a, b = types, "f16", "f16"
    else:
        d, a, b, c = types
    op = next((p for p in parts if p in ("xor", "and")), None)
    rounding = next((p for p in parts if p in ("rn", "rz", "rm", "rp")), "rn")
    sparse = any(p.startswith("sp") for p in parts[1:3])
    return DotKey(family, a, b, c, d, k, sparse, "satfinite" in parts, rounding, op), m, n


def mma(name: str) -> Iterator[Case]:
    meta, z = load(name)
    for number, info in meta.items():
        key, m, n = mma_key(info["instruction"])
        assert n == 8
        regs = {f: z[f"{number}.{f}"] for f in "abcd"}
        options = {}
        if key.sparse:
            nibbles = fields16(key.atype, key.k, z[f"{number}.e"], info["selector"])
            options["indices"] = indices(key.atype, nibbles)
        yield Case(
            info["instruction"], key, "sm_90", a_matrix(key.atype, regs["a"], m, key.products),
            b_matrix(key.btype, regs["b"], key.k), c_matrix(key.ctype, regs["c"], m, n),
            c_matrix(key.dtype, regs["d"], m, n), options,
        )  # fmt: skip


def wmma() -> Iterator[Case]:
    meta, z = load("wmma")
    for number, info in meta.items():
        key, m, n = mma_key(info["mma"])
        layouts = re.search(r"\.(row|col)\.(row|col)\.", info["mma"])
        la, lb = layouts.groups()  # type: ignore[union-attr]
        lc, ld = (re.search(r"\.(row|col)\.", info[f])[1] for f in ("load_c", "store_d"))  # type: ignore[index]

        def matrix(name: str, kind: str, rows: int, cols: int, layout: str, number: str = number) -> Any:
            x = elements(kind, z[f"{number}.{name}"].reshape(z[f"{number}.{name}"].shape[0], -1))
            return x.reshape(-1, rows, cols) if layout == "row" else x.reshape(-1, cols, rows).swapaxes(1, 2)

        yield Case(
            info["mma"], key, "sm_90", matrix("A", key.atype, m, key.k, la), matrix("B", key.btype, key.k, n, lb),
            matrix("C", key.ctype, m, n, lc), matrix("D", key.dtype, m, n, ld),
        )  # fmt: skip


def wgmma() -> Iterator[Case]:
    meta, z = load("wgmma")
    for number, info in meta.items():
        key, m, n = mma_key(info["instruction"])
        imm = info["immediates"]
        smem = z[f"{number}.smem"]
        in_registers = info["a"] == "registers"
        trans = imm[2:]
        trans_a, trans_b = (0, trans[0]) if in_registers and trans else tuple(trans) if trans else (0, 0)
        if in_registers:
            regs = z[f"{number}.a"].reshape(4, 32, -1)
            A = a_matrix(key.atype, regs, 16, key.products).reshape(m, key.products)
        else:
            A = from_shared(key.atype, smem, int(info["a"], 16), m, key.products, bool(trans_a))
        B = from_shared(key.btype, smem, int(info["b"], 16), n, key.k, bool(trans_b)).T
        options: dict[str, Any] = dict(zip(("imm_scale_a", "imm_scale_b"), imm[:2]))
        if key.sparse:
            e = z[f"{number}.e"].reshape(4, 32)
            nibbles = fields16(key.atype, key.k, e, info["selector"])
            options["indices"] = indices(key.atype, nibbles.reshape(m, -1))
        C, D = (c_matrix(key.dtype, z[f"{number}.{f}"][None], m, n)[0] for f in "cd")
        yield Case(f"{number} {info['instruction']}", key, "sm_90", A, B, C, D, options)


def narrowed(kind: str, f32: Any) -> Any:
    """f32 bit patterns of exactly representable numbers to raw elements of a type."""
    t = TYPES[kind]
    if kind in ("tf32", "f32"):
        return f32
    return f32.view(np.float32).astype(numpy_dtype(t)).view(container(t))


def other_gpus() -> Iterator[Case]:
    """Dot products as [tests, 1, K] by [tests, K, 1]."""
    meta, z = load("other_gpus")
    for name, info in meta.items():
        gpu, published = name.split(".")
        kind = {"fp16": "f16", "E4M3": "e4m3", "E5M2": "e5m2"}.get(published, published)
        for output in info["outputs"]:
            dtype = {"fp32": "f32", "fp16": "f16"}[output]
            device, family = DEVICES[gpu], "wmma"
            k = info["k"]
            if kind in ("e4m3", "e5m2"):
                # H100 and H200 used wgmma for f32 results, with C = 0
                family = "wgmma" if gpu in ("H100", "H200") and dtype == "f32" else "mma"
            key = DotKey(family, kind, kind, dtype, dtype, k)
            A, B = (narrowed(kind, z[f"{name}.{f}"]) for f in "ab")
            C = z[f"{name}.c"].reshape(-1)
            if family == "wgmma":
                C = np.zeros_like(C)
            if dtype == "f16":
                C = C.view(np.float32).astype(np.float16).view(np.uint16)
            D = narrowed(dtype, z[f"{name}.d_{output}"].reshape(-1))
            yield Case(f"{name} {output}", key, device, A[:, None, :], B[:, :, None], C[:, None, None], D[:, None, None])


SOURCES: dict[str, Callable[[], Iterator[Case]]] = {
    "mma_dense": lambda: mma("mma_dense"), "mma_sp": lambda: mma("mma_sp"), "wmma": wmma, "wgmma": wgmma,
    "other_gpus": other_gpus,
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_model_gives_the_bits_of_the_hardware(source: str) -> None:
    wrong, elements = [], 0
    for case in SOURCES[source]():
        D = model_matmul(case.key, case.device, case.A, case.B, case.C, **case.options)
        elements += D.size
        if (D != case.D).any():
            wrong.append(f"{case.name} on {case.device}: {int((D != case.D).sum())} of {D.size}")
    assert not wrong and elements > 10000
