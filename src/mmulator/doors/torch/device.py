"""Creation of the device: everything that torch is given, in order."""

from __future__ import annotations

from typing import Any


def open() -> list[Any]:
    """Create the device; returns all objects that must live as long as it. Raises UnsupportedError."""
    import torch

    from mmulator.doors.torch import collectives, cuda, dispatch, hooks, kernels, memory, precision, random, raw, retyped, steps
    from mmulator.driver.addresses import watch
    from mmulator.driver.memory import lenders

    cuda.install()
    guard = raw.guard()
    raw.find()
    hooks.answer(guard, raw.memory.answers)
    special = {**kernels.SPECIAL, **precision.kernels(), **steps.kernels(), **retyped.kernels()}
    kept = dispatch.register(special, kernels.BUILT_FOR_CUDA)
    kept += collectives.register()
    watch(torch)
    lenders.append(raw.memory.blocks)
    memory.storages()
    random.install()
    retyped.install()
    return kept
