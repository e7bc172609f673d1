"""An observer that writes down every event of a launch: which bytes, which way, by which instruction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmulator.base.codegen.lang import Instrument, native
from mmulator.base.codegen.ops import cast_ptr, load, store
from mmulator.base.codegen.types import Struct, i32, ptr_to, u32, u64
from mmulator.host.module import CPU, Kernel
from mmulator.isa.targets import default_device
from mmulator.matrix.twin.shared import UNIT
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.events import Logs
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.launch import How, compile_options
from mmulator.runtime.launch.observers import Observer
from mmulator.runtime.launch.resident import Resident
from mmulator.runtime.native.hooks.events import PROXY_SHIFT, Access, Proxy, by, entry, reserve
from mmulator.runtime.native.state import Warp

MEMORY, COMPLETED, REGISTERS, REGISTER = range(4)
NO_SITE = 0xFFFFFFFF
# at: generic addresses of the lanes in `mask`, or slots of `count` registers
Entry = Struct("TraceEntry", [
    ("kind", u32), ("cta", u32), ("warp", u32), ("mask", u32), ("bytes", u32), ("access", u32), ("site", u32), ("count", u32),
    ("at", u64, 32),
])  # fmt: skip


@native
def trace_entry(w: ptr_to(Warp), kind: u32, mask: u32, bytes: u32, access: u32, site: u32) -> ptr_to(Entry):
    reserve(w.cta.cluster.log, u32(1))
    e = cast_ptr(Entry, entry(w.cta.cluster.log))
    e.kind = kind
    e.cta = w.cta.linear
    e.warp = w.index
    e.mask = mask
    e.bytes = bytes
    e.access = access
    e.site = site
    return e


@native
def trace_lanes(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    e = trace_entry(w, u32(MEMORY), mask, bytes, access, site)
    store(load(u64.vec(32), at) | base, e.at)


@native
def trace_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    e = trace_entry(w, u32(MEMORY), u32(1) << lane, bytes, access, site)
    e.at[lane] = at


@native
def trace_operand(w: ptr_to(Warp), at: u64, site: u32) -> None:
    trace_one(w, 0, at, UNIT, by(Access.READ, Proxy.ASYNC), site)


@native
def trace_completed(w: ptr_to(Warp), mask: u32, access: u32) -> None:
    trace_entry(w, u32(COMPLETED), mask, u32(0), access, u32(NO_SITE))


@native
def trace_registers(w: ptr_to(Warp), frame: u64, slots: ptr_to(i32), count: u32, access: u32, site: u32) -> None:
    e = trace_entry(w, u32(REGISTERS), u32(0xFFFFFFFF), u32(0), access, site)
    e.count = count


@native
def trace_register(w: ptr_to(Warp), mask: u32, slot: u32, access: u32, site: u32) -> None:
    e = trace_entry(w, u32(REGISTER), mask, u32(0), access, site)
    e.at[0] = u64(slot)


TRACE = Instrument("trace", {
    "accessed": trace_lanes, "accessed_one": trace_one, "operand_read": trace_operand, "completed": trace_completed,
    "registers": trace_registers, "register": trace_register,
})  # fmt: skip


@dataclass(frozen=True)
class Event:
    """What one entry says. addresses: of the lanes that take part. count: registers."""

    kind: int
    instruction: Instruction | None
    cta: int
    warp: int
    mask: int
    bytes: int
    access: Access
    proxy: Proxy
    count: int
    addresses: dict[int, int]

    @property
    def touched(self) -> set[int]:
        """Every byte."""
        return {a + n for a in self.addresses.values() for n in range(self.bytes)}


class Trace(Observer):
    calls = each = True

    @property
    def instrument(self) -> Instrument:
        return TRACE

    def begin(self, grid: Grid) -> None:
        self.logs = Logs(Entry, grid.workers, 64)

    def take(self, resident: Resident, worker: int) -> None:
        resident.cluster["log"] = self.logs.address(worker)

    def events(self, sites: Sequence[Instruction]) -> Iterator[Event]:
        for e in self.logs.all():
            access, mask = int(e["access"]), int(e["mask"])
            lanes = {n: int(e["at"][n]) for n in range(32) if mask >> n & 1}
            yield Event(
                int(e["kind"]), sites[e["site"]] if e["site"] != NO_SITE else None, int(e["cta"]), int(e["warp"]), mask,
                int(e["bytes"]), Access(access & (1 << PROXY_SHIFT) - 1), Proxy(access >> PROXY_SHIFT), int(e["count"]), lanes,
            )  # fmt: skip


def traced(
    kernel: Kernel, grid: int, block: int, args: Sequence[Any], *, seed: int = 0, threads: int = 1, shared: int = 0
) -> list[Event]:
    """Every event of a launch, those of one worker in order."""
    trace, how, device = Trace(), How(seed, threads=threads, timeout=600), default_device(kernel.module.target)
    launch = kernel.prepared(grid, block, args, shared, device)
    compiled = kernel.compile(device, options=compile_options(launch.shape, how, [trace]))
    CPU.launch(replace(launch, kernel=compiled), how, [trace])
    return list(trace.events(compiled.sites))
