"""Kernels whose bits depend on what ptxas fuses and computes beforehand, and what an NVIDIA GPU computed with them.

`contraction_kernels.txt` holds the bodies: `== name`, then PTX on the registers %f0..%f5 (inputs of the thread), %q0, %q1
(parameters), %x, %p, %i, and the results %o0, %o1, ...; `contraction_vectors.npz` the results, one array a kernel,
[thread, result]. Thread i reads row i of `operands()`; for names in `signs` of an array of its own with many NaNs.
"""

import re
from functools import cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
INPUTS, OUTPUTS, THREADS, SEED = 6, 64, 128, 7
PARAMETERS = ("u64 a", "u64 b", "f32 c", "f32 d")
SCALARS = np.float32(1.7), np.float32(-0.3)
_EDGES = (
    0, 1 << 31, 0x7F800000, 0xFF800000, 0x3F800000, 0xBF800000, 1, 0x7E800000, 0x7E800001, 0x00800000, 0x007FFFFF, 0x7F7FFFFF,
    0x7FC12345,
)  # fmt: skip


def kernel(name: str, body: str) -> str:
    outputs = sorted({int(n) for n in re.findall(r"%o(\d+)", body)})
    used = sorted({int(n) for n in re.findall(r"%f(\d+)", body)})
    return "\n".join([
        f".visible .entry {name}({', '.join('.param .' + d for d in PARAMETERS)}) {{",
        f".reg .f32 %f<{INPUTS}>, %q<2>, %x<64>, %o<{OUTPUTS}>; .reg .pred %p<40>; .reg .b32 %i<8>; .reg .b64 %in, %out, %at;",
        "ld.param.u64 %in, [a]; ld.param.u64 %out, [b]; ld.param.f32 %q0, [c]; ld.param.f32 %q1, [d];",
        "cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out; mov.u32 %i0, %tid.x;",
        f"mul.wide.u32 %at, %i0, {4 * INPUTS}; add.s64 %in, %in, %at;",
        f"mul.wide.u32 %at, %i0, {4 * OUTPUTS}; add.s64 %out, %out, %at;",
        *(f"ld.global.f32 %f{n}, [%in+{4 * n}];" for n in used), body,
        *(f"st.global.f32 [%out+{4 * n}], %o{n};" for n in outputs), "ret;", "}",
    ]) + "\n"  # fmt: skip


def operands(seed: int = SEED, threads: int = THREADS) -> np.ndarray:
    """Half the rows ordinary numbers; the others with all exponents, tiny and huge numbers, and edges among them."""
    rng = np.random.default_rng(seed)
    shape = threads, INPUTS

    def bits(low: int, high: int) -> np.ndarray:
        """Random numbers with biased exponents in that range."""
        exponent = rng.integers(low, high, shape, dtype=np.uint32) << 23
        return exponent | rng.integers(0, 1 << 23, shape, dtype=np.uint32) | rng.integers(0, 2, shape, dtype=np.uint32) << 31

    ordinary = (rng.standard_normal(shape) * 4).astype(np.float32).view(np.uint32)
    choices = [ordinary, bits(0, 255), bits(0, 4), bits(250, 255), rng.choice(np.array(_EDGES, np.uint32), shape)]
    kind = rng.choice(5, shape, p=[0.5, 0.15, 0.15, 0.12, 0.08])
    kind[: threads // 2] = 0
    return np.choose(kind, choices).astype(np.uint32)


def operands_of(name: str) -> np.ndarray:
    with np.load(HERE / "contraction_vectors.npz") as stored:
        return stored["operands.signs"] if name.startswith("signs") else operands()  # type: ignore[no-any-return]


@cache
def bodies() -> dict[str, str]:
    text = (HERE / "contraction_kernels.txt").read_text()
    return {part.partition("\n")[0].strip(): part.partition("\n")[2].strip() for part in text.split("\n== ")[1:]}


@cache
def results() -> dict[str, np.ndarray]:
    with np.load(HERE / "contraction_vectors.npz") as stored:
        return {name: stored[name] for name in stored.files}
