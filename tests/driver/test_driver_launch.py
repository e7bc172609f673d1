"""Launches through the driver: memory of the host at its own addresses, wherever it lies, and what is said of it."""

import ctypes
import mmap
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mmulator.base.codegen.store import _ENTRY
from mmulator.cli.output import error_data
from mmulator.errors import ExecutionFault, LaunchError
from mmulator.host.driver import Driver, Region, Settings
from mmulator.host.jobs.job import load_job, run_job
from mmulator.host.module import Module
from mmulator.runtime.launch.regions import FROM
from mmulator.runtime.native.state import HINTS
from tests.support.places import ROOT

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
ADD = (
    HEAD
    + """
.visible .entry add(.param .u64 x_ptr, .param .u64 y_ptr, .param .u32 n) {
  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd0, [x_ptr]; ld.param.u64 %rd1, [y_ptr]; ld.param.u32 %r0, [n];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r1, %r1, %r2, %r3;
  setp.ge.s32 %p, %r1, %r0; @%p ret;
  mul.wide.s32 %rd2, %r1, 4; add.s64 %rd0, %rd0, %rd2; add.s64 %rd1, %rd1, %rd2;
  ld.global.u32 %r4, [%rd0]; ld.u32 %r5, [%rd1]; add.u32 %r4, %r4, %r5; st.global.u32 [%rd1], %r4;
  ret; }
"""
)
ONE = (
    HEAD
    + """{top}
.visible .entry k(.param .u64 a) {{
  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<40>;
  ld.param.u64 %rd0, [a];
  {body}
  ret; }}
"""
)
driver = Driver(Settings(device="sm_90"))


def at(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def region(array: np.ndarray, label: str, **more: bool) -> Region:
    return Region(at(array), array.nbytes, label, **more)


def add(x: int, y: int, n: int, regions: list[Region], grid: int = 1, block: int = 32) -> None:
    function = driver.load(ADD).function("add")
    driver.launch(function, grid, block, struct.pack("<QQi", x, y, n), regions)


def one(body: str, address: int, regions: list[Region] | tuple[Region, ...] = (), top: str = "", block: int = 1) -> None:
    driver.launch(driver.load(ONE.format(body=body, top=top)).function("k"), 1, block, struct.pack("<Q", address), regions)


def test_as_kernel_launch() -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.integers(0, 1 << 32, 5000, np.uint32) for _ in range(2))
    mine, its = y.copy(), y.copy()
    add(at(x), at(mine), 5000, [region(x, "x"), region(mine, "y")], 40, 128)
    report = Module.load(ADD)["add"].launch(40, 128, [x, its, 5000])
    assert (mine == x + y).all() and (mine == its).all() and report.total_instructions == sum(report.instructions.values())


def test_faults_name_the_argument() -> None:
    x, y = np.zeros(2048, np.uint32), np.zeros(1024, np.uint32)
    given = [region(x, "argument 0 (x_ptr)"), region(y, "argument 1 (y_ptr)")]
    with pytest.raises(ExecutionFault, match=r"byte 4096 of argument 1 \(y_ptr\), which has 4096, in block \(32, 0, 0\)"):
        add(at(x), at(y), 2048, given, 64)
    driver.memory.expose(at(y), y.nbytes, y, "taken")  # what the launch was given has the name
    with pytest.raises(ExecutionFault, match=r"byte 4096 of argument 1 \(y_ptr\), which has 4096"):
        add(at(x), at(y), 2048, given, 64)


def test_lanes_in_many_regions_and_an_instruction_that_wanders() -> None:
    """More regions than hints, met by one instruction in any order."""
    memory = np.zeros((3 * HINTS, 64), np.uint32)
    given = [Region(at(memory[n]), 128, f"row {n}") for n in range(len(memory))]  # half of each row
    body = """mov.u32 %r0, %tid.x; mov.u32 %r3, 0;
      L: mul.lo.u32 %r1, %r0, 7; mad.lo.u32 %r1, %r3, 11, %r1; rem.u32 %r1, %r1, ROWS; mad.wide.u32 %rd1, %r1, 256, %rd0;
      mad.wide.u32 %rd1, %r0, 4, %rd1; atom.global.add.u32 %r2, [%rd1], 1; ld.global.u32 %r2, [%rd1];
      add.u32 %r3, %r3, 1; setp.lt.u32 %p, %r3, 100; @%p bra L;""".replace("ROWS", str(len(memory)))
    one(body, at(memory), given, block=32)
    wanted = np.zeros_like(memory)
    for lane in range(32):
        for n in range(100):
            wanted[(7 * lane + 11 * n) % len(memory), lane] += 1
    assert (memory == wanted).all()


