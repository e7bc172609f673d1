"""The places of variables: the module's global and const windows, shared memory, and each function's local memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from mmulator.base.classes import dataclass
from mmulator.base.errors import LaunchError
from mmulator.ptx.program.addresses import FIRST_GLOBAL_SLOT, FUNCTION_BYTES, SLOT_CONST, SLOT_FUNCTION, SLOT_SHIFT
from mmulator.ptx.program.outline import Outline
from mmulator.ptx.symbols import Parameter, SymbolReference, Variable

if TYPE_CHECKING:
    from mmulator.ptx.tree import Function, Prototype

MAX_GLOBAL = 1 << 32  # bytes of a module's .global variables


def align_up(value: int, align: int) -> int:
    return -(-value // align) * align


def slots_for(size: int) -> int:
    """Number of slots for a buffer, with an empty slot behind it, so that an overrun never reaches a neighbour."""
    return (size >> SLOT_SHIFT) + 2


@dataclass(frozen=True)
class Abi:
    """Places of return values and parameters at the start of a callee's local frame; equal for equal prototypes."""

    returns: tuple[int, ...]
    params: tuple[int, ...]
    bytes: int


def abi_of(returns: Iterable[Parameter], params: Iterable[Parameter]) -> Abi:
    """The places of return values and parameters in a callee's local frame."""
    at = 0
    places: list[list[int]] = [[], []]
    for which, items in enumerate((returns, params)):
        for p in items:
            at = align_up(at, max(p.align, 1))
            places[which].append(at)
            at += max(p.size, 4)
    return Abi(tuple(places[0]), tuple(places[1]), align_up(at, 16))


@dataclass(frozen=True)
class LocalFrame:
    """The local memory of a function. offsets: variable or parameter -> byte offset in the function's part of a lane's local
    memory.
    """

    offsets: dict[str, int]
    bytes: int
    abi: Abi


SAVED_STACK = "%stack"


def local_frame(function: Function, stack: int = 0) -> LocalFrame:
    """The local memory of a function. stack: bytes for alloca, at the start of the kernel's frame; each frame can then save its
    pointer.
    """
    offsets: dict[str, int] = {}
    abi = Abi((), (), 0)
    if not function.is_entry:
        abi = abi_of(function.returns, function.params)
        offsets.update({p.name: o for p, o in zip(function.returns, abi.returns)})
        offsets.update({p.name: o for p, o in zip(function.params, abi.params)})
    at = stack if function.is_entry else abi.bytes
    if stack:
        offsets[SAVED_STACK] = at
        at += 4
    for v in function.variables:
        if v.space in ("local", "param"):
            at = align_up(at, max(v.align, 1))
            offsets[v.name] = at
            at += v.size
    return LocalFrame(offsets, align_up(at, 16), abi)


def prototype_abi(prototype: Prototype) -> Abi:
    """The places of return values and parameters by a .callprototype."""
    return abi_of(prototype.returns, prototype.params)


@dataclass(frozen=True)
class SharedLayout:
    """The shared memory of a kernel. addresses: variable -> address in the shared window. static: bytes before the dynamic
    part.
    """

    addresses: dict[str, int]
    static: int


class ModuleImage:
    """The module's .global and .const variables: memory with the lifetime of the module, as on a GPU.

    addresses: variable -> generic address. functions: function -> its address. code: the lower half of the first one's.
    next_slot: first free slot for the buffers of a launch.
    """

    def __init__(self, module: Outline) -> None:
        self.addresses: dict[str, int] = {}
        self.buffers: list[tuple[int, np.ndarray, bool]] = []  # (start address, bytes, writable)
        self._memory: dict[str, np.ndarray] = {}
        self.next_slot = FIRST_GLOBAL_SLOT
        variables = list(module.variables)
        self._place_const([v for v in variables if v.space == "const"])
        self._place_global([v for v in variables if v.space == "global" and v.linkage != "extern"])
        self._initial = variables
        # Modules with other functions have other addresses, so that a pointer from one is none of the other's.
        self.code = crc32(" ".join(module.functions).encode()) & -FUNCTION_BYTES
        places = ((self.code + n * FUNCTION_BYTES) % (1 << SLOT_SHIFT) for n in count())
        self.functions = {name: (SLOT_FUNCTION << SLOT_SHIFT) + place for name, place in zip(module.functions, places)}

    def _place_global(self, variables: list[Variable]) -> None:
        total = 0
        for v in variables:
            total += v.size
            if total > MAX_GLOBAL:
                raise LaunchError(
                    f"{v.name} takes {v.size} bytes, with what stands before it {total}; "
                    f".global variables have {MAX_GLOBAL} here", span=v.span, hint="pass large arrays as arguments",
                )  # fmt: skip
            try:
                buffer = np.zeros(max(v.size, 1), np.uint8)
            except MemoryError:
                raise LaunchError(f"this machine has no memory for the {v.size} bytes of {v.name}", span=v.span) from None
            start = self.next_slot << SLOT_SHIFT
            self.addresses[v.name] = start
            self._memory[v.name] = buffer
            self.buffers.append((start, buffer, True))
            self.next_slot += slots_for(v.size)

    def _place_const(self, variables: list[Variable]) -> None:
        at = 0
        for v in variables:
            at = align_up(at, max(v.align, 1))
            self.addresses[v.name] = (SLOT_CONST << SLOT_SHIFT) + at
            at += v.size
            if at > 65536:
                raise LaunchError(f"with {v.name} .const variables take {at} bytes; there are 65536", span=v.span)
        memory = np.zeros(max(at, 1), np.uint8)
        for v in variables:
            offset = self.addresses[v.name] - (SLOT_CONST << SLOT_SHIFT)
            self._memory[v.name] = memory[offset : offset + v.size]
        if variables:
            self.buffers.append((SLOT_CONST << SLOT_SHIFT, memory, False))

    def symbol_address(self, name: str) -> int:
        """Address of a variable in its state space: for .const an offset into its window."""
        address = self.addresses[name]
        return address & ((1 << SLOT_SHIFT) - 1) if address >> SLOT_SHIFT == SLOT_CONST else address

    def initialise(self) -> None:
        """Write the initial values."""
        for v in self._initial:
            if v.name not in self.addresses:
                continue
            memory = self.bytes_of(v.name)
            if v.initial is not None:
                data = np.frombuffer(v.initial, np.uint8)
                memory[: len(data)] = data
            for r in v.symbols:
                value = self._reference(r) + r.addend
                if r.mask is not None:
                    shift = (r.mask & -r.mask).bit_length() - 1
                    value = (value & r.mask) >> shift
                memory[r.offset : r.offset + r.size] = np.frombuffer(
                    (value & ((1 << 8 * r.size) - 1)).to_bytes(r.size, "little"), np.uint8
                )

    def _reference(self, r: SymbolReference) -> int:
        if r.symbol in self.addresses:
            return self.addresses[r.symbol] if r.generic else self.symbol_address(r.symbol)
        return self.functions.get(r.symbol, 0)

    def bytes_of(self, name: str) -> np.ndarray:
        """The memory of a variable. Raises LaunchError if the module has no variable with this name."""
        if name not in self._memory:
            raise LaunchError(f"the module has no .global or .const variable {name}")
        return self._memory[name]
