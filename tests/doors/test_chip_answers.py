"""The driver's answers about an H200 are those of the chip (tests/data/device_h200.json)."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmulator.doors.cudart import device as runtime
from mmulator.doors.libcuda import device, modules
from mmulator.doors.libcuda.abi import Refused
from mmulator.doors.libcuda.codes import CODES, texts
from mmulator.host.driver.chips import CHIPS
from mmulator.host.driver.cubin import CubinResources
from mmulator.isa.targets import DEVICES
from mmulator.runtime.launch import printing
from mmulator.runtime.launch.limits import held_by

SAID: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "device_h200.json").read_text())
H200 = replace(CHIPS["sm_90"], product="NVIDIA H200", memory_clock=3201000, memory_bus=6016, memory=150109880320, l2=60 << 20)
PLACE = {33, 34, 139, 140}  # in which machine a chip is, and on which board
H100 = {36, 37, 38, 108}  # its memory and its second cache are smaller (data sheets)


def kernel(registers: int = 8, **more: int) -> Any:
    found = {"k": CubinResources(registers, 0)} if registers else {}
    function = SimpleNamespace(name="k", static_shared=0, kernel=SimpleNamespace(head=SimpleNamespace(directives={})))
    return SimpleNamespace(
        function=function, library=SimpleNamespace(resources=found), **{"carveout": -1, "dynamic": 227 << 10, **more}
    )


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The driver, as if it had an H200; `kernel` is what every handle leads to."""
    state = SimpleNamespace(driver=SimpleNamespace(device=H200), kernel=kernel())
    state.find = lambda handle, kind: state.kernel
    for module in (device, modules, runtime):
        monkeypatch.setattr(module, "state", lambda: state)
    monkeypatch.setattr(device, "_set", {})
    monkeypatch.setattr(printing, "buffer", [0])
    return state


def answer(function: Any, *args: Any) -> tuple[int, int]:
    """(code, value) of a function that writes one value."""
    out = ctypes.c_int64()
    try:
        code = function(ctypes.addressof(out), *args) or 0
    except Refused as refused:
        code = int(refused.code)
    return code, out.value


def test_attributes() -> None:
    said = dict(enumerate(SAID["attributes"], 1))
    for chip, other in ((H200, PLACE), (CHIPS["sm_90"], PLACE | H100)):
        mine = {n: chip.attributes.get(n, 0) for n in device.ATTRIBUTES}
        assert {n for n in said if mine[n] != said[n]} == other and mine.keys() == said.keys()
    for name in DEVICES:  # every other chip has each of these attributes, and its own figures
        assert CHIPS[name].attributes.keys() == CHIPS["sm_90"].attributes.keys() and CHIPS[name].attributes[97] <= 227 << 10


def test_properties(h200: Any) -> None:
    fields, _ = runtime.layout(13)
    mine, said = runtime.properties(13), bytes.fromhex(SAID["properties"])
    numbers = {name: of for name, (_, _, of) in fields.items()}
    differ = {
        name
        for name, (at, kind, _) in fields.items()
        if mine[at : at + (size := runtime.struct.calcsize(f"<{kind}"))] != said[at : at + size]
    }
    assert differ == {"uuid", *(name for name, of in numbers.items() if PLACE & {*of})}


def test_limits(h200: Any) -> None:
    assert {n: list(answer(device.get_limit, int(n))) for n in SAID["limits"]} == SAID["limits"]
    for asked, (code, again, value) in SAID["limits set"].items():
        try:
            mine = device.set_limit(*map(int, asked.split())) or 0
        except Refused as refused:
            mine = int(refused.code)
        assert (mine, *answer(device.get_limit, int(asked.split()[0]))) == (code, again, value), asked


def test_texts_of_errors() -> None:
    mine = {n: texts().get(n, ("", CODES[n].lower().replace("_", " ")))[1] for n in CODES}
    said = {int(n): text for n, text in SAID["texts"].items()}
    assert {n for n in said if mine[n] != said[n]} == {916} and mine.keys() == said.keys()


def test_blocks_that_a_multiprocessor_holds() -> None:
    for asked, row in SAID["blocks"].items():
        registers, shared = map(int, asked.split())
        for threads, held in zip(SAID["threads"], map(int, row.split()), strict=True):
            k = kernel(registers, dynamic=max(shared, 0))
            fits = 0 if threads > 1024 or shared > 227 << 10 else min(held_by("sm_90", threads, shared, registers).values())
            assert fits == held, (asked, threads, k)


def test_occupancy(h200: Any) -> None:
    blocks = modules.blocks_per_multiprocessor
    for preferred, row in SAID["carveout"].items():
        assert {s: blocks(kernel(carveout=int(preferred)), 64, int(s)) for s in row} == row
    assert {s: blocks(kernel(dynamic=48 << 10), 128, int(s)) for s in SAID["without opting in"]} == SAID["without opting in"]
    for asked, (grid, block) in SAID["potential"].items():
        registers, shared, limit = map(int, asked.split())
        h200.kernel, out = kernel(registers), ctypes.c_int()
        assert (answer(modules.potential_block, ctypes.addressof(out), 0, 0, shared, limit)[1], out.value) == (grid, block), asked
    for asked, row in SAID["available"].items():
        registers, threads = map(int, asked.split())
        h200.kernel = kernel(registers)
        mine = {n: answer(modules.available_shared, 0, int(n), threads) for n in row}
        assert {n: None if code else value for n, (code, value) in mine.items()} == row, asked


def test_clusters(h200: Any) -> None:
    for asked, row in SAID["clusters"].items():
        registers, threads, shared = map(int, asked.split())
        held = modules.blocks_per_multiprocessor(kernel(registers), threads, shared, 1024)
        assert {size: H200.clusters(int(size), held) for size in row} == row, asked
