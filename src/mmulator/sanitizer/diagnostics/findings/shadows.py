"""Shadow memory (sanitizer/shadow/shadow.py): arrays of a launch for global memory, and of a resident cluster for shared
memory.
"""

from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import Any

import numpy as np

from mmulator.isa.effects import Algebra, MemoryEffect, Together
from mmulator.ptx.program.addresses import SLOT_SHIFT
from mmulator.ptx.program.butterflies import stored_sums
from mmulator.ptx.program.loads import consequences, own_stores
from mmulator.ptx.program.provenance import stored_through
from mmulator.ptx.program.undefined import unread_loads
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Reg
from mmulator.runtime.compiled import CompiledKernel
from mmulator.runtime.launch.arena import pointer
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.pages import blank, stale
from mmulator.runtime.launch.resident import Resident
from mmulator.sanitizer.shadow import records as shadow
from mmulator.sanitizer.shadow.shadow import GROUP, SHEET, SHEET_BITS, SHEET_CELLS

CELL, GRANULE, POINTER = 8, 16, 8
LEAST_RECORDS, LEAST_NODES = 1 << 20, 1 << 16
SHARED_RECORDS = 1 << 17  # of a resident cluster; when they are used up, all of them are forgotten
READERS = 3  # of a cell of global memory
ALL_READERS = 256  # where the launch is certified
SHADOW = "shadow"  # that observers keep with a grid
WRITTEN = 4  # arrays of it that native code changes, and that begin as they were made
KEPT, KEPT_RECORDS = 1 << 16, 1 << 12  # bytes of global memory, and records, of which the shadow is kept


def address_operands(kernel: CompiledKernel) -> np.ndarray:
    """A number for each site [sites], u32: twice the number of the first site with the same address operand, plus a bit.

    The bit is 1 if a compiler may make several lanes access one place like this: a read that is not of wmma (programs write
    those themselves), or a write under a guard that may leave threads out.
    """
    known: dict[tuple[str, int], int] = {}
    guarded = kernel.once(_guarded)
    found = []
    for number, ins in enumerate(kernel.sites):
        place = next((o for o in ins.operands if isinstance(o, Address)), None)
        if place is not None and isinstance(place.base, Reg):
            number = known.setdefault((place.base.name, place.offset), number)
        kind = ins.effects.counted_as
        writes = kind in ("memory", "atomic") and ins.effects.memory is not MemoryEffect.READ
        found.append(number * 2 + int(ins in guarded if writes else not kind.startswith("wmma")))
    return np.array(found or [0], np.uint32)


def _guarded(kernel: CompiledKernel) -> frozenset[Instruction]:
    """The sites under a guard that may leave threads out."""
    always = _true_everywhere(kernel)
    return frozenset(i for i in kernel.sites if i.guard is not None and (i.guard[1] or i.guard[0].name not in always))


def _true_everywhere(kernel: CompiledKernel) -> set[str]:
    """Predicates to which nothing but constants is written, each of them true (`mov.pred %p1, -1`)."""
    constant: dict[str, bool] = {}
    for ins in (ins for item in kernel.program.functions.values() for ins in item.function.instructions):
        is_true = ins.effects.algebra is Algebra.COPY and isinstance(ins.operands[1], Immediate) and ins.operands[1].value != 0
        for name in uses_and_defs(ins)[1]:
            constant[name] = constant.get(name, True) and is_true
    return {name for name, is_true in constant.items() if is_true}


def flags_of_sites(kernel: CompiledKernel) -> np.ndarray:
    """Flags of each site's records [sites], u32: STEADY if it reads memory that must not change while the kernel runs, WHOLE if
    its lanes act together.
    """
    together = (ins.effects.together is not Together.ALONE for ins in kernel.sites)
    flags = (shadow.STEADY * i.effects.steady + shadow.WHOLE * whole for i, whole in zip(kernel.sites, together))
    return np.array([*flags] or [0], np.uint32)


