"""Kernel arguments: Python values to the bytes of the parameter memory, arrays to windows of device memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmulator.errors import LaunchError
from mmulator.machine.image import align_up, slots_for
from mmulator.machine.state import SLOT_SHIFT
from mmulator.ptx.tree import Function, Parameter


@dataclass
class Buffer:
    """A window of device memory. start: its generic address. label: how messages name it."""

    start: int
    array: np.ndarray
    label: str
    writable: bool = True

    @property
    def size(self) -> int:
        return self.array.nbytes


@dataclass
class Arguments:
    """params: the parameter memory. buffers: one for each different array."""

    params: np.ndarray
    buffers: list[Buffer] = field(default_factory=list)


def pack_arguments(function: Function, args: Sequence[Any], first_slot: int) -> Arguments:
    """Check and lay out the arguments of a kernel. Raises LaunchError naming the argument and what is wrong."""
    params = function.params
    if len(args) != len(params):
        wanted = ", ".join(f".{p.type}" + ("[]" if p.shape else "") for p in params)
        raise LaunchError(
            f"{function.name} takes {len(params)} arguments ({wanted}), not {len(args)}",
            hint="Triton adds two scratch pointers at the end; pass 0 for them" if len(args) == len(params) - 2 else None,
        )
    total = 0
    offsets = []
    for p in params:
        total = align_up(total, max(p.align, 1))
        offsets.append(total)
        total += p.size
    memory = np.zeros(max(total, 1), np.uint8)
    result = Arguments(memory)
    slot = first_slot
    known: dict[tuple[int, int], Buffer] = {}
    for number, (p, value, at) in enumerate(zip(params, args, offsets)):
        where = f"argument {number} ({p.name})"
        if isinstance(value, np.ndarray) and not (p.shape and value.dtype == np.uint8) and value.ndim > 0:
            _check_array(value, p, where)
            key = (value.ctypes.data, value.nbytes)
            buffer = known.get(key)
            if buffer is None:
                buffer = Buffer(slot << SLOT_SHIFT, value, where)
                slot += slots_for(value.nbytes)
                known[key] = buffer
                result.buffers.append(buffer)
            data = struct.pack("<Q", buffer.start)
        else:
            data = scalar_bytes(value, p, where)
        memory[at : at + len(data)] = np.frombuffer(data, np.uint8)
    return result


def _check_array(value: np.ndarray, p: Parameter, where: str) -> None:
    if p.bits != 64 or p.shape or p.type.startswith("f"):
        raise LaunchError(f"{where} is .{p.type}, not a pointer: it cannot take an array of {value.dtype}{value.shape}")
    if not value.flags.c_contiguous:
        raise LaunchError(f"{where}: the array is not contiguous", hint="pass np.ascontiguousarray(x)")
    if not value.flags.writeable:
        raise LaunchError(
            f"{where}: the array is read-only, and kernels update their buffers in place", hint="pass a copy: x.copy()"
        )
    if value.dtype.hasobject:
        raise LaunchError(f"{where}: an array of Python objects has no bytes to work on")


def scalar_bytes(value: Any, p: Parameter, where: str) -> bytes:
    """Bytes of a scalar or aggregate argument."""
    if p.shape:
        data = value.tobytes() if isinstance(value, np.ndarray | np.generic) else value
        if not isinstance(data, bytes | bytearray) or len(data) != p.size:
            raise LaunchError(f"{where} is an aggregate of {p.size} bytes: pass bytes of that length")
        return bytes(data)
    if value is None:
        value = 0
    if isinstance(value, np.generic | np.ndarray):
        value = value.item() if value.dtype.kind in "biufc" or value.dtype.kind == "V" else value
    if p.type in ("f32", "f64"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise LaunchError(f"{where} is .{p.type}: pass a number, not {type(value).__name__}")
        try:
            return struct.pack("<f" if p.type == "f32" else "<d", value)
        except OverflowError:
            raise LaunchError(f"{where}: {value} does not fit .{p.type}") from None
    if isinstance(value, float) and p.type[0] == "b" and p.bits in (32, 64):
        return struct.pack("<f" if p.bits == 32 else "<d", value)
    if not isinstance(value, int):
        raise LaunchError(f"{where} is .{p.type}: pass an integer or an array, not {type(value).__name__}")
    if not -(1 << (p.bits - 1)) <= value < 1 << p.bits:
        raise LaunchError(f"{where}: {value} does not fit .{p.type}")
    return (value & ((1 << p.bits) - 1)).to_bytes(p.size, "little")
