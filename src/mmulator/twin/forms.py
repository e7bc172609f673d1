"""The numerics twin for a matrix form."""

from __future__ import annotations

from mmulator.isa.form import Form
from mmulator.numerics.profiles import dot_key
from mmulator.twin.twin import Twin, twin_for


def twin_of(form: Form, device: str) -> Twin:
    """Native functions of the form's arithmetic on a device. Raises UnsupportedError if the device has none."""
    return twin_for(dot_key(form), device)