def test_the_next_launch_has_other_regions() -> None:
    """What a launch leaves for the next knows nothing of its memory."""
    memory = np.zeros((40, 64), np.uint32)
    function = driver.load(ONE.format(top="", body="mov.u32 %r0, 1; st.global.u32 [%rd0], %r0;")).function("k")
    every = [Region(at(row), 128, f"row {n}") for n, row in enumerate(memory)]
    for n in (39, 0, 20):
        driver.launch(function, 1, 1, struct.pack("<Q", at(memory[n])), every)
        driver.launch(function, 1, 1, struct.pack("<Q", at(memory[1])), every[1:2])
        with pytest.raises(ExecutionFault, match="out of bounds"):
            driver.launch(function, 1, 1, struct.pack("<Q", at(memory[n])), every[1:2])
    assert np.flatnonzero(memory).tolist() == [0, 64, 20 * 64, 39 * 64]


def test_read_only_memory_and_misaligned_addresses() -> None:
    x = np.zeros(4, np.uint32)
    one("ld.global.u32 %r0, [%rd0];", at(x), [region(x, "x", writable=False)])
    with pytest.raises(ExecutionFault, match=r"store to read-only memory: .*byte 0 of x"):
        one("st.global.u32 [%rd0], %r0;", at(x), [region(x, "x", writable=False)])
    with pytest.raises(ExecutionFault, match="misaligned"):
        one("ld.global.u32 %r0, [%rd0+2];", at(x), [region(x, "x")])


@pytest.mark.parametrize("shift", range(8))
def test_atomics_on_memory_that_begins_anywhere(shift: int) -> None:
    memory = np.zeros(64, np.uint8)
    base = at(memory) + -at(memory) % 8
    one("add.u64 %rd0, %rd0, 7; and.b64 %rd0, %rd0, -8; mov.u64 %rd1, 5; atom.global.add.u64 %rd2, [%rd0], %rd1;",
        base + shift, [Region(base + shift, 32, "x")])  # fmt: skip
    found = memory[base - at(memory) :][:16].view(np.uint64)
    assert found.tolist() == ([5, 0] if shift == 0 else [0, 5])


def test_strings_in_memory_of_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    """What Python reads for a kernel: as far as there is memory, and nothing where there is none."""
    text = np.frombuffer(bytearray(b"of the host, and no more"), np.uint8)
    top = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);\n"
    top += ".global .align 1 .b8 fmt[6] = {91, 37, 115, 93, 10, 0};"
    body = """{ .local .align 8 .b8 v[8]; .param .b64 f; .param .b64 p; .param .b32 r;
      st.local.u64 [v], %rd0; mov.u64 %rd1, v; cvta.local.u64 %rd1, %rd1; mov.u64 %rd2, fmt; cvta.global.u64 %rd2, %rd2;
      st.param.b64 [f], %rd2; st.param.b64 [p], %rd1; call.uni (r), vprintf, (f, p); }"""
    for size in (24, 11):
        one(body, at(text), [Region(at(text), size, "text")], top)
    one(body, at(text), [], top)
    assert capsys.readouterr().out == "[of the host, and no more]\n[of the host]\n[]\n"


def test_pointers_that_a_program_stored() -> None:
    found = driver.memory.allocate(8)
    found.bytes()[:] = 0
    table = np.array([found.address], np.uint64)
    body = "ld.global.u64 %rd1, [%rd0]; mov.u32 %r0, 7; st.global.u32 [%rd1], %r0;"
    one(body, at(table), [region(table, "table")])
    assert found.bytes()[0] == 7
    driver.memory.free(found.address)
    with pytest.raises(ExecutionFault, match="out of bounds"):
        one(body, at(table), [region(table, "table")])


def test_memory_where_a_module_has_its_variables() -> None:
    with pytest.raises(LaunchError, match="where the module has its variables"):
        one("", 0, [Region(FROM, 8, "x")], ".global .u32 g;")


def test_parameters_of_another_size() -> None:
    with pytest.raises(LaunchError, match="k takes 8 bytes of parameters, not 4"):
        driver.launch(driver.load(ONE.format(body="", top="")).function("k"), 1, 1, bytes(4))


