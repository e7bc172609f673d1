"""Rows of eight lanes, and lines of 128 bytes of shared memory, whose chunks of 16 bytes a swizzle exchanges."""

from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.ops import iota, load, mask_bits, shuffle, store
from mmulator.base.codegen.types import ptr, u64
from mmulator.base.codegen.values import Value

LINE = 128
CHUNK = 16
DOUBLE = 2 * CHUNK
TURNED = (2, 3, 0, 1)  # words of 8 bytes: two chunks change places
W4, U64 = u64.vec(4), u64.vec(32)


def of_eight(a: Value) -> Value:
    """Macro: for each eight lanes the value of the first."""
    return shuffle(a, None, [n & ~7 for n in range(32)])


def apart(a: Value, bytes: int) -> Value:
    """Macro: mask of the lanes whose bytes are not contiguous with those of the first of their eight lanes."""
    return mask_bits((a - of_eight(a)) != (iota(U64, 0, bytes) & (8 * bytes - 1)))


def _line(into: bool) -> Native:
    """A function that copies a row of 128 bytes into a line, or out of it. turn: exclusive-ored with the place of
    each chunk.
    """

    def line_of(outside: ptr, line: ptr, turn: u64) -> None:
        pairs = turn & ~u64(CHUNK)
        if turn == pairs:
            for c in unrolled(LINE // DOUBLE):
                inside = line + (u64(c * DOUBLE) ^ pairs)
                if into:
                    store(load(W4, outside + c * DOUBLE, align=1), inside, align=1)
                else:
                    store(load(W4, inside, align=1), outside + c * DOUBLE, align=1)
        else:
            for c in unrolled(LINE // DOUBLE):
                inside = line + (u64(c * DOUBLE) ^ pairs)
                if into:
                    store(shuffle(load(W4, outside + c * DOUBLE, align=1), None, TURNED), inside, align=1)
                else:
                    store(shuffle(load(W4, inside, align=1), None, TURNED), outside + c * DOUBLE, align=1)

    return Native(line_of, f"line_{'into' if into else 'out_of'}_shared", inline=True)


put_line, take_line = _line(True), _line(False)
