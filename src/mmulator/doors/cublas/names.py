"""The names that the libraries of cuBLAS export, with their arguments: libcublas.txt and libcublasLt.txt. A build reads them."""

from functools import cache
from pathlib import Path

from mmulator.doors.library.libraries import BLAS


@cache
def exports(library: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """(arguments, versions of CUDA) of the functions of a library ("libcublas"), by name."""
    lines = Path(__file__).with_name(f"{library}.txt").read_text().splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return {name: (signature, tuple(map(int, versions))) for name, signature, *versions in rows}


def signature_of(name: str) -> str | None:
    """The arguments of a function of either library, as the tables say; None for one that neither has."""
    return next((exports(n)[name][0] for n in ("libcublas", "libcublasLt") if name in exports(n)), None)


def slots(soname: str) -> list[str]:
    """Names that a library exports, as the slots of its table follow."""
    name, version = BLAS[soname]
    return [n for n, (_, versions) in exports(name).items() if version in versions]
