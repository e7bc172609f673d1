"""Machine code of shared libraries for aarch64, executed by a small reader of its instructions (Arm ARM, C6.2)."""

import struct
from collections.abc import Callable, Iterator

from mmulator.doors.library import aarch64

TABLE, COUNT, DOOR, LOG, STACK = 0x20000, 0x21008, 0x21A10, 0x23280, 0x3F000
BOOT, FUNCTION, RETURN = 0x41000, 0x42000, 0x43000  # places outside, where execution ends


class Processor:
    """64 KiB pages of memory, x0 to x30, and the stack's address as register 31."""

    def __init__(self, code: dict[int, bytes]) -> None:
        self.memory, self.x, self.carry = bytearray(0x40000), [0x1000 + n for n in range(31)] + [STACK], False
        for at, data in code.items():
            self.memory[at : at + len(data)] = data
        self.x[30] = RETURN

    def word(self, at: int) -> int:
        return int(struct.unpack_from("<Q", self.memory, at)[0])

    def put(self, at: int, *words: int) -> None:
        struct.pack_into(f"<{len(words)}Q", self.memory, at, *words)

    def run(self, at: int) -> int:
        """Execute from a place on; returns the place outside to which the code jumps."""
        while at < len(self.memory):
            (word,) = struct.unpack_from("<I", self.memory, at)
            step = next(step for mask, value, step in ROWS if word & mask == value)
            at = step(self, at, word) or at + 4
        return at


def signed(word: int, low: int, bits: int) -> int:
    field = word >> low & (1 << bits) - 1
    return field - (1 << bits) * (field >> bits - 1)


def near(p: Processor, at: int, word: int) -> int:
    return at + 4 * signed(word, 5, 19)


def pair(p: Processor, at: int, word: int) -> None:
    """stp, ldp: pre-indexed, post-indexed, or with an offset."""
    first, second, base, offset, kind = word & 31, word >> 10 & 31, word >> 5 & 31, 8 * signed(word, 15, 7), word >> 23 & 3
    place = p.x[base] + (offset if kind != 1 else 0)
    if word >> 22 & 1:
        p.x[first], p.x[second] = p.word(place), p.word(place + 8)
    else:
        p.put(place, p.x[first], p.x[second])
    if kind != 2:
        p.x[base] += offset


def to(number: Callable[[Processor, int, int], int], field: int = 0) -> Callable[[Processor, int, int], None]:
    """An instruction that writes a register."""

    def step(p: Processor, at: int, word: int) -> None:
        p.x[word >> field & 31] = number(p, at, word)

    return step


def linked(p: Processor, at: int, word: int) -> int:
    p.x[30] = at + 4
    place = at + 4 * signed(word, 0, 26)
    return place if place != BOOT else booted(p)


def booted(p: Processor) -> int:
    """Registers that a call may change, all with other values, as after Python's work while the library is made ready."""
    assert p.x[0] == DOOR
    for n in range(19):
        p.x[n] = 0xDEAD
    p.put(TABLE + 8 * 5, FUNCTION)
    return p.x[30]


def exclusive(p: Processor, at: int, word: int) -> None:
    p.put(p.x[word >> 5 & 31], p.x[word & 31])
    p.x[word >> 16 & 31] = 0


def compared(p: Processor, at: int, word: int) -> None:
    p.carry = p.x[word >> 5 & 31] >= (word >> 10 & 0xFFF) << 12


def released(p: Processor, at: int, word: int) -> None:
    p.put(p.x[word >> 5 & 31], p.x[word & 31])