# below 4 GiB, where shared addresses as offsets and null pointers lie ------------------------------------------------------
@pytest.fixture
def low() -> Iterator[np.ndarray]:
    """A page below 4 GiB, as the heap of a program that is not position-independent."""
    if sys.platform != "linux":
        pytest.skip("memory below 4 GiB is asked for as Linux has it")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    for wish in range(0x20000000, 0xF0000000, 0x8000000):  # this Python's own heap may lie there
        place = libc.mmap(wish, 8192, *how)
        if 0 < place < 1 << 32:
            break
        libc.munmap(place, 8192)
    assert 0 < place < 1 << 32, "no memory below 4 GiB"
    yield np.frombuffer((ctypes.c_uint8 * 8192).from_address(place), np.uint32)
    libc.munmap(place, 8192)


def test_memory_below_four_gigabytes(low: np.ndarray) -> None:
    x, y = low[:1024], np.arange(1024, dtype=np.uint32)
    x[:] = 3
    given = [region(x, "argument 0 (x_ptr)"), region(y, "argument 1 (y_ptr)")]
    add(at(x), at(y), 1024, given, 8, 128)
    assert (y == np.arange(1024) + 3).all()
    add(at(y), at(x), 1024, given, 8, 128)
    assert (x == np.arange(1024) + 6).all()
    with pytest.raises(ExecutionFault, match=r"out of bounds: .*byte 4096 of argument 0 \(x_ptr\), which has 4096"):
        add(at(x), at(y), 2048, [given[0], Region(at(y), 8192, "y")], 64)


def test_a_launch_on_memory_below_four_gigabytes_is_captured(low: np.ndarray, tmp_path: Path) -> None:
    x, y = low[:64], low[1024:1088]
    x[:], y[:] = 3, 4
    own = Driver(Settings(device="sm_90", capture="add", capture_to=str(tmp_path)))
    params = struct.pack("<QQi", at(x), at(y), 64)
    own.launch(own.load(ADD).function("add"), 1, 64, params, [region(x, "x"), region(y, "y")])
    result = run_job(load_job(tmp_path / "launch.toml"))
    assert result.ok and [c.name for c in result.comparisons] == ["y_ptr"] and not result.uncompared


def test_a_null_pointer_is_one_all_the_same(low: np.ndarray) -> None:
    given = [region(low, "x")]
    for address in (0, 8, 4092):
        with pytest.raises(ExecutionFault, match=f"null pointer: .*address 0x{address:x}"):
            one("ld.global.u32 %r0, [%rd0];", address, given)
    with pytest.raises(ExecutionFault, match=r"null pointer: .*byte 2048 of argument 0 \(a\), which is null"):
        one("ld.u32 %r0, [%rd0+2048];", 0, given)


# pages that trap ----------------------------------------------------------------------------------------------------------
GUARDED = """
import numpy as np
from tests.driver.test_driver_launch import *
test_as_kernel_launch()
test_lanes_in_many_regions_and_an_instruction_that_wanders()
for shift in range(8):
    test_atomics_on_memory_that_begins_anywhere(shift)
test_pointers_that_a_program_stored()
for size in (1, 2, 3, 5, 6):
    memory = np.zeros(16, np.uint8)
    last = f"[%rd0+{(size - 1) // 4 * 4}]"
    one(f"mov.u32 %r0, 9; st.global.u8 [%rd0+{size - 1}], %r0; ld.global.u32 %r0, {last}; atom.global.or.b32 %r0, {last}, 0;",
        at(memory), [Region(at(memory), size, "x", room=-size % 4)])
    assert memory.tolist() == [9 * (n == size - 1) for n in range(16)], (size, memory)
print("all")
"""


@pytest.mark.parametrize("edge", ["left", "right"])
def test_under_pages_that_trap(edge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMULATOR_GUARD", edge)
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "all\n", "")


@pytest.mark.parametrize("lines", [True, False])
def test_a_message_of_a_text_without_a_file_names_one(lines: bool) -> None:
    """The file has the text, and the line that the message names. Where the program's line is known, no file is written."""
    text = ONE.format(top="", body=".loc 1 7 3\n  trap;" if lines else "trap;") + '.file 1 "k.py"\n' * lines
    text = text.replace(".version", f"// {lines} {os.urandom(8).hex()}\n.version")
    with pytest.raises(ExecutionFault) as caught:
        driver.launch(driver.load(text).function("k"), 1, 1, struct.pack("<Q", 0))
    name, line, _ = str(caught.value).split(":", 2)
    if lines:
        assert name == "<ptx>" and "(k.py:7)" in str(caught.value)
    else:
        assert Path(name).read_text() == text and "trap;" in text.splitlines()[int(line) - 1]
        assert re.fullmatch(_ENTRY, Path(name).name), "clear() leaves it"
    file = error_data(caught.value)["file"]
    assert Path(file).read_text() == text
    Path(file).unlink()
