"""Sums of what a launch does, for each instruction: the instrument of `profile=` (record/profile.py).

Executions of blocks are counted anyway (Cluster.counts). Here are added lanes that were elsewhere, lanes whose guard was false,
ways at branches, ends of waits, and the work of accesses to memory. That work depends only on the differences of the lanes'
addresses, which are mostly those of the time before, so a row of memory keeps the last ones with their result.
"""

from __future__ import annotations

from enum import IntEnum

from mmulator.codegen.lang import Instrument, native
from mmulator.codegen.ops import (
    any_lane,
    bits_mask,
    cast_ptr,
    iota,
    load,
    mask_bits,
    popcount,
    select,
    stack,
    store,
    trailing_zeros,
)
from mmulator.codegen.types import Struct, i32, ptr, ptr_to, u32, u64
from mmulator.codegen.values import Value
from mmulator.native.hooks.events import ATOMIC, PROXY_SHIFT, READ, WRITE, Proxy
from mmulator.native.memory.tables import window_of
from mmulator.native.state import FULL, Warp
from mmulator.program.addresses import SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT

U64 = u64.vec(32)
SECTOR = 5  # bits of an address within a sector of 32 bytes
BANKS = 32  # of shared memory, of 4 bytes each


class Kind(IntEnum):
    """The memory that an access reaches: a row of an instruction."""

    GLOBAL = 0
    SHARED = 1
    LOCAL = 2
    BULK = 3  # global memory, by bulk copies


KINDS = len(Kind)

# off: lanes whose guard was false. taken, passed, parted: branches that some lanes took, that some did not, and both.
# met: waits that found their phase complete. macs: multiply-accumulates of tcgen05.mma.
ProfileSite = Struct("ProfileSite", [
    ("off", u64), ("taken", u64), ("passed", u64), ("parted", u64), ("met", u64), ("macs", u64),
])  # fmt: skip
# requests: of warps. units: sectors, of shared memory wavefronts. ideal: wavefronts without bank conflicts. From `mask` on: the
# last access, with its addresses less the first, and its result.
ProfileMemory = Struct("ProfileMemory", [
    ("requests", u64), ("lanes", u64), ("bytes", u64), ("units", u64), ("ideal", u64),
    ("mask", u32), ("low", u32), ("last_units", u32), ("last_ideal", u32), ("apart", u64, 32),
])  # fmt: skip
# Of a worker. missing: for each block of code the lanes that were elsewhere. sites, memory: rows of instructions, KINDS each.
ProfileTable = Struct("ProfileTable", [
    ("missing", ptr_to(u64)), ("sites", ptr_to(ProfileSite)), ("memory", ptr_to(ProfileMemory)),
])  # fmt: skip


def table(profile: Value) -> Value:
    """Macro: the table of the worker that runs a cluster. profile: a field of the cluster."""
    return cast_ptr(ProfileTable, profile)


# blocks of code -----------------------------------------------------------------------------------------------------
@native
def count_begin(w: ptr_to(Warp), mask: u32, block: i32, size: u32) -> None:
    if mask != FULL:
        missing = table(w.cta.cluster.profile).missing
        missing[block] = missing[block] + u64(popcount(~mask))


@native
def count_again(w: ptr_to(Warp), mask: u32, block: i32, left: u32) -> None:
    missing = table(w.cta.cluster.profile).missing
    if mask == left:
        missing[block] = missing[block] - u64(popcount(~mask))
    else:
        missing[block] = missing[block] + u64(popcount(left))


