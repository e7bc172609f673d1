"""torch.cuda.CUDAGraph: a capture records operators of torch and launches of kernels, and replay does them again.

What is captured is run at once too, since the program goes on with shapes of results and since errors then name its lines; at the
end memory and generators have again what they had before the capture, as on a GPU, which does nothing in a capture.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from typing import Any, NamedTuple, NoReturn

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.doors.torch import cuda_streams
from mmulator.host.driver import current
from mmulator.host.driver.streams import ordering

Kernel = Callable[..., Any]
# Operators without work of the device: they describe memory, or ask for it.
IDLE = frozenset("aten::" + name for name in (
    "empty.memory_format", "empty_strided", "resize_", "set_", "set_.source_Storage", "set_.source_Storage_storage_offset",
    "set_.source_Tensor", "record_stream", "_fused_sdp_choice", "is_set_to",
))  # fmt: skip
# Operators whose results the program has on the host, or whose results' shapes it has: a GPU would have to be waited for.
WAITING = frozenset("aten::" + name for name in (
    "_local_scalar_dense", "nonzero", "nonzero.out", "equal", "masked_select", "masked_select.out", "_unique2", "unique_dim",
    "unique_consecutive",
))  # fmt: skip
_pools = count(1)
_active: list[GraphCapture] = []  # the capture under way


class _Inside(threading.local):
    """Whether this thread is in a step that is recorded as a whole."""

    on = False


_inside = _Inside()


class GraphStep(NamedTuple):
    """A kernel of an operator, with tensors over the memory of its arguments and of its results."""

    run: Kernel
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any


def _error(why: str) -> Exception:
    return torch.AcceleratorError(f"CUDA error: {why}")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _held(value: Any) -> Any:
    """An argument or a result, as it is now: another tensor over its memory; a number on the CPU is a GPU's constant."""
    from mmulator.doors.torch import dispatch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return value
        if not value.is_cuda:
            return value if value.dim() else value.clone()
        made = dispatch._as_strided(dispatch.KEYS, value, value.size(), value.stride(), value.storage_offset())
        torch._C._set_conj(made, value.is_conj())
        torch._C._set_neg(made, value.is_neg())
        return made
    return type(value)(_held(v) for v in value) if type(value) in (list, tuple) else value


