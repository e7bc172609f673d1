"""The package's driver of a GPU, for programs that choose what is loaded and what each parameter is."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mmulator import Module
from mmulator.evaluation.conformance import gpu as hardware

STACK = 16384  # bytes of a thread, for recursion


class Gpu(hardware.Gpu):
    """GPU 0: modules from PTX or cubin, buffers, launches with a time limit."""

    def __init__(self, limit_s: float = 10.0) -> None:
        super().__init__(limit_s=limit_s)
        self._modules: dict[Path, Any] = {}
        self._call("cuCtxSetLimit", self._driver.CUlimit.CU_LIMIT_STACK_SIZE, STACK)

    def module(self, image: bytes, level: int | None = None) -> Any:
        """Load PTX text, which the driver compiles at an optimisation level (4 unless told), or a cubin."""
        option = self._driver.CUjit_option.CU_JIT_OPTIMIZATION_LEVEL
        options = ([], []) if level is None else ([option], [level])
        return self._call("cuModuleLoadDataEx", image + b"\0", len(options[0]), *options)

    def function(self, module: Any, entry: str, shared: int = 0) -> Any:
        """A kernel that may have so many bytes of dynamic shared memory."""
        found = self._call("cuModuleGetFunction", module, entry.encode())
        if shared > 48 << 10:
            attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", found, attribute, shared)
        return found

    def upload(self, data: np.ndarray) -> ctypes.c_uint64:
        """A buffer with a copy of an array; its address."""
        pointer = ctypes.c_uint64(int(self._call("cuMemAlloc", max(data.nbytes, 256))))
        self.write_to(pointer, data)
        return pointer

    def write_to(self, pointer: ctypes.c_uint64, data: np.ndarray) -> None:
        self._call("cuMemcpyHtoD", pointer.value, data.ctypes.data, data.nbytes)

    def download(self, pointer: ctypes.c_uint64, data: np.ndarray) -> np.ndarray:
        """The array, filled from a buffer."""
        self._call("cuMemcpyDtoH", data.ctypes.data, pointer.value, data.nbytes)
        return data

    def free(self, pointer: ctypes.c_uint64) -> None:
        self._call("cuMemFree", pointer.value)

    def start(self, function: Any, grid: int, block: int, cells: list[Any], shared: int = 0) -> None:
        """Launch with ctypes values as parameters and wait; GpuError if it fails or does not end."""
        table = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(c) for c in cells])
        self._call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, 0, ctypes.addressof(table), 0)
        self._wait()

    def run(self, ptx: Path, entry: str, grid: Any, block: Any, args: list[Any], shared: int) -> None:
        """Launch a kernel of a file with arguments as those of `Kernel.launch`; arrays are updated in place."""
        kernel = Module.load(ptx)[entry]
        device = self.chip.device
        if ptx not in self._modules:
            self._modules[ptx] = self.load(ptx.read_text())
        launch = kernel.prepared(grid, block, args + [0] * (len(kernel.function.params) - len(args)), shared, device)
        self.launch(replace(launch, kernel=self.compile(self._modules[ptx], entry, device)))
