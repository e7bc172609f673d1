"""Loads and stores of lanes that lie together take a short way: the same bytes and the same faults as lane by lane."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Kernel, Module
from tests.support.tracing import MEMORY, traced

LANES, BYTES = 32, 32 * 16 + 48  # of a window: somewhat more than a warp accesses at most
OTHER = 1 << 40  # of an offset: into the second window
SPACES = ("global", "generic global", "shared", "generic shared", "shared::cluster", "const", "generic const")
TYPES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "v2.b16": 4, "v4.b8": 4, "v2.b32": 8, "v4.b16": 8, "v4.b32": 16, "v2.b64": 16}
OFF, ON, GONE = 0, 1, 2  # what a lane does: its predicate is false; it takes part; it has exited before


def text_of(space: str, name: str, store: bool) -> str:
    """A kernel in which each lane loads (or stores) at its offset. In shared memory only the first window is; it is copied there,
    and back."""
    vector, _, element = name.rpartition(".")
    count, size = int(vector[1:] or 1) if vector else 1, int(element[1:]) // 8
    kind = "r" if size == 4 else "d" if size == 8 else "h"
    registers = ", ".join(f"%{kind}{n + 1}" for n in range(count))
    value = f"{{{registers}}}" if count > 1 else registers
    form = "" if space.startswith("generic") else "." + space
    parts = range(count)
    outside = [f"ld.global.{element} %{kind}{n + 1}, [%own+{n * size}];" for n in parts]
    back = [f"st.global.{element} [%own+{n * size}], %{kind}{n + 1};" for n in parts]
    if store:
        access = [*outside, f"@%p st{form}.{name} [%at], {value};"]
    else:
        zeros = [f"mov.b{max(size, 2) * 8} %{kind}{n + 1}, 0;" for n in parts]
        access = [*zeros, f"@%p ld{form}.{name} {value}, [%at];", *back]
    base = "mov.u64 %base, %data;"
    copy = ["", ""]
    if "shared" in space:
        base = "mov.u64 %base, s;" + (" cvta.shared.u64 %base, %base;" if space.startswith("generic") else "")
        loop = """
  mov.u32 %n, %tid.x;
L{0}: cvt.u64.u32 %a, %n; add.u64 %b, %data, %a; mov.u64 %c, s; add.u64 %c, %c, %a;
  ld.{1}.u8 %h9, [{2}]; st.{3}.u8 [{4}], %h9;
  add.u32 %n, %n, 32; setp.lt.u32 %q, %n, {5}; @%q bra L{0};
  bar.warp.sync -1;
"""
        copy = [loop.format(0, "global", "%b", "shared", "%c", BYTES), loop.format(1, "shared", "%c", "global", "%b", BYTES)]
    if space.endswith("const"):
        base = "mov.u64 %base, c;" + (" cvta.const.u64 %base, %base;" if space.startswith("generic") else "")
    values = ", ".join(map(str, memory(0).tolist()))
    back_copy = copy[1] if store else ""
    leave = "" if store and back_copy else "@%q exit;"  # lanes that copy back have to be there
    return f"""
