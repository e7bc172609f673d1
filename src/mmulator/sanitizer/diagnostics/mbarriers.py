"""The mbarriers of a cluster as the host sees them: names, words, the last events, and the operations under way for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.base.demangle import base_name
from mmulator.isa.effects import MemoryEffect, Queue
from mmulator.isa.types import type_bits
from mmulator.matrix.numerics.mbarrier import Mbarrier
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.ptx.tree import Address, Instruction, Symbol, Variable
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native import state as native

_ACCOUNT, _TRANSFER = np.dtype(native.Account.numpy_dtype()), np.dtype(native.Transfer.numpy_dtype())


def place_text(ins: Instruction | None) -> str:
    """An instruction and its place: `bar.sync (k.ptx:12)`."""
    if ins is None:
        return "the end of a function"
    location = getattr(ins.span, "location", None)
    return f"{ins.mnemonic} ({ins.span.place}{f', {location}' if location else ''})"


# names --------------------------------------------------------------------------------------------------------------
def _variables(grid: Grid) -> Iterator[tuple[int, Variable]]:
    """Variables in shared memory with their addresses, as (address, variable)."""
    program, addresses = grid.kernel.program, grid.kernel.shared.addresses
    of_functions = (v for f in program.functions.values() for v in f.function.variables)
    for v in (*program.module.variables, *of_functions):
        if v.space == "shared" and v.name in addresses:
            yield addresses[v.name], v


def shared_symbol(grid: Grid, address: int) -> str:
    """Name of the variable at an address in the shared memory of a CTA, as the text spells it; "" if there is none."""
    found = (v for start, v in sorted(_variables(grid), key=lambda x: -x[0]) if 0 <= address - start < v.size)
    return next((v.name for v in found), "")


def shared_name(grid: Grid, address: int) -> str:
    """Name of a place in shared memory: `full[2]` or `smem + 16`; "" if no variable is there. address: in the shared memory of
    a CTA.
    """
    for start, v in sorted(_variables(grid), key=lambda x: -x[0]):
        offset = address - start
        dynamic = v.linkage == "extern"
        if offset < 0 or not (dynamic or offset < v.size):
            continue
        name, size = base_name(v.name), max(type_bits(v.type), 8) // 8 * v.vector
        if v.shape and size == 8 and offset % 8 == 0 and all(v.shape[1:]):
            index = np.unravel_index(offset // 8, (max(v.shape[0], offset // 8 + 1), *v.shape[1:]))
            return name + "".join(f"[{int(i)}]" for i in index)
        return f"{name} + {offset}" if offset else name
    return ""


def _named(ins: Instruction) -> str:
    """Name of the variable in the address of an instruction; "" if the address names none."""
    at = next((o for o in ins.operands if isinstance(o, Address)), None)
    return at.base.name if at is not None and isinstance(at.base, Symbol) else ""


def about(grid: Grid, k: MbarrierState, is_one: Callable[[Instruction], bool]) -> list[Instruction]:
    """Instructions of the kernel that satisfy `is_one` and may operate on the mbarrier k, sorted by line. An instruction that
    names a different variable is left out.
    """
    own = shared_symbol(grid, SHARED_BASE + k.byte)
    found = dict.fromkeys(i for i in grid.kernel.sites if is_one(i) and (not own or _named(i) in ("", own)))
    return sorted(found, key=lambda i: (i.span.source.name, i.span.line))


def makers(grid: Grid, k: MbarrierState) -> list[Instruction]:
    """Instructions that may initialise the mbarrier k."""
    return about(grid, k, lambda ins: operates(ins) and "init" in ins.modifiers)


def arrivers(grid: Grid, k: MbarrierState) -> list[Instruction]:
    """Instructions that may arrive at the mbarrier k."""
    return about(grid, k, arrives)


def operates(ins: Instruction) -> bool:
    """Whether an instruction operates on an mbarrier."""
    return ins.effects.counted_as == "barrier" and ins.effects.memory is not MemoryEffect.NONE


def ends(ins: Instruction) -> bool:
    """Whether an instruction invalidates an mbarrier, so that its bytes are ordinary memory again."""
    return operates(ins) and "inval" in ins.modifiers


def arrives(ins: Instruction) -> bool:
    """Whether an instruction arrives at an mbarrier, or lets a thread's copies arrive there."""
    return operates(ins) and not {"arrive", "arrive_drop"}.isdisjoint(part for m in ins.modifiers for part in m.split("::"))


# what is known ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MbarrierEvent:
    """An operation of a lane at an mbarrier. phase: the mbarrier's phase at that time, counted from 0."""

    cta: ResidentCta
    warp: int
    lane: int
    phase: int
    instruction: Instruction

    def text(self, here: ResidentCta) -> str:
        block = "" if self.cta.rank == here.rank else f" of {self.cta}"
        return f"lane {self.lane} of warp {self.warp}{block} at {place_text(self.instruction)}"


