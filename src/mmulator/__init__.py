"""mmulator: NVIDIA tensor-core kernels without the GPU, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public names are imported on first use, so that `import mmulator` costs next to nothing.
_LAZY: dict[str, tuple[str, str | None]] = {
    "Finding": ("mmulator.findings", "Finding"),
    "Instruction": ("mmulator.instruction.instruction", "Instruction"),
    "Kernel": ("mmulator.host.module", "Kernel"),
    "MatrixDescriptor": ("mmulator.layouts.descriptors", "MatrixDescriptor"),
    "Module": ("mmulator.host.module", "Module"),
    "Report": ("mmulator.host.report", "Report"),
    "TensorMap": ("mmulator.layouts.tensormap.tensor_map", "TensorMap"),
    "devices": ("mmulator.inspect.chips", "devices"),
    "errors": ("mmulator.errors", None),
    "inspect": ("mmulator.inspect", None),
    "matmul": ("mmulator.instruction.matmul", "matmul"),
    "sparse": ("mmulator.layouts.sparse", None),
    "struct": ("mmulator.launch.values", "struct"),
    "triton": ("mmulator.doors.triton", None),
}

__all__ = [
    "Finding",
    "Instruction",
    "Kernel",
    "MatrixDescriptor",
    "Module",
    "Report",
    "TensorMap",
    "__version__",
    "devices",
    "errors",
    "inspect",
    "matmul",
    "sparse",
    "struct",
    "triton",
]

if TYPE_CHECKING:
    from mmulator import errors, inspect
    from mmulator.doors import triton
    from mmulator.findings import Finding
    from mmulator.host.module import Kernel, Module
    from mmulator.host.report import Report
    from mmulator.inspect.chips import devices
    from mmulator.instruction.instruction import Instruction
    from mmulator.instruction.matmul import matmul
    from mmulator.launch.values import struct
    from mmulator.layouts import sparse
    from mmulator.layouts.descriptors import MatrixDescriptor
    from mmulator.layouts.tensormap.tensor_map import TensorMap


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    found = import_module(module)
    globals()[name] = value = found if attribute is None else getattr(found, attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