ROWS: list[tuple[int, int, Callable[[Processor, int, int], int | None]]] = [
    (0x9F000000, 0x90000000, to(lambda p, at, w: (at & -4096) + 4096 * (signed(w, 5, 19) << 2 | w >> 29 & 3))),  # adrp
    (0xFFC00000, 0x91000000, to(lambda p, at, w: p.x[w >> 5 & 31] + (w >> 10 & 0xFFF))),  # add
    (0xFFE00000, 0x8B000000, to(lambda p, at, w: p.x[w >> 5 & 31] + (p.x[w >> 16 & 31] << (w >> 10 & 63)))),  # add, lsl
    (0xFFE0FC00, 0x4B000000, to(lambda p, at, w: p.x[w >> 5 & 31] - p.x[w >> 16 & 31] & 0xFFFFFFFF)),  # sub of 32 bits
    (0xFFC00000, 0xF9400000, to(lambda p, at, w: p.word(p.x[w >> 5 & 31] + 8 * (w >> 10 & 0xFFF)))),  # ldr
    (0xFFE0FC00, 0xF8605800, to(lambda p, at, w: p.word(p.x[w >> 5 & 31] + 8 * (p.x[w >> 16 & 31] & 0xFFFFFFFF)))),  # ldr, uxtw 3
    (0xFFE00000, 0x52800000, to(lambda p, at, w: w >> 5 & 0xFFFF)),  # movz
    (0xFFFFFC00, 0x53003C00, to(lambda p, at, w: p.x[w >> 5 & 31] & 0xFFFF)),  # uxth
    (0xFFFFFC00, 0xC85F7C00, to(lambda p, at, w: p.word(p.x[w >> 5 & 31]))),  # ldxr
    (0xFFE0FC00, 0xC8007C00, exclusive),  # stxr
    (0xFFFFFC00, 0xC89FFC00, released),  # stlr
    (0xFFC0001F, 0xF140001F, compared),  # cmp, lsl 12
    (0xFF00001F, 0x54000002, lambda p, at, w: near(p, at, w) if p.carry else None),  # b.hs
    (0xFF000000, 0xB4000000, lambda p, at, w: near(p, at, w) if p.x[w & 31] == 0 else None),  # cbz
    (0xFF000000, 0x35000000, lambda p, at, w: near(p, at, w) if p.x[w & 31] & 0xFFFFFFFF else None),  # cbnz of 32 bits
    (0xFE000000, 0xA8000000, pair),
    (0xFC000000, 0x14000000, lambda p, at, w: at + 4 * signed(w, 0, 26)),  # b
    (0xFC000000, 0x94000000, linked),  # bl
    (0xFFFFFC1F, 0xD61F0000, lambda p, at, w: p.x[w >> 5 & 31]),  # br
    (0xFFFFFC1F, 0xD65F0000, lambda p, at, w: p.x[w >> 5 & 31]),  # ret
]


def processor() -> Processor:
    """Functions 5 (plain) and 17 (logged, behind 16 others), a noted one, and what they jump to."""
    return Processor({
        0x5000: aarch64.stub(0x5000, 5, TABLE + 40, 0x7000), 0x5020: aarch64.stub(0x5020, 17, TABLE + 136, 0x7060),
        0x5040: aarch64.numbered(0x5040, 3, 0x70B0), 0x5060: aarch64.returns(4), 0x5080: aarch64.returns_place(0x5080, LOG + 77),
        0x7000: aarch64.start(0x7000, TABLE, DOOR, BOOT), 0x7060: aarch64.keep(0x7060, COUNT, LOG, 1 << 16, 16, 0x7000),
        0x70B0: aarch64.note(0x70B0, COUNT + 8, LOG),
    })  # fmt: skip


def arguments(p: Processor) -> Iterator[int]:
    return iter([*p.x[:9], *p.x[19:32]])


def test_a_function_jumps_to_what_its_slot_has() -> None:
    p = processor()
    p.put(TABLE + 40, FUNCTION)
    before = [*arguments(p)]
    assert p.run(0x5000) == FUNCTION and [*arguments(p)] == before


def test_the_first_call_makes_the_library_ready() -> None:
    p = processor()
    before = [*arguments(p)]
    assert p.run(0x5000) == FUNCTION and [*arguments(p)] == before  # with its arguments, stack and where to return to


def test_calls_before_main_are_logged() -> None:
    p = processor()
    for n in range(3):
        p.x[:6] = [100 * n + k for k in range(6)]
        assert p.run(0x5020) == RETURN and p.x[0] == 100 * n  # returns its first argument
        assert [p.word(LOG + 64 * n + 8 * k) for k in range(7)] == [2, *p.x[:6]] and p.word(COUNT) == n + 1
    p.put(COUNT, 1 << 16)  # a full log
    p.put(TABLE + 136, 0)
    p.memory[0x7000:0x7060] = bytes(aarch64.numbered(0x7000, 0, FUNCTION)).ljust(0x60, b"\0")
    assert p.run(0x5020) == FUNCTION


def test_calls_that_give_back_are_noted_round_a_ring() -> None:
    p = processor()
    for n, count in enumerate((0, 1, 1 << 16)):  # the third overwrites the first
        p.put(COUNT + 8, count)
        p.x[:2], p.x[30] = [7 + n, 8 + n], RETURN
        assert p.run(0x5040) == RETURN and p.x[0] == 0 and p.word(COUNT + 8) == count + 1
        assert [p.word(LOG + 32 * (count & 0xFFFF) + 8 * k) for k in range(3)] == [3, 7 + n, 8 + n]


def test_answers() -> None:
    p = processor()
    assert (p.run(0x5060), p.x[0]) == (RETURN, 4)
    assert (p.run(0x5080), p.x[0]) == (RETURN, LOG + 77)


def test_it_fits_into_the_room_of_the_library() -> None:
    assert len(aarch64.start(0, 0, 0, 0)) <= 96 and len(aarch64.keep(0, 0, 0, 0, 1, 0)) <= 80 and len(aarch64.note(0, 0, 0)) <= 80
    assert len(aarch64.stub(0, 0, 0, 0)) <= 32
