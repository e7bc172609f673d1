"""The numerics twin of a matrix form, as the machine calls it: addresses of native functions and sizes of packed operands."""

from __future__ import annotations

from mmulator.errors import UnsupportedError
from mmulator.isa.forms import MatrixForm


def twin_of(form: MatrixForm, device: str):  # type: ignore[no-untyped-def]
    raise UnsupportedError(f"{form} has no compiled arithmetic yet")