def unread_numbers(kernel: CompiledKernel) -> np.ndarray:
    """A number for each site [sites], u32: 1 + that of the registers of a load that may stay unread, or 0."""
    found = unread_loads(kernel.program)
    return np.array([found.get(ins, -1) + 1 for ins in kernel.sites] or [0], np.uint32)


def sums_of_lanes(kernel: CompiledKernel) -> np.ndarray:
    """A mask for each site [sites], u32: the bits in which lanes that store one sum may differ."""
    return np.array(stored_sums(kernel.sites) or [0], np.uint32)


def written_memory(grid: Grid) -> Set[int]:
    """The starts of the memory that the launch may write: the arguments to which the kernel's stores lead, or all memory."""
    memory, words = [*grid.buffers, *grid.regions], grid.arguments.params
    starts: dict[str, int] = {}
    for (name, size), at in zip(grid.kernel.once_stored(_parameters), grid.arguments.offsets):
        for byte in range(0, size - POINTER + 1, POINTER):
            value = int.from_bytes(words[at + byte : at + byte + POINTER].tobytes(), "little")
            found = next((m.start for m in memory if m.start <= value < m.end), None) if value else None
            if found is not None:
                starts[f"{name}+{byte}"] = found
    through = grid.kernel.once_stored(_stored_through, *sorted(starts))
    return {m.start for m in memory} if through is None else {starts[key] for key in through}


def _parameters(kernel: CompiledKernel) -> tuple[tuple[str, int], ...]:
    """Name and bytes of each parameter."""
    return tuple((p.name, p.size) for p in kernel.program.entry.function.params)


def _stored_through(kernel: CompiledKernel, *given: str) -> tuple[str, ...] | None:
    """The pointers among a kernel's parameters through which it writes; None if it may write elsewhere. given: the
    parameters that are pointers, as NAME+BYTE.
    """
    if len(kernel.program.functions) > 1:
        return None
    places = {(name, int(byte)): None for name, _, byte in (text.rpartition("+") for text in given)}
    through = stored_through(kernel.program.entry.function, places)
    return through if through is None else tuple(sorted(f"{name}+{byte}" for name, byte in through))


def of_launch(grid: Grid) -> Sequence[np.ndarray]:
    """Arrays for the shadow of global memory: an area for each slot of buffers and for each region, and cells for what can be
    written. Those of an earlier launch, if it had the memory and the parameters that this one has.
    """
    buffers = [b for b in grid.buffers if b.writable and b.size]
    given = [(m.start, m.size, m.writable) for m in (*buffers, *grid.regions)]
    launched = given, grid.arguments.params.tobytes()
    kept: tuple[Any, list[np.ndarray], list[np.ndarray]] | None = grid.observed.get(SHADOW)
    if kept is None or kept[0] != launched:
        parts = _made(grid, given, len(buffers))
        grid.observed[SHADOW] = launched, parts, [part.copy() for part in parts[:WRITTEN]]
        return parts
    for part, before in zip(kept[1], kept[2]):
        part[:] = before
    return kept[1]


def is_used(grid: Grid, entry: Any) -> bool:
    """Whether something depends on what the threads of a finding read, beside the stores that other threads execute for them: an
    address, a branch, or a store of theirs.
    """
    kernel, site = grid.kernel, int(entry["site"])
    function = next(f.function for f in kernel.program.functions.values() if kernel.sites[site] in f.function.instructions)
    found = consequences(function, kernel.sites[site], kernel.once(_guarded))
    if found.decides or not found.stores:
        return found.decides
    made = _records(grid)
    made = made[made["cta"] == entry["cta"]]
    _, warps, lanes, _ = (int(word) for word in entry["words"])
    writes, others = [int(entry["other_site"]) - 1], [n for n, ins in enumerate(kernel.sites) if ins in found.stores]
    executed = partial(_executed, made)
    return any(executed(n, others) & lanes & ~executed(n, writes) for n in range(32) if warps >> n & 1)


