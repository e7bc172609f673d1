"""What the host knows of a cluster's mbarriers: their names, words, who arrived, and what is under way for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.demangle import base_name
from mmulator.isa.effects import MemoryEffect, Queue
from mmulator.isa.types import type_bits
from mmulator.launch.arena import bytes_at
from mmulator.launch.grid import Grid
from mmulator.launch.resident import Resident, ResidentCta
from mmulator.native.state import (
    ACCOUNTS,
    COPIES,
    TRANSFERS,
    Account,
    Completes,
    Transfer,
    TransferState,
    Warp,
)
from mmulator.numerics.mbarrier import Mbarrier
from mmulator.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.ptx.tree import Address, Instruction, Symbol, Variable

_ACCOUNT, _TRANSFER = np.dtype(Account.numpy_dtype()), np.dtype(Transfer.numpy_dtype())


def place_text(ins: Instruction | None) -> str:
    """`bar.sync (k.ptx:12)`."""
    if ins is None:
        return "the end of a function"
    location = getattr(ins.span, "location", None)
    return f"{ins.mnemonic} ({ins.span.source.name}:{ins.span.line}{f', {location}' if location else ''})"


# names --------------------------------------------------------------------------------------------------------------
def _variables(grid: Grid) -> Iterator[tuple[int, Variable]]:
    """Variables in shared memory, by their addresses."""
    program, addresses = grid.kernel.program, grid.kernel.shared.addresses
    of_functions = (v for f in program.functions.values() for v in f.function.variables)
    for v in (*program.module.variables, *of_functions):
        if v.space == "shared" and v.name in addresses:
            yield addresses[v.name], v


def shared_symbol(grid: Grid, address: int) -> str:
    """The variable at an address in the shared memory of a CTA, as the text names it, or nothing."""
    found = (v for start, v in sorted(_variables(grid), key=lambda x: -x[0]) if 0 <= address - start < v.size)
    return next((v.name for v in found), "")


def shared_name(grid: Grid, address: int) -> str:
    """`full[2]`, `smem + 16`, or nothing. address: in the shared memory of a CTA."""
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
    """The variable that the address of an instruction names, or nothing."""
    at = next((o for o in ins.operands if isinstance(o, Address)), None)
    return at.base.name if at is not None and isinstance(at.base, Symbol) else ""


def about(grid: Grid, k: MbarrierState, is_one: Callable[[Instruction], bool]) -> list[Instruction]:
    """Such instructions of the kernel, by their lines, but those that name a variable in which an mbarrier is not."""
    own = shared_symbol(grid, SHARED_BASE + k.byte)
    found = {id(ins): ins for ins in grid.kernel.sites if is_one(ins) and (not own or _named(ins) in ("", own))}
    return sorted(found.values(), key=lambda i: (i.span.source.name, i.span.line))


def makers(grid: Grid, k: MbarrierState) -> list[Instruction]:
    """What may initialise it."""
    return about(grid, k, lambda ins: operates(ins) and "init" in ins.modifiers)


def arrivers(grid: Grid, k: MbarrierState) -> list[Instruction]:
    """What may arrive there."""
    return about(grid, k, arrives)


def operates(ins: Instruction) -> bool:
    """Whether an instruction does something at an mbarrier."""
    return ins.effects.counted_as == "barrier" and ins.effects.memory is not MemoryEffect.NONE


def ends(ins: Instruction) -> bool:
    """Whether an instruction makes an mbarrier plain memory again."""
    return operates(ins) and "inval" in ins.modifiers


def arrives(ins: Instruction) -> bool:
    """Whether an instruction arrives at an mbarrier, or lets a thread's copies do so."""
    return operates(ins) and not {"arrive", "arrive_drop"}.isdisjoint(part for m in ins.modifiers for part in m.split("::"))