@dataclass(frozen=True)
class MbarrierState:
    """An mbarrier, with what native code recorded about it.

    cta: the block whose shared memory holds it.
    at: its address on the host.
    byte: its offset in the shared memory of its block.
    word: its 64 bits, decoded.
    valid: whether the place holds an mbarrier now.
    phases: number of completed phases; None if that is unknown.
    expected: bytes that were expected in this phase.
    came: bytes that came in this phase.
    made, ended, arrived, asked, brought: the last mbarrier.init, mbarrier.inval, arrival, expect_tx and copy; None if there was
        none.
    """

    cta: ResidentCta
    at: int
    byte: int
    word: Mbarrier
    valid: bool = True
    phases: int | None = None
    expected: int = 0
    came: int = 0
    made: MbarrierEvent | None = None
    ended: MbarrierEvent | None = None
    arrived: MbarrierEvent | None = None
    asked: MbarrierEvent | None = None
    brought: MbarrierEvent | None = None

    def name(self, here: ResidentCta | None) -> str:
        """Name of the mbarrier: `full[2] (shared 0x410)`, with its block unless that is `here`. here: the block of the reader,
        or None.
        """
        symbol = shared_name(self.cta.resident.grid, SHARED_BASE + self.byte)
        block = "" if here is not None and self.cta.rank == here.rank else f" of {self.cta}"
        place = f"shared 0x{SHARED_BASE + self.byte:x}{block}"
        return f"{symbol} ({place})" if symbol else f"the mbarrier at {place}"

    @property
    def arrived_now(self) -> bool:
        """Whether a thread has arrived in the current phase."""
        return self.arrived is not None and self.arrived.phase == self.phases

    @property
    def untold(self) -> int:
        """Rank of how little the state explains a deadlock: 0 for bytes that do not fit, 1 for some of the arrivals, 2 for no
        event.
        """
        if self.word.bytes and self.came:
            return 0
        return 1 if self.counts_copies or 0 < self.word.pending < self.word.expected else 2

    @property
    def counts_copies(self) -> bool:
        """Whether the pending count of this phase was raised by arrivals of cp.async without .noinc, and not by bytes."""
        return any(e is not None and e.instruction.effects.queue is Queue.COPIES for e in (self.asked, self.brought))

    @property
    def phase_text(self) -> str:
        """Name of the current phase: `phase 3`, or `the phase of parity 1` if the number is unknown."""
        return f"phase {self.phases}" if self.phases is not None else f"the phase of parity {self.word.phase}"


def _event(resident: Resident, who: Any) -> MbarrierEvent | None:
    if not who["site"]:
        return None
    warps = resident.grid.shape.warps
    cta = ResidentCta(resident, int(who["warp"]) // warps)
    ins = resident.grid.kernel.sites[int(who["site"]) - 1]
    return MbarrierEvent(cta, int(who["warp"]) % warps, int(who["lane"]), int(who["phase"]), ins)


def on_host(resident: Resident, address: int) -> int:
    """The address on the host of an address in the shared window; an address that is already one of the host is returned
    unchanged.
    """
    if address >> RANK_SHIFT >= len(resident.shared):
        return address
    return resident.shared_at(address >> RANK_SHIFT) + (address & (1 << RANK_SHIFT) - 1) - SHARED_BASE


def known(resident: Resident, at: int) -> MbarrierState:
    """The mbarrier at an address of the host. at: lies in the shared memory of one of the cluster's CTAs."""
    shared = resident.grid.shared
    starts = [resident.arena.at(name) for name in resident.shared]
    rank = next(n for n, start in enumerate(starts) if start <= at < start + shared)
    cta, word = ResidentCta(resident, rank), Mbarrier.decode(int(bytes_at(at, 8).view(np.uint64)[0]))
    found = [a for a in _accounts(resident) if int(a["at"]) == at]
    if not found:
        return MbarrierState(cta, at, at - starts[rank], word, False)
    a = found[0]
    events = {name: _event(resident, a[name]) for name in ("made", "ended", "arrived", "asked", "brought")}
    return MbarrierState(
        cta, at, at - starts[rank], word, bool(a["valid"]), int(a["phase"]), int(a["expected"]), int(a["came"]), **events
    )


def _accounts(resident: Resident) -> Any:
    if not resident.grid.kernel.mbarriers:
        return ()
    return resident.arena.view("accounts", _ACCOUNT)[:native.ACCOUNTS]


# what is under way --------------------------------------------------------------------------------------------------
def under_way(k: MbarrierState) -> list[MbarrierEvent]:
    """Events that issued the asynchronous operations which k still awaits."""
    resident = k.cta.resident
    return [*_transfers(resident, k), *_copies(resident, k)]


def _transfers(resident: Resident, k: MbarrierState) -> Iterator[MbarrierEvent]:
    if not resident.grid.kernel.movers:
        return
    every = resident.arena.view("transfers", _TRANSFER)[:native.TRANSFERS]
    flying = every[(every["state"] == int(native.TransferState.UNDER_WAY)) & (every["completes"] == int(native.Completes.BYTES))]
    for t in flying[(flying["offset"] == k.byte) & (flying["barriers"] >> k.cta.rank & 1).astype(bool)]:
        yield _by(resident, int(t["warp"]), int(t["lane"]), int(t["site"]))


def _copies(resident: Resident, k: MbarrierState) -> Iterator[MbarrierEvent]:
    if native.COPIES not in resident.grid.kernel.queues:
        return
    for cta in resident.each():
        for warp, w in enumerate(cta.warps):
            queue = w["queues"][native.COPIES.queue]
            for number in range(int(queue["done"]), int(queue["issued"])):
                o = cta.operation(native.COPIES, warp, number)["operation"]
                if o["completes"] != native.Completes.GROUP and int(o["barrier"]) == k.at:
                    yield MbarrierEvent(cta, warp, int(o["lane"]), k.phases or 0, resident.grid.kernel.sites[int(o["site"])])


def _by(resident: Resident, warp: int, lane: int, site: int) -> MbarrierEvent:
    number = (warp - resident.arena.at("warps")) // native.Warp.size
    warps = resident.grid.shape.warps
    return MbarrierEvent(ResidentCta(resident, number // warps), number % warps, lane, 0, resident.grid.kernel.sites[site])
