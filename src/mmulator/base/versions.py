"""Versions of other people's software that mmulator works with: one table, which every text and check is made from.

    check("torch", "2.8.0")    raises UnsupportedError: too old, with the command that mends it
    check("torch", "2.99.0")   warns once in a process, and the program goes on

docs/reference/platforms.md, pyproject.toml, `mmulator doctor` and the errors of the doors say what stands here; `python -m
tools.matrix` installs the versions and runs a program at each door. A version counts by its first two numbers.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import NamedTuple

Number = tuple[int, int]


def dotted(number: Number) -> str:
    """A number as text: `2.9`."""
    return f"{number[0]}.{number[1]}"


class Versions(NamedTuple):
    """Versions of one library.

    package: its name for pip, or that of a program.
    name: in texts.
    floor: the oldest version that works: (2, 9).
    pinned: the version that the project's own tests run with, "2.13.0".
    newest: the newest version that was tried.
    purpose: what it is for.
    extra: of mmulator that brings it; "" for none.
    module: whose `__version__` it is, where a door opens when that is imported.
    """

    package: str
    name: str
    floor: Number
    pinned: str
    newest: Number
    purpose: str
    extra: str = ""
    module: str = ""

    @property
    def range(self) -> str:
        """The versions that work, in words: `torch 2.9 to 2.15`."""
        return f"{self.name} {dotted(self.floor)}" + (f" to {dotted(self.newest)}" if self.newest > self.floor else "")

    @property
    def mend(self) -> str:
        """The command that installs a version that works."""
        if self.package in ("python", "nvcc"):
            return f"install {self.name} {dotted(self.floor)} or newer"
        return f'pip install "{self.package}>={dotted(self.floor)},<{self.newest[0]}.{self.newest[1] + 1}"'


TABLE = {row.package: row for row in (
    Versions("python", "Python", (3, 11), "3.11", (3, 14), "everything"),
    Versions("numpy", "NumPy", (2, 0), "2.4.6", (2, 5), "arrays"),
    Versions("ml_dtypes", "ml_dtypes", (0, 5), "0.6.0", (0, 6), "bfloat16, FP8, FP4 in arrays"),
    Versions("llvmlite", "llvmlite", (0, 46), "0.50.0", (0, 50), "runs kernels"),
    Versions("triton", "Triton", (3, 5), "3.9.0", (3, 9), "kernels of Triton", "triton", "triton"),
    Versions("torch", "torch", (2, 9), "2.13.0", (2, 15), "programs of PyTorch on device cuda", "", "torch"),
    Versions("numba-cuda", "numba-cuda", (0, 30), "0.30.4", (0, 30), "kernels of Numba (NumPy before 2.5)", "numba",
             "numba_cuda"),
    Versions("cupy-cuda13x", "CuPy", (14, 0), "14.2.0", (14, 2), "programs of CuPy", "cupy", "cupy"),
    Versions("cuda-core", "cuda-core", (1, 0), "1.2.2", (1, 2), "programs of cuda.core", "cuda-core", "cuda.core"),
    Versions("nvcc", "nvcc", (13, 0), "13.5", (13, 5), "CUDA C++ from source (binaries with PTX run without)", "nvcc"),
)}  # fmt: skip
OLD, KNOWN, UNTRIED = "too old", "known", "not tried"
_warned: set[str] = set()


def number(version: str) -> Number | None:
    """The first two numbers of a version, `2.13.0+cpu`; None where it has none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def place(package: str, version: str) -> str:
    """Where a version stands: OLD, KNOWN or UNTRIED, which is newer, has no number, or is an old nvcc."""
    row, found = TABLE[package], number(version)
    if found is not None and row.floor <= found <= row.newest:
        return KNOWN
    return OLD if found is not None and found < row.floor and package != "nvcc" else UNTRIED


def check(package: str, version: str) -> None:
    """Raise UnsupportedError for a version that is too old; warn once for one that was not tried."""
    row, where = TABLE[package], place(package, version)
    if where == OLD:
        from mmulator.base.errors import UnsupportedError

        raise UnsupportedError(f"{row.name} {version} is too old: mmulator works with {row.range}", hint=row.mend)
    if where == UNTRIED and package not in _warned:
        _warned.add(package)
        warn(untried(package, version))


def warn(text: str) -> None:
    """Warn in one line, without a line of the program: what is installed is at fault, and no line."""
    warnings.warn_explicit(text, RuntimeWarning, "mmulator", 1)


def check_imported() -> list[str]:
    """`check` of the libraries that this process has imported; those that nobody has tried. Raises UnsupportedError."""
    found = []
    for package, row in TABLE.items():
        if row.module and (version := getattr(sys.modules.get(row.module), "__version__", None)) is not None:
            check(package, str(version))
            found += [f"{row.name} {version}"] if place(package, str(version)) == UNTRIED else []
    return found


def untried(package: str, version: str) -> str:
    """The warning of a version that was not tried."""
    row = TABLE[package]
    return f"{row.name} {version} was not tried: mmulator knows {row.range}; if it fails, {row.mend}"
