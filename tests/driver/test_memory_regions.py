"""Device memory as a table: allocations, memory of others for as long as they live, regions that overlap."""

import gc
import random
from collections.abc import Sequence

import numpy as np
import pytest

from mmulator.errors import LaunchError
from mmulator.host.driver import Memory, Region
from mmulator.runtime.launch.regions import BELOW, FREED, FROM, Regions, freed, merged

HIGH = 0x7F0000000000


class Owner:
    pass


def spans(regions: Regions) -> list[tuple[int, int]]:
    """As native code reads them, without the empty one at 0."""
    rows = [(int(r["start"]), int(r["size"])) for r in regions.table]
    assert rows[0] == (0, 0) and rows[1:] == [(r.start, r.size) for r in regions]
    assert (regions.table["host"] == regions.table["start"]).all()
    return rows[1:]


def test_allocate_and_free() -> None:
    FREED.clear()
    memory = Memory()
    found = [memory.allocate(size, f"allocation {size}") for size in (1, 1000, 0, 4096)]
    assert all(a.address % 512 == 0 for a in found)
    found[1].bytes()[:] = 7
    assert spans(memory.regions()) == sorted((a.address, a.size) for a in found if a.size)
    assert memory.find(found[3].address + 4095) is found[3] and memory.find(found[1].address + 999) is found[1]
    assert memory.find(found[3].address + 4096) is None
    memory.free(found[1].address, lambda: "main at a.cu:7")
    said = "byte 9 of allocation 1000, whose 1000 bytes were freed by main at a.cu:7"
    assert freed(found[1].address + 9) == said and freed(found[1].address + 1000) == freed(found[3].address) == ""
    assert (found[1].address, 1000) not in spans(memory.regions()) and memory.find(found[1].address) is None
    for address in (found[1].address, found[3].address + 1, 0):
        with pytest.raises(LaunchError, match=f"free of address 0x{address:x}, which is no allocation's first byte"):
            memory.free(address)


def test_fresh_memory_holds_nothing_to_count_on() -> None:
    assert (Memory().allocate(100).bytes() == 0xCD).all()


def test_memory_of_others_is_there_while_they_live() -> None:
    memory, first, second = Memory(), Owner(), Owner()
    for _ in range(3):
        memory.expose(HIGH, 100, first)
    memory.expose(HIGH, 300, second)
    memory.expose(HIGH + 1000, 10, first)
    assert len(list(memory)) == 3
    assert spans(memory.regions()) == [(HIGH, 300), (HIGH + 1000, 10)]
    del second
    gc.collect()
    assert spans(memory.regions()) == [(HIGH, 100), (HIGH + 1000, 10)]
    with pytest.raises(LaunchError, match="no allocation's first byte"):
        memory.free(HIGH)
    del first
    gc.collect()
    assert spans(memory.regions()) == [] and memory.find(HIGH) is None and not list(memory)


def test_whoever_dies_while_the_table_is_made_is_not_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, owners = Memory(), [Owner()]
    memory.expose(HIGH, 100, owners[0])

    def dying(regions: Sequence[Region], table: np.ndarray) -> Regions:
        owners.clear()
        gc.collect()
        return made(regions, table)

    made = Regions.of
    monkeypatch.setattr(Regions, "of", dying)
    memory.regions()
    assert spans(memory.regions()) == []


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        ([(0, 10), (10, 10)], [(0, 10), (10, 10)]),  # side by side is not the same memory
        ([(0, 10), (9, 10)], [(0, 19)]),
        ([(5, 1), (0, 10)], [(0, 10)]),
        ([(0, 10), (0, 20), (0, 5)], [(0, 20)]),
        ([(30, 5), (0, 10), (8, 4), (11, 9)], [(0, 20), (30, 5)]),
        ([(0, 0), (5, 0)], []),
        ([(0, 10), (5, 0), (10, 0)], [(0, 10)]),
    ],
)
def test_what_overlaps_is_one_region(pieces: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    for known in range(len(pieces) + 1):  # so many of them known, the others given
        memory, owner = Memory(), Owner()
        for at, size in pieces[:known]:
            memory.expose(HIGH + at, size, owner)
        given = [Region(HIGH + at, size, f"argument {n}") for n, (at, size) in enumerate(pieces[known:])]
        found = memory.regions(given)
        assert spans(found) == [(HIGH + at, size) for at, size in wanted]
        assert [r.host for r in given] == [r.start for r in given]


def test_a_region_may_be_written_if_a_part_of_it_may() -> None:
    read, write = Region(HIGH, 10, "x", writable=False), Region(HIGH + 5, 3, "y")
    assert [(r.label, r.writable) for r in merged([read, write])] == [("x", True)]
    assert merged([read]).table["writable"].tolist() == [0, 0]


def test_where_kernels_have_memory_of_their_own() -> None:
    assert spans(merged([Region(4096, BELOW - 4096, "low"), Region(FROM, 8, "high")]))
    for start, size in ((BELOW - 4, 8), (BELOW, 1), (FROM - 1, 1)):
        with pytest.raises(LaunchError, match=f"x lies at 0x{start:x}, where kernels have shared and local memory"):
            Memory().regions([Region(start, size, "x")])


def test_a_table_is_made_once() -> None:
    memory = Memory()
    a = memory.allocate(100)
    first, again = memory.regions([Region(a.address, 100, "x")]), memory.regions([Region(a.address + 4, 8, "y")])
    assert first.table is again.table and [r.label for r in again.given] == ["y"]
    other = np.zeros(10)
    more = memory.regions([Region(other.ctypes.data, 80, "z")])
    assert len(more) == 2 and len(memory.regions()) == 1


def test_pieces_that_come_and_go_are_what_all_of_them_make() -> None:
    choose, memory = random.Random(7), Memory()
    owners: list[tuple[Owner, int, int]] = []
    for step in range(600):
        if owners and choose.random() < 0.45:
            owners.pop(choose.randrange(len(owners)))
        else:
            owners.append((Owner(), HIGH + choose.randrange(400), choose.choice((0, 1, 3, 8, 60))))
            memory.expose(owners[-1][1], owners[-1][2], owners[-1][0])
        known = [Region(at, size, "x") for _, at, size in owners]
        assert spans(memory.regions()) == [(r.start, r.size) for r in merged(known)], step
        given = [Region(HIGH + choose.randrange(400), choose.randrange(40), "y", choose.random() < 0.5)]
        found = memory.regions(given)
        assert spans(found) == [(r.start, r.size) for r in merged([*given, *known])]
        assert found.table["writable"].tolist()[1:] == [r.writable for r in merged([*given, *known])]
        del found  # which keeps owners
        for address in range(HIGH - 1, HIGH + 470, 7):
            hit = memory.find(address)
            assert (hit is None) == (not any(0 <= address - at < size for _, at, size in owners))
            assert hit is None or 0 <= address - hit.address < hit.size
