"""Scale factors out of registers, beside `layouts.scales`, which puts them there."""

from typing import Any

import numpy as np

from mmulator.isa.form import Form
from mmulator.matrix.layouts import scales


def raw_scales(data: Any, form: Form, side: str, byte_id: int, thread_id: int) -> Any:
    """scale-a-data or scale-b-data [..., 32] (uint32) to raw scale factors: [..., M, S] for A, [..., S, N] for B."""
    words = np.ascontiguousarray(data, "<u4")
    lane, byte = scales.places(form, side, byte_id, thread_id)
    parts = words[..., None].view(np.uint8)[..., lane[:, None], byte[None, :]]
    return parts if side == "a" else np.swapaxes(parts, -1, -2)
