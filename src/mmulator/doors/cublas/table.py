"""The table of a library of cuBLAS that is loaded: each slot gets the function of a row, or one that refuses."""

import ctypes
from typing import Any

from mmulator.doors.cublas import factors, lt, products, routines, rows
from mmulator.doors.cublas.names import exports, slots
from mmulator.doors.cudart import rows as runtime
from mmulator.doors.cudart.table import put
from mmulator.doors.library.libraries import BLAS

CHAPTERS = (routines, products, factors, lt)  # their functions are registered as they are imported


def fill(library: ctypes.CDLL, soname: str) -> None:
    """Fill the table of a library."""
    rows.version[0] = BLAS[soname][1]
    exported = exports(BLAS[soname][0])
    put(library, [_native(name, exported[name][0]) for name in slots(soname)])


def _native(name: str, signature: str) -> Any:
    return runtime.native(signature.strip("-."))(rows.ROWS.get(name) or rows.refusal(name))