def _records(grid: Grid) -> np.ndarray:
    """The records of accesses to global memory."""
    state, *_, records, _ = grid.observed[SHADOW][1]
    made = records.view(np.uint8)[: (int(state["taken"][0]) + 1) * shadow.Record.size].view(shadow.Record.numpy_dtype())
    found: np.ndarray = made[made["clock"] != 0]
    return found


def _executed(made: np.ndarray, warp: int, sites: Iterable[int]) -> int:
    """The lanes of a warp that have executed one of the sites."""
    return int(np.bitwise_or.reduce(made["all"][(made["warp"] == warp) & np.isin(made["site"], [*sites])], initial=0))


def are_idle(grid: Grid, replicas: np.ndarray) -> bool:
    """Whether nothing at all comes of what replicas read, in any block: their values reach only registers of their own, or of
    their warp, and stores to global memory that none of these lanes has executed. replicas: entries of Doubt.REPLICA.
    """
    kernel, made = grid.kernel, _records(grid)
    for entry in replicas:
        load, warp, lanes = kernel.sites[int(entry["site"])], int(entry["other_site"]) - 1, int(entry["lanes"])
        function = next(f.function for f in kernel.program.functions.values() if load in f.function.instructions)
        if (own := own_stores(function, load)) is None:
            return False
        stores, exchanged = own
        executed = _executed(made, warp, (n for n, ins in enumerate(kernel.sites) if ins in stores))
        if executed if exchanged else executed & lanes:
            return False
    return True


def has_strayed(grid: Grid) -> bool:
    """Whether a store led to memory where by the kernel's text it does not, so that earlier reads there were not recorded."""
    _, now, before = grid.observed[SHADOW]
    return any(bool((then["quiet"] & ~part["quiet"] & 1).any()) for part, then in zip(now[1:3], before[1:3]))


def leave(grid: Grid) -> None:
    """Do not keep the shadow of global memory with the grid if it is large."""
    watched = sum(size for _, size, _ in grid.observed[SHADOW][0][0])
    if watched > KEPT or grid.observed[SHADOW][1][0]["taken"][0] > KEPT_RECORDS:
        del grid.observed[SHADOW]


