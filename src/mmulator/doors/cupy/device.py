"""cupy.cuda as far as it is supported: the device, streams, events."""

from __future__ import annotations

from typing import Any

from mmulator.base.errors import LaunchError
from mmulator.host.driver import Event as DriverEvent
from mmulator.host.driver import Stream as DriverStream
from mmulator.host.driver import current
from mmulator.host.driver.chips import DRIVER_VERSION
from mmulator.host.driver.streams import Finished, ordering


class CupyDevice:
    """The only device, number 0."""

    def __init__(self, device: int = 0) -> None:
        if int(device) != 0:
            raise LaunchError(f"there is one device, 0, not {device}")
        self.id = 0

    def __int__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CupyDevice)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "<CUDA Device 0>"

    def __enter__(self) -> CupyDevice:
        return self

    def __exit__(self, *what: object) -> None:
        """Leave the device current: there is no other."""

    def use(self) -> CupyDevice:
        return self

    def synchronize(self) -> None:
        synchronize()

    @property
    def compute_capability(self) -> str:
        return compute_capability()

    @property
    def mem_info(self) -> tuple[int, int]:
        return memory()

    @property
    def attributes(self) -> dict[str, int]:
        known = current().device.attributes
        names = {1: "MaxThreadsPerBlock", 10: "WarpSize", 16: "MultiProcessorCount", 8: "MaxSharedMemoryPerBlock", 75:
                 "ComputeCapabilityMajor", 76: "ComputeCapabilityMinor", 97: "MaxSharedMemoryPerBlockOptin"}  # fmt: skip
        return {name: known[n] for n, name in names.items()}


_stack: list[CupyStream] = []


class CupyStream(Finished):
    """A stream, whose work is always done. ptr: its handle."""

    null: CupyStream

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None) -> None:
        self.stream: DriverStream = current().default_stream if null or ptds else current().new_stream(not non_blocking)
        self.ptr = self.stream.handle

    def query(self) -> bool:
        return self.stream.query()

    done = property(query)

    def synchronize(self) -> None:
        self.stream.synchronize()

    def __enter__(self) -> CupyStream:
        _stack.append(self)
        return self

    def __exit__(self, *what: object) -> None:
        _stack.pop()

    def use(self) -> CupyStream:
        _stack[:] = [self]
        return self

    def record(self, event: CupyEvent | None = None) -> CupyEvent:
        made = event or CupyEvent()
        made.record(self)
        return made

    def wait_event(self, event: CupyEvent) -> None:
        self.stream.wait(event.event)


def current_stream(device_id: int = -1) -> CupyStream:
    return _stack[-1] if _stack else CupyStream(null=True)


class CupyEvent(Finished):
    """A time on a stream's clock of counted work."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.event = DriverEvent()

    def query(self) -> bool:
        self.event.synchronize()
        return True

    done = property(query)

    def synchronize(self) -> None:
        self.event.synchronize()

    def record(self, stream: CupyStream | None = None) -> None:
        self.event.record((stream or current_stream()).stream)


def get_elapsed_time(start: CupyEvent, end: CupyEvent) -> float:
    """Milliseconds of counted work between two events."""
    return start.event.elapsed(end.event)


def device_count() -> int:
    return 1


def synchronize() -> None:
    """Launches are synchronous; a sanitized program has waited for all streams."""
    if ordering:
        ordering[-1].synchronize()


def compute_capability() -> str:
    """The chip's number without a dot, "90"."""
    return current().device.name[3:]


def memory() -> tuple[int, int]:
    """(free bytes, all bytes) of the chip."""
    return current().device.memory, current().device.memory


def properties(device: int = 0) -> dict[str, Any]:
    """cupy.cuda.runtime.getDeviceProperties: the fields that programs choose code by."""
    CupyDevice(device)
    chip, known = current().device, current().device.attributes
    major, minor = chip.capability
    return {
        "name": chip.product.encode(), "totalGlobalMem": chip.memory, "major": major, "minor": minor, "warpSize": known[10],
        "multiProcessorCount": chip.multiprocessors, "maxThreadsPerBlock": known[1], "sharedMemPerBlock": known[8],
        "sharedMemPerBlockOptin": known[97], "l2CacheSize": chip.l2, "clockRate": chip.clock,
    }


def runtime() -> dict[str, Any]:
    """Functions of cupy.cuda.runtime, by name: questions about the device, and waits."""
    version = DRIVER_VERSION
    return {
        "getDeviceCount": device_count, "getDevice": lambda: 0, "setDevice": lambda device: CupyDevice(device).use() and None,
        "deviceSynchronize": synchronize,
        "streamSynchronize": lambda stream: current().stream(stream).synchronize(),
        "runtimeGetVersion": lambda: version,
        "driverGetVersion": lambda: version, "memGetInfo": memory, "getDeviceProperties": properties,
        "deviceGetAttribute": lambda number, device: current().device.attributes[number],
        "deviceCanAccessPeer": lambda device, peer: 0, "profilerStart": synchronize, "profilerStop": synchronize,
    }
