"""Accesses whose lanes are expected side by side have the same bytes and the same faults as those of which nothing is known, in
the first code of a kernel and in better code, whose blocks contain them."""

from functools import cache

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Kernel, Module
from tests.support.waiting import wait_until

LANES = 32
TYPES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "v2.b16": 4, "v4.b8": 4, "v2.b32": 8, "v4.b16": 8, "v4.b32": 16, "v2.b64": 16}
ROOM = 16 + 40 * 16  # bytes of the array, and of shared memory
KNOWN, UNKNOWN = "mov", "brev"  # twice: a number from which a step is seen, and the same number


def text_of(space: str, name: str, store: bool, way: str) -> str:
    """A kernel whose lanes in `mask` load or store side by side from `offset` on. Lane n has its own 16 bytes at out + 16 n."""
    vector, _, element = name.rpartition(".")
    count, size = int(vector[1:] or 1) if vector else 1, int(element[1:]) // 8
    kind = {4: "r", 8: "d"}.get(size, "h")
    registers = [f"%{kind}{n}" for n in range(1, count + 1)]
    value = f"{{{', '.join(registers)}}}" if count > 1 else registers[0]
    own = [(f"ld.global.{element} {r}, [%own+{n * size}];", f"st.global.{element} [%own+{n * size}], {r};")
           for n, r in enumerate(registers)]  # fmt: skip
    zeros = [f"mov.b{max(8 * size, 16)} {r}, 0;" for r in registers]
    there, back = [mine for mine, _ in own], [mine for _, mine in own]
    load = [*zeros, f"@%p ld.{space}.{name} {value}, [%at];", *back]
    lines = [*there, f"@%p st.{space}.{name} [%at], {value};"] if store else load
    base, before, after = "mov.b64 %base, %data;", "", ""
    if space == "shared":
        copy = """
  mov.u32 %n, %lane;
L{0}: cvt.u64.u32 %a, %n; add.u64 %b, %data, %a; mov.u64 %c, s; add.u64 %c, %c, %a;
  ld.{1}.u8 %h9, [{2}]; st.{3}.u8 [{4}], %h9;
  add.u32 %n, %n, 32; setp.lt.u32 %q, %n, {5}; @%q bra L{0};
  bar.warp.sync -1;"""
        base = "mov.u64 %base, s;"
        before, after = copy.format(0, "global", "%b", "shared", "%c", ROOM), copy.format(1, "shared", "%c", "global", "%b", ROOM)
    return f"""
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 out, .param .u64 offset, .param .u32 mask)
{{
  .reg .pred %p, %q; .reg .b16 %h<10>; .reg .b32 %lane, %t, %m, %n, %r<5>;
  .reg .b64 %data, %own, %off, %base, %at, %a, %b, %c, %d<3>;
  .shared .align 16 .b8 s[{ROOM}];
  ld.param.u64 %data, [data]; ld.param.u64 %own, [out]; ld.param.u64 %off, [offset]; ld.param.u32 %m, [mask];
  mov.u32 %lane, %tid.x; mul.wide.u32 %a, %lane, 16; add.u64 %own, %own, %a;
  shr.u32 %m, %m, %lane; and.b32 %m, %m, 1; setp.ne.u32 %p, %m, 0;{before}
  {base}
  {way}.b32 %t, %lane; {way}.b32 %t, %t;
  mul.wide.u32 %a, %t, {TYPES[name]}; add.u64 %at, %base, %off; add.u64 %at, %at, %a;
  {" ".join(lines)}{after}
  ret;
}}
"""


@cache
def kernel(space: str, name: str, store: bool, way: str, better: bool) -> Kernel:
    made = Module.load(text_of(space, name, store, way))["k"]
    if better:
        blocks = made.compile().blocks
        blocks.improve()
        wait_until(lambda: blocks.best, "better code")
    return made


def outcome(made: Kernel, offset: int, mask: int) -> tuple[str, bytes]:
    data, out = (np.random.default_rng(n).integers(0, 256, size, np.uint8) for n, size in enumerate((ROOM, 16 * LANES)))
    said = ""
    try:
        made.launch(1, LANES, [data, out, offset, mask])
    except ExecutionFault as fault:
        said = str(fault)
    return said, data.tobytes() + out.tobytes()


def wanted(name: str, store: bool, offset: int, mask: int) -> bytes:
    """The memory after an access without a fault."""
    data, out = (np.random.default_rng(n).integers(0, 256, size, np.uint8) for n, size in enumerate((ROOM, 16 * LANES)))
    size = TYPES[name]
    for lane in range(LANES):
        there, own = slice(offset + lane * size, offset + (lane + 1) * size), slice(16 * lane, 16 * lane + size)
        if mask >> lane & 1:
            (data if store else out)[there if store else own] = (out if store else data)[own if store else there]
        elif not store:
            out[own] = 0
    return data.tobytes() + out.tobytes()


def cases(size: int) -> list[tuple[int, int]]:
    """(offset, mask): all alignments and both ends of the array with all lanes, all masks of one lane and of all but one."""
    full = (1 << LANES) - 1
    ends = [ROOM - LANES * size + n * size for n in (-1, 0, 1, 2, LANES - 1, LANES)]
    every = [(o, full) for o in [*range(33), *ends, ROOM - LANES * size - 1, ROOM - LANES * size + 1, -size, -1, -LANES * size]]
    masks = [1 << n for n in range(LANES)] + [full ^ 1 << n for n in range(LANES)] + [0, 0xFFFF, 0xFFFF0000, 0x55555555, full]
    return [*every, *((size, m) for m in masks), *((ROOM - 31 * size, m) for m in (full >> 1, full, 1 << 31, 1 << 30))]


@pytest.mark.parametrize("better", [False, True], ids=["first", "better"])
@pytest.mark.parametrize("store", [False, True], ids=["load", "store"])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_bytes_and_faults_are_those_of_lanes_of_which_nothing_is_known(space: str, name: str, store: bool, better: bool) -> None:
    expected, plain = (kernel(space, name, store, way, better) for way in (KNOWN, UNKNOWN))
    faults = 0
    for offset, mask in cases(TYPES[name]):
        said, memory = outcome(expected, offset, mask)
        assert (said, memory) == outcome(plain, offset, mask), (offset, mask)
        faults += bool(said)
        if not said:
            assert memory == wanted(name, store, offset, mask), (offset, mask)
    assert faults > 3


@pytest.mark.parametrize("store", [False, True], ids=["load", "store"])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_the_two_kernels_differ_in_what_is_known(space: str, name: str, store: bool) -> None:
    known, unknown = ({*kernel(space, name, store, way, False).compile().blocks.natives} for way in (KNOWN, UNKNOWN))
    vector, _, element = name.rpartition(".")
    form = "word_" + space if (name, store) == ("b32", False) else f"{space}_{int(element[1:]) // 8}x{vector[1:] or 1}"
    expected = f"{'store' if store else 'load'}_row_{form}"
    assert expected in known
    assert expected not in unknown or (space, name) == ("shared", "b8")  # as what is copied there
