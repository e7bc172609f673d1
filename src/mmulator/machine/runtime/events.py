"""What may be known of every access while a kernel runs: hooks at the door to memory and at the register file.

A kernel that is compiled for an instrument (CompileOptions.events) calls the instrument's native functions in their place;
any other kernel has nothing there. An instrument that writes down what it sees has room in the log of the worker that runs
the block: `reserve` sees to it that there is room, what was there goes to Python then (machine/launch/events.py).
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from mmulator.codegen.lang import hook, native
from mmulator.codegen.types import i32, ptr, ptr_to, u32, u64, void
from mmulator.codegen.values import Builder, Value
from mmulator.machine.state import Log, Warp


class Proxy(IntEnum):
    """The way by which an access reaches memory (PTX ISA 9.1, Memory Consistency Model: Proxies)."""

    GENERIC = 0
    ASYNC = 1  # operands of wgmma


class Access(IntFlag):
    """What is done to the bytes: the low bits of a hook's `access`, the proxy is above them (`by`).

    LATER: addresses are checked now, and the bytes are read or written at the `completed` that follows.
    """

    READ = 1
    WRITE = 2
    ATOMIC = 4
    LATER = 8


PROXY_SHIFT = 4


def by(access: int, proxy: Proxy) -> int:
    """An access through a proxy."""
    return int(access) | int(proxy) << PROXY_SHIFT


READ, WRITE, BOTH = int(Access.READ), int(Access.WRITE), int(Access.READ | Access.WRITE | Access.ATOMIC)


@hook
def accessed(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    """Lanes of `mask` are about to access `bytes` each, all of which are there, from the generic addresses at[lane] | base on."""


@hook
def accessed_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """The same for one lane; operands of a whole warp or warpgroup count as lane 0's."""


@hook
def completed(w: ptr_to(Warp), mask: u32, access: u32) -> None:
    """The oldest LATER access of this kind that the warp has under way is done now."""


@hook
def registers(w: ptr_to(Warp), frame: u64, slots: ptr_to(i32), count: u32, access: u32, site: u32) -> None:
    """All lanes of a warp: registers of a frame, by their slots, are read or written by an asynchronous operation."""


@hook
def register(w: ptr_to(Warp), mask: u32, slot: u32, access: u32, site: u32) -> None:
    """An instruction reads or writes a register of the warp's frame (w.frame) that asynchronous operations use too."""


def call_drain(drain: Value, log: Value) -> Value:
    """Macro: the host function that takes what is in a log."""
    return Builder.current().call_pointer(drain, void, [log])


@native
def reserve(log: ptr_to(Log), count: u32) -> None:
    """Room for so many entries, of at most those that the log has."""
    if log.count + count > log.room:
        call_drain(log.drain, log)


@native
def entry(log: ptr_to(Log)) -> ptr:
    """The next entry of a log that has room."""
    place = log.entries + u64(log.count) * u64(log.entry_bytes)
    log.count = log.count + 1
    return place
