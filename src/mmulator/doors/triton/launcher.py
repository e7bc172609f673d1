"""Launches of a compiled kernel of Triton: its PTX from Triton's cache, its arguments as bytes and regions of memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from mmulator.base import location
from mmulator.base.errors import LaunchError, MmulatorError, UnsupportedError
from mmulator.doors.launch_site import located
from mmulator.doors.triton import descriptors
from mmulator.doors.triton.arguments import Packer, slots
from mmulator.doors.triton.trials import trials
from mmulator.doors.triton.versions import Interface, interface
from mmulator.host.driver import Driver, Function, current
from mmulator.host.driver.cubin import CubinResources, resources
from mmulator.host.driver.progress import listen
from mmulator.host.driver.streams import blocks_per_multiprocessor
from mmulator.host.report import Report
from mmulator.runtime.launch.limits import held_by

Hook = Callable[[Any], Any]
Extent = tuple[int, int, int]


class CooperativeLaunchError(LaunchError, RuntimeError):
    """CUDA's `too many blocks in cooperative launch`; a RuntimeError, as programs expect of Triton."""


class Utils:
    """Functions that Triton asks of a driver besides launching."""

    def __init__(self) -> None:
        self._handles = count(1)
        self.__dict__.update({name: getattr(descriptors, made) for name, made in interface().fills.items()})

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """(module, function, registers, spills, most threads of a block). The launcher has the function already."""
        listen()
        handle = next(self._handles)
        known = resources(binary).get(name, CubinResources())
        fit = 32 * held_by(current().device.name, 32, 0, known.registers).get("registers", known.threads)
        return handle, handle, known.registers, known.stack // 4, min(known.threads, fit, 1024)

    def unload_module(self, module: Any) -> None:
        """No effect: the launcher keeps the module."""

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """No effect: there is one device."""

    def get_default_stream(self, device: int = 0) -> int:
        return 0

    def is_stream_capturing(self, stream: int) -> bool:
        return False

    def set_printf_fifo_size(self, size: int) -> None:
        """No effect: a kernel's output is kept up to 1 MiB."""

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return current().device.capability

    def get_device_properties(self, device: int) -> dict[str, int]:
        chip = current().device
        return {
            "max_shared_mem": chip.shared, "max_num_regs": 65536, "multiprocessor_count": chip.multiprocessors, "warpSize": 32,
            "sm_clock_rate": chip.clock, "mem_clock_rate": chip.memory_clock, "mem_bus_width": chip.memory_bus,
        }  # fmt: skip

    def cuOccupancyMaxActiveClusters(self, function: int, shared: int, size: int) -> int:
        """Number of clusters that the device holds at once, of `size` blocks of 128 threads with `shared` bytes each."""
        chip = current().device
        return chip.clusters(size, blocks_per_multiprocessor(chip, 128, shared))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"mmulator's driver has no {name}, which NVIDIA's has")