@native
def count_off(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    if mask != 0:
        row = table(w.cta.cluster.profile).sites + site
        row.off = row.off + u64(popcount(mask))


@native
def count_branch(w: ptr_to(Warp), mask: u32, taken: u32, site: u32) -> None:
    row = table(w.cta.cluster.profile).sites + site
    row.off = row.off + u64(popcount(mask & ~taken))
    row.taken = row.taken + u64(taken != 0)
    row.passed = row.passed + u64(taken != mask)
    row.parted = row.parted + u64((taken != 0) & (taken != mask))


@native
def count_met(w: ptr_to(Warp), mask: u32, host: ptr_to(ptr), parities: u32, site: u32) -> None:
    row = table(w.cta.cluster.profile).sites + site
    row.met = row.met + 1


@native
def count_macs(w: ptr_to(Warp), macs: u64, site: u32) -> None:
    row = table(w.cta.cluster.profile).sites + site
    row.macs = row.macs + macs


# memory -------------------------------------------------------------------------------------------------------------
@native
def distinct_values(values: ptr_to(u64), mask: u32) -> u32:
    """How many different values lanes have."""
    v = load(U64, values)
    left = mask
    count = u32(0)
    while left != 0:
        left = left & ~mask_bits(v == values[trailing_zeros(left)])
        count = count + 1
    return count


@native
def most_in_a_bank(places: ptr_to(u64), mask: u32, groups: u64) -> u32:
    """How many different places lanes have in one of `groups` groups of banks, at most."""
    v = load(U64, places)
    counts = stack(u32, BANKS)
    store(u32.vec(BANKS)(0), counts)
    left = mask
    most = u32(0)
    while left != 0:
        place = places[trailing_zeros(left)]
        left = left & ~mask_bits(v == place)
        group = place & (groups - 1)
        count = counts[group] + 1
        counts[group] = count
        if count > most:
            most = count
    return most


@native
def neighbours_agree(places: ptr_to(u64), mask: u32, step: u32) -> u32:
    """1 if lanes whose numbers differ in the bit `step` have one place, where both are active."""
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        other = lane ^ step
        if ((mask >> other) & 1) != 0 and places[lane] != places[other]:
            return 0
    return 1


@native
def shared_wavefronts(at: ptr_to(u64), mask: u32, bytes: u32, access: u32, ideal: ptr_to(u32)) -> u32:
    """The wavefronts of an access to shared memory; `ideal` receives those that it would be without bank conflicts.

    Lanes of 8 bytes are served in halves of the warp, of 16 bytes in quarters; two of them together in a load in which the
    lanes of each pair have one address.
    """
    shift = u64(2)
    span = u32(32)
    if bytes == 8:
        shift = u64(3)
        span = u32(16)
    if bytes >= 16:
        shift = u64(4)
        span = u32(8)
    places = stack(u64, 32)
    store(load(U64, at) >> shift, places)
    if span != 32 and (access & (READ | WRITE | ATOMIC)) == READ:
        if neighbours_agree(places, mask, 1) != 0 or neighbours_agree(places, mask, 2) != 0:
            span = span * 2
    total = u32(0)
    begin = u32(0)
    while begin < 32:
        lanes = mask & ((u32(FULL) >> ((32 - span) & 31)) << (begin & 31))
        if lanes != 0:
            total = total + most_in_a_bank(places, lanes, u64(BANKS) >> ((shift - 2) & 31))
            ideal[0] = ideal[0] + 1
        begin = begin + span
    return total


@native
def weigh_access(row: ptr_to(ProfileMemory), kind: u32, mask: u32, at: ptr_to(u64), origin: u64, bytes: u32, access: u32) -> None:
    """Compute the work of an access, for this time and the next ones. origin: of the memory, where on a chip a sector begins."""
    row.last_ideal = 0
    if kind == Kind.SHARED:
        ideal = stack(u32)
        ideal[0] = u32(0)
        row.last_units = shared_wavefronts(at, mask, bytes, access, ideal)
        row.last_ideal = ideal[0]
    else:
        values = stack(u64, 32)
        words = u32(1)
        store((load(U64, at) - origin) >> SECTOR, values)
        if kind == Kind.LOCAL:  # a word of all lanes lies side by side, eight lanes in a sector
            shift = u64(2)
            if bytes > 4:
                words = bytes >> 2
                shift = u64(trailing_zeros(bytes))
            store(((load(U64, at) >> shift) << 2) | (iota(U64) >> 3), values)
        row.last_units = distinct_values(values, mask) * words


@native
def count_request(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    if mask != 0 and (access >> PROXY_SHIFT) == Proxy.GENERIC:
        first = at[trailing_zeros(mask)]
        slot = (first | base) >> SLOT_SHIFT
        if slot != SLOT_PARAM and slot != SLOT_CONST:
            kind = u32(Kind.GLOBAL)
            if slot == SLOT_SHARED:
                kind = u32(Kind.SHARED)
            elif slot == SLOT_LOCAL:
                kind = u32(Kind.LOCAL)
            row = table(w.cta.cluster.profile).memory + (site * KINDS + kind)
            origin = u64(0)
            if kind == Kind.GLOBAL:
                origin = window_of(w.cta, first, site).start
            low = u32(first - origin) & 31
            apart = select(bits_mask(mask), load(U64, at) - first, 0)
            if row.mask != mask or row.low != low or any_lane(apart != load(U64, row.apart)):
                row.mask = mask
                row.low = low
                store(apart, row.apart)
                weigh_access(row, kind, mask, at, origin, bytes, access)
            lanes = u64(popcount(mask))
            row.requests = row.requests + 1
            row.lanes = row.lanes + lanes
            row.bytes = row.bytes + lanes * u64(bytes)
            row.units = row.units + u64(row.last_units)
            row.ideal = row.ideal + u64(row.last_ideal)


@native
def count_piece(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """An access of one lane, or a piece of a bulk copy."""
    slot = at >> SLOT_SHIFT
    if (access >> PROXY_SHIFT) == Proxy.GENERIC:
        places = stack(u64, 32)
        places[lane] = at
        count_request(w, u32(1) << lane, places, 0, bytes, access, site)
    elif (access >> PROXY_SHIFT) == Proxy.ASYNC and slot != SLOT_SHARED and bytes != 0:
        row = table(w.cta.cluster.profile).memory + (site * KINDS + u32(Kind.BULK))
        row.requests = row.requests + 1
        row.lanes = row.lanes + 1
        row.bytes = row.bytes + u64(bytes)
        place = at - window_of(w.cta, at, site).start
        row.units = row.units + (((place + u64(bytes) - 1) >> SECTOR) - (place >> SECTOR) + 1)


PROFILE = Instrument("profile", {
    "block_begins": count_begin, "block_again": count_again, "guarded": count_off, "branched": count_branch,
    "mbarrier_waited": count_met, "tensor_multiplied": count_macs, "accessed": count_request, "accessed_one": count_piece,
})  # fmt: skip
