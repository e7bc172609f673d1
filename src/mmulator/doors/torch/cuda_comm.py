"""Operations of torch.nn.parallel over several devices, on the only one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mmulator.doors.torch.cuda_device import check_device


def _only(devices: Sequence[int]) -> int:
    """How often the only device is named. Raises torch.AcceleratorError for another."""
    for device in devices:
        check_device(device)
    return len(devices)


def scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None
) -> list[torch.Tensor]:
    count = _only(devices)
    parts = tensor.split(chunk_sizes, dim) if chunk_sizes is not None else tensor.chunk(count, dim)
    return [part.to("cuda") for part in parts]


def gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None = None) -> torch.Tensor:
    """Tensors joined along a dimension. destination: 0, None for the current device, -1 for the CPU."""
    whole = torch.cat([t if t.dim() else t.reshape(1) for t in tensors], dim)
    if destination == -1:
        return whole.cpu()
    check_device(destination or 0)
    return whole


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return [tensor.to("cuda") for _ in range(_only(devices))]


def broadcast_coalesced(tensors: Sequence[torch.Tensor], devices: Sequence[int], size: int) -> list[list[torch.Tensor]]:
    return [[t.to("cuda") for t in tensors] for _ in range(_only(devices))]


def functions() -> dict[str, Any]:
    """Functions that torch._C has in a build for CUDA, by name."""
    return {"_scatter": scatter, "_gather": gather, "_broadcast": broadcast, "_broadcast_coalesced": broadcast_coalesced}
