"""The bytes of global memory that a launch uses, for the order between launches (host/driver/order.py), and in a dependent launch
the accesses that come before griddepcontrol.wait.

Three bitmaps have a bit for each byte: read, written, and used by operations that are atomic or strong, which are no race among
themselves. A launch that is sanitized runs on one thread of the host, so bits are set without atomic operations. To have waited
is known as any order is: the launches before are an agent, whose clock griddepcontrol.wait learns, and barriers pass that on.
"""

from mmulator.base.codegen.lang import Instrument, native
from mmulator.base.codegen.ops import any_lane, bits_mask, bits_of, cast_ptr, iota, load, trailing_zeros
from mmulator.base.codegen.types import Struct, boolean, ptr_to, u8, u32, u64
from mmulator.base.rules.launches import DEPENDENT
from mmulator.ptx.program.addresses import SLOT_SHIFT
from mmulator.runtime.native.hooks.events import ATOMIC, PROXY_SHIFT, READ, WRITE, Order, Proxy
from mmulator.runtime.native.hooks.touched import set_bits
from mmulator.runtime.native.state import Cluster, Warp
from mmulator.sanitizer.order.clocks import knows, learn, new_agent
from mmulator.sanitizer.shadow import records as rec
from mmulator.sanitizer.state import find, of_launch, say

LANE, U64 = u32.vec(32), u64.vec(32)
CHUNK_SHIFT = 15  # log2 of the bytes of memory for which there is one mark

# Memory of a slot of addresses (4 GiB): where it starts, and the number of its first byte.
Stretch = Struct("FootprintStretch", [("start", u64), ("first", u64)])
# read, written, strong: bitmaps. marks: a byte for each chunk of memory that has a bit.
# others_read, others_written: bitmaps of what the launches in front of a dependent launch use; or null.
# agent: those launches. waited: griddepcontrol.wait was executed.
Footprint = Struct("Footprint", [
    ("stretches", ptr_to(Stretch)), ("slots", u64), ("read", ptr_to(u64)), ("written", ptr_to(u64)), ("strong", ptr_to(u64)),
    ("marks", ptr_to(u8)), ("others_read", ptr_to(u64)), ("others_written", ptr_to(u64)), ("agent", u32), ("waited", u32),
])  # fmt: skip
_MAP = int(Proxy.TENSORMAP)


@native(inline=True)
def footprint_of(cluster: ptr_to(Cluster)) -> ptr_to(Footprint):
    return cast_ptr(Footprint, of_launch(cluster).footprint)


@native
def is_set(words: ptr_to(u64), begin: u64, count: u64) -> boolean:
    """Whether one of the bits from `begin` on is set."""
    for i in range(count):
        at = begin + i
        if ((words[at >> 6] >> (at & 63)) & 1) != 0:
            return True
    return False


@native
def print_bytes(w: ptr_to(Warp), at: u64, bytes: u64, access: u32) -> None:
    """Note contiguous bytes from a generic address on."""
    f = footprint_of(w.cta.cluster)
    slot = at >> SLOT_SHIFT
    if slot < f.slots and bytes != 0:
        stretch = f.stretches + slot
        if stretch.start != 0:
            begin = at - stretch.start + stretch.first
            kind = access >> PROXY_SHIFT
            if (access & ATOMIC) != 0 or ((rec.races_of(w.cta.cluster).order & Order.STRONG) != 0 and kind == 0):
                set_bits(f.strong, begin, bytes)
            else:
                if (access & READ) != 0 or kind == _MAP:
                    set_bits(f.read, begin, bytes)
                if (access & WRITE) != 0:
                    set_bits(f.written, begin, bytes)
            chunk = begin >> CHUNK_SHIFT
            while chunk <= (begin + bytes - 1) >> CHUNK_SHIFT:
                f.marks[chunk] = u8(1)
                chunk = chunk + 1


@native
def print_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    print_bytes(w, at, u64(bytes), access)


@native
def print_lanes(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    if base == 0 and mask != 0:  # shared memory, parameters and the like have theirs there
        lane = trailing_zeros(mask)
        first = at[lane]
        a = load(U64, at)
        live = bits_mask(mask)
        ahead = U64(iota(LANE)) - u64(lane)
        run = mask >> lane
        if (run & (run + 1)) == 0 and any_lane((a != ahead * u64(bytes) + first) & live) == 0:
            print_bytes(w, first, trailing_zeros(~u64(run)) * u64(bytes), access)
        elif any_lane((a != first) & live) == 0:
            print_bytes(w, first, u64(bytes), access)
        else:
            for lane in bits_of(mask):
                print_bytes(w, at[lane], u64(bytes), access)


FOOTPRINT = Instrument("footprint", {"accessed": print_lanes, "accessed_one": print_one})


# a dependent launch ---------------------------------------------------------------------------------------------------
@native
def begin_dependent(cluster: ptr_to(Cluster)) -> None:
    footprint_of(cluster).agent = new_agent(cluster)  # the same in each cluster


@native
def wait_for_launches(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    f = footprint_of(w.cta.cluster)
    f.waited = 1
    learn(w, mask, f.agent, 1)


@native
def judge_early(w: ptr_to(Warp), lane: u32, lanes: u32, at: u64, bytes: u64, access: u32, site: u32) -> None:
    """Report an access of a lane that has not waited to what the launches before use, where one of the two writes."""
    f = footprint_of(w.cta.cluster)
    slot = at >> SLOT_SHIFT
    if slot < f.slots and bytes != 0 and knows(w, lane, f.agent, 1) == 0:
        stretch = f.stretches + slot
        if stretch.start != 0:
            begin = at - stretch.start + stretch.first
            writes = u64((access & (WRITE | ATOMIC)) != 0)
            met = is_set(f.others_written, begin, bytes)
            if writes != 0 and not met and is_set(f.others_read, begin, bytes):
                say(find(w, int(DEPENDENT), site, lanes, at, u32(bytes)), 1, 0, 0, 0)
            if met:
                say(find(w, int(DEPENDENT), site, lanes, at, u32(bytes)), writes * 2, 0, 0, 0)


@native
def early_one(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, access: u32, site: u32) -> None:
    print_bytes(w, at, u64(bytes), access)
    judge_early(w, lane, u32(1) << lane, at, u64(bytes), access, site)


@native
def early_lanes(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, access: u32, site: u32) -> None:
    print_lanes(w, mask, at, base, bytes, access, site)
    if base == 0:
        for lane in bits_of(mask):
            judge_early(w, lane, u32(1) << lane, at[lane], u64(bytes), access, site)


DEPENDENT_LAUNCH = Instrument("dependent", {
    "accessed": early_lanes, "accessed_one": early_one, "grid_waited": wait_for_launches, "cluster_begins": begin_dependent,
})  # fmt: skip
