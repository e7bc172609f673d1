"""Rules of operands of matrix instructions (base/rules/operands.py), and impossible accesses in a launch that continues after
faults: each becomes a finding, and its lane is left out (compiler/lowering/screened.py). Faults of the memory windows are found
here too; other faults end the launch as usual.
"""

from collections.abc import Mapping

from mmulator.base.codegen.lang import Native, native
from mmulator.base.codegen.ops import load, mask_bits, select, trailing_zeros
from mmulator.base.codegen.types import i64, ptr_to, u32, u64
from mmulator.base.rules import operands as rules
from mmulator.base.rules.tensor_memory import OPERAND_DIFFERS
from mmulator.ptx.program.addresses import SLOT_LOCAL, SLOT_PARAM, SLOT_SHIFT
from mmulator.ptx.program.fragments import Misuse
from mmulator.runtime.native.hooks.operands import UniformOperand, WrongOperand
from mmulator.runtime.native.memory.locate import impossible
from mmulator.runtime.native.state import FULL, FaultKind, Warp
from mmulator.sanitizer.shadow.records import AccessKind
from mmulator.sanitizer.shadow.shadow import put_by
from mmulator.sanitizer.state import find, find_against, say

U32, U64 = u32.vec(32), u64.vec(32)

# Bits of a matrix descriptor that belong to no field: 14-15, 30-31, 46-48, 52-61.
RESERVED = 3 << 14 | 3 << 30 | 7 << 46 | 0x3FF << 52
LINE = 16  # bytes that every line begins at a multiple of by CUDA's description of wmma
_BY_COPY = 1 + int(AccessKind.TENSOR)
START = 0x3FC0  # bits of a start address, without those below 1024 bytes, after which every pattern begins again
_SPREAD = 0x9E3779B97F4A7C15
# The rule of each Misuse.
_BY_MISUSE = {Misuse.CONVERTED: rules.CONVERTED, Misuse.REORDERED: rules.REORDERED, Misuse.UNEVEN: rules.UNEVEN}
_MISUSES = tuple(_BY_MISUSE.get(each, rules.FRAGMENT) for each in Misuse)


@native
def judge_operand(w: ptr_to(Warp), mask: u32, values: ptr_to(u64), operand: u32, allowed: u64, site: u32) -> None:
    """Check that all lanes give one value, and that it is an allowed one."""
    lane = trailing_zeros(mask)
    first = values[lane]
    others = mask & mask_bits(load(U64, values) != first)
    if others != 0:
        rule = select(operand <= UniformOperand.STRIDE, rules.WMMA_OPERAND, u32(rules.SELECTOR))
        rule = select(operand <= UniformOperand.B_DESC, u32(rules.WGMMA_OPERAND), rule)
        rule = select(operand >= UniformOperand.TADDR, u32(OPERAND_DIFFERS), rule)
        other = trailing_zeros(others)
        say(find(w, rule, site, others, 0, 0), u64(operand), first, values[other], u64(lane))
    if allowed != 0:
        if first > 63 or ((allowed >> (first & 63)) & 1) == 0:
            say(find(w, rules.SELECTOR_RANGE, site, mask, 0, 0), u64(operand), first, allowed, 0)
    if operand <= UniformOperand.B_DESC:
        if (first & RESERVED) != 0:
            say(find(w, rules.RESERVED, site, mask, 0, 0), u64(operand), first, 0, 0)
        judge_base(w, mask, first, operand, site)


@native
def note_descriptor(w: ptr_to(Warp), lanes: u32, words: ptr_to(u64), shapes: ptr_to(u32), operand: u32, site: u32) -> None:
    """Record a matrix descriptor for each place in the pattern and layout, and whether a tensor copy brought what lies there, for
    sanitizer/diagnostics/findings/operands.py to judge.
    """
    if lanes == 0 or w.cta.fault != 0:
        return
    lane = trailing_zeros(lanes)
    kind = (words[lane] & ~u64(START)) ^ (u64(shapes[lane]) << 20) ^ u64(operand)
    entry = find_against(w, rules.LAYOUT, site, 1 << lane, 0, 0, u32((kind * _SPREAD) >> 32) | 1, 0, 0, 0)
    if u64(entry) != 0:
        if entry.count == 1:
            entry.words[0] = u64(operand)
            entry.words[1] = words[lane]
            entry.words[2] = u64(shapes[lane])
            entry.words[3] = u64(put_by(w, (u32(words[lane]) & 0x3FFF) << 4) == _BY_COPY)


@native
def judge_base(w: ptr_to(Warp), mask: u32, descriptor: u64, operand: u32, site: u32) -> None:
    """Check that a swizzled matrix begins in the row of the pattern that its base offset gives. Tensor copies swizzle by the
    address, so their pattern begins at multiples of its size wherever the matrix does (CUTLASS uses this).
    """
    mode = u32(descriptor >> 62)
    if mode == 0:
        return
    row = u32(256) >> mode  # bytes: 128, 64, 32
    start = (u32(descriptor) & 0x3FFF) << 4
    base = u32(descriptor >> 49) & 7
    wanted = u32(0)
    if start % (8 * row) >= row:
        wanted = (start >> 7) & 7
    if base != wanted:
        if base == 0:
            kind = put_by(w, start)
            if kind == 0 or kind == _BY_COPY:
                return
        say(find(w, rules.BASE_OFFSET, site, mask, 0, 0), u64(operand), u64(start) | (u64(base) << 32), u64(wanted), 0)


