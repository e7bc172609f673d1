"""Stencils: what is left open in LLVM lines, places of values, blocks that have none."""

import ctypes

import numpy as np
import pytest

from mmulator.base.codegen import stencils
from mmulator.base.codegen.engine import Library
from mmulator.base.codegen.loading import ensure, symbols
from mmulator.base.codegen.ops import bitcast, bits_mask, fma, select, stack
from mmulator.base.codegen.references import StoredRecords
from mmulator.base.codegen.types import f32, i32, i64, ptr, ptr_to, u8, u32
from mmulator.base.codegen.values import Builder, Value, module_text

LANES = 32
PARAMS = [("w", ptr), ("regs", ptr), ("mask", u32), ("pc", i32)]
U32, F32 = u32.vec(LANES), f32.vec(LANES)


def block(number: int, factor: int, at: int) -> Builder:
    """regs[0:32] as a function of itself, of the mask and of w[0]; the result is `factor`. at: where a word is written."""
    b = Builder(f"block{number}", i32, PARAMS)
    with b:
        w, regs, mask, _ = b.params
        active = bits_mask(mask)
        b.cut()
        place = Value(b, ptr_to(U32), regs.text)
        values = b.load(U32, place, align=4)
        one = Value(b, ptr_to(i64), w.text)[0]
        b.cut()
        room = stack(U32)
        b.store(values * factor + u32(one), room)
        b.cut()
        b.cut()
        unread = values ^ 77  # noqa: F841
        b.cut()
        with b.if_(one == 5):
            b.store(select(active, b.load(U32, room), values), place, align=4)
        b.cut()
        x = F32(values)
        b.cut()
        b.store(fma(x, x, x), Value(b, ptr_to(F32), regs.text) + 1, align=4)
        Value(b, ptr_to(u32), regs.text)[at] = mask
        b.cut()
        b.ret(factor)
    return b