class GraphCapture:
    """Steps of a graph, in order; and contents of memory and generators from before."""

    def __init__(self) -> None:
        from mmulator.doors.torch import objects, random

        self.steps: list[GraphStep] = []
        self.failed = False
        self.memory = [(r.start, r.size, ctypes.string_at(r.start, r.size)) for r in objects.memory.blocks() if r.size]
        self.memory += [(a.address, a.size, ctypes.string_at(a.address, a.size)) for a in current().memory if a.size]
        self.generators = [(g, g._seed, g._place) for g in random._known.values()]

    def record(self, name: str, run: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run and record the kernel of an operator."""
        if name in WAITING or self._waits(name, args, kwargs.get("device")):
            self.failed = True
            raise _error("operation not permitted when stream is capturing")
        _inside.on = True
        try:
            found = run(*args, **kwargs)
        finally:
            _inside.on = False
        with torch._C.DisableTorchFunction():
            held = tuple(map(_held, args)), {name: _held(v) for name, v in kwargs.items()}
            self.steps.append(GraphStep(run, *held, _held(found)))
        return found

    def launched(self, run: Callable[[], object]) -> None:
        """Record a launch; the driver's, which does it now."""
        if not _inside.on:
            self.steps.append(GraphStep(run, (), {}, None))

    @staticmethod
    def _waits(name: str, args: tuple[Any, ...], device: torch.device | None) -> bool:
        """Whether an operator copies between the device and memory of the host that is not pinned."""
        if name == "aten::copy_":
            to, source = args[:2]
            return to.is_cuda != source.is_cuda and not (source if to.is_cuda else to).is_pinned()
        return name == "aten::_to_copy" and device is not None and device.type != args[0].device.type and not args[0].is_pinned()

    def undo(self) -> None:
        """Give memory that is still there, and generators, what they had before."""
        from mmulator.doors.torch import objects

        there = {(r.start, r.size) for r in objects.memory.blocks()} | {(a.address, a.size) for a in current().memory}
        for address, size, data in self.memory:
            if (address, size) in there:
                ctypes.memmove(address, data, size)
        for generator, seed, place in self.generators:
            generator._seed, generator._place = seed, place
        self.memory, self.generators = [], []


def recorded(name: str, run: Kernel) -> Kernel:
    """The kernel of an operator, which a capture under way records."""
    if name in IDLE:
        return run

    def call(*args: Any, **kwargs: Any) -> Any:
        if not _active or _inside.on:
            return run(*args, **kwargs)
        return _active[0].record(name, run, args, kwargs)

    return call


def capturing() -> bool:
    """Whether a graph is captured."""
    return bool(_active)


class GraphBase:
    """The base class of torch.cuda.CUDAGraph."""

    def __new__(cls, keep_graph: bool = False) -> GraphBase:
        made = super().__new__(cls)
        made._capture, made._pool = None, None
        return made

    _capture: GraphCapture | None
    _pool: tuple[int, int] | None

    def register_generator_state(self, generator: Any) -> None:
        """No effect: each replay draws from the generator's place then."""

    def capture_begin(self, pool: tuple[int, int] | None = None, capture_error_mode: str = "global") -> None:
        if not cuda_streams.current_handle():
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the "
                "default stream.)"
            )
        if _active:
            raise _error("operation not permitted when stream is capturing")
        self._capture, self._pool = GraphCapture(), pool or self._pool or new_pool()
        _active.append(self._capture)
        current().recorder = self._capture.launched

    def capture_end(self) -> None:
        if self._capture is None or self._capture not in _active:
            raise RuntimeError("CUDAGraph::capture_end() was called without capture_begin()")
        _active.clear()
        current().recorder = None
        self._capture.undo()
        if self._capture.failed:
            self._capture = None
            raise _error("operation failed due to a previous error during capture")

    def instantiate(self) -> None:
        """No effect: a graph is ready when its capture is over."""

    def replay(self) -> None:
        """Do again what was captured. Raises RuntimeError without a capture, and what operators and launches raise."""
        if self._capture is None or self._capture in _active:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        if _active and not _inside.on:
            _active[0].record("", self.replay, (), {})
            return
        from mmulator.doors.torch import dispatch

        before, _inside.on = _inside.on, True
        try:  # all is done on the current stream, whatever stream captured it
            with ordering[-1].inside(current().stream(cuda_streams.current_handle())) if ordering else nullcontext():
                self._again(dispatch)
        finally:
            _inside.on = before

    def _again(self, dispatch: Any) -> None:
        """Do the steps of the capture."""
        assert self._capture is not None
        for run, args, kwargs, results in self._capture.steps:
            for made, there in zip(_tensors(run(*args, **kwargs)), _tensors(results)):
                if there.is_cuda and made.data_ptr() != there.data_ptr():
                    dispatch.alias(there).copy_(dispatch.alias(made))

    def reset(self) -> None:
        self._capture = None

    def pool(self) -> tuple[int, int]:
        if self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def enable_debug_mode(self) -> None:
        """No effect."""

    def debug_dump(self, path: str) -> NoReturn:
        raise UnsupportedError("torch.cuda.CUDAGraph.debug_dump is not modelled", hint="there is no cudaGraph_t here")

    def raw_cuda_graph(self) -> NoReturn:
        raise UnsupportedError("torch.cuda.CUDAGraph.raw_cuda_graph is not modelled", hint="there is no cudaGraph_t here")

    raw_cuda_graph_exec = raw_cuda_graph


def new_pool() -> tuple[int, int]:
    """The name of a pool of memory. A graph's tensors have memory of their own, whichever pool they are said to be in."""
    return 0, next(_pools)


def functions() -> dict[str, Any]:
    """Functions that torch._C has in a build for CUDA, by name."""
    return {"_CUDAGraph": GraphBase, "_graph_pool_handle": new_pool, "_cuda_isCurrentStreamCapturing": capturing}
