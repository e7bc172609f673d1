"""Kernels of a few statements, in clusters of any shape."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from mmulator.host.module import Kernel, Module
from mmulator.runtime.launch.shape import Extent
from tests.support.ptx_text import entry

# Every way to put up to 16 blocks into a cluster, by the number of blocks
SHAPES: list[Extent] = sorted(
    (s for s in itertools.product(range(1, 17), repeat=3) if s[0] * s[1] * s[2] <= 16), key=lambda s: (s[0] * s[1] * s[2], s)
)


def kernel(body: str, directives: str = "", target: str = "sm_90a", inputs: int = 0) -> Kernel:
    """`out`: address of 64 bytes of each thread of the grid; `in0`, ...: of arrays. t, rank, size, cta: the thread, its block's
    rank, blocks of the cluster, the block's number in the grid. buf: 512 bytes of shared memory."""
    parameters = ", ".join((*(f".param .u64 given{n}" for n in range(inputs)), ".param .u64 results"))
    registers = " ".join(f".reg .{t} {x}<12>;" for t, x in (("b32", "r"), ("b64", "d"), ("f32", "f"), ("pred", "p")))
    given = "".join(f".reg .b64 in{n}; ld.param.u64 in{n}, [given{n}];\n" for n in range(inputs))
    text = (
        f".reg .b32 t, rank, size, cta; .reg .b64 out; {registers} .shared .align 16 .b8 buf[512];\n{given}"
        "mov.u32 t, %tid.x; mov.u32 rank, %cluster_ctarank; mov.u32 size, %cluster_nctarank;\n"
        "mov.u32 r0, %ctaid.y; mov.u32 r1, %ctaid.z; mov.u32 r2, %nctaid.y; mad.lo.u32 r0, r1, r2, r0; mov.u32 r1, %nctaid.x;\n"
        "mov.u32 r2, %ctaid.x; mad.lo.u32 cta, r0, r1, r2; mov.u32 r0, %ntid.x; mad.lo.u32 r0, cta, r0, t;\n"
        f"ld.param.u64 out, [results]; mad.wide.u32 out, r0, 64, out;\n{body}"
    )
    return Module.load(entry(text, parameters, "9.0", target, directives), name="k.ptx")["k"]


def launched(
    k: Kernel, grid: Extent, block: int = 32, cluster: Any = None, inputs: Sequence[np.ndarray] = (), **how: Any
) -> np.ndarray:
    """What the threads leave: 16 words each, by [block, thread, word]."""
    blocks = grid[0] * grid[1] * grid[2]
    out = np.zeros((blocks, block, 16), np.uint32)
    k.launch(grid, block, [*inputs, out], cluster=cluster, **{"timeout": 600, **how})
    return out


def times(shape: Extent, n: Extent) -> Extent:
    return shape[0] * n[0], shape[1] * n[1], shape[2] * n[2]


def ranks(grid: Extent, cluster: Extent) -> tuple[np.ndarray, np.ndarray]:
    """Of each block of a grid (x fastest) its cluster's number and its rank in there, as the specification counts both."""
    z, y, x = np.meshgrid(*(np.arange(n) for n in grid[::-1]), indexing="ij")
    across, down = grid[0] // cluster[0], grid[1] // cluster[1]
    number = x // cluster[0] + across * (y // cluster[1] + down * (z // cluster[2]))
    rank = x % cluster[0] + cluster[0] * (y % cluster[1] + cluster[1] * (z % cluster[2]))
    return number.reshape(-1), rank.reshape(-1)
