"""Undefined elements of a matrix product: element by element, from rows of A and columns of B
(compiler/lowering/definedness.py).
"""

from mmulator.base.codegen.lang import native, unrolled
from mmulator.base.codegen.ops import any_lane, bits_of, cast_ptr, load, null, stack
from mmulator.base.codegen.types import i32, i64, ptr, ptr_to, u8, u32, u64
from mmulator.matrix.twin.doors import Door
from mmulator.matrix.twin.moves import WmmaTable
from mmulator.matrix.twin.shared import operand_function
from mmulator.ptx.program.addresses import FIRST_GLOBAL_SLOT, SLOT_SHARED, SLOT_SHIFT
from mmulator.runtime.native.memory.windows import of_descriptor
from mmulator.runtime.native.state import FULL, LANES, Warp, WgmmaTable
from mmulator.sanitizer.checks import values as marks
from mmulator.sanitizer.checks.unwritten import note_unwritten, nothing_at
from mmulator.sanitizer.state import of_launch

_HEAD = 4  # numbers of a table before its places
_SPREAD = 0x9E3779B97F4A7C15


@native
def lines_without(table: ptr_to(i32), registers: u32, masks: ptr_to(u32)) -> u64:
    """Mask of the rows of A, or columns of B, that have an undefined element."""
    found = u64(0)
    for r in range(registers):
        for lane in bits_of(~masks[r]):
            found = found | (1 << u64(table[r * LANES + lane]))
    return found


@native
def product_values(table: ptr_to(i32), a: ptr_to(u32), b: ptr_to(u32), c: ptr_to(u32), d: ptr_to(u32)) -> None:
    """Compute the masks of lanes of D with a defined element: its row, column and summand must be defined."""
    of_a, of_b, of_d, each = u32(table[0]), u32(table[1]), u32(table[2]), u32(table[3])
    rows = lines_without(table + _HEAD, of_a, a)
    columns = lines_without(table + (_HEAD + of_a * LANES), of_b, b)
    places = table + (_HEAD + (of_a + of_b) * LANES)
    for r in range(of_d):
        out = c[r]
        if (rows | columns) != 0:
            for lane in range(u32(LANES)):
                none = u32(1)
                for n in range(each):
                    place = places + 2 * ((r * LANES + lane) * each + n)
                    if (((rows >> u64(place[0])) | (columns >> u64(place[1]))) & 1) == 0:
                        none = 0
                out = out & ~(none << lane)
        d[r] = out


