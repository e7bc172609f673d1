"""The end of memory that a program gave a kernel: what a GPU's compilers count on there, and no more."""

import struct

import numpy as np
import pytest

from mmulator.doors.triton.arguments import address_of
from mmulator.doors.triton.arrays import stand_in
from mmulator.errors import ExecutionFault
from mmulator.host.driver import Driver, Memory, Region, Settings
from mmulator.runtime.launch.regions import merged

PTX = """
.version 8.3
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 x) {{
    .reg .b32 %r<3>; .reg .b16 %h; .reg .b64 %rd;
    ld.param.u64 %rd, [x];
    {body}
    ret;
}}
"""
WORD = "ld.relaxed.gpu.global.b32 %r0, [%rd+{at}]; add.u32 %r1, %r0, 7; atom.global.cas.b32 %r2, [%rd+{at}], %r0, %r1;"
HALF = "ld.global.b16 %h, [%rd+{at}];"
QUAD = "ld.global.v2.b32 {{%r0, %r1}}, [%rd+{at}];"


WEAK = WORD.replace("ld.relaxed.gpu", "ld")
READ = "ld.global.b32 %r0, [%rd+{at}];"
STORE = "ld.global.b32 %r0, [%rd]; st.global.b32 [%rd+{at}], %r0; atom.global.add.u32 %r1, [%rd], 0;"


def launch(body: str, memory: np.ndarray, size: int, room: int = 0, sanitize: str = "") -> None:
    driver = Driver(Settings(device="sm_80", sanitize=sanitize, timeout=600))
    address = int(memory.ctypes.data)
    function = driver.load(PTX.format(body=body)).function("kernel")
    driver.launch(function, 1, 1, struct.pack("<Q", address), [Region(address, size, "x", room=room)])


@pytest.mark.parametrize("body", [WORD, WEAK])
@pytest.mark.parametrize("sanitize", ["", "report"])
def test_an_atomic_operation_may_reach_what_the_allocator_rounded_up(body: str, sanitize: str) -> None:
    """One on 16 bits is one on the word around them, where a chip has none as narrow; it reads that word first."""
    for size in (1, 2, 3):
        memory = np.zeros(64, np.uint8)
        launch(body.format(at=0), memory, size, 4 - size, sanitize)
        assert memory.tolist() == [7] + 63 * [0]


@pytest.mark.parametrize(
    ("body", "size", "room"),
    [
        (WORD.format(at=4), 4, 0), (WORD.format(at=-4), 2, 2), (HALF.format(at=2), 2, 2), (QUAD.format(at=0), 6, 2),
        *((text.format(at=4), size, 0) for text in (WORD, WEAK, READ, STORE) for size in (5, 6, 7)),
        (READ.format(at=4), 5, 3),  # there is no atomic operation
        (STORE.format(at=4), 5, 3),
    ],
)  # fmt: skip
def test_nothing_else_reaches_behind_memory(body: str, size: int, room: int) -> None:
    memory = np.zeros(64, np.uint8)
    with pytest.raises(ExecutionFault, match="out of bounds"):
        launch(body, memory[16:], size, room)
    assert not memory.any()


@pytest.mark.full
def test_who_rounds_up() -> None:
    """Allocations and torch's own blocks do, a piece of somebody's array does not; of pieces that overlap the last one says."""
    torch = pytest.importorskip("torch")
    driver = Driver()
    sizes = {a.size: a.address for a in map(driver.memory.allocate, (5, 8))}
    found = {r.start: r.room for r in driver.memory.regions()}
    assert [found[sizes[5]], found[sizes[8]]] == [3, 0]
    assert {r.room for r in driver.memory.regions([Region(sizes[5], 5, "x")])} == {0, 3}
    high = 1 << 46
    pieces = [Region(high, 6, "a", room=2), Region(high + 4, 5, "b", room=3)]
    assert [(r.size, r.room) for r in merged(pieces)] == [(r.size, r.room) for r in Memory().regions(pieces)] == [(9, 3)]
    assert [(r.size, r.room) for r in merged([*pieces, Region(high, 12, "c")])] == [(12, 0)]
    array = np.zeros(9, np.uint8)
    tensors = {3: (torch.zeros(5, dtype=torch.uint8), array), 0: (torch.from_numpy(array[:5]), np.frombuffer(bytes(5), np.uint8))}
    for room, tensor in ((room, t) for room, some in tensors.items() for t in some):
        regions: dict[int, Region] = {}
        address_of(stand_in(tensor), "x", 0, regions)
        assert [r.room for r in regions.values()] == [room]
