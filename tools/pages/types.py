"""The table of element types in docs/reference/types.md, from isa/types.py and the rows that multiply them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mmulator.isa.matrix import matrix_forms
from mmulator.isa.types import TYPES, ElementType
from mmulator.matrix.layouts.instruction_descriptor import FORMATS
from tools.pages.tables import table


def types() -> str:
    """A row for each type that a matrix instruction multiplies, scales or adds up."""
    used: dict[str, dict[str, None]] = {}
    for form in matrix_forms():
        for element in (form.atype, form.btype, form.dtype, form.stype):
            if element:
                used.setdefault(element.name, {})[form.family] = None
    for fields in FORMATS.values():  # a tcgen05.mma has its types in a word, not in its name
        for name in (name for f in fields if f.name in ("atype", "btype", "dtype", "stype") for name in f.choices.values()):
            used.setdefault(str(name), {})["tcgen05"] = None
    heads = ("PTX", "NumPy or ml_dtypes", "bits", "exponent, mantissa", "greatest", "infinity, NaN", "in")
    rows = [
        (f"`{t.name}`", f"`{t.numpy}`", t.bits, f"{t.exponent}, {t.mantissa}" if t.is_float else "", _greatest(t), _odd(t),
         " ".join(used[t.name]))
        for t in TYPES.values() if t.name in used
    ]  # fmt: skip
    return table(heads, rows)


def _greatest(t: ElementType) -> str:
    if t.kind == "bits":
        return "1"
    if t.name == "tf32":
        return "3.4e+38"
    if t.is_integer:
        return str(2 ** (t.bits - (t.kind == "signed")) - 1)
    dtype = np.dtype(getattr(ml_dtypes, t.numpy, None) or t.numpy)
    most = float(ml_dtypes.finfo(dtype).max)
    return f"{most:g}" if most < 1e6 else f"{most:.2g}"


def _odd(t: ElementType) -> str:
    return {"ieee": "both", "all_ones": "NaN", "none": "none"}[t.nan] if t.is_float else ""