class Launcher:
    """The launcher of one compiled kernel. Raises UnsupportedError for what the kernel needs and is not supported."""

    def __init__(self, src: Any, metadata: Any, ptx: str | None = None, driver: Driver | None = None) -> None:
        try:
            self._prepare(src, metadata, ptx, driver)
        except MmulatorError as error:
            raise located(error) from None

    def _prepare(self, src: Any, metadata: Any, ptx: str | None, driver: Driver | None) -> None:
        self.metadata, self.driver = metadata, driver
        version = interface()
        check_metadata(metadata)
        file = getattr(getattr(src, "fn", None), "fn", None)
        if file is not None:  # the program's own function: errors may quote it
            location.PROGRAM.add(os.path.realpath(file.__code__.co_filename))
        text = ptx if ptx is not None else ptx_of(metadata, getattr(src, "name", None) or metadata.name)
        self.function: Function = (driver or current()).load(text, f"{metadata.name}.ptx").function(metadata.name)
        self.block = (metadata.num_warps * 32, 1, 1)
        if self.function.max_threads > self.block[0] and "reqntid" in self.function.kernel.head.directives:
            self.block = (self.function.max_threads, 1, 1)  # warp specialisation adds warps
        self.shared = metadata.shared
        self.cluster = cluster_of(metadata, version)
        f = self.function
        self.types: dict[str, Any] = src.signature
        wanted = list(slots(src.signature, version, getattr(metadata, "tensordesc_meta", None)))
        self.packer = Packer(f.name, wanted, f.params, f.offsets, f.parameter_bytes)
        self.scratch = [(getattr(metadata, f"{kind}_scratch_size", 0) or 0, getattr(metadata, f"{kind}_scratch_align", 1) or 1)
                        for kind in ("global", "profile")]  # fmt: skip
        self.cooperative = bool(getattr(metadata, "launch_cooperative_grid", False))
        self._none = not any(size for size, _ in self.scratch)

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, launch_metadata: Any,
        enter: Hook | None, leave: Hook | None, *args: Any,
    ) -> None:  # fmt: skip
        if enter is not None:
            enter(launch_metadata)
        try:
            if x and y and z:
                self.launch((x, y, z), args, stream)
        except MmulatorError as error:
            if os.environ.get("MMULATOR_TRACEBACK"):
                raise located(error)  # noqa: B904
            raise located(error).with_traceback(None) from None
        except KeyboardInterrupt as stop:
            if not stop.args or os.environ.get("MMULATOR_TRACEBACK"):  # an error of another origin than a launch
                raise
            raise stop.with_traceback(None) from None
        if leave is not None:
            leave(launch_metadata)

    def launch(self, grid: tuple[int, int, int], args: Sequence[Any], stream: int = 0) -> Report:
        """Launch the kernel. args: as Triton passes them, constants among them. Raises what Driver.launch raises."""
        driver = self.driver or current()
        if self.cluster is not None:  # Triton counts clusters, a launch blocks
            grid = (grid[0] * self.cluster[0], grid[1] * self.cluster[1], grid[2] * self.cluster[2])
        if self.cooperative:
            check_cooperative(driver, grid, self.block[0], self.function.static_shared + self.shared)
        buffers = _NO_SCRATCH if self._none else self._allocate(grid, stream)
        params, regions = self.packer.pack(args, buffers)
        run = partial(
            driver.launch, self.function, grid, self.block, params, regions, self.shared, driver.stream(stream),
            cluster=self.cluster, cooperative=self.cooperative, arrays=partial(self.packer.arrays, args),
        )  # fmt: skip
        if (tuned := trials.get()) is None or not tuned.begun:
            return run()
        return tuned.run(self, grid, args, params, regions, run)

    def _allocate(self, grid: tuple[int, int, int], stream: int) -> list[Any]:
        """Scratch memory of a launch, from the allocators that the program set."""
        from triton.runtime import _allocation

        out: list[Any] = []
        blocks = grid[0] * grid[1] * grid[2]
        for (size, align), name in zip(self.scratch, ("_allocator", "_profile_allocator")):
            if not size:
                out.append(None)
                continue
            allocate: Any = getattr(_allocation, name)
            allocate = allocate.get() if hasattr(allocate, "get") else allocate  # a context variable since Triton 3.5
            if name == "_profile_allocator" and isinstance(allocate, _allocation.NullAllocator):
                out.append(_Room(blocks * size, align))
                continue
            found = allocate(blocks * size, align, stream)
            if int(found.data_ptr()) % align:  # memory of the CPU, which allocators of programs do not align as a GPU's
                found = _Aligned(allocate(blocks * size + align, align, stream), blocks * size, align)
            out.append(found)
        return out


_NO_SCRATCH = (None, None)


class _Aligned:
    """A number of bytes of a buffer, from a multiple of `align` on."""

    def __init__(self, buffer: Any, size: int, align: int) -> None:
        self.buffer, self.nbytes = buffer, size
        address = int(buffer.data_ptr())
        self.address = address + -address % align

    def data_ptr(self) -> int:
        return self.address


class _Room:
    """Zeroed memory for profiles, where the program has set no allocator."""

    def __init__(self, size: int, align: int) -> None:
        import numpy as np

        self.nbytes = size
        self.memory = np.zeros(size + align, np.uint8)
        address = int(self.memory.ctypes.data)
        self.address = address + -address % align

    def data_ptr(self) -> int:
        return self.address


def check_metadata(metadata: Any) -> None:
    """Raise UnsupportedError for what a kernel was compiled for and is not supported."""
    if "gsan" in (getattr(metadata, "instrumentation_mode", None) or "").split(","):  # it adds arguments of its own allocator
        raise UnsupportedError(f"{metadata.name} is instrumented (gsan), which is not supported")


def cluster_of(metadata: Any, version: Interface) -> Extent | None:
    """Blocks of a cluster; None for a kernel without clusters."""
    if (blocks := int(getattr(metadata, "num_ctas", 1))) == 1:
        return None
    x, y, z = metadata.cluster_dims if version.cluster_dims else (blocks, 1, 1)
    return int(x), int(y), int(z)


def check_cooperative(driver: Driver, grid: tuple[int, int, int], threads: int, shared: int) -> None:
    """Raise CUDA's error for a cooperative grid that the chip does not hold."""
    chip, blocks = driver.device, grid[0] * grid[1] * grid[2]
    most = blocks_per_multiprocessor(chip, threads, shared) * chip.multiprocessors
    if blocks > most:
        raise CooperativeLaunchError(
            f"Triton Error [CUDA]: too many blocks in cooperative launch: {blocks}, and {chip.name} holds {most} of {threads} "
            f"threads and {shared} bytes of shared memory at once"
        )


def ptx_of(metadata: Any, name: str) -> str:
    """The PTX of a compiled kernel, from Triton's cache. name: of its source. Raises LaunchError if there is none."""
    from triton.runtime.cache import get_cache_manager

    group = get_cache_manager(metadata.hash).get_group(f"{name[:150]}.json") or {}
    path = next((p for file, p in group.items() if file.endswith(".ptx")), None)
    if path is None or not Path(path).exists():
        raise LaunchError(
            f"Triton's cache has no PTX of {metadata.name}", hint="unset TRITON_STORE_BINARY_ONLY, or remove the cache's entry"
        )
    return Path(path).read_text()