WAYS = {"whole": lambda *_: None, "pieces": lambda _, split: split()}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether stencils are of whole instructions, or of their lines one by one."""
    monkeypatch.setattr(stencils, "chosen", WAYS[request.param])
    return str(request.param)


def joined(blocks: dict[int, Builder]) -> tuple[stencils.Records, np.ndarray]:
    records = stencils.Records()
    assert records.take(blocks, {})
    ensure(records.stencils())
    stored = StoredRecords(records.data())
    return records, stored.placed(symbols(stored.names))


def run(function: int, w: int, mask: int, *more: int) -> tuple[int, list[int]]:
    regs, word = np.arange(3 * LANES, dtype=np.uint32), np.array([w], np.int64)
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, *[ctypes.c_void_p] * 2)
    result = call(function)(word.ctypes.data, regs.ctypes.data, mask, *(more or (None, None)))
    return result, regs.tolist()


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0000FFFF, 0xA0000001])
@pytest.mark.parametrize("w", [5, 6])
@pytest.mark.usefixtures("way")
def test_joined_blocks_do_what_compiled_ones_do(w: int, mask: int) -> None:
    blocks = {0: block(0, 3, 70), 1: block(1, 1000, 80)}
    records, words = joined(blocks)
    compiled = Library(module_text([*blocks.values()]))
    room = np.zeros(stencils.ROOM + 64, np.uint8)
    start = -(-room.ctypes.data // 64) * 64
    for number, position in records.blocks:
        mine = run(int(words[position]), w, mask, start, words.ctypes.data + 8 * position)
        assert mine == run(compiled.address(f"block{number}"), w, mask)


@pytest.mark.parametrize("factor, differ", [(5, 0), (4, 1)])  # LLVM is told powers of two, which it makes shifts
def test_blocks_that_differ_in_numbers_have_one_set_of_stencils(
    factor: int, differ: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stencils, "chosen", WAYS["whole"])
    one, other = stencils.Records(), stencils.Records()
    assert one.take({0: block(0, 3, 70)}, {}) and other.take({7: block(7, factor, 90)}, {})
    names = [[s.name for s in r.stencils()] for r in (one, other)]
    assert sum(a != b for a, b in zip(*names, strict=True)) == differ
    assert one.words != other.words


def test_what_nothing_reads_has_no_record() -> None:
    records = stencils.Records()
    b = block(0, 3, 70)
    assert records.take({0: b}, {}) and "77" in "".join(b.lines) and 77 not in records.words


def test_a_jump_between_instructions_has_no_records() -> None:
    b = Builder("block0", i32, PARAMS)
    with b:
        with b.if_(b.params[2] == 1):
            b.cut()
            Value(b, ptr_to(u32), "%regs")[0] = b.params[2]
        b.ret(1)
    records = stencils.Records()
    assert not records.take({0: block(0, 3, 70), 1: b}, {})
    assert not records.blocks and not records.words and not records.uses


def test_a_register_is_read_apart_and_one_value_as_two_types_has_one_place(way: str) -> None:
    b = Builder("block0", i32, PARAMS)
    with b:
        _, regs, mask, _ = b.params
        with b.apart():
            values = b.load(U32, b.emit(ptr_to(u8), f"getelementptr i8, ptr {regs.text}, i64 0"), align=4)
        with b.apart():
            x = bitcast(F32, values)
        y = fma(x, x, x)
        with b.apart():
            bits = bitcast(U32, y)
        b.cut()
        b.store(select(bits_mask(mask), bits ^ values, values), Value(b, ptr_to(U32), regs.text) + 1, align=4)
        with b.if_(mask == 1), b.apart():  # behind a branch nothing is taken apart
            b.store(u32(0), Value(b, ptr_to(u32), regs.text))
        b.cut()
        b.ret(1)
    records, words = joined({0: b})
    assert way == "pieces" or len(records.uses) == 4  # the load, fma, the stores, ret
    compiled, room = Library(module_text([b])), np.zeros(stencils.ROOM + 64, np.uint8)
    start = -(-room.ctypes.data // 64) * 64
    for lanes in (1, 0xFF00FF00, 0xFFFFFFFF):
        mine = run(int(words[0]), 0, lanes, start, words.ctypes.data)
        assert mine == run(compiled.address("block0"), 0, lanes)


def squared(number: int, addend: int) -> Builder:
    """regs[0:32] = its square, plus a number in lanes that the mask has."""
    b = Builder(f"block{number}", i32, PARAMS)
    with b:
        _, regs, mask, _ = b.params
        active = bits_mask(mask)
        b.cut()
        place = Value(b, ptr_to(U32), regs.text)
        values = b.load(U32, place, align=4)
        b.store(select(active, values * values + addend, values), place, align=4)
        b.cut()
        b.ret(1)
    return b


def test_pieces_stand_for_what_was_never_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with an instruction that no kernel had before needs no compiler, if its lines were compiled."""
    known: set[str] = set()
    monkeypatch.setattr(stencils, "is_stored", known.__contains__)
    monkeypatch.setattr(stencils, "_stencils", {})
    whole, pieces = stencils.Records(), stencils.Records()
    assert whole.take({0: squared(0, 11)}, {})
    with monkeypatch.context() as forced:
        forced.setattr(stencils, "chosen", WAYS["pieces"])
        assert pieces.take({0: squared(0, 11)}, {})
    names = [{s.name for s in records.stencils()} for records in (whole, pieces)]
    for stored, taken in ((names[1], names[1]), (names[0] | names[1], names[0]), (names[1] - {*[*names[1]][:1]}, None)):
        known.clear(), known.update(stored), stencils._stencils.clear()
        records = stencils.Records()
        assert records.take({0: squared(0, 12)}, {})
        found = {s.name for s in records.stencils()}
        assert found == taken if taken else not found <= known  # one that is missing is compiled


def test_pieces_that_any_kernel_may_need_are_what_lines_are_taken_in() -> None:
    import llvmlite.binding

    common = {s.name: s for s in stencils.common_pieces()}
    llvmlite.binding.parse_assembly(module_text([*common.values()])).verify()  # type: ignore[arg-type]
    b = Builder("block0", i32, PARAMS)
    with b:
        _, regs, mask, _ = b.params
        active = bits_mask(mask)
        b.cut()
        values = b.load(U32, Value(b, ptr_to(U32), regs.text), align=4)
        b.cut()
        sums = select(active & (values < 7), (values + values ^ 3) >> 2, 9)
        b.cut()
        b.store(sums, Value(b, ptr_to(U32), regs.text), align=4)
        b.ret(1)
    block = stencils._Block(b, {})
    (part,) = [part for part, _ in block.joined() if "select" in part.lines]
    assert {s.name for _, s in block._pieces(part, {*part.results}).parts} <= common.keys()
