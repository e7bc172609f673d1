"""Writes what cuSPARSELt, through PyTorch, makes of small matrices: layouts that NVIDIA does not document.

    python -m evidence.capture.cusparselt FILE.npz        # needs torch with CUDA and cuSPARSELt, and the GPU

Arrays, with TYPE of f16, bf16, s8, e4m3, tf32:
TYPE.MxK.nibbles, .metadata   uint8 [matrices, M, chunks] nibbles of random patterns; uint8 [matrices, bytes], what follows
                              the M K / 2 values of torch._cslt_compress's buffer
TYPE.MxK.dense, .packed       a matrix of integers as uint8 [M, K], and the whole buffer as bytes (not of tf32)
tile.columns                  of what torch._sparse_semi_structured_tile makes of a 256 x 256 matrix of .f16: uint8 [256,
                              128], where in its chunk a kept value stood; 4 for zeros and for one of two equal values
tile.cutlass, .cusparselt     its metadata for CUTLASS (int16 [256, 2, 8]), and for cuSPARSELt (bytes behind the values)
few.dense, .packed            chunks of .f16 with one non-zero or none
tf32.given, .stored           1:2-sparse float32 of both signs, not all of them of tf32, infinities and NaN: uint32 [32, 64],
                              and the stored values uint32 [32, 32]
about                         versions and GPU

tests/data/sparse_cusparselt.npz is a choice of these, without `about`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "s8": torch.int8, "e4m3": torch.float8_e4m3fn, "tf32": torch.float32}
SHAPES = ((32, 64), (64, 64), (160, 64), (96, 160), (256, 128), (128, 256), (384, 192))
MATRICES = 3
PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
ONES = np.array([(0,), (1,)])


def pattern(name: str, m: int, k: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """A sparse matrix of integers [M, K], full in every chunk, and the nibbles [M, chunks] of the specification."""
    chunk, choices = (2, ONES) if name == "tf32" else (4, PAIRS)
    kept = choices[rng.integers(0, len(choices), (m, k // chunk))]
    dense = np.zeros((m, k // chunk, chunk), np.uint8)
    np.put_along_axis(dense, kept, rng.integers(1, 16, kept.shape).astype(np.uint8), axis=-1)
    nibbles = 4 + 10 * kept[..., 0] if name == "tf32" else kept[..., 0] | kept[..., 1] << 2
    return dense.reshape(m, k), nibbles.astype(np.uint8)


def compress(dense: Any, dtype: torch.dtype) -> Any:
    """The bytes of cuSPARSELt's buffer."""
    packed = torch._cslt_compress(torch.from_numpy(dense).to(dtype).cuda())
    return packed.reshape(-1).cpu().contiguous().view(torch.uint8).numpy()


def tile(out: dict[str, Any]) -> None:
    torch.manual_seed(1)
    dense = torch.randn(256, 256, dtype=torch.float16, device="cuda")
    packed, meta, *_ = torch._sparse_semi_structured_tile(dense, "", True)
    values = packed.cpu().numpy().reshape(256, 64, 2, 1)
    found = values == dense.cpu().numpy().reshape(256, 64, 1, 4)
    columns = np.where((values[..., 0] == 0) | (found.sum(-1) > 1), 4, found.argmax(-1))
    out |= {"tile.columns": columns.astype(np.uint8).reshape(256, 128), "tile.cutlass": meta.contiguous().cpu().numpy()}
    buffer, *_ = torch._sparse_semi_structured_tile(dense, "", False)
    assert torch.equal(buffer.reshape(-1)[: 128 * 256].cpu(), packed.reshape(-1).cpu())
    out["tile.cusparselt"] = buffer.reshape(-1)[128 * 256 :].contiguous().cpu().view(torch.uint8).numpy()


def main(path: str) -> None:
    out: dict[str, Any] = {}
    for name, dtype in TYPES.items():
        for m, k in SHAPES:
            pairs = [pattern(name, m, k, np.random.default_rng([m, k, n])) for n in range(MATRICES)]
            buffers = [compress(dense, dtype) for dense, _ in pairs]
            values = m * k // 2 * dtype.itemsize
            key = f"{name}.{m}x{k}"
            out |= {f"{key}.nibbles": np.stack([n for _, n in pairs])}
            out |= {f"{key}.metadata": np.stack([b[values:] for b in buffers])}
            if name != "tf32":
                out |= {f"{key}.dense": pairs[0][0], f"{key}.packed": buffers[0]}
    tile(out)
    rng = np.random.default_rng(0)
    few = pattern("f16", 64, 64, rng)[0] * (rng.random((64, 64)) < 0.5)
    out |= {"few.dense": few, "few.packed": compress(few, torch.float16)}
    given = rng.integers(0, 2**32, (32, 32, 1), dtype=np.uint32)
    given[0, :8, 0] = (0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x00001000, 0x80000000, 0x3F801000, 0x3F800FFF)
    pairs2 = np.concatenate([given, 0 * given], axis=-1).reshape(32, 64)
    stored = compress(pairs2.view(np.float32), torch.float32)[: 32 * 32 * 4]
    out |= {"tf32.given": pairs2, "tf32.stored": stored.view(np.uint32).reshape(32, 32)}
    out["about"] = f"torch {torch.__version__}, cuSPARSELt {torch.backends.cusparselt.version()}, {torch.cuda.get_device_name()}"
    np.savez_compressed(path, **out)


if __name__ == "__main__":
    main(sys.argv[1])
