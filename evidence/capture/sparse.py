"""Writes tests/data/sparse_pytorch.npz: what PyTorch's own conversion to CUTLASS' sparse layout makes of small matrices.

    python -m evidence.capture.sparse tests/data/sparse_pytorch.npz        # needs torch (2.13 wrote the present file)
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

CASES = (
    ("f16", torch.float16, (64, 96), 4),
    ("bf16", torch.bfloat16, (32, 64), 4),
    ("tf32", torch.float32, (96, 48), 2),
    ("s8", torch.int8, (48, 128), 4),
)


def main(path: str) -> None:
    rng = np.random.default_rng(7)
    out = {}
    for name, dtype, (m, k), chunk in CASES:
        room = chunk // 2
        shape = (m, k // chunk, chunk)
        count = np.where(rng.random((*shape[:2], 1)) < 0.6, room, rng.integers(0, room + 1, (*shape[:2], 1)))
        kept = rng.random(shape).argsort(-1) < count
        dense = (rng.integers(1, 100, shape) * rng.choice([-1, 1], shape) * kept).reshape(m, k).astype(np.int8)
        packed, meta = sparse_semi_structured_from_dense_cutlass(torch.from_numpy(dense).to(dtype))
        out |= {f"{name}.dense": dense, f"{name}.packed": packed.to(torch.int8).numpy(), f"{name}.meta": meta.numpy()}
    np.savez_compressed(path, **out)


if __name__ == "__main__":
    main(sys.argv[1])
