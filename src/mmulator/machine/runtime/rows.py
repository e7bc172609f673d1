"""Lines of 128 bytes of shared memory, whose chunks of 16 bytes a swizzle exchanges."""

from __future__ import annotations

from mmulator.codegen.lang import Native, unrolled
from mmulator.codegen.ops import load, shuffle, store
from mmulator.codegen.types import ptr, u64

LINE = 128
CHUNK = 16
DOUBLE = 2 * CHUNK
TURNED = (2, 3, 0, 1)  # words of 8 bytes: two chunks change places
W4 = u64.vec(4)


def _line(into: bool) -> Native:
    """Copy a row of 128 bytes into a line, or out of it. turn: what is exclusive-ored to the place of each chunk in the line."""

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
