"""mmulator: NVIDIA tensor-core kernels without the GPU, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public names are imported on first use, so that `import mmulator` costs next to nothing.
_LAZY: dict[str, tuple[str, str | None]] = {
    "Instruction": ("mmulator.instruction", "Instruction"),
    "MatrixDescriptor": ("mmulator.layouts.descriptors", "MatrixDescriptor"),
    "Module": ("mmulator.machine.module", "Module"),
    "errors": ("mmulator.errors", None),
    "matmul": ("mmulator.gemm", "matmul"),
    "sparse": ("mmulator.layouts.sparse", None),
}

__all__ = ["Instruction", "MatrixDescriptor", "Module", "__version__", "errors", "matmul", "sparse"]

if TYPE_CHECKING:
    from mmulator import errors
    from mmulator.gemm import matmul
    from mmulator.instruction import Instruction
    from mmulator.layouts import sparse
    from mmulator.layouts.descriptors import MatrixDescriptor
    from mmulator.machine.module import Module


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    found = import_module(module)
    globals()[name] = value = found if attribute is None else getattr(found, attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