# what is known ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MbarrierEvent:
    """Something that a lane did at an mbarrier. phase: in which of its phases, counted from 0."""

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
    """An mbarrier. at: on the host. byte: of its CTA's shared memory. phases: that were completed. expected, came: bytes that
    were expected and that came in this phase. made, ended, arrived, asked, brought: who did that last, or None."""

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
        """`full[2] (shared 0x410)`, as the threads of a CTA would say it; None: whoever's it is."""
        symbol = shared_name(self.cta.resident.grid, SHARED_BASE + self.byte)
        block = "" if here is not None and self.cta.rank == here.rank else f" of {self.cta}"
        place = f"shared 0x{SHARED_BASE + self.byte:x}{block}"
        return f"{symbol} ({place})" if symbol else f"the mbarrier at {place}"

    @property
    def arrived_now(self) -> bool:
        """Whether somebody has arrived in this phase."""
        return self.arrived is not None and self.arrived.phase == self.phases

    @property
    def untold(self) -> int:
        """How little its state tells of a deadlock: 0, bytes that do not fit; 1, some of the arrivals; 2, nothing came."""
        if self.word.bytes and self.came:
            return 0
        return 1 if self.counts_copies or 0 < self.word.pending < self.word.expected else 2

    @property
    def counts_copies(self) -> bool:
        """Whether what was added to this phase are arrivals of cp.async, which take away as much (no .noinc), and no bytes."""
        return any(e is not None and e.instruction.effects.queue is Queue.COPIES for e in (self.asked, self.brought))

    @property
    def phase_text(self) -> str:
        """`phase 3`, or what is known of it."""
        return f"phase {self.phases}" if self.phases is not None else f"the phase of parity {self.word.phase}"


def _event(resident: Resident, who: Any) -> MbarrierEvent | None:
    if not who["site"]:
        return None
    warps = resident.grid.shape.warps
    cta = ResidentCta(resident, int(who["warp"]) // warps)
    ins = resident.grid.kernel.sites[int(who["site"]) - 1]
    return MbarrierEvent(cta, int(who["warp"]) % warps, int(who["lane"]), int(who["phase"]), ins)


def on_host(resident: Resident, address: int) -> int:
    """Where an address of the shared window is; one of the host is one already."""
    if address >> RANK_SHIFT >= len(resident.shared):
        return address
    return resident.arena.at(resident.shared[address >> RANK_SHIFT]) + (address & (1 << RANK_SHIFT) - 1) - SHARED_BASE


def known(resident: Resident, at: int) -> MbarrierState:
    """What is known of an mbarrier at a place on the host, which is in the shared memory of one of the CTAs."""
    shared = resident.grid.shape.shared
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
    return resident.arena.view("accounts", _ACCOUNT)[:ACCOUNTS]


# what is under way --------------------------------------------------------------------------------------------------
def under_way(k: MbarrierState) -> list[MbarrierEvent]:
    """Who issued asynchronous operations that k awaits, and that are not complete."""
    resident = k.cta.resident
    return [*_transfers(resident, k), *_copies(resident, k)]


def _transfers(resident: Resident, k: MbarrierState) -> Iterator[MbarrierEvent]:
    if not resident.grid.kernel.movers:
        return
    for t in resident.arena.view("transfers", _TRANSFER)[:TRANSFERS]:
        awaited = t["completes"] == Completes.BYTES and int(t["barriers"]) >> k.cta.rank & 1 and int(t["offset"]) == k.byte
        if t["state"] == TransferState.UNDER_WAY and awaited:
            yield _by(resident, int(t["warp"]), int(t["lane"]), int(t["site"]))


def _copies(resident: Resident, k: MbarrierState) -> Iterator[MbarrierEvent]:
    if COPIES not in resident.grid.kernel.queues:
        return
    for cta in resident.each():
        for warp, w in enumerate(cta.warps):
            queue = w["queues"][COPIES.queue]
            for number in range(int(queue["done"]), int(queue["issued"])):
                o = cta.operation(COPIES, warp, number)["operation"]
                if o["completes"] != Completes.GROUP and int(o["barrier"]) == k.at:
                    yield MbarrierEvent(cta, warp, int(o["lane"]), k.phases or 0, resident.grid.kernel.sites[int(o["site"])])


def _by(resident: Resident, warp: int, lane: int, site: int) -> MbarrierEvent:
    number = (warp - resident.arena.at("warps")) // Warp.size
    warps = resident.grid.shape.warps
    return MbarrierEvent(ResidentCta(resident, number // warps), number % warps, lane, 0, resident.grid.kernel.sites[site])
