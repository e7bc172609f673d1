"""The device comes into being: what is given to torch, in order."""

from __future__ import annotations

import os
from typing import Any

import torch

from mmulator.errors import UnsupportedError


def open() -> list[Any]:
    """Everything that must live as long as the device. Raises UnsupportedError."""
    if torch.cuda.is_available() and not os.environ.get("MMULATOR_FORCE"):
        raise UnsupportedError(
            "torch has a GPU here, and its device cuda stays that GPU's", hint="set CUDA_VISIBLE_DEVICES= or MMULATOR_FORCE=1"
        )
    from mmulator.doors.torch import dispatch, hooks, kernels, memory, random, raw

    torch.cuda._lazy_init = lambda: None
    torch.cuda._initialized = True  # type: ignore[attr-defined]
    hooks.answer(raw.guard())
    raw.find()
    kept = dispatch.register(kernels.SPECIAL)
    memory.watch_addresses()
    memory.storages()
    random.install()
    return kept