def _made(grid: Grid, given: Sequence[tuple[int, int, bool]], buffers: int) -> list[np.ndarray]:
    """New arrays for the shadow of global memory. given: (start, bytes, whether it is writable) of all buffers, then of all
    regions. buffers: how many of those are buffers. Kernels write to the first WRITTEN arrays, and to memory that may be stale.
    """
    written = written_memory(grid)
    slots = max((start + size - 1 >> SLOT_SHIFT for start, size, _ in given[:buffers]), default=0) + 1
    by_slot, by_address = (np.zeros(n, shadow.Area.numpy_dtype()) for n in (slots, 1 + len(given) - buffers))
    counts = [-(-(start % GRANULE + size) // (SHEET * GROUP)) * GROUP for start, size, _ in given]
    first = np.cumsum([0, *counts])
    cells, sheets = stale(int(first[-1]) * SHEET_CELLS * CELL), np.zeros(int(first[-1]) + 1, np.uint32)
    watched = sum(size for _, size, _ in given)
    for n, (start, size, writable) in enumerate(given):
        row = start - start % GRANULE, start, size, 0, 0, 0
        if cells is not None and writable:
            from_ = int(first[n])
            row = *row[:3], pointer(cells) + from_ * SHEET_CELLS * CELL, pointer(sheets) + from_ * 4, start not in written
        if n < buffers:
            for slot in range(start >> SLOT_SHIFT, (start + size - 1 >> SLOT_SHIFT) + 1):
                by_slot[slot] = row
        else:
            by_address[1 + n - buffers] = row
    state = np.zeros(1, shadow.LaunchRaces.numpy_dtype())
    room, node_room = min(shadow.MOST - 1, max(LEAST_RECORDS, watched >> 4)), min((1 << 31) - 1, max(LEAST_NODES, watched >> 2))
    records, nodes = stale((room + 1) * shadow.Record.size), stale((node_room + 1) * shadow.Node.size)
    operands = grid.kernel.once_stored(address_operands)
    flags = grid.kernel.once_stored(flags_of_sites)
    sums = grid.kernel.once_stored(sums_of_lanes)
    unread = grid.kernel.once_stored(unread_numbers)
    state["operands"], state["flags"], state["sums"] = pointer(operands), pointer(flags), pointer(sums)
    state["unread"] = pointer(unread)
    parts = [state, by_slot, by_address, sheets, operands, flags, sums, unread]
    if cells is not None and records is not None and nodes is not None:
        parts += [cells, records, nodes]
        state["records"], state["nodes"], state["room"], state["node_room"] = pointer(records), pointer(nodes), room, node_room
    state["areas"], state["slots"], state["regions"] = pointer(by_slot), slots, pointer(by_address)
    state["region_count"] = len(by_address)
    return parts


def of_cluster(resident: Resident) -> Sequence[np.ndarray]:
    """Arrays for the shadow of a cluster's shared memory, and its own room for the shadow of global memory."""
    size = resident.grid.shared
    stride = -(-size >> SHEET_BITS)
    sheets = stride * resident.size
    unread = resident.grid.kernel.once_stored(unread_numbers)
    patterns = min(1 << (len(unread) * len(resident.warps)).bit_length(), shadow.PATTERNS)
    room, node_room = SHARED_RECORDS, max(4 * LEAST_NODES, size * resident.size)
    state = np.zeros(1, shadow.Races.numpy_dtype())
    state["loads"] = loads = int(unread.max())
    arrays: dict[str, np.ndarray] = {
        "cells": blank(-(-sheets // GROUP) * GROUP * SHEET_CELLS, np.dtype(np.uint64)), "sheets": np.zeros(sheets + 1, np.uint32),
        "verdicts": np.zeros(len(resident.warps) * shadow.VERDICTS, shadow.Verdict.numpy_dtype()),
        "patterns": np.zeros(patterns, shadow.Pattern.numpy_dtype()),
        "loaded": np.zeros(len(resident.warps) * loads + 1, shadow.Loaded.numpy_dtype()),
    }  # fmt: skip
    for name, array in arrays.items():
        state[name] = pointer(array)
    state["stride"], state["sheet_count"], state["pattern_mask"] = stride, sheets, patterns - 1
    own: dict[str, np.ndarray] = {
        "records": blank(room + 1, shadow.Record.numpy_dtype()), "nodes": blank(node_room + 1, shadow.Node.numpy_dtype()),
        "memo": np.zeros(shadow.MEMO, np.uint64), "joins": np.zeros(shadow.JOINS, shadow.Join.numpy_dtype()),
    }  # fmt: skip
    memo, joins = np.zeros(shadow.MEMO, np.uint64), np.zeros(shadow.JOINS, shadow.Join.numpy_dtype())
    for name, array in own.items():
        state["shared"][name] = pointer(array)
    shared, other = state["shared"], state["global_"]
    shared["next"], shared["end"], shared["node_next"], shared["node_end"] = 1, room + 1, 1, node_room + 1
    shared["most"] = 1 << 20
    other["memo"], other["joins"], other["foreign"], other["most"] = pointer(memo), pointer(joins), 1, READERS
    return [state, *arrays.values(), *own.values(), memo, joins]


def keep_readers(memory: Sequence[np.ndarray], every: bool) -> None:
    """Set how many readers of a cell of global memory are kept. every: whether the launch is certified."""
    memory[0]["global_"]["most"] = ALL_READERS if every else READERS


def renew(memory: Sequence[np.ndarray]) -> None:
    """Forget the records of global memory, and where it lay."""
    state, _, _, verdicts, *_, memo, joins = memory
    state["hints"], other = 0, state["global_"]
    for name in ("next", "end", "node_next", "node_end"):
        other[name] = 0
    for array in (verdicts, memo, joins):
        array.view(np.uint8).fill(0)
