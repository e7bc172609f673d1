"""Creation of the device: everything that torch is given, in order."""

from __future__ import annotations

from typing import Any


def open() -> list[Any]:
    """Create the device; returns all objects that must live as long as it. Raises UnsupportedError."""
    import torch

    from mmulator.doors import internals
    from mmulator.doors.torch import internals as names

    internals.stand_in("torch", names.NAMES, needed=names.DEVICE)
    from mmulator.doors.torch import (
        attention,
        collectives,
        cuda,
        cuda_graphs,
        dispatch,
        hooks,
        kernels,
        memory,
        precision,
        products,
        random,
        raw,
        retyped,
        sparse,
        steps,
    )
    from mmulator.doors.torch import scaled as scaled  # its kernels are in the table
    from mmulator.driver.addresses import watch
    from mmulator.driver.memory import lenders

    cuda.install()
    guard = raw.guard()
    raw.find()
    hooks.answer(guard, raw.memory.answers)
    dispatch.recorded = cuda_graphs.recorded
    special = {**kernels.SPECIAL, **precision.kernels(), **products.kernels(), **steps.kernels(), **retyped.kernels()}
    kept = dispatch.register(special, attention.COMPOSED)
    vars(torch._C).update(attention.functions())
    kept += [*collectives.register(), *sparse.register()]
    dispatch.sparse_result = sparse.adopt
    watch(torch)
    lenders.append(raw.memory.blocks)
    memory.storages()
    random.install()
    retyped.install()
    return kept
