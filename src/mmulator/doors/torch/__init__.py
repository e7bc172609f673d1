"""torch's own device `cuda` on this machine: its tensors are in the CPU's memory, and kernels may have them.

`install` makes the device exist. A program that says device="cuda" then gets tensors with `is_cuda`, autograd and all else of
torch; operators run on the CPU, with the CPU's bits.
"""

from __future__ import annotations

import os
from typing import Any

_installed: list[Any] = []


def installed() -> bool:
    """Whether torch has the device."""
    return bool(_installed)


def install(driver: Any = None) -> None:
    """Make torch's device `cuda` exist, over the memory of the host. Imports torch; a second call does nothing.

    driver: becomes the process's driver first (`mmulator.host.driver.use`). Raises UnsupportedError where there is a real GPU,
        unless
    MMULATOR_FORCE is set, and for a version of torch whose objects are laid out in an unknown way.
    """
    if driver is not None:
        from mmulator.host.driver import use

        use(driver)
    if _installed:
        return
    os.environ.setdefault("TRITON_DEFAULT_BACKEND", "mmulator")  # NVIDIA's driver would believe torch that there is a GPU
    _installed.append(_open())


def _open() -> list[Any]:
    """Create the device; returns all objects that must live as long as it. Raises UnsupportedError."""
    import torch

    from mmulator.doors import internals

    internals.stand_in("torch", internals.TORCH, needed=internals.DEVICE)
    from mmulator.doors.torch import (
        attention,
        collectives,
        convolutions,
        cuda,
        cuda_graphs,
        dispatch,
        hooks,
        kernels,
        memory,
        objects,
        precision,
        products,
        random,
        retyped,
        sparse,
        steps,
        uses,
    )
    from mmulator.host.driver.addresses import watch
    from mmulator.host.driver.memory import lenders

    cuda.install()
    guard = objects.guard()
    objects.find()
    hooks.answer(guard, objects.memory.answers)
    dispatch.recorded, dispatch.uses = cuda_graphs.recorded, uses
    of_others = (precision, products, steps, retyped, convolutions)
    special = kernels.SPECIAL | {name: made for module in of_others for name, made in module.kernels().items()}
    kept = dispatch.register(special, attention.COMPOSED)
    vars(torch._C).update(attention.functions())
    kept += [*collectives.register(), *sparse.register()]
    dispatch.sparse_result = sparse.adopt
    watch(torch)
    lenders.append(objects.memory.blocks)
    memory.storages()
    random.install()
    retyped.install()
    convolutions.install()
    return kept
