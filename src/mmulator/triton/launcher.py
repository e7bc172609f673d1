"""A compiled kernel of Triton to a launch: its PTX out of Triton's cache, its arguments to bytes and regions of memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from mmulator.driver import Function, Region, current
from mmulator.errors import LaunchError

_INTEGERS = {"i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
_FLOATS = {"fp32": "<f", "f32": "<f", "fp64": "<d"}


class Utils:
    """What Triton asks of a driver besides launching."""

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, ...]:
        """(module, function, registers, spills, most threads). The launcher has the function already."""
        return name, name, 32, 0, 1024

    def unload_module(self, module: Any) -> None:
        """Its launcher keeps it."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        chip = current().device
        return {
            "max_shared_mem": chip.shared, "max_num_regs": 65536, "multiprocessor_count": chip.multiprocessors, "warpSize": 32,
            "sm_clock_rate": chip.clock, "mem_clock_rate": chip.memory_clock, "mem_bus_width": chip.memory_bus,
        }  # fmt: skip


class Launcher:
    """Of one compiled kernel; called for each launch."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.metadata = metadata
        self.function = load(metadata)
        self.threads = metadata.num_warps * 32
        self.types = [t for t in _flat(src.signature.values()) if t != "constexpr"]
        self.constexprs = [t == "constexpr" for t in _flat(src.signature.values())]
        names = list(src.signature)
        self.labels = [f"argument {n} ({name})" for n, name in enumerate(names)]

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, launch_metadata: Any,
        enter: Callable[[Any], None] | None, leave: Callable[[Any], None] | None, *args: Any,
    ) -> None:  # fmt: skip
        if not (x and y and z):
            return
        params = bytearray(self.function.parameter_bytes)
        regions: list[Region] = []
        offsets = iter(self.function.offsets)
        values = (v for v, constant in zip(_flat(args), self.constexprs) if not constant)
        for ty, value in zip(self.types, values):
            at = next(offsets)
            if ty[0] == "*":
                address = pointer(value, self.labels[0], regions)
                struct.pack_into("<Q", params, at, address)
            else:
                data = scalar(ty, value)
                params[at : at + len(data)] = data
        if enter is not None:
            enter(launch_metadata)
        driver = current()
        block, shared = (self.threads, 1, 1), self.metadata.shared
        driver.launch(self.function, (x, y, z), block, params, regions, shared, driver.stream(stream))
        if leave is not None:
            leave(launch_metadata)


def load(metadata: Any) -> Function:
    """The function of a compiled kernel, from the PTX in Triton's cache."""
    from triton.runtime.cache import get_cache_manager

    group = get_cache_manager(metadata.hash).get_group(f"{metadata.name}.json") or {}
    path = group.get(f"{metadata.name}.ptx")
    if path is None:
        raise LaunchError(f"Triton's cache has no PTX of {metadata.name}", hint="unset TRITON_STORE_BINARY_ONLY")
    return current().load(Path(path).read_text(), f"{metadata.name}.ptx").function(metadata.name)


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield value


def pointer(value: Any, label: str, regions: list[Region]) -> int:
    """The address of an argument; the memory it lies in is appended to `regions`."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    storage = value.untyped_storage()
    regions.append(Region(storage.data_ptr(), storage.nbytes(), label))
    return int(value.data_ptr())


def scalar(ty: str, value: Any) -> bytes:
    """Bytes of a scalar argument of a type of Triton's."""
    if ty in _INTEGERS:
        code = _INTEGERS[ty]
        bits = 8 * struct.calcsize(code)
        return (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    if ty in _FLOATS:
        return struct.pack(_FLOATS[ty], value)
    small: dict[str, Any] = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
    return bytes(np.asarray(value, small[ty]).tobytes())
