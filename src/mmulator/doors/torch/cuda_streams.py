"""Streams and events of torch.cuda. All work is done when a call returns, so a stream has only a name and a clock."""

from __future__ import annotations

import threading
from typing import Any

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.doors.torch.cuda_device import check_device
from mmulator.host.driver import Event, Stream, current
from mmulator.host.driver.streams import Finished

DEVICE_TYPE = 1  # of CUDA, as torch numbers devices
RECORD = 1e-6  # seconds that recording an event takes, so that no two are at one time
PRIORITIES = (0, -5)  # the lowest and the highest

_here = threading.local()  # each thread has its own current stream


def current_handle(device: int = 0) -> int:
    """The handle of the current stream, as the launchers of libraries take it. A negative device is the current one."""
    if device > 0:
        check_device(device)
    return getattr(_here, "stream", 0)


def set_current(stream_id: int = 0, device_index: int = 0, device_type: int = DEVICE_TYPE) -> None:
    check_device(device_index)
    _here.stream = stream_id


def _triple(handle: int, device: int) -> tuple[int, int, int]:
    """A stream as torch's functions pass it on."""
    if device > 0:
        check_device(device)
    return handle, 0, DEVICE_TYPE


def _stream(stream: Any) -> Stream:
    """The driver's stream for one of torch's, or for None: the current one."""
    return current().stream(current_handle() if stream is None else stream.stream_id)


class StreamBase(Finished, torch.Stream):
    """The base class of torch.cuda.Stream. stream_id and cuda_stream: the driver's handle."""

    def __new__(
        cls, priority: int = 0, stream_id: int = 0, device_index: int = 0, device_type: int = 0, stream_ptr: int = 0, **_: Any
    ) -> StreamBase:
        if not (stream_id or device_index or device_type):
            stream_id = stream_ptr or current().new_stream(blocks=False).handle
        check_device(device_index)
        made = super().__new__(cls, stream_id=stream_id, device_index=0, device_type=DEVICE_TYPE)
        made._priority = max(PRIORITIES[1], min(PRIORITIES[0], priority))
        return made

    @property
    def cuda_stream(self) -> int:
        return int(self.stream_id)

    native_handle = cuda_stream

    def query(self) -> bool:
        return _stream(self).query()

    def synchronize(self) -> None:
        _stream(self).synchronize()

    @property
    def priority(self) -> int:
        return self._priority

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return PRIORITIES

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def __enter__(self) -> StreamBase:
        self._before = [*getattr(self, "_before", ()), current_handle()]
        set_current(self.stream_id)
        return self

    def __exit__(self, *_: object) -> None:
        set_current(self._before.pop())


class EventBase(Finished, torch.Event):
    """The base class of torch.cuda.Event: a time on the clock of counted work."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False, **_: Any
    ) -> EventBase:
        if interprocess:
            raise UnsupportedError("torch.cuda.Event(interprocess=True)", hint="an event belongs to its process")
        made = super().__new__(cls, device="cpu")
        made._event, made._timing = Event(), enable_timing
        return made

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> EventBase:
        raise UnsupportedError("torch.cuda.Event.from_ipc_handle", hint="an event belongs to its process")

    def ipc_handle(self) -> bytes:
        raise UnsupportedError("torch.cuda.Event.ipc_handle", hint="an event belongs to its process")

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)

    @property
    def cuda_event(self) -> int:
        return 0 if self._event.at is None else self._event.handle

    event_id = cuda_event

    def query(self) -> bool:
        self._event.synchronize()
        return True

    def synchronize(self) -> None:
        self._event.synchronize()

    def record(self, stream: Any = None) -> None:
        there = _stream(stream)
        there.seconds += RECORD
        self._event.record(there)

    def wait(self, stream: Any = None) -> None:
        _stream(stream).wait(self._event)

    def elapsed_time(self, end: EventBase) -> float:
        """Milliseconds of counted work between two events. Raises ValueError and RuntimeError as torch does."""
        if not (self._timing and end._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._event.at is None or end._event.at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return self._event.elapsed(end._event)


def sleep(cycles: int) -> None:
    """Advance the clock of counted work by cycles of the chip's clock."""
    driver = current()
    driver.stream(current_handle()).seconds += cycles / (driver.device.clock * 1e3)


def functions() -> dict[str, Any]:
    """Functions that torch._C has in a build for CUDA, by name."""
    return {
        "_CudaStreamBase": StreamBase,
        "_CudaEventBase": EventBase,
        "_cuda_getCurrentRawStream": current_handle,
        "_cuda_getCurrentStream": lambda device: _triple(current_handle(device), device),
        "_cuda_getDefaultStream": lambda device: _triple(0, device),
        "_cuda_getStreamFromExternal": _triple,
        "_cuda_setStream": set_current,
        "_cuda_sleep": sleep,
        "_accelerator_getStream": lambda device: torch.Stream(
            stream_id=current_handle(device), device_index=0, device_type=DEVICE_TYPE
        ),
        "_accelerator_setStream": lambda stream: set_current(stream.stream_id),
    }
