"""A real GPU: PTX compiled by the driver, arrays up, launch, arrays down. NVIDIA's own bindings (extra `gpu`).

`Machine` has the same face and runs the same text on the model, so that everything around a GPU can be tried without.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import MmulatorError, UnsupportedError
from mmulator.isa.targets import DEVICES, TARGETS, Target

Array = NDArray[Any]
_LOG_BYTES = 1 << 14
_SHARED_ATTRIBUTE = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
_DEFAULT_SHARED = 48 << 10


class GpuError(MmulatorError):
    """The driver refused a module, or a kernel failed on the GPU."""

    kind = "GPU error"


@dataclass(frozen=True)
class GpuInfo:
    """What ran: name of the chip, driver (CUDA version that it supports), compute capability, kernel driver version."""

    name: str
    capability: tuple[int, int]
    cuda: str
    driver: str = ""

    @property
    def device(self) -> str:
        """Name of the arithmetic: `sm_90`."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def target(self) -> Target:
        """The .target with everything that the chip has."""
        number = 10 * self.capability[0] + self.capability[1]
        return max((t for t in (Target(number, "a"), Target(number)) if t in TARGETS), key=lambda t: t.suffix)

    @classmethod
    def of(cls, data: dict[str, Any]) -> GpuInfo:
        """From what `as_dict` gave."""
        number = int(data["device"][3:])
        return cls(data["name"], (number // 10, number % 10), data["cuda"], data["driver"])

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "device": self.device, "target": str(self.target), "cuda": self.cuda, "driver": self.driver}


class Runner(Protocol):
    """Something that runs kernels of PTX text. broken: it cannot any more, in this process."""

    info: GpuInfo
    broken: bool

    def load(self, text: str) -> Any: ...

    def run(
        self, module: Any, entry: str, grid: Sequence[int], block: Sequence[int], arrays: list[Any], *, shared: int = 0,
        back: Sequence[Array] | None = None,
    ) -> None: ...

    def close(self, module: Any) -> None: ...


class Machine:
    """The model in the place of a GPU."""

    def __init__(self, device: str = "sm_90") -> None:
        number = int(device[3:])
        self.broken = False
        self.info = GpuInfo("mmulator", (number // 10, number % 10), "none")

    def load(self, text: str) -> Any:
        from mmulator.machine.module import Module

        return Module.load(text)

    def run(
        self, module: Any, entry: str, grid: Sequence[int], block: Sequence[int], arrays: list[Any], *, shared: int = 0,
        back: Sequence[Array] | None = None,
    ) -> None:
        module[entry].launch(list(grid), list(block), arrays, shared, device=self.info.device)

    def close(self, module: Any) -> None:
        pass


class Gpu:
    """GPU `index`. Raises UnsupportedError where there is no GPU, no driver, or no bindings."""

    def __init__(self, index: int = 0, limit_s: float = 60.0) -> None:
        self._driver = _bindings()
        self.limit_s = limit_s
        self._index = index
        self._room: list[tuple[Any, int]] = []  # device memory, kept from launch to launch
        self.broken = False
        try:
            self._call("cuInit", 0)
            count = self._call("cuDeviceGetCount")
        except (GpuError, RuntimeError) as error:
            raise UnsupportedError(f"no NVIDIA GPU can be used: {error}", hint="see what nvidia-smi says") from None
        if not 0 <= index < count:
            raise UnsupportedError(f"there is no GPU {index}: this machine has {count}")
        self._device = self._call("cuDeviceGet", index)
        self._start()
        self.info = self._ask()

    def _start(self) -> None:
        context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *args: Any) -> Any:
        code, *values = getattr(self._driver, name)(*args)
        if code != self._driver.CUresult.CUDA_SUCCESS:
            raise GpuError(f"{name} says {getattr(code, 'name', code)}")
        return values[0] if len(values) == 1 else tuple(values) or None

    def _ask(self) -> GpuInfo:
        raw = self._call("cuDeviceGetName", 128, self._device)
        name = bytes(raw).split(b"\0")[0].decode() if not isinstance(raw, str) else raw
        attribute = self._driver.CUdevice_attribute
        major = self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._device)
        minor = self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._device)
        version = int(self._call("cuDriverGetVersion"))
        info = GpuInfo(name, (int(major), int(minor)), f"{version // 1000}.{version % 1000 // 10}", _kernel_driver())
        if info.device not in DEVICES:
            known = ", ".join(DEVICES)
            raise UnsupportedError(f"{name} is {info.device}: its arithmetic is not known", hint=f"known: {known}")
        return info

    def load(self, text: str) -> Any:
        """A module from PTX text. Raises GpuError with what the driver's compiler says."""
        option = self._driver.CUjit_option
        log = bytes(_LOG_BYTES)  # the driver writes into it
        try:
            return self._call(
                "cuModuleLoadDataEx", text.encode() + b"\0", 2,
                [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES], [log, _LOG_BYTES],
            )  # fmt: skip
        except GpuError as error:
            said = log.split(b"\0")[0].decode(errors="replace").strip()
            raise GpuError(f"{error.message}: {said[:2000]}" if said else error.message) from None

    def close(self, module: Any) -> None:
        """Unload a module; one of a context that a kernel has broken is gone already."""
        self._driver.cuModuleUnload(module)

    def run(
        self, module: Any, entry: str, grid: Sequence[int], block: Sequence[int], arrays: list[Any], *, shared: int = 0,
        back: Sequence[Array] | None = None,
    ) -> None:
        """Launch and wait. NumPy arrays become device buffers; those of `back` (default: all) come back as the kernel
        left them. ctypes values are parameters.

        Raises GpuError if the kernel fails or does not end in time. After some failures (an illegal instruction) this
        process cannot use the GPU any more; then `broken` is set.
        """
        try:
            self._run(module, entry, [*grid, 1, 1][:3], [*block, 1, 1][:3], arrays, shared, back)
        except GpuError:
            self._reset()
            raise

    def _run(
        self, module: Any, entry: str, grid: list[int], block: list[int], arrays: list[Any], shared: int,
        back: Sequence[Array] | None,
    ) -> None:
        function = self._call("cuModuleGetFunction", module, entry.encode())
        if shared > _DEFAULT_SHARED:
            attribute = getattr(self._driver.CUfunction_attribute, _SHARED_ATTRIBUTE)
            self._call("cuFuncSetAttribute", function, attribute, shared)
        cells: list[Any] = []
        held: list[tuple[int, Array]] = []
        for array in arrays:
            if not isinstance(array, np.ndarray):
                cells.append(array)
                continue
            pointer = self._place(len(held), array.nbytes)
            whole = np.ascontiguousarray(array)
            self._call("cuMemcpyHtoD", pointer, whole.ctypes.data, whole.nbytes)
            held.append((pointer, array))
            cells.append(ctypes.c_uint64(int(pointer)))
        table = (ctypes.c_void_p * max(1, len(cells)))(*(ctypes.addressof(c) for c in cells))
        self._call("cuLaunchKernel", function, *grid, *block, shared, 0, ctypes.addressof(table), 0)
        self._wait()
        for pointer, array in held:
            if back is not None and not any(array is x for x in back):
                continue
            whole = array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
            self._call("cuMemcpyDtoH", whole.ctypes.data, pointer, whole.nbytes)
            if whole is not array:
                array[...] = whole

    def _wait(self) -> None:
        end = time.monotonic() + self.limit_s
        while (code := self._driver.cuStreamQuery(0)[0]) == self._driver.CUresult.CUDA_ERROR_NOT_READY:
            if time.monotonic() > end:
                raise GpuError(f"the kernel did not end in {self.limit_s:g} s")
            time.sleep(0)
        if code != self._driver.CUresult.CUDA_SUCCESS:
            raise GpuError(f"the kernel failed: {getattr(code, 'name', code)}")

    def _place(self, number: int, size: int) -> Any:
        """Device memory for the number-th array, grown as needed."""
        while len(self._room) <= number:
            self._room.append((None, 0))
        pointer, room = self._room[number]
        if pointer is None or room < size:
            if pointer is not None:
                self._call("cuMemFree", pointer)
            room = max(1 << 20, size + size // 4)
            pointer = self._call("cuMemAlloc", room)
            self._room[number] = (pointer, room)
        return pointer

    def _reset(self) -> None:
        """A context that a kernel has broken is made anew."""
        self._room = []
        try:
            self._driver.cuDevicePrimaryCtxReset(self._device)
            self._driver.cuDevicePrimaryCtxRelease(self._device)
            self._start()
            self._call("cuMemFree", self._call("cuMemAlloc", 16))
        except GpuError:
            self.broken = True


def _bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError:
        raise UnsupportedError(
            "NVIDIA's Python bindings are not installed", hint="pip install 'mmulator[gpu]'"
        ) from None
    return driver


def _kernel_driver() -> str:
    """Version of the kernel driver, such as 580.65.06; empty where the system does not say."""
    from pathlib import Path

    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return ""
    return next((w for w in words if w.count(".") >= 1 and w[0].isdigit()), "")
