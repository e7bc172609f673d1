"""NVIDIA's samples of compute-sanitizer: memcheck, racecheck, initcheck and synccheck, each as it is and with its defect mended.

    python -m tools.judges.compute_sanitizer ~/compute-sanitizer-samples --json samples.json

The samples have no mended forms: these are made by an edit of one expression while the judge runs. The arguments of a launch
are those of the sample's main(), which is code of the host and is not run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tools.judges.common import Answer, Count, Judge, arguments, compiled, device_code, finish, sanitized

UNWRITTEN = "global memory that the host has not written is not told from what it has: an array always has values"


@dataclass(frozen=True)
class Sample:
    """A kernel of a sample's file. words: of its arrays of 32 bits, zeros; a number behind them is given as it is. rules: any of
    them is the defect. mend: (pattern, replacement) that takes the defect away. missed: why it is not found, if it is not."""

    file: str
    kernel: str
    grid: int
    block: int
    words: tuple[int, ...]
    rules: tuple[str, ...]
    mend: tuple[str, str]
    number: tuple[int, ...] = ()
    missed: str = ""

    @property
    def tool(self) -> str:
        return "initcheck" if "init" in self.file.lower() else self.file.partition("/")[0].lower()


SAMPLES = (
    Sample("Memcheck/memcheck_demo.cu", "unaligned_kernel", 1, 1, (), ("memory-misaligned",), (r"\+ 1\)", "+ 0)")),
    Sample("Memcheck/memcheck_demo.cu", "out_of_bounds_kernel", 1, 1, (), ("memory-out-of-bounds",), (r"0x\w+", "&x")),
    Sample(
        "Racecheck/block_error.cu", "sumKernel", 1, 128, (128, 1), ("race-read-write",),
        (r"(?=if \(tx)", "__syncthreads(); "),
    ),
    Sample(
        "Racecheck/warp_error.cu", "sumKernel", 1, 64, (64, 1), ("race-within-warp",), (r"(?=if \(tx %)", "__syncwarp(); ")
    ),
    Sample(
        "Synccheck/divergent_threads.cu", "myKernel", 1, 64, (1024, 1), ("aligned-partial-warp",), (r"- 16", "")
    ),
    Sample("Synccheck/illegal_syncwarp.cu", "myKernel", 1, 32, (1,), ("membermask-lacks-thread",), ("<= ", "< ")),
    Sample(
        "Initcheck/memset_error.cu", "vectorAdd", 2, 32, (64,), ("uninitialized-store",), ("", ""), missed=UNWRITTEN
    ),
    Sample(
        "Suppressions/suppressions_initcheck_demo.cu", "mult", 1, 123, (123, 123), ("uninitialized-store",), ("", ""),
        number=(123,), missed=UNWRITTEN,
    ),
)  # fmt: skip
OUT_OF_REACH = {
    "Suppressions/suppressions_demo.cu": "cudaMalloc of too many bytes, by the host: no kernel",
    "NvtxMemoryPool": "the host tells NVTX which part of an allocation is in use",
    "NvtxNaming": "memory that the host does not free, and its name in NVTX: no kernel",
    "NvtxPermissions": "the host tells NVTX who may read and write an allocation",
    "ApiTracker, DeviceMalloc, MemoryTracker": "libraries on compute-sanitizer's own interface, without a defect",
}
JUDGE = Judge(
    "compute_sanitizer", "compute-sanitizer's samples", "github.com/NVIDIA/compute-sanitizer-samples", "1e1fab8b",
    {
        "memcheck": Count(2, 2, 0, 2), "racecheck": Count(2, 2, 0, 2), "synccheck": Count(2, 2, 0, 2),
        "initcheck": Count(0, 2, 0, 0),
    },
    tuple(rule for sample in SAMPLES for rule in sample.rules),
)  # fmt: skip


def judged(sample: Sample, source: str, work: Path | None) -> tuple[tuple[str, ...], str]:
    import mmulator as mm

    kernel = mm.Module.load(compiled(source, work), name=f"{sample.kernel}.ptx")[sample.kernel]
    arrays = [*(np.zeros(size, np.int32) for size in sample.words), *sample.number]
    return sanitized(partial(kernel.launch, sample.grid, sample.block, arrays, device="sm_80", sanitize=True, timeout=60))


def answers(sample: Sample, source: str, work: Path | None) -> Iterator[Answer]:
    """The answers for a sample as it is, and mended."""
    name = f"{sample.file}: {sample.kernel}"
    rules, error = judged(sample, source, work)
    own = tuple(rule for rule in rules if rule in sample.rules)
    yield Answer(sample.tool, name, True, own, "" if own else sample.missed or error or f"found {rules}")
    if sample.mend[0]:
        mended = re.sub(*sample.mend, source)
        assert mended != source, f"{name}: another text than the sample had"
        rules, error = judged(sample, mended, work)
        yield Answer(sample.tool, f"{name}, mended", False, rules or ((error,) if error else ()), error)


def main() -> int:
    options = arguments(__doc__ or "").parse_args()
    given: list[Answer] = []
    for sample in SAMPLES:
        if options.only in f"{sample.file} {sample.kernel}":
            given += answers(sample, device_code((options.folder / sample.file).read_text()), options.work)
    code = finish(JUDGE, options, given, out_of_reach=OUT_OF_REACH)
    for name, why in OUT_OF_REACH.items():
        print(f"  out of reach: {name}: {why}")
    return code


if __name__ == "__main__":
    sys.exit(main())
