"""Lanes of one store or cp.async that write different bytes to one place (rules/races.py), where the result is not specified.
Lanes that store one sum of a butterfly of shuffles may differ in its rounding (program/butterflies.py).
"""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import bits_of, cast_ptr, copy_bytes, load, mask_bits, select, stack, store, trailing_zeros
from mmulator.codegen.types import boolean, ptr_to, u8, u32, u64
from mmulator.native.asynchrony.pending import entry, queue
from mmulator.native.memory.rows import CHUNK
from mmulator.native.memory.windows import SHARED
from mmulator.native.state import COPIES, LANES, Warp
from mmulator.rules.races import LANES_DIFFER, MATRIX_ROWS
from mmulator.sanitizer.found import find
from mmulator.sanitizer.shadow.at_once import pattern_of
from mmulator.sanitizer.shadow.records import races_of
from mmulator.sanitizer.shadow.shadow import is_watched

U64 = u64.vec(32)
_DIFFER, _ROWS = LANES_DIFFER.number, MATRIX_ROWS.number


@native(inline=True)
def are_apart(w: ptr_to(Warp), mask: u32, bytes: u32, site: u32) -> boolean:
    """Whether lanes are known to have an address of their own each."""
    s = races_of(w.cta.cluster)
    if u64(s) == 0:
        return False
    p = pattern_of(s, w, site)
    return (p.site == site + 1) & (p.mask == mask) & (p.bytes == bytes) & (p.leaders == mask)


@native
def judge_lanes(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, image: ptr_to(u8), rows: u32, site: u32
) -> None:
    if are_apart(w, mask, bytes, site):
        return
    s = races_of(w.cta.cluster)
    if w.cta.fault != 0 or mask == 0 or is_watched(at[trailing_zeros(mask)] | base) == 0:
        return
    alike = u32(0)
    if u64(s) != 0 and rows == 0:
        alike = s.launch.sums[site]
    places = load(U64, at)
    left = mask
    while left != 0:
        lane = trailing_zeros(left)
        same = left & mask_bits(places == at[lane])
        left = left & ~same
        for other in bits_of(same & same - 1):
            differ = u32(0)
            for n in range(bytes):
                differ = differ | u32(image[lane * bytes + n] ^ image[other * bytes + n])
            if differ != 0 and ((lane ^ other) & ~alike) != 0:
                entry = find(w, select(rows != 0, _ROWS, u32(_DIFFER)), site, same, at[lane] | base, bytes)
                if u64(entry) != 0:
                    if entry.count == 1:
                        entry.words[0] = u64(lane) | (u64(other) << 32)
                return


@native
def judge_copies(
    w: ptr_to(Warp), mask: u32, source: ptr_to(u64), target: ptr_to(u64), bytes: u32, valid: ptr_to(u32), site: u32
) -> None:
    """Compare what the lanes of a cp.async bring, as it is now; the copy itself comes later."""
    if w.cta.fault != 0 or mask == 0 or are_apart(w, mask, bytes, site):
        return
    e = entry(w, COPIES, queue(w, COPIES).issued - 1)
    image = cast_ptr(u8, stack(u8.vec(CHUNK), LANES))
    for lane in bits_of(mask):
        store(u8.vec(CHUNK)(0), image + lane * bytes, 0, 1)
        copy_bytes(image + lane * bytes, e.source[lane], u32(e.valid[lane]))
    judge_lanes(w, mask, target, u64(SHARED), bytes, image, 0, site)


HOOKS = {"lanes_stored": judge_lanes, "lanes_moved": judge_copies}
