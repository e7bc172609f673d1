"""torch.cuda's part for programs that ask Triton for its device, where tensors are the CPU's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from mmulator.host import driver
from mmulator.host.driver import current
from mmulator.host.driver.streams import Finished


class TorchStream(Finished):
    """A stream of the driver, with torch's methods."""

    def __init__(self, device: Any = None, priority: int = 0, _of: driver.Stream | None = None) -> None:
        self._stream = _of or current().new_stream()
        self.cuda_stream = self._stream.handle

    def wait_stream(self, other: Any) -> None:
        """Nothing to wait for: launches are synchronous."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for: launches are synchronous."""

    def record_event(self, event: TorchEvent | None = None) -> TorchEvent:
        event = event or TorchEvent()
        event.record(self)
        return event


class TorchEvent(Finished):
    """A time on a stream's clock, with torch's methods."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._event = driver.Event()

    def record(self, stream: TorchStream | None = None) -> None:
        self._event.record(stream._stream if stream is not None else _chosen())

    def elapsed_time(self, end: TorchEvent) -> float:
        """Milliseconds of counted work. For a benchmark that began before there was a driver the time is long, so that it
        repeats nothing.
        """
        from mmulator.doors.triton.adapt import runs_original

        caller = sys._getframe(1)
        if runs_original(caller.f_code) and "n_repeat" not in caller.f_locals:
            return 1e9
        return self._event.elapsed(end._event)

    def wait(self, stream: TorchStream | None = None) -> None:
        """Nothing to wait for: launches are synchronous."""


_streams: list[driver.Stream] = []


def _chosen() -> driver.Stream:
    return _streams[-1] if _streams else current().default_stream


def current_handle() -> int:
    """Handle of the stream that launches go to."""
    return _streams[-1].handle if _streams else 0


class TorchInterface:
    """The functions of torch.cuda that benchmarks and libraries ask for; others are torch.cpu's, if it has them."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def set_device(device: Any) -> None:
        """No effect: there is one device."""

    @staticmethod
    def synchronize(device: Any = None) -> None:
        """Nothing to wait for: launches are synchronous."""

    @staticmethod
    def empty_cache() -> None:
        """No effect: there is no cache."""

    @staticmethod
    def current_stream(device: Any = None) -> TorchStream:
        return TorchStream(_of=_chosen())

    @staticmethod
    def default_stream(device: Any = None) -> TorchStream:
        return TorchStream(_of=current().default_stream)

    @staticmethod
    @contextmanager
    def stream(stream: TorchStream | None) -> Iterator[None]:
        """Context in which launches go to a stream."""
        if stream is None:
            yield
            return
        _streams.append(stream._stream)
        try:
            yield
        finally:
            _streams.pop()

    @staticmethod
    def get_device_capability(device: Any = None) -> tuple[int, int]:
        return current().device.capability

    @staticmethod
    def get_device_name(device: Any = None) -> str:
        return current().device.product

    @staticmethod
    def get_device_properties(device: Any = None) -> SimpleNamespace:
        chip = current().device
        major, minor = chip.capability
        return SimpleNamespace(
            name=chip.product, major=major, minor=minor, multi_processor_count=chip.multiprocessors, total_memory=chip.memory,
            L2_cache_size=chip.l2, warp_size=32, shared_memory_per_block_optin=chip.shared,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name in ("Stream", "Event"):
            return TorchStream if name == "Stream" else TorchEvent
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch.cpu, name):
            raise AttributeError(f"mmulator's device has no {name}")
        return getattr(torch.cpu, name)
