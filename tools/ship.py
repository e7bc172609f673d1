"""Object code of native functions, to be shipped with the package: what kernels call, and products of matrices.

    python tools/ship.py FOLDER [LEVEL ...]

writes FOLDER/LEVEL.bin for each level of CPUs (mmulator/codegen/shipped.py). The build of a wheel calls it (hatch_build.py).
Which functions: those of the kernels of tests/kernels named here, plain, sanitized, and as workers of a Dask cluster run them.
What a kernel calls besides, its first user compiles. Nothing that is made here is run here. Who edits the package meanwhile gets
an error: nobody would use what was made of other files.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import product
from os import environ, pathsep
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "tests" / "kernels" / "ptx"
# Few that need most functions: kernels of the corpus together need five per cent more.
CHOSEN = (
    "hopper", "sync", "floats", "pipelines", "memory", "cluster", "tensor", "control_debug", "integer", "atomics", "debug",
    "layernorm", "reductions_f16", "transpose_u8", "attention_causal_sm80", "attention_causal_sm90",
    "gemm_descriptor_bf16_sm90", "gemm_f64_sm80", "gemm_f16_f16acc_sm80", "gemm_w8_sm80", "gemm_tf32_sm80", "gemm_tf32_sm90",
    "gemm_e4m3_sm89", "gemm_bf16_bits_sm90",
)  # fmt: skip


class Collected:
    """What mmulator.codegen.named would keep."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, str], tuple[bytes, list[str]]] = {}

    def keep(self, name: str, code: bytes, links: Iterable[str] = (), level: int = 2) -> None:
        self.entries[level, name] = code, list(links)

    def find(self, name: str, level: int = 2) -> Any:
        from mmulator.codegen.named import NamedCode

        found = self.entries.get((level, name))
        return NamedCode(found[0], tuple(found[1])) if found else None


def collect(level: str, kernels: Iterable[Path], options: Iterable[Any]) -> Collected:
    """All fixed code of kernels for a level. In a process of its own: it makes no other from then on."""
    from mmulator.codegen import cpus, engine, named
    from mmulator.codegen.loading import ensure
    from mmulator.compiler import kernel as compiling
    from mmulator.compiler.code import BlockCode

    collected = Collected()
    engine._cpu = lambda: (level, cpus.features(level))
    named.keep, named.find = collected.keep, collected.find

    class Unwritten(BlockCode):
        """Of the kernel itself nothing is compiled."""

        def take(self, text: str, group: range) -> None:
            pass

        def load(self, natives: Iterable[Any], done: Callable[[int], object]) -> None:
            ensure(list(natives))

    compiling.BlockCode = Unwritten  # type: ignore[misc]
    import mmulator as mm

    paths, ways = list(kernels), list(options)
    begin, total = time.monotonic(), len(paths) * len(ways)
    for n, (path, how) in enumerate(product(paths, ways), 1):
        for kernel in mm.Module.load(path).values():
            kernel.compile(options=how)
        if n % 6 == 0 or n == total:
            left = (time.monotonic() - begin) * (total - n) / n
            say(f"{level}: {n} of {total} done, about {left:.0f} s left")
    return collected


def say(text: str) -> None:
    """On standard error, which pip shows with -v."""
    print(f"mmulator: {text}", file=sys.stderr, flush=True)


def write(folder: Path, level: str) -> None:
    from mmulator.codegen import shipped, sources
    from mmulator.compiler.options import DEFAULT, CompileOptions
    from mmulator.native.hooks.touched import TOUCHED
    from mmulator.sanitizer.instrument import SANITIZE

    before = sources.fingerprint()
    options = DEFAULT, CompileOptions(events=SANITIZE), CompileOptions(events=TOUCHED)
    collected = collect(level, [KERNELS / f"{name}.ptx" for name in CHOSEN], options)
    sources.fingerprint.cache_clear()
    if not before or before != sources.fingerprint():
        raise SystemExit("files of the package changed while its object code was made: make it again (or none: MMULATOR_SHIP=0)")
    shipped.write(folder / f"{level}.bin", collected.entries)


def made(path: Path) -> bool:
    """A build asks more than once."""
    from mmulator.codegen.shipped import Shipped

    try:
        return bool(Shipped(path).entries)
    except (OSError, ValueError):
        return False


def main(folder: Path, levels: Iterable[str]) -> None:
    """Each level in a process of its own, beside each other, with the sources of this tree. What is there of them stays."""
    levels = [level for level in levels if not made(folder / f"{level}.bin")]
    if levels:
        say("compiling what does not depend on a kernel, for a minute or two; MMULATOR_SHIP=0 leaves that to the first start")
    with tempfile.TemporaryDirectory() as cache:
        paths = [str(ROOT / "src"), *filter(None, [environ.get("PYTHONPATH")])]  # pip's isolated builds find NumPy by the second
        environment = {**environ, "PYTHONPATH": pathsep.join(paths), "MMULATOR_CACHE": cache}
        running = [subprocess.Popen([sys.executable, __file__, "--one", str(folder), level], env=environment) for level in levels]
        ends = [process.wait() for process in running]
        if any(ends):
            raise SystemExit("the object code could not be made")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))  # pip's isolated builds take this away where an editable installation adds it
    if sys.argv[1] == "--one":
        write(Path(sys.argv[2]), sys.argv[3])
    else:
        main(Path(sys.argv[1]), sys.argv[2:] or ("x86-64-v3", "x86-64-v4"))
