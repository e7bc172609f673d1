"""The wavefronts and sectors of an access by lanes of a warp, as a Hopper GPU counts them (docs/profile.md)."""

from enum import IntEnum

from mmulator.codegen.lang import native
from mmulator.codegen.ops import bits_of, load, mask_bits, popcount, stack, store, trailing_zeros
from mmulator.codegen.types import boolean, ptr_to, u32, u64
from mmulator.native.state import FULL

U64 = u64.vec(32)
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
