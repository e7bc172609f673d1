"""The swizzle of a tile: that of the tensor map which copied it, compared with that of the descriptor or map by which it is
read.

The record of a tensor copy to shared memory contains its pattern (records.py), so a later write there replaces it. A read is
reported if no part of it was copied with the read's pattern: an operand of wgmma may extend beyond a small tile into the bytes
behind it.
"""

from mmulator.codegen.lang import native
from mmulator.codegen.ops import maximum, popcount
from mmulator.codegen.types import boolean, ptr_to, u32, u64
from mmulator.native.asynchrony.boxes import Box
from mmulator.native.matrix.wgmma import WARPS
from mmulator.native.state import FULL
from mmulator.rules.operands import SWIZZLE_UNLIKE, TILE_SWIZZLE
from mmulator.sanitizer.found import find_against
from mmulator.sanitizer.shadow.conflicts import issued_by
from mmulator.sanitizer.shadow.records import Actor, Met

CHUNK_BIT = 4  # the lowest address bit that swizzles of 16-byte chunks exchange
SHIFTED, OTHER = 6, 7  # further patterns, beyond 1 + the number of exchanged bits: shifted by a base offset; other chunks
OF_A, OF_B, OF_STORE = range(3)  # the first word of a finding
CHUNK = 16
ROW_BIT = 7
_READ, _UNLIKE = TILE_SWIZZLE.number, SWIZZLE_UNLIKE.number


@native
def pattern_of_box(box: ptr_to(Box)) -> u32:
    """The swizzle pattern in which a tensor copy places the chunks of a row."""
    if box.swizzle_low != 0 or (box.swizzle != 0 and box.shift != CHUNK_BIT):
        return OTHER
    return 1 + popcount(box.swizzle)


@native
def pattern_of_descriptor(desc: u64) -> u32:
    """The swizzle pattern in which wgmma reads the chunks of a matrix."""
    bits = (4 - u32(desc >> 62)) & 3
    if ((u32(desc >> 49) & 7) & ((1 << bits) - 1)) != 0:
        return SHIFTED
    return 1 + bits


@native(inline=True)
def rows_between(first: u64, last: u64) -> u32:
    """The bits of the addresses of some bytes by which a swizzle exchanges chunks: bits 7 to 9, from 0 on."""
    apart = (first >> ROW_BIT) ^ (last >> ROW_BIT)
    return u32((first >> ROW_BIT) | (last >> ROW_BIT) | apart | (apart >> 1) | (apart >> 2))


@native(inline=True)
def exchanges(rows: u32, one: u32, other: u32) -> boolean:
    """Whether two patterns place chunks differently in some rows: by so many bits, less one, a pattern exchanges them."""
    if maximum(one, other) >= SHIFTED:
        return True
    return (rows & (((1 << (one - 1)) - 1) ^ ((1 << (other - 1)) - 1))) != 0


@native
def part_read(a: ptr_to(Actor), met: ptr_to(Met)) -> None:
    """Record that a warp has read its part of A; after the last of four, all of A is checked."""
    if a.alike != 0:
        met.alike = 1
    if a.unlike != 0 and met.unlike == 0:
        met.unlike = a.unlike
        met.unlike_pattern = a.unlike_pattern
        met.unlike_at = a.unlike_at
    met.parts = met.parts + 1
    a.alike = met.alike
    a.unlike = 0
    if met.parts == WARPS and met.renewed == a.store.renewed:
        a.unlike = met.unlike
        a.unlike_pattern = met.unlike_pattern
        a.unlike_at = met.unlike_at


@native
def pattern_read(a: ptr_to(Actor), operand: u32, desc: u64) -> None:
    """Check the pattern by which the actor has read a tile. words of the finding: operand, the two patterns, the descriptor."""
    if a.unlike != 0 and a.alike == 0:
        r = a.store.records + a.unlike
        lanes = 1 << a.lane
        if operand != OF_STORE:
            lanes = FULL
        rule = u32(_READ)
        if operand == OF_STORE or (operand == OF_B and not exchanges(a.rows, a.pattern, a.unlike_pattern)):
            rule = _UNLIKE  # A has 64 lines
        others = issued_by(r, a.cluster)
        entry = find_against(a.w, rule, a.site, lanes, a.unlike_at, CHUNK, r.site + 1, r.cta, r.warp, others)
        if u64(entry) != 0:
            if entry.count == 1:
                entry.words[0] = u64(operand)
                entry.words[1] = u64(a.pattern)
                entry.words[2] = u64(a.unlike_pattern)
                entry.words[3] = desc
    a.pattern = 0
    a.alike = 0
    a.unlike = 0