.version 8.4
.target sm_90a
.address_size 64
.const .align 16 .b8 c[{BYTES}] = {{{values}}};
.visible .entry k(.param .u64 data, .param .u64 second, .param .u64 offsets, .param .u64 does, .param .u64 own)
{{
  .reg .pred %p, %q; .reg .b16 %h<10>; .reg .b32 %r<10>, %n, %does;
  .reg .b64 %d<10>, %data, %second, %base, %at, %own, %a, %b, %c;
  .shared .align 16 .b8 s[{BYTES}];
  ld.param.u64 %data, [data]; ld.param.u64 %second, [second];
  {copy[0]}
  mov.u32 %n, %tid.x; mul.wide.u32 %a, %n, 8;
  ld.param.u64 %b, [offsets]; add.u64 %b, %b, %a; ld.global.u64 %at, [%b];
  ld.param.u64 %own, [own]; add.u64 %own, %own, %a; add.u64 %own, %own, %a;
  shr.u64 %a, %a, 1; ld.param.u64 %b, [does]; add.u64 %b, %b, %a; ld.global.u32 %does, [%b];
  {base}
  setp.ge.s64 %q, %at, {OTHER // 2}; @%q mov.u64 %base, %second; @%q sub.u64 %at, %at, {OTHER};
  add.u64 %at, %at, %base;
  setp.eq.u32 %q, %does, {GONE}; {leave}
  setp.eq.u32 %p, %does, {ON};
  {" ".join(access)}
  {back_copy}
  ret;
}}
"""


def memory(which: int) -> np.ndarray:
    return np.random.default_rng(which).integers(1, 256, BYTES).astype(np.uint8)


@cache
def made(space: str, name: str, store: bool) -> Kernel:
    return Module.load(text_of(space, name, store))["k"]


def offsets(step: int, two: bool) -> Iterator[np.ndarray]:
    """Of the lanes; at most one thing is wrong with each."""
    row = np.arange(LANES) * step
    rng = np.random.default_rng(step)
    yield row
    yield row + 16
    yield row + (BYTES - LANES * step) // step * step  # up to the last byte, where that is a multiple
    yield row + (BYTES - LANES * step) // step * step + step  # the last lane outside
    yield row - step  # the first lane outside
    yield np.full(LANES, 16)
    yield np.full(LANES, BYTES // step * step)
    yield row ^ (step * 4) % 512  # halves of groups change places
    yield row[::-1]
    yield row // (8 * step) * (8 * step) + 16  # groups with one address
    yield row * 2 % 512
    yield rng.integers(0, BYTES // step, LANES) * step
    inside, eight = row % (8 * step), np.arange(LANES) // 8  # of eight lanes in a row, and whose they are
    yield inside + np.array([2, 0, 3, 1])[eight] * 8 * step
    yield inside + eight * step * 2  # they overlap
    yield inside + (3 - eight) * step
    yield inside + eight * 8 * step * (eight < 3) + 4096 * (eight == 3)
    yield inside + (3 - eight) * 8 * step + step * (np.arange(LANES) == 27)
    yield inside + np.array([1, 0, 2, 3])[eight] * 8 * step + 16 * (eight == 3)
    lane = np.arange(LANES)
    yield lane // 2 * step + lane % 2 * 16 * step + 16  # two rows by turns
    yield lane // 2 * step + lane % 2 * 8 * step + step * (lane == 30)
    yield lane // 2 * step + lane % 2 * (BYTES - 16 * step + step) // step * step  # the last lane outside
    if step <= 8:
        yield row * 2 + BYTES - 63 * step  # every other one, up to the last byte
        yield row * 2 + BYTES - 63 * step + 2 * step * (np.arange(LANES) == 31)
        yield row * 2 + step
    if step > 1:
        yield row + 1
        yield row + (np.arange(LANES) == 9)
        yield np.full(LANES, step // 2)
        yield rng.integers(0, BYTES // step, LANES) * step + (np.arange(LANES) == 31)
    yield row + 4096 * (np.arange(LANES) == 13)
    yield row - 4096 * (np.arange(LANES) >= 30)
    if two:
        yield row + OTHER
        yield row + OTHER * (np.arange(LANES) >= 16)
        yield inside + OTHER * (eight % 2)
        yield np.full(LANES, 16) + OTHER * (np.arange(LANES) % 2)


def doings() -> Iterator[np.ndarray]:
    lane = np.arange(LANES)
    rng = np.random.default_rng(5)
    yield np.full(LANES, ON)
    yield np.full(LANES, OFF)
    yield np.where(lane < 11, ON, OFF)
    yield np.where(lane > 19, ON, OFF)
    yield np.where(lane == 31, ON, OFF)
    yield np.where(lane == 7, ON, GONE)
    yield np.where(lane % 3 == 1, ON, OFF)
    yield np.where(lane < 31, ON, GONE)
    yield rng.integers(0, 3, LANES)


def wrong(space: str, at: int, step: int) -> str:
    if at % step:
        return "misaligned"
    return "" if 0 <= at % OTHER <= BYTES - step and at >= 0 else "outside|beyond|before|no memory|null"


@pytest.mark.parametrize(
    ("space", "store"), [(s, store) for s in SPACES for store in (False, True) if not (store and s.endswith("const"))]
)
def test_every_shape_of_addresses(space: str, store: bool) -> None:
    faults = 0
    for name, step in TYPES.items():
        kernel = made(space, name, store)
        for at in offsets(step, "global" in space):
            for does in doings():
                data, second = memory(0), memory(1)
                own = np.random.default_rng(7).integers(0, 256, (LANES, 16)).astype(np.uint8)
                before = own.copy()
                active = [lane for lane in range(LANES) if does[lane] == ON]
                bad = [(lane, wrong(space, int(at[lane]), step)) for lane in active if wrong(space, int(at[lane]), step)]
                arguments = [data, second, at.astype(np.int64), does.astype(np.uint32), own]
                said = f"{space} {name} {at.tolist()} {does.tolist()}"
                if bad:
                    faults += 1
                    with pytest.raises(ExecutionFault) as caught:
                        kernel.launch(1, LANES, arguments, threads=1)
                    message = str(caught.value)
                    assert f"thread ({bad[0][0]}, 0, 0)" in message, said + message
                    assert ("misaligned" in message) == (bad[0][1] == "misaligned"), said + message
                    assert (data == memory(0)).all() and (second == memory(1)).all(), said
                    continue
                kernel.launch(1, LANES, arguments, threads=1)
                memories = [memory(0), memory(1)]
                for lane in active:
                    place = memories[int(at[lane]) // OTHER][int(at[lane]) % OTHER :][:step]
                    if store:
                        place[:] = before[lane, :step]
                    else:
                        before[lane, :step] = place
                if not store:
                    idle = [lane for lane in range(LANES) if does[lane] == OFF]
                    before[idle, :step] = 0
                assert (own == before).all(), said
                assert (data == memories[0]).all() and (second == memories[1]).all(), said
    assert faults > 100


def local_text(name: str, store: bool) -> str:
    """Each lane copies 48 bytes of `data` to its local memory, loads or stores there (16 bytes of `own`), and copies back."""
    vector, _, element = name.rpartition(".")
    count, size = int(vector[1:] or 1) if vector else 1, int(element[1:]) // 8
    kind = "r" if size == 4 else "d" if size == 8 else "h"
    registers = ", ".join(f"%{kind}{n + 1}" for n in range(count))
    value = f"{{{registers}}}" if count > 1 else registers
    parts = range(count)
    if store:
        access = [f"ld.global.{element} %{kind}{n + 1}, [%own+{n * size}];" for n in parts]
        access.append(f"@%p st.local.{name} [%at], {value};")
    else:
        access = [f"mov.b{max(size, 2) * 8} %{kind}{n + 1}, 0;" for n in parts]
        access += [f"@%p ld.local.{name} {value}, [%at];"]
        access += [f"st.global.{element} [%own+{n * size}], %{kind}{n + 1};" for n in parts]
    into = " ".join(f"ld.global.u8 %h9, [%data+{n}]; st.local.u8 [l+{n}], %h9;" for n in range(48))
    back = " ".join(f"ld.local.u8 %h9, [l+{n}]; st.global.u8 [%data+{n}], %h9;" for n in range(48))
    return f"""
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 offsets, .param .u64 does, .param .u64 own)
{{
  .reg .pred %p, %q; .reg .b16 %h<10>; .reg .b32 %r<10>, %n, %does; .reg .b64 %d<10>, %data, %at, %own, %a, %b;
  .local .align 16 .b8 l[48];
  mov.u32 %n, %tid.x; mul.wide.u32 %a, %n, 8; ld.param.u64 %data, [data]; mad.wide.u32 %data, %n, 48, %data;
  {into}
  ld.param.u64 %b, [offsets]; add.u64 %b, %b, %a; ld.global.u64 %at, [%b]; mov.u64 %b, l; add.u64 %at, %at, %b;
  ld.param.u64 %own, [own]; add.u64 %own, %own, %a; add.u64 %own, %own, %a;
  shr.u64 %a, %a, 1; ld.param.u64 %b, [does]; add.u64 %b, %b, %a; ld.global.u32 %does, [%b];
  setp.eq.u32 %q, %does, {GONE}; @%q exit;
  setp.eq.u32 %p, %does, {ON};
  {" ".join(access)}
  {back}
  ret;
}}
"""


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("store", [False, True])
def test_local_memory_is_each_lanes_own(name: str, store: bool) -> None:
    kernel, step = Module.load(local_text(name, store))["k"], TYPES[name]
    end = kernel.compile("sm_90").local_bytes
    rng, lane, faults = np.random.default_rng(step), np.arange(LANES), 0
    shapes = [lane * 0, lane * 0 + 48 - step, lane * step % 48 // step * step, rng.integers(0, 48 // step, LANES) * step]
    shapes += [lane * 0 + end - step, lane * 0 + (end - step) * (lane == 31)]
    shapes += [lane * 0 + end * (lane == 31), lane * 0 - step * (lane == 9), lane * 0 + (1 << 32) * (lane == 3), lane * 0 + end]
    if step > 1:
        shapes += [lane * 0 + (lane == 12), lane * 0 + 48 - step + (lane == 0)]
    for at in shapes:
        for does in doings():
            data = rng.integers(1, 256, (LANES, 48)).astype(np.uint8)
            own = rng.integers(1, 256, (LANES, 16)).astype(np.uint8)
            wanted, kept = np.zeros((LANES, end), np.uint8), own.copy()
            wanted[:, :48] = data
            active = [n for n in range(LANES) if does[n] == ON]
            bad = [n for n in active if at[n] % step or not 0 <= at[n] <= end - step]
            arguments = [data, at.astype(np.int64), does.astype(np.uint32), own]
            if bad:
                faults += 1
                with pytest.raises(ExecutionFault, match=rf"thread \({bad[0]}, 0, 0\)"):
                    kernel.launch(1, LANES, arguments)
                continue
            kernel.launch(1, LANES, arguments)
            for n in range(LANES):
                place = wanted[n, int(at[n]) % (1 << 30) :][:step]
                if store and n in active:
                    place[:] = kept[n, :step]
                if not store and does[n] != GONE:
                    kept[n, :step] = place if n in active else 0
            assert (own == kept).all() and (data == wanted[:, :48]).all(), (at, does)
    assert faults > 10


@pytest.mark.parametrize("space", ["global", "generic global", "shared", "generic shared", "shared::cluster"])
@pytest.mark.parametrize("name", ["b16", "b32", "v2.b32"])
def test_an_instrument_hears_of_each_access_once(space: str, name: str) -> None:
    lane, step = np.arange(LANES), TYPES[name]
    shapes = [lane * step, np.full(LANES, 16), lane[::-1] * step, lane * step + 4096 * (lane == 40), lane * 2 * step % 512]
    if "global" in space:
        shapes.append(lane * step + OTHER * (lane >= 16))  # two windows: lane by lane
    for at in shapes:
        for does in (np.full(LANES, ON), np.where(lane > 19, ON, OFF), np.where(lane % 3 == 1, ON, OFF), np.full(LANES, OFF)):
            arguments = [memory(0), memory(1), at.astype(np.int64), does.astype(np.uint32), np.zeros((LANES, 16), np.uint8)]
            events = traced(made(space, name, False), 1, LANES, arguments)
            loads = [e for e in events if e.kind == MEMORY and e.instruction and e.instruction.opcode == "ld"]
            mine = [e for e in loads if e.instruction and e.instruction.guard]
            assert [sorted(e.addresses) for e in mine] == ([lane[does == ON].tolist()] if ON in does else []), (at, does)
            for e in mine:
                offsets = {e.addresses[n] - int(at[n]) for n in e.addresses if at[n] < OTHER}
                assert e.bytes == step and len(offsets) <= 1, (at, does)


@pytest.mark.parametrize("lane", [0, 31])
def test_stores_to_what_cannot_be_written(lane: int) -> None:
    does = np.full(LANES, OFF, np.uint32)
    does[lane] = ON
    for at in (np.arange(LANES) * 4, np.full(LANES, 8), np.arange(LANES)[::-1] * 4):
        with pytest.raises(ExecutionFault, match=rf"(?s)read-only.*thread \({lane}, 0, 0\)"):
            arguments = [memory(0), memory(1), at, does, np.zeros((LANES, 16), np.uint8)]
            made("generic const", "b32", True).launch(1, LANES, arguments)