@native
def judge_place(w: ptr_to(Warp), at: u64, stride: i64, default: i64, bits: u32, aligned: u32, generic: u32, site: u32) -> None:
    """Check the place of a wmma matrix.

    w: the warp.
    at: address.
    stride: distance of its lines, in elements.
    default: least stride.
    bits: bits of an element.
    aligned: required alignment of the lines.
    generic: whether the address is generic, so that its state space is checked.
    site: the instruction.
    """
    slot = at >> SLOT_SHIFT
    line = i64(aligned)
    if line > LINE:
        line = LINE
    rule = u32(0)
    if stride != default and stride * i64(bits) % (8 * i64(aligned)) != 0:
        rule = rules.ROWS
    if stride != default and stride * i64(bits) % (8 * line) != 0:
        rule = rules.STRIDE
    if stride < default:
        rule = rules.SHORT_STRIDE
    if (at & (u64(aligned) - 1)) != 0:
        rule = rules.ADDRESS
    if generic != 0 and slot >= SLOT_LOCAL and slot <= SLOT_PARAM:
        rule = rules.SPACE
    if rule == 0:
        return
    say(find(w, rule, site, FULL, at, 0), at, u64(stride), u64(default), u64(aligned) | (u64(bits) << 32))


@native
def judge_metadata(
    w: ptr_to(Warp), words: ptr_to(u32), lanes: u32, undefined: u32, unordered: u32, unlisted: u32, site: u32
) -> None:
    """Report the first illegal nibble of the metadata that an instruction uses.

    w: the warp.
    words: the metadata of all lanes.
    lanes: lanes whose metadata is used.
    undefined: mask of undefined nibbles.
    unordered: mask of nibbles that only the order excludes.
    unlisted: mask of legal nibbles that the list for FP8 does not have.
    site: the instruction.
    """
    every = load(U32, words)
    for n in range(u32(8)):
        nibbles = (every >> U32(n * 4)) & 15
        bad = lanes & mask_bits(((U32(undefined | unlisted) >> nibbles) & 1) != 0)
        if bad != 0:
            lane = trailing_zeros(bad)
            nibble = (words[lane] >> (n * 4)) & 15
            rule = select(((unordered >> nibble) & 1) != 0, rules.ORDER, u32(rules.METADATA))
            rule = select(((unlisted >> nibble) & 1) != 0, rules.UNLISTED, rule)
            say(find(w, rule, site, bad, 0, 0), u64(nibble), u64(lane), u64(n), 0)


@native
def judge_refused(w: ptr_to(Warp), lanes: u32, values: ptr_to(u64), what: u32, site: u32) -> None:
    """Report an operand that an instruction does not take. words of the finding: the first lane's."""
    rule = select(what == WrongOperand.LARGE, rules.LARGE, u32(rules.SOURCE_SIZE))
    rule = select(what == WrongOperand.ROW, u32(rules.ROW_ADDRESS), rule)
    say(find(w, rule, site, lanes, 0, 0), values[trailing_zeros(lanes)], 0, 0, 0)


@native
def judge_fragment(w: ptr_to(Warp), misuse: u32, number: u32, site: u32) -> None:
    rule = u32(0)
    for n, each in enumerate(_MISUSES):
        rule = select(misuse == n, each, rule)
    say(find(w, rule, site, FULL, 0, 0), u64(number) + 1, 0, 0, 0)


@native
def judge_elements(w: ptr_to(Warp), mask: u32, site: u32) -> None:
    """Report that only some lanes operate on a fragment."""
    if mask != 0 and mask != FULL:
        find(w, rules.UNEVEN, site, mask, 0, 0)


@native
def judge_factors(w: ptr_to(Warp), mask: u32, values: ptr_to(u64), site: u32) -> None:
    """Report that lanes operate on a fragment with different numbers."""
    if mask != 0:
        others = mask & mask_bits(load(U64, values) != values[trailing_zeros(mask)])
        if others != 0:
            find(w, rules.UNEVEN, site, others, 0, 0)


HOOKS = {
    "operand_given": judge_operand, "matrix_described": note_descriptor, "fragment_placed": judge_place,
    "metadata_given": judge_metadata,
    "fragment_used": judge_fragment, "fragment_operated": judge_elements, "fragment_scaled": judge_factors,
    "operand_refused": judge_refused,
}  # fmt: skip


# impossible accesses --------------------------------------------------------------------------------------------------


@native
def left_out(w: ptr_to(Warp), lane: u32, at: u64, bytes: u32, site: u32, rule: u32, kind: u32) -> None:
    """Report a lane that is left out. words of the finding: the kind of the fault."""
    say(find(w, rule, site, 1 << lane, at, bytes), u64(kind), 0, 0, 0)


@native
def screen_lanes(
    w: ptr_to(Warp), mask: u32, at: ptr_to(u64), base: u64, bytes: u32, only: u32, access: u32, site: u32, out: ptr_to(u32)
) -> None:
    out[0] = 0
    left = mask
    while left != 0 and w.cta.fault == 0:
        lane = trailing_zeros(left)
        left = left & (left - 1)
        one = 1 << lane
        kind = impossible(w, lane, at[lane], base, bytes, only, access, site)
        if kind != 0:
            out[0] = out[0] | one
            rule = u32(rules.BOUNDS)
            if kind == FaultKind.MISALIGNED:
                rule = rules.ALIGNMENT
            if kind == FaultKind.BEYOND_SPACE or kind == FaultKind.OTHER_CTA or kind == FaultKind.WRONG_SPACE:
                left_out(w, lane, at[lane], bytes, site, rules.SPACES, kind)
            else:
                left_out(w, lane, at[lane] | base, bytes, site, rule, kind)


SCREEN_HOOKS: Mapping[str, Native] = {"screened": screen_lanes}