# wgmma ----------------------------------------------------------------------------------------------------------------
UNIT = 16
WORDS = u32.vec(UNIT // 4)


@native(inline=True)
def state_of_unit(w: ptr_to(Warp), at: u64, site: u32) -> ptr:
    """The state of 16 bytes of an operand; undefined ones are recorded as loaded."""
    place = of_descriptor(w, at)
    if not marks.has_value_state(w, place, UNIT):
        return null(u8)
    state = marks.value_state_at(w, 0, place)
    if any_lane((load(WORDS, state, 0, 1) & marks.WORD) == 0) != 0:
        s = marks.known(w.cta.cluster)
        s.met = 1
        marks.note_undefined(w, 0, place, UNIT, state, site)
    return state


states_of = operand_function(Door("values", Warp, state_of_unit))


@native
def word_without(states: ptr, n: i64) -> u32:
    """1 if the 4 bytes of word n are undefined."""
    return u32((load(u32, states, n * 4, 1) & marks.WORD) == 0)


@native
def rows_without(states: ptr, row: i64, bytes: i64) -> u32:
    """1 if some word of a row is undefined."""
    for n in range(bytes // 4):
        if word_without(states + row * bytes, n) != 0:
            return 1
    return 0


@native
def operand_without(
    w: ptr_to(Warp), desc: u64, lines: i64, line_bytes: i64, mn_major: u32, site: u32, begin: i64, end: i64, out: ptr_to(u64)
) -> None:
    """Compute which rows (or columns) from `begin` to `end` of an operand in shared memory have an undefined element.

    w, site: the warp and instruction.
    desc: matrix descriptor.
    lines, line_bytes: number and bytes of lines.
    mn_major: whether M or N is contiguous.
    begin, end: the rows.
    out: a bit for each row.
    """
    s = marks.known(w.cta.cluster)
    shape = (u64(lines) << 32) | (u64(line_bytes) << 16) | (u64(w.cta.rank) << 1) | u64(mn_major)
    sound = cast_ptr(marks.Sound, s.sound) + (((desc ^ (shape >> 12)) * _SPREAD) >> 56)
    if sound.epoch == s.epoch and sound.desc == desc and sound.shape == shape:
        return
    s.met = 0
    states = w.cta.scratch
    if states_of(w, desc, lines, line_bytes, mn_major, site, states) == 0:
        return
    if s.met == 0:
        sound.desc = desc
        sound.shape = shape
        sound.epoch = s.epoch
        return
    for row in range(begin, end):
        none = u32(0)
        if mn_major == 0:
            none = rows_without(states, row, line_bytes)
        else:
            for line in range(lines):
                none = none | word_without(states + line * line_bytes, row // 2)
        if none != 0:
            bit = u64(row - begin)
            out[bit >> 6] = out[bit >> 6] | (1 << (bit & 63))


@native
def wgmma_values(
    w: ptr_to(Warp), table: ptr_to(WgmmaTable), a_desc: u64, b_desc: u64, a: ptr_to(u32), d: ptr_to(u32), site: u32
) -> None:
    """Compute the masks of a warp's registers of an accumulator: elements whose row or column is undefined become undefined.

    w, site: the warp and instruction.
    table: rows and columns of the registers.
    a_desc, b_desc: descriptors of A and B.
    a: masks of A in registers, or null.
    d: masks of the accumulator, in and out.
    """
    if w.cta.fault != 0 or w.cta.cluster.under_way != 0:
        return
    rows, columns = stack(u64), stack(u64, 4)
    rows[0] = 0
    for c in unrolled(4):
        columns[c] = 0
    k = i64(table.k)
    bits = i64(table.element_bits)
    n = i64(table.n)
    first = i64(w.index & 3) * 16
    if table.a_in_registers != 0:
        for r in range(u32(4)):
            for lane in bits_of(~a[r]):
                rows[0] = rows[0] | (1 << u64((lane >> 2) + 8 * (r & 1)))
    else:
        ka = k
        if table.sparse != 0:
            ka = k // 2
        if table.mn_major_a != 0:
            operand_without(w, a_desc, ka, 128, 1, site, first, first + 16, rows)
        else:
            operand_without(w, a_desc, 64, ka * bits // 8, 0, site, first, first + 16, rows)
    if table.mn_major_b != 0:
        operand_without(w, b_desc, k, n * 2, 1, site, 0, n, columns)
    else:
        operand_without(w, b_desc, n, k * bits // 8, 0, site, 0, n, columns)
    if (rows[0] | columns[0] | columns[1] | columns[2] | columns[3]) == 0:
        return
    for r in range(table.d_words):
        half = (r >> 1) & 1
        block = r >> 2
        each = u32(1)
        if table.d_bits == 16:
            half = r & 1
            block = r >> 1
            each = 2
        lost = u32(0)
        for place in range(u32(LANES)):
            hidden = u32(1)
            for e in range(each):
                column = 8 * block + 2 * (place & 3) + e
                if table.d_bits != 16:
                    column = column + (r & 1)
                by_row = (rows[0] >> u64((place >> 2) + 8 * half)) & 1
                if (by_row | ((columns[column >> 6] >> u64(column & 63)) & 1)) == 0:
                    hidden = 0
            lost = lost | (hidden << place)
        d[r] = d[r] & ~lost


@native
def tile_values(
    w: ptr_to(Warp), table: ptr_to(WmmaTable), at: u64, base: u64, stride: i64, bits: u32, held: u32, out: ptr_to(u32), site: u32
) -> None:
    """Compute the masks of lanes whose registers of a wmma.load receive a written element.

    w, site: the warp and instruction.
    table: places of the elements.
    at, base: address and state space.
    stride: distance of lines in elements.
    bits: bits of an element.
    held: elements of a register.
    out: the masks.
    """
    count = u32(table.places)
    for n in range(count // (held * LANES)):
        out[n] = FULL
    place = at | base
    slot = place >> SLOT_SHIFT
    device = (slot == 0 or slot >= FIRST_GLOBAL_SLOT) and u64(of_launch(w.cta.cluster).values) != 0
    if w.cta.fault != 0 or not (device or (slot == SLOT_SHARED and w.cta.cluster.under_way == 0)):
        return
    for n in range(count // (held * LANES)):
        out[n] = 0
    for i in range(count):
        element = i64(table.major[i]) * stride + i64(table.minor[i])
        address = place + u64(element * i64(bits) >> 3)
        size = (bits + 7) >> 3
        has = u32(1)
        if device:
            if nothing_at(w, address, size, site):
                has = 0
                note_unwritten(w, (i // held) & 31, address, size, u32(marks.UNWRITTEN), site)
        elif marks.has_value_state(w, address, size):
            state = marks.value_state_at(w, 0, address)
            if marks.nothing_written_at(state, size):
                has = 0
                marks.note_undefined(w, (i // held) & 31, address, size, state, site)
        r = i // (held * LANES)
        out[r] = out[r] | (has << ((i // held) & 31))


HOOKS = {"tile_read": tile_values, "product_of": product_values, "product_in_shared": wgmma_values}
