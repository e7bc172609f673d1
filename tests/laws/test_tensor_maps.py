"""A kernel's tensor map is what CUDA's driver encodes, or a fault: native code is held to matrix/layouts/tensormap/rules.py over
what 128 bytes can say, with every field at its edges, and no map whatever makes it count or divide by what nobody looked at.
"""

import random
import re
from collections import Counter
from functools import cache

import numpy as np

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.ops import stack
from mmulator.base.codegen.types import ptr_to, u32
from mmulator.errors import OperandError
from mmulator.matrix.layouts.tensormap import Encoded, fields
from mmulator.matrix.layouts.tensormap.modes import BY_MODE
from mmulator.matrix.layouts.tensormap.rules import refusals
from mmulator.runtime.native.asynchrony.maps import MOST_ROW, MOST_SPAN, Box, MapFault, Mode, take_map
from tests.support.tensor_map_fields import FIELDS, at_edges, at_random, bases, edges, put
from tests.twin.test_moves import call

ANSWER = 4  # words: of MapFault, rows, bytes of a row, and from row to row


@native
def judged(maps: ptr_to(u32), asked: ptr_to(u32), count: u32, out: ptr_to(u32)) -> u32:
    """Native code's judgement of each map, for an instruction of the asked rank and mode."""
    box = stack(Box)
    for n in range(count):
        at = out + n * ANSWER
        at[0] = take_map(box, maps + n * fields.WORDS, asked[2 * n], asked[2 * n + 1])
        at[1] = box.rows
        at[2] = box.row
        at[3] = box.pitch
    return count


# maps ---------------------------------------------------------------------------------------------------------------
Words = tuple[int, ...]


@cache
def maps() -> list[Words]:
    """Each field at each edge in some of the bases, then several at once; bits at random."""
    rng = random.Random(24)
    plain = [words for _, _, words in bases()]
    found = [*plain]
    for field in FIELDS:
        for stored in edges(field):
            for words in rng.sample(plain, 10):
                found.append([*words])
                put(found[-1], field, stored)
    found += [at_edges(rng, rng.choice(plain), rng.choice((2, 2, 3, 6))) for _ in range(9000)]
    found += [at_random(rng) for _ in range(3000)]
    found.append([0] * fields.WORDS)
    return [tuple(words) for words in found]


# the law ------------------------------------------------------------------------------------------------------------
def asked_of(words: Words) -> tuple[int, int]:
    """The instruction that a map is for, as far as there is one."""
    return min(max(fields.RANK.get(words), 1), 5), Mode.IM2COL if fields.IM2COL.get(words) else Mode.TILE


def wanted(words: Words) -> tuple[set[MapFault | None], Encoded | None]:
    """The verdicts that native code may have on a map (None: it is valid), and the decoded map if it is one."""
    if not any(words[n] for n in (0, 1, 2, 8)):
        return {MapFault.ZEROS}, None
    try:
        m = Encoded.decode(np.array(words, "<u4").tobytes())
    except OperandError:
        return {MapFault.FIELD, MapFault.RANK, MapFault.REFUSED}, None
    if (fields.SWIZZLE.get(words), fields.ATOMICITY.get(words)) not in BY_MODE:
        return {MapFault.FIELD}, None
    if any(refusals(m)):
        return {MapFault.REFUSED}, m
    return {MapFault.SPAN if m.span > MOST_SPAN else None}, m


def judge(asked: list[tuple[int, int]]) -> np.ndarray:
    given, modes = np.array(maps(), np.uint32), np.array(asked, np.uint32)
    out = np.zeros((len(given), ANSWER), np.uint32)
    assert call(judged, given, modes, len(given), out) == len(given)
    return out


def test_native_code_refuses_what_the_driver_refuses_and_nothing_else() -> None:
    answers = judge([asked_of(words) for words in maps()])
    said: Counter[str] = Counter()
    for words, (wrong, rows, row, pitch) in zip(maps(), answers.tolist()):
        expected, m = wanted(words)
        assert (MapFault(wrong) if wrong else None) in expected, (words, wrong, expected, m and list(refusals(m)))
        if m is not None:
            said.update({re.split(r"[\[,]", refusal.parameter)[0] for refusal in refusals(m)} or {"taken"})
        if not wrong:
            assert m is not None and rows * pitch == m.span and row == (m.slice or m.row_bytes), (words, m)
    assert said["taken"] > 2000, said
    rare = {"address", "array", "shape", "strides", "box", "lower", "channels", "pixels", "oob_fill", "swizzle", "interleave"}
    assert {name for name in said if said[name] > 20} == rare | {"taken"}, said


def test_whatever_an_instruction_takes_has_bounded_rows() -> None:
    """Each map is tried with instructions of every rank and mode, also those that it is not made for."""
    for rank in range(1, 6):
        for mode in Mode:
            if (mode >= Mode.IM2COL and rank < 3) or (mode == Mode.ROWS and rank != 2):
                continue
            answers = judge([(rank, mode)] * len(maps()))
            taken = answers[answers[:, 0] == 0].astype(np.int64)
            rows, row, pitch = taken[:, 1], taken[:, 2], taken[:, 3]
            assert len(taken) > 100 and rows.min() >= 1 and (rows * pitch).max() <= MOST_SPAN
            assert row.min() >= 16 and row.max() <= MOST_ROW and not (row % 16).any() and (pitch >= row).all()
