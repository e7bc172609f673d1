"""Launches of cluster.cu, in clusters of many shapes, and what an NVIDIA H200 left: digests in `clusters.json`.

    for case in cases():
        case.entry, case.grid, case.block, case.cluster, case.shared, case.cooperative, case.arguments()
        digests(arguments) == recorded()[case.name]

`python -m tests.kernels.cluster_cases FILE.npz` takes the digests from arrays `NAME|N|out` that a GPU left.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PTX = HERE / "ptx" / "cluster.ptx"
RECORDED = HERE / "clusters.json"
Extent = tuple[int, int, int]
SHAPES: tuple[Extent, ...] = (
    (1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (4, 1, 1), (2, 2, 1), (1, 2, 2), (3, 1, 1), (2, 3, 1), (8, 1, 1), (2, 2, 2),
    (4, 4, 1), (16, 1, 1), (5, 1, 3),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    entry: str
    grid: Extent
    block: int
    arguments: Callable[[], list[Any]]
    cluster: Extent | None = None
    shared: int = 0
    cooperative: bool = False


def digests(arguments: Sequence[Any]) -> list[str]:
    """Of the arrays among the arguments."""
    return [hashlib.sha256(a.tobytes()).hexdigest()[:16] for a in arguments if isinstance(a, np.ndarray)]


@cache
def recorded() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(RECORDED.read_text())
    return found


def _zeros(n: int, kind: Any = np.int32) -> np.ndarray:
    return np.zeros(n, kind)


def _words(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32)


def _tag(cluster: Extent | None) -> str:
    return "none" if cluster is None else "x".join(map(str, cluster))


def _floats(n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    return (rng.standard_normal(n * 64) * np.exp2(rng.integers(-30, 30, n * 64))).astype(np.float32)


def cases() -> Iterator[Case]:
    for c in (None, *SHAPES):
        x, y, z = c or (2, 1, 3)
        grid = 2 * x, 2 * y, 2 * z
        n = 8 * x * y * z
        yield Case(f"registers_{_tag(c)}", "cluster_registers", grid, 32, lambda n=n: [_zeros(n * 32, np.uint32)], c,
                   1000 if n % 4 else 0)  # fmt: skip
        yield Case(f"sum_{_tag(c)}", "cluster_sum", grid, 64,
                   lambda n=n: [_floats(n), _zeros(n * 64, np.float32), _zeros(n * 64)], c, 256)  # fmt: skip
    for size in (1, 2, 3, 4, 6, 8, 16):
        yield from _of_size(size)
    yield Case("addresses_none", "cluster_addresses", (2, 1, 1), 32, lambda: [_zeros(1024, np.uint32), bytes(range(16))])
    yield from _others()


def _of_size(size: int) -> Iterator[Case]:
    rng = np.random.default_rng(size)
    per = 40
    c, twice = (size, 1, 1), (2 * size, 1, 1)
    numbers = rng.integers(0, 10**6, 5000).astype(np.int32)
    ring = rng.integers(0, 1000, size * 128).astype(np.int32)
    vectors, words = _words(rng, size * 512), _words(rng, size * 128)
    parts = rng.integers(0, 99, size * 4).astype(np.int32)
    yield Case(f"histogram_{size}", "cluster_histogram", (3 * size, 1, 1), 64,
               lambda: [numbers.copy(), _zeros(per * size), 5000, per], c, per * 4)  # fmt: skip
    yield Case(f"ring_{size}", "cluster_ring", twice, 64, lambda: [ring.copy(), _zeros(size * 128), 9], c)
    yield Case(f"vectors_{size}", "cluster_vectors", twice, 64, lambda: [vectors.copy(), _zeros(size * 512, np.uint32)], c)
    yield Case(f"atomics_{size}", "cluster_atomics", twice, 64, lambda: [words.copy(), _zeros(size * 40, np.uint32)], c)
    yield Case(f"leavers_{size}", "cluster_leavers", twice, 64, lambda: [_zeros(size * 128)], c)
    yield Case(f"addresses_{size}", "cluster_addresses", c, 32, lambda: [_zeros(size * 512, np.uint32), bytes(range(16))], c)
    yield Case(f"grid_clusters_{size}", "grid_of_clusters", (4 * size, 1, 1), 32, lambda: [parts.copy(), _zeros(size * 4)], c,
               cooperative=True)  # fmt: skip


def _others() -> Iterator[Case]:
    """elect.sync, setmaxnreg with named barriers, grid.sync(); the numbers follow from one generator."""
    rng = np.random.default_rng(5)
    masks = np.concatenate(
        [1 << np.arange(32, dtype=np.uint64), rng.integers(1, 2**32, 200, dtype=np.uint64), [2**32 - 1, 2**32 - 2, 3 << 20]]
    ).astype(np.uint32)
    yield Case("elected", "elected", (len(masks), 1, 1), 32, lambda: [masks.copy(), _zeros(len(masks) * 64, np.uint32)])
    for rounds in (1, 2, 7, 12):
        given = rng.integers(-999, 999, rounds * 256).astype(np.int32)
        yield Case(f"pool_{rounds}", "register_pool", (1, 1, 1), 384, lambda g=given, r=rounds: [g.copy(), _zeros(256), r])
    for blocks in (1, 2, 132, 264, 300):
        given = rng.integers(0, 2**30, blocks * 64).astype(np.int32)
        yield Case(f"grid_{blocks}", "grid_rounds", (blocks, 1, 1), 64, lambda g=given: [g.copy(), _zeros(len(g)), 4],
                   cooperative=True)  # fmt: skip


def record(path: str) -> None:
    arrays = np.load(path)
    found = {
        case.name: digests([arrays[f"{case.name}|{n}|out"] for n, a in enumerate(case.arguments()) if isinstance(a, np.ndarray)])
        for case in cases()
    }
    RECORDED.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    record(sys.argv[1])
