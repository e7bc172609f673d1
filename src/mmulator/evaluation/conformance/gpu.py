"""A GPU as a backend: CUDA's driver compiles the PTX; buffers go up, the kernel runs, buffers come down.

NVIDIA's own bindings (extra `gpu`) are loaded when a `Gpu` is made.
"""

import ctypes
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import LaunchError, MmulatorError, UnsupportedError, installs
from mmulator.host.backend import HOW, Chip
from mmulator.isa.targets import DEVICES, PTX_VERSIONS, Target
from mmulator.ptx.tree import ParsedModule as Tree
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.launch import How, Launch, Progress, Ran
from mmulator.runtime.launch.limits import PORTABLE_CLUSTER
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.runtime.options import DEFAULT, CompileOptions

Array = NDArray[Any]
_LOG_BYTES = 1 << 14
_SHARED_ATTRIBUTE = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
_DEFAULT_SHARED = 48 << 10


class GpuError(MmulatorError):
    """The driver refused a module, or a kernel failed on the GPU."""

    kind = "GPU error"


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
        self.chip = self._ask()

    def _start(self) -> None:
        context = self._call("cuDevicePrimaryCtxRetain", self._device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *args: Any) -> Any:
        code, *values = getattr(self._driver, name)(*args)
        if code != self._driver.CUresult.CUDA_SUCCESS:
            raise GpuError(f"{name} says {getattr(code, 'name', code)}")
        return values[0] if len(values) == 1 else tuple(values) or None

    def _ask(self) -> Chip:
        raw = self._call("cuDeviceGetName", 128, self._device)
        name = bytes(raw).split(b"\0")[0].decode() if not isinstance(raw, str) else raw
        attribute = self._driver.CUdevice_attribute
        major = self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._device)
        minor = self._call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._device)
        version = int(self._call("cuDriverGetVersion"))
        chip = Chip(name, (int(major), int(minor)), f"{version // 1000}.{version % 1000 // 10}", _kernel_driver())
        if chip.device not in DEVICES:
            known = ", ".join(DEVICES)
            raise UnsupportedError(f"{name} is {chip.device}: its arithmetic is not known", hint=f"known: {known}")
        return replace(chip, ptx=self._newest_ptx(chip.target))

    def _newest_ptx(self, target: Target) -> tuple[int, int]:
        """The newest .version that the driver's compiler reads: modules without a kernel are tried, the newest version first."""
        for version in reversed(PTX_VERSIONS):
            try:
                self.close(self.load(".version {}.{}\n.target {}\n.address_size 64\n".format(*version, target)))
            except GpuError:
                continue
            return version
        return PTX_VERSIONS[-1]  # whatever is loaded next says why nothing is

    def load(self, ptx: Tree | str) -> Any:
        """A module from PTX. Raises GpuError with what the driver's compiler says."""
        text = ptx if isinstance(ptx, str) else ptx.source.text
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
        """Unload a module. After a kernel has broken its context, the module is gone already."""
        self._driver.cuModuleUnload(module)

    def compile(
        self, module: Any, entry: str, device: str, options: CompileOptions = DEFAULT, progress: Progress | None = None
    ) -> Any:
        """A kernel of a module, which the driver compiled on loading. Raises LaunchError for another chip's arithmetic."""
        if device != self.chip.device:
            raise LaunchError(
                f"the launch asks for {device}, the GPU is {self.chip.device}",
                hint="leave out --device, and `device` in the launch file",
            )
        if replace(options, clusters=False) != DEFAULT:
            raise UnsupportedError(f"a GPU runs kernels as its driver compiles them, not with {options}")
        return self._call("cuModuleGetFunction", module, entry.encode())

    def launch(self, launch: Launch, how: How = HOW, observers: Sequence[Observer] = ()) -> Ran:
        """Launch and wait.

        Raises GpuError if the kernel fails or does not end in time. After some failures (an illegal instruction) this
        process cannot use the GPU any more; then `broken` is set.
        """
        start = time.perf_counter()
        try:
            self._launch(launch)
        except GpuError:
            self._reset()
            raise
        return Ran(time.perf_counter() - start)

    def _launch(self, launch: Launch) -> None:
        function, arguments, shared = launch.kernel, launch.arguments, launch.shape.shared
        if arguments.in_variables:
            raise UnsupportedError(
                f"on a GPU a variable of a module is no tensor map of an array: {arguments.in_variables[0]}",
                hint="pass the map as an argument",
            )
        if shared > _DEFAULT_SHARED:
            attribute = getattr(self._driver.CUfunction_attribute, _SHARED_ATTRIBUTE)
            self._call("cuFuncSetAttribute", function, attribute, shared)
        held: list[tuple[int, Array]] = []
        for buffer in arguments.buffers:
            held.append((self._place(len(held), buffer.size), bytes_at(buffer.host, buffer.size)))
        data = [array for _, array in held]
        for at in {at for at, _, _ in arguments.maps}:
            data[at] = data[at].copy()
        for at, offset, number in arguments.maps:  # the tensor lies as far into its buffer as the map has it here
            here = int.from_bytes(data[at][offset : offset + 8].tobytes(), "little")
            there = here - arguments.buffers[number].start + int(held[number][0])
            data[at][offset : offset + 8] = np.frombuffer(there.to_bytes(8, "little"), np.uint8)
        for (pointer, _), array in zip(held, data):
            self._call("cuMemcpyHtoD", pointer, array.ctypes.data, array.nbytes)
        params = arguments.params.copy()
        for at, number in arguments.pointers:
            params[at : at + 8] = np.frombuffer(int(held[number][0]).to_bytes(8, "little"), np.uint8)
        places = [params.ctypes.data + at for at in arguments.offsets]
        table = (ctypes.c_void_p * max(1, len(places)))(*places)
        self._start_kernel(function, launch.shape, ctypes.addressof(table))
        self._wait()
        for pointer, array in held:
            if launch.back is None or any(array.ctypes.data == x.ctypes.data for x in launch.back):
                self._call("cuMemcpyDtoH", array.ctypes.data, pointer, array.nbytes)

    def _start_kernel(self, function: Any, shape: LaunchShape, table: int) -> None:
        """In clusters or cooperatively, by cuLaunchKernelEx."""
        d, attributes = self._driver, []
        if shape.cluster_size > PORTABLE_CLUSTER:
            attribute = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._call("cuFuncSetAttribute", function, attribute, 1)
        if shape.explicit:
            made = d.CUlaunchAttribute()
            made.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            made.value.clusterDim.x, made.value.clusterDim.y, made.value.clusterDim.z = shape.cluster
            attributes.append(made)
        if shape.cooperative:
            made = d.CUlaunchAttribute()
            made.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            made.value.cooperative = 1
            attributes.append(made)
        if not attributes:
            self._call("cuLaunchKernel", function, *shape.grid, *shape.block, shape.shared, 0, table, 0)
            return
        config = d.CUlaunchConfig()
        counted = shape.cluster if shape.counts_clusters else (1, 1, 1)
        config.gridDimX, config.gridDimY, config.gridDimZ = (n // c for n, c in zip(shape.grid, counted))
        config.blockDimX, config.blockDimY, config.blockDimZ = shape.block
        config.sharedMemBytes, config.hStream = shape.shared, 0
        config.attrs, config.numAttrs = attributes, len(attributes)
        self._call("cuLaunchKernelEx", config, function, table, 0)

    def read(self, module: Any, variable: str) -> bytes:
        """The bytes of a module's variable. Raises GpuError if the driver knows no such variable."""
        pointer, size = self._call("cuModuleGetGlobal", module, variable.encode())
        data = np.empty(int(size), np.uint8)
        self._call("cuMemcpyDtoH", data.ctypes.data, pointer, data.nbytes)
        return data.tobytes()

    def write(self, module: Any, variable: str, data: bytes) -> None:
        """Set a module's variable. Raises GpuError if the driver knows no such variable, LaunchError if it has another size."""
        pointer, size = self._call("cuModuleGetGlobal", module, variable.encode())
        if len(data) != int(size):
            raise LaunchError(f"{variable} has {int(size)} bytes on the GPU, not {len(data)}")
        source = np.frombuffer(data, np.uint8)
        self._call("cuMemcpyHtoD", pointer, source.ctypes.data, source.nbytes)

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
        """Replace a context that a kernel has broken."""
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
        raise UnsupportedError("NVIDIA's Python bindings are not installed", hint=installs("gpu")) from None
    return driver


def _kernel_driver() -> str:
    """Version of the kernel driver, such as 580.65.06; empty where the system does not say."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return ""
    return next((w for w in words if w.count(".") >= 1 and w[0].isdigit()), "")
