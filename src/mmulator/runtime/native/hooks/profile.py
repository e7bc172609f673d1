"""Sums of what a launch does, for each instruction: the instrument of `profile=` (observation/record/profile/launch.py).

Executions of blocks are counted anyway (Cluster.counts). Here are added lanes that were elsewhere, lanes whose guard was false,
ways at branches, ends of waits, and the work of accesses to memory. That work depends only on the differences of the lanes'
addresses, which are mostly those of the time before, so a row of memory keeps the last ones with their result.
"""

from enum import IntEnum

from mmulator.base.codegen.lang import Instrument, native
from mmulator.base.codegen.ops import (
    any_lane,
    bits_mask,
    bits_of,
    cast_ptr,
    iota,
    load,
    mask_bits,
    minimum,
    popcount,
    select,
    stack,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import Struct, boolean, i32, ptr, ptr_to, u32, u64
from mmulator.base.codegen.values import Value
from mmulator.ptx.program.addresses import RANK_SHIFT, SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.hooks.events import BOTH, PROXY_SHIFT, READ, Proxy
from mmulator.runtime.native.memory.windows import window_of
from mmulator.runtime.native.state import FULL, Warp

U64 = u64.vec(32)
ACCESS = BOTH  # bits of an access without its proxy and time


class Kind(IntEnum):
    """The memory that an access reaches: a row of an instruction."""

    GLOBAL = 0
    SHARED = 1
    LOCAL = 2
    BULK = 3  # global memory, by bulk copies


KINDS = len(Kind)

# serves: Serves. off: lanes whose guard was false. taken, passed, parted: branches that some lanes took, that some did not, and
# both. met: waits that found their phase complete. macs: multiply-accumulates of tcgen05.mma.
ProfileSite = Struct("ProfileSite", [
    ("serves", u64), ("off", u64), ("taken", u64), ("passed", u64), ("parted", u64), ("met", u64), ("macs", u64),
])  # fmt: skip
# requests: of warps. units: sectors, of shared memory wavefronts. ideal: wavefronts without bank conflicts. From `mask` on: the
# last access, with its addresses less the first, and its result.
ProfileMemory = Struct("ProfileMemory", [
    ("requests", u64), ("lanes", u64), ("bytes", u64), ("units", u64), ("ideal", u64),
    ("mask", u32), ("low", u32), ("last_units", u32), ("last_ideal", u32), ("apart", u64, 32),
])  # fmt: skip
MOST_PLACES = 256  # of a register of a fragment
# Of a worker. missing: for each block of code the lanes that were elsewhere. sites, memory: rows of instructions, KINDS each.
# targets, from_, from_bytes: the other side of a copy: addresses of lanes, or place and size of a piece. lane, places, count: the
# last lane of a request whose lanes come one by one, and its sectors or words so far.
ProfileTable = Struct("ProfileTable", [
    ("missing", ptr_to(u64)), ("sites", ptr_to(ProfileSite)), ("memory", ptr_to(ProfileMemory)),
    ("targets", u64, 32), ("from_", u64), ("from_bytes", u64), ("lane", u32), ("count", u32), ("places", u64, MOST_PLACES),
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
def weigh_access(
    row: ptr_to(ProfileMemory), kind: u32, mask: u32, at: ptr_to(u64), origin: u64, bytes: u32, access: u32, serves: u64
) -> None:
    """Compute the work of an access, for this time and the next ones.

    row: receives it.
    kind: Kind.
    mask, at, bytes: lanes, their addresses, and bytes of each.
    origin: of the memory, where on a chip a sector begins.
    access: as in the hook `accessed`.
    serves: Serves.
    """
    row.last_ideal = 0
    if kind == Kind.SHARED:
        ideal = stack(u32)
        ideal[0] = u32(0)
        row.last_units = shared_wavefronts(at, mask, bytes, serves, ideal)
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
        elif bytes > (1 << SECTOR):  # a tensor map
            words = bytes >> SECTOR
        if kind == Kind.GLOBAL and (access & ACCESS) == BOTH:
            row.last_units = atomic_sectors(at, values, mask)
        else:
            row.last_units = distinct_values(values, mask) * words


@native
def memory_kind(address: u64) -> u32:
    """The Kind of memory at a generic address, KINDS for parameters and constants."""
    slot = address >> SLOT_SHIFT
    if slot == SLOT_SHARED:
        return u32(Kind.SHARED)
    if slot == SLOT_LOCAL:
        return u32(Kind.LOCAL)
    return select((slot == SLOT_PARAM) | (slot == SLOT_CONST), u32(KINDS), u32(Kind.GLOBAL))


@native
def count_request(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    if mask != 0 and (access >> PROXY_SHIFT) == Proxy.GENERIC:
        first = at[trailing_zeros(mask)]
        kind = memory_kind(first | base)
        if kind != KINDS:
            own = table(w.cta.cluster.profile)
            serves = own.sites[site].serves
            row = own.memory + (site * KINDS + kind)
            origin = u64(0)
            if kind == Kind.GLOBAL:
                origin = window_of(w.cta, first, site).start
            low = u32(first - origin) & 31
            if kind == Kind.SHARED and base == 0 and u32((first & ((1 << SLOT_SHIFT) - 1)) >> RANK_SHIFT) != w.cta.rank:
                serves = Serves.ALONE  # of another CTA
                low = low | 32
            apart = select(bits_mask(mask), load(U64, at) - first, 0)
            if row.mask != mask or row.low != low or any_lane(apart != load(U64, row.apart)):
                row.mask = mask
                row.low = low
                store(apart, row.apart)
                weigh_access(row, kind, mask, at, origin, bytes, access, serves)
            if kind == Kind.SHARED and (serves == Serves.COPY or serves == Serves.BYPASS):  # told before the other side
                store(load(U64, at), own.targets)
                own.count = 0
            elif serves == Serves.BYPASS:
                row.last_units = bypass_sectors(at, own.targets, mask)
            lanes = u64(popcount(mask))
            row.requests = row.requests + select((kind == Kind.LOCAL) & (bytes > 4), u64(bytes >> 2), 1)
            row.lanes = row.lanes + lanes
            row.bytes = row.bytes + lanes * u64(bytes)
            row.units = row.units + u64(row.last_units)
            row.ideal = row.ideal + u64(row.last_ideal)


@native
def count_part(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, site: u32) -> None:
    """Count what one lane accesses: lanes of a request come in their order, some of them several times, one after the other."""
    own = table(w.cta.cluster.profile)
    kind = memory_kind(at)
    if kind != KINDS:
        row = own.memory + (site * KINDS + kind)
        shared = kind == Kind.SHARED
        place = at >> 2
        if not shared:
            place = (at - window_of(w.cta, at, site).start) >> SECTOR
        if lane < own.lane or own.count == 0:
            row.requests = row.requests + 1
            own.count = 0
        if lane != own.lane or own.count == 0:
            row.lanes = row.lanes + 1
        own.lane = lane
        row.bytes = row.bytes + u64(bytes)
        known = u32(0)
        in_bank = u32(1)
        for i in range(own.count):
            other = own.places[i]
            known = known | u32(other == place)
            in_bank = in_bank + u32(((other ^ place) & (BANKS - 1)) == 0)
        if known == 0:
            if own.count == 0 or not shared or in_bank > row.last_units:
                row.units = row.units + 1
                row.last_units = in_bank
            if shared and own.count == 0:
                row.ideal = row.ideal + 1
            if own.count < MOST_PLACES:
                own.places[own.count] = place
                own.count = own.count + 1


@native
def count_copy(w: ptr_to(Warp), at: u64, bytes: u32, access: u32, site: u32) -> None:
    """Count a piece of a copy by the asynchronous proxy, of which one side is in global memory."""
    own = table(w.cta.cluster.profile)
    row = own.memory + (site * KINDS + u32(Kind.BULK))
    lines = own.sites[site].serves == Serves.BULK
    place = at
    kind = memory_kind(at)
    if kind == Kind.GLOBAL:
        place = at - window_of(w.cta, at, site).start
        row.requests = row.requests + 1
        row.lanes = row.lanes + 1
        row.bytes = row.bytes + u64(bytes)
    if lines and (access & ACCESS) == READ:  # told before the other side
        own.from_ = place
        own.from_bytes = select(kind == Kind.GLOBAL, u64(bytes), 0)
    elif kind == Kind.GLOBAL or (kind == Kind.SHARED and lines and own.from_bytes != 0):
        outside = place
        inside = own.from_
        if kind == Kind.SHARED:
            outside = own.from_
            inside = place
        own.from_bytes = 0
        done = u64(0)
        while done < u64(bytes):
            end = u64(bytes)
            if lines:
                end = minimum(end, done + (1 << LINE) - ((inside + done) & ((1 << LINE) - 1)))
            row.units = row.units + (((outside + end - 1) >> SECTOR) - ((outside + done) >> SECTOR) + 1)
            done = end


@native
def count_piece(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    """An access of one lane, or a piece of a bulk copy."""
    proxy = access >> PROXY_SHIFT
    if proxy == Proxy.GENERIC:
        serves = table(w.cta.cluster.profile).sites[site].serves
        if serves == Serves.FRAGMENT or serves == Serves.COPY or serves == Serves.BYPASS:
            count_part(w, lane, at, bytes, site)
        else:
            places = stack(u64, 32)
            places[lane] = at
            count_request(w, u32(1) << lane, places, 0, bytes, access, site)
    elif proxy == Proxy.ASYNC and bytes != 0:
        count_copy(w, at, bytes, access, site)


PROFILE = Instrument("profile", {
    "block_begins": count_begin, "block_again": count_again, "guarded": count_off, "branched": count_branch,
    "mbarrier_waited": count_met, "tensor_multiplied": count_macs, "accessed": count_request, "accessed_one": count_piece,
})  # fmt: skip


# how a chip serves an access -----------------------------------------------------------------------------------------
SECTOR = 5  # bits of an address within a sector of 32 bytes
LINE = 7  # bits of an address within a line of 128 bytes
BANKS = 32  # of shared memory, of 4 bytes each


class Serves(IntEnum):
    """The way in which a chip serves the lanes of an instruction (measured on Hopper)."""

    ALONE = 0  # as few wavefronts as the banks allow, for each half or quarter of the warp
    PAIRS = 1  # loads: also two halves or quarters together, if lanes of pairs have one address
    TURNS = 2  # atomic operations: lanes of a bank one after the other
    TWICE = 3  # compare and swap: as TURNS, in two passes
    LOOP = 4  # a loop of load and compare-and-swap, which ends for one lane of a bank in each round
    FRAGMENT = 5  # wmma: a request is a register of all lanes, which come one by one
    COPY = 6  # cp.async
    BYPASS = 7  # cp.async.cg, past the first cache
    BULK = 8  # bulk copies, in lines of shared memory


@native
def lowest_lanes(values: ptr_to(u64), mask: u32) -> u32:
    """The mask of the lowest lane with each of the values that lanes have."""
    v = load(U64, values)
    left = mask
    lowest = u32(0)
    while left != 0:
        lane = trailing_zeros(left)
        lowest = lowest | (u32(1) << lane)
        left = left & ~mask_bits(v == values[lane])
    return lowest


@native(inline=True)
def distinct_values(values: ptr_to(u64), mask: u32) -> u32:
    """How many different values lanes have."""
    return popcount(lowest_lanes(values, mask))


@native
def most_in_a_bank(places: ptr_to(u64), mask: u32, groups: u64, apart: boolean) -> u32:
    """How many different places lanes have in one of `groups` groups of banks, at most. apart: how many lanes instead."""
    v = load(U64, places)
    counts = stack(u32, BANKS)
    store(u32.vec(BANKS)(0), counts)
    left = mask
    most = u32(0)
    while left != 0:
        place = places[trailing_zeros(left)]
        left = left & (left - 1)
        if not apart:
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
    for lane in bits_of(mask):
        other = lane ^ step
        if ((mask >> other) & 1) != 0 and places[lane] != places[other]:
            return 0
    return 1


@native(inline=True)
def span_mask(begin: u32, span: u32) -> u32:
    """The mask of `span` lanes from `begin` on."""
    return (u32(FULL) >> ((32 - span) & 31)) << (begin & 31)


@native
def wavefront_passes(places: ptr_to(u64), mask: u32, span: u32, groups: u64, apart: boolean, ideal: ptr_to(u32)) -> u32:
    """The wavefronts of lanes that are served `span` at a time; `ideal` grows by those that it would be without conflicts."""
    total = u32(0)
    begin = u32(0)
    while begin < 32:
        lanes = mask & span_mask(begin, span)
        if lanes != 0:
            total = total + most_in_a_bank(places, lanes, groups, apart)
            ideal[0] = ideal[0] + 1
        begin = begin + span
    return total


@native
def lanes_together(places: ptr_to(u64), mask: u32, span: u32) -> u32:
    """The number of lanes that a load serves together, of which `span` are served together in general."""
    if span != 32:
        if neighbours_agree(places, mask, 1) != 0 or neighbours_agree(places, mask, 2) != 0:
            return span * 2
    return span


@native
def loop_wavefronts(places: ptr_to(u64), mask: u32, span: u32, groups: u64, ideal: ptr_to(u32)) -> u32:
    """The wavefronts of a loop that loads and then compares and swaps.

    In each round one lane of a bank can swap, the lowest; it fails if a lane of an earlier part of the warp has just changed the
    word.
    """
    v = load(U64, places)
    banks = stack(u64, 32)
    store(v & (groups - 1), banks)
    left = mask
    total = u32(0)
    for _ in range(32):  # a lane ends in each round
        if left == 0:
            break
        total = total + wavefront_passes(places, left, lanes_together(places, left, span), groups, 0, ideal)
        ended = u32(0)
        begin = u32(0)
        while begin < 32:
            lanes = left & span_mask(begin, span)
            if lanes != 0:
                total = total + 2
                ideal[0] = ideal[0] + 2
            lanes = lowest_lanes(banks, lanes)
            for lane in bits_of(lanes):
                if (mask_bits(v == places[lane]) & ended) == 0:
                    ended = ended | (u32(1) << lane)
            begin = begin + span
        left = left & ~ended
    return total


@native
def shared_wavefronts(at: ptr_to(u64), mask: u32, bytes: u32, serves: u64, ideal: ptr_to(u32)) -> u32:
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
    groups = u64(BANKS) >> ((shift - 2) & 31)
    places = stack(u64, 32)
    store(load(U64, at) >> shift, places)
    if serves == Serves.LOOP:
        return loop_wavefronts(places, mask, span, groups, ideal)
    if serves == Serves.PAIRS:
        span = lanes_together(places, mask, span)
    turns = (serves == Serves.TURNS) | (serves == Serves.TWICE)
    total = wavefront_passes(places, mask, span, groups, turns, ideal)
    if serves == Serves.TWICE:
        ideal[0] = ideal[0] + total  # a conflict costs two wavefronts, and the chip counts one
        total = total * 2
    return total


@native
def atomic_sectors(at: ptr_to(u64), sectors: ptr_to(u64), mask: u32) -> u32:
    """The sectors of an atomic operation: lanes with one address are served one after the other."""
    left = mask
    total = u32(0)
    for _ in range(32):  # a lane ends in each round
        if left == 0:
            break
        lanes = lowest_lanes(at, left)
        total = total + distinct_values(sectors, lanes)
        left = left & ~lanes
    return total


@native
def bypass_sectors(at: ptr_to(u64), shared: ptr_to(u64), mask: u32) -> u32:
    """The sectors of a cp.async.cg: those of shared memory, for each line of global memory.

    Lines come in the order of their first lanes; of lanes with one address in shared memory the last line counts.
    """
    lines = load(U64, at) >> LINE
    to = load(U64, shared)
    keys = stack(u64, 32)
    store((lines << 32) | (to >> SECTOR), keys)
    kept = u32(0)
    left = mask
    while left != 0:
        group = left & mask_bits(lines == (at[trailing_zeros(left)] >> LINE))
        left = left & ~group
        rest = group
        while rest != 0:
            kept = kept & ~mask_bits(to == shared[trailing_zeros(rest)])
            rest = rest & (rest - 1)
        kept = kept | group
    return distinct_values(keys, kept)
