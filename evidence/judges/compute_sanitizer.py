"""NVIDIA's samples of compute-sanitizer: memcheck, racecheck, initcheck and synccheck, each as it is and with its defect mended.

    python -m evidence.judges.compute_sanitizer ~/compute-sanitizer-samples --json samples.json

The samples have no mended forms: these are made by an edit of one expression while the judge runs. The arguments of a launch
are those of the sample's main(), which is code of the host and is not run: its calls of cudaMalloc and cudaMemset are read, and
made of the driver here (doors/libcuda).
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evidence.judges.common import Answer, Count, Judge, arguments, compiled, device_code, finish, sanitized


@dataclass(frozen=True)
class Sample:
    """A kernel of a sample's file. words: of its arrays of 32 bits, zeros; a number behind them is given as it is. rules: any of
    them is the defect. mend: (pattern, replacement) that takes the defect away. device: the arrays are the driver's memory, of
    which those bytes are filled that cudaMemset of the sample fills."""

    file: str
    kernel: str
    grid: int
    block: int
    words: tuple[int, ...]
    rules: tuple[str, ...]
    mend: tuple[str, str]
    number: tuple[int, ...] = ()
    device: bool = False

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
        "Initcheck/memset_error.cu", "vectorAdd", 2, 32, (64,), ("uninitialized-global",),
        (r"(?<=0, )NumBlocks", "sizeof(int) * NumBlocks"), device=True,
    ),
    Sample(
        "Suppressions/suppressions_initcheck_demo.cu", "mult", 1, 123, (123, 123),
        ("uninitialized-global-part",), (r"(?<=\(int\)) - 1", ""), number=(123,), device=True,
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
        "initcheck": Count(2, 2, 0, 2),
    },
    tuple(rule for sample in SAMPLES for rule in sample.rules),
)  # fmt: skip


def filled(text: str) -> list[int]:
    """The bytes that each cudaMemset of a sample fills, by the names that main() and the file give to numbers."""
    names = {name: int(value) for name, value in re.findall(r"(?:const|constexpr) int (\w+) = (\d+)", text)}
    counts = re.findall(r"cudaMemset\(\w+, \w+, (.*?)\)+;", text)
    return [eval(re.sub(r"sizeof ?\(int\)?", "4", count), {"__builtins__": {}}, names) for count in counts]


def on_the_device(sample: Sample, source: str, text: str, work: Path | None) -> Any:
    """The report of a launch whose arrays are allocated as main() does it. text: of the sample with its main()."""
    from mmulator.doors.libcuda import memory
    from mmulator.host.driver import use

    driver = use(device="sm_80", sanitize="report", timeout=60)
    driver.readers.clear()  # what is found is counted here
    loaded = driver.load(compiled(source, work), name=f"{sample.kernel}.ptx")
    sizes = [4 * words for words in sample.words]
    addresses = [memory.allocate(size, memory.DEVICE_KIND) for size in sizes]
    for address, size in zip(addresses, filled(text)):
        memory.fill(address, 0, 1, size)
    params = struct.pack(f"<{len(addresses)}Q{len(sample.number)}i", *addresses, *sample.number)
    try:
        return driver.launch(loaded.function(sample.kernel), (sample.grid, 1, 1), (sample.block, 1, 1), params)
    finally:
        for address in addresses:
            memory.free(address)


def judged(sample: Sample, text: str, work: Path | None) -> tuple[tuple[str, ...], str]:
    import mmulator as mm

    source = device_code(text)
    if sample.device:
        return sanitized(partial(on_the_device, sample, source, text, work))
    kernel = mm.Module.load(compiled(source, work), name=f"{sample.kernel}.ptx")[sample.kernel]
    arrays = [*(np.zeros(size, np.int32) for size in sample.words), *sample.number]
    return sanitized(partial(kernel.launch, sample.grid, sample.block, arrays, device="sm_80", sanitize=True, timeout=60))


def answers(sample: Sample, source: str, work: Path | None) -> Iterator[Answer]:
    """The answers for a sample as it is, and mended."""
    name = f"{sample.file}: {sample.kernel}"
    rules, error = judged(sample, source, work)
    own = tuple(rule for rule in rules if rule in sample.rules)
    yield Answer(sample.tool, name, True, own, "" if own else error or f"found {rules}")
    mended = re.sub(*sample.mend, source)
    assert mended != source, f"{name}: another text than the sample had"
    rules, error = judged(sample, mended, work)
    yield Answer(sample.tool, f"{name}, mended", False, rules or ((error,) if error else ()), error)


def main() -> int:
    options = arguments(__doc__ or "").parse_args()
    given: list[Answer] = []
    for sample in SAMPLES:
        if options.only in f"{sample.file} {sample.kernel}":
            given += answers(sample, (options.folder / sample.file).read_text(), options.work)
    return finish(JUDGE, options, given, OUT_OF_REACH)


if __name__ == "__main__":
    sys.exit(main())
