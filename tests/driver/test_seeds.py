"""Launches under several seeds: what is found, what is said of it, and what memory has afterwards."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.errors import ExecutionFault, UnstableResult
from mmulator.host import campaign
from mmulator.host.driver import Driver, Region, Settings
from mmulator.runtime.launch.grid import order

HEAD = """.version 8.0
.target sm_80
.address_size 64
.global .u32 launches;
.visible .entry k(.param .u64 from, .param .u64 to)
{
  .reg .b64 f, t, at; .reg .b32 i, a, v, old; .reg .f32 x; .reg .pred p;
  .shared .align 16 .b8 tile[1024];
  ld.param.u64 f, [from]; ld.param.u64 t, [to];
  mov.u32 i, %tid.x; shl.b32 i, i, 2; mov.u32 a, tile; add.u32 a, a, i;
  cvt.u64.u32 at, i; add.u64 f, f, at;
"""
STORE = "add.u64 t, t, at; st.global.b32 [t], v; ret; }"
COPY = "cp.async.ca.shared.global [a], [f], 4; cp.async.commit_group;\n"
READ = "ld.shared.b32 v, [a];\n"
NO_WAIT, WAIT = HEAD + COPY + READ + STORE, HEAD + COPY + "cp.async.wait_all;\n" + READ + STORE
COUNTED = HEAD + "red.global.add.u32 [launches], 1;\n" + COPY + "cp.async.wait_all;\n" + READ + STORE
ATOMIC = HEAD + "ld.global.f32 x, [f]; red.global.add.f32 [t], x; ret; }"
TICKET = HEAD + "atom.global.add.u32 v, [launches], 1;\n" + STORE
TRAPS = TICKET.replace("add.u64 t", "shl.b32 old, v, 2; setp.ne.u32 p, old, i; @p trap;\nadd.u64 t")


class Launch:
    """A launch of `k` of 128 threads: 4 bytes each out of `source`, 4 bytes each to `to`."""

    def __init__(self, text: str, **settings: Any) -> None:
        self.driver = Driver(Settings(device="sm_80", **settings))
        self.function = self.driver.load(text, "k.ptx").function("k")
        rng = np.random.default_rng(0)
        self.source = (rng.standard_normal(128) * 10.0 ** rng.integers(-4, 4, 128)).astype(np.float32)
        self.to = np.zeros(128, np.uint32)

    def __call__(self, *more: Region) -> Any:
        addresses = [a.ctypes.data for a in (self.source, self.to)]
        regions = [Region(a, 512, f"argument {n} ({name})") for n, (a, name) in enumerate(zip(addresses, ("from", "to")))]
        return self.driver.launch(self.function, 1, 128, struct.pack("<2Q", *addresses), [*regions, *more])


def single(text: str, seed: int) -> np.ndarray:
    launch = Launch(text, seed=seed)
    launch()
    return launch.to


def test_a_missing_wait_is_found() -> None:
    """The error names kernel, buffer, byte, both words and both seeds; memory has what the first seed left."""
    alone = [single(NO_WAIT, seed) for seed in range(8)]
    other = next(n for n in range(1, 8) if (alone[n] != alone[0]).any())
    launch = Launch(NO_WAIT, seeds=8)
    with pytest.raises(UnstableResult) as caught:
        launch()
    first = int(np.argmax(alone[0] != alone[other]))
    message = caught.value.message
    assert message.startswith(f"k left other bits under seed {other} than under seed 0: ")
    assert "of argument 1 (to), which has 512" in message
    assert f"0x{alone[0][first]:08x}" in message and f"0x{alone[other][first]:08x}" in message
    differing = np.count_nonzero(alone[0].view(np.uint8) != alone[other].view(np.uint8))
    assert f"{differing} byte" in message and "seed 0, 0x" in message
    assert "a wait, a fence or a barrier" in str(caught.value)
    assert (launch.to == alone[0]).all()


def test_a_kernel_in_order_leaves_the_same_bits() -> None:
    launch = Launch(WAIT, seeds=8)
    report = launch()
    assert (launch.to.view(np.float32) == launch.source).all()
    assert report.threads == 1 and report.seed == 0
    assert [n for n in report.notes if n.startswith("the same bits under seeds 0 to 7")]


@pytest.mark.parametrize(("text", "what"), [(ATOMIC, "floating-point sums"), (TICKET, "who came first")])
def test_the_order_of_atomics_is_named(text: str, what: str) -> None:
    """It differs on a GPU as well: the error says so, and points at the instruction."""
    with pytest.raises(UnstableResult, match=what) as caught:
        Launch(text, seeds=16)()
    assert caught.value.span is not None and ".add" in str(caught.value)


def test_each_seed_begins_with_the_same_memory() -> None:
    """Variables of the module too; afterwards there is what one launch leaves."""
    launch = Launch(COUNTED, seeds=3)
    variable = launch.function.kernel.module.variables["launches"]
    for count in (128, 256):
        launch()
        assert variable == count


def test_a_fault_under_a_later_seed_says_so() -> None:
    launch = Launch(TRAPS, seeds=4)
    with pytest.raises(ExecutionFault, match=r"trap executed, .*, under seed 1; under seed 0 the kernel ran to its end"):
        launch()
    assert (launch.to == np.arange(128)).all()


def test_pieces_are_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "CHUNK", 24)
    assert "the same bits" in Launch(WAIT, seeds=3)().notes[-1]
    with pytest.raises(UnstableResult, match="of argument 1"):
        Launch(NO_WAIT, seeds=8)()


def test_memory_is_called_what_the_launch_calls_it() -> None:
    """Not what it is part of, or known as besides."""
    launch = Launch(NO_WAIT, seeds=8)
    whole = np.zeros(1024, np.uint8)
    launch.to = whole[256:768].view(np.uint32)
    launch.driver.memory.expose(whole.ctypes.data, 1024, whole)
    with pytest.raises(UnstableResult, match=r"the first is byte \d+ of argument 1 \(to\), which has 512; the word"):
        launch()


def test_what_no_kernel_stored_to_is_not_written(tmp_path: Path) -> None:
    """Memory of a file that is mapped read-only may be given as any other."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 16)
    mapped = np.memmap(path, np.uint8, "r")
    Launch(WAIT, seeds=3)(Region(mapped.ctypes.data, mapped.nbytes, "weights"))
    assert path.read_bytes() == bytes(range(256)) * 16


BLOCKS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 to)
{
  .reg .b64 t, at; .reg .b32 i, v; .reg .pred p;
  ld.param.u64 t, [to]; mov.u32 i, %ctaid.x;
"""
LAST = BLOCKS + "st.global.b32 [t], i; ret; }"
CHAIN = BLOCKS + "mul.wide.u32 at, i, 4; add.u64 t, t, at;\nL: ld.acquire.gpu.global.b32 v, [t]; setp.eq.u32 p, v, 0; @p bra L;\n"
CHAIN += "add.u32 v, v, 1; st.release.gpu.global.b32 [t + 4], v; ret; }"


def launch_blocks(text: str, blocks: int, to: np.ndarray, **settings: Any) -> Any:
    driver = Driver(Settings(device="sm_80", **settings))
    region = Region(to.ctypes.data, to.nbytes, "argument 0 (to)")
    return driver.launch(driver.load(text, "k.ptx").function("k"), blocks, 1, struct.pack("<Q", to.ctypes.data), [region])


@pytest.mark.parametrize("blocks", [4, 1000])
def test_blocks_that_write_one_place_are_found(blocks: int) -> None:
    to = np.zeros(1, np.uint32)
    with pytest.raises(UnstableResult, match="k left other bits"):
        launch_blocks(LAST, blocks, to, seeds=8)
    assert to[0] == blocks - 1  # under the first seed blocks begin in order


def test_a_block_may_wait_for_one_with_a_lower_number() -> None:
    """Many do; the hardware begins them in order."""
    to = np.zeros(17, np.uint32)
    to[0] = 1
    launch_blocks(CHAIN, 16, to, seeds=2, timeout=600)
    assert (to == np.arange(1, 18)).all()


@pytest.mark.parametrize("clusters", [1, 5, 264, 265, 500, 528, 10_000, 1 << 31])
def test_the_order_of_blocks(clusters: int) -> None:
    """Each once, in one group of 264 with those that it is exchanged for; another order under another seed."""
    first, last = order(clusters, 264, 1)
    rest = clusters - len(last)
    assert len(first) == min(264, clusters) and len(last) == min(264, clusters - len(first))
    assert sorted(first) == [*range(len(first))] and sorted(last) == [*range(rest, clusters)]
    assert clusters == 1 or (first, last) != order(clusters, 264, 2)
    assert clusters == 1 or first != sorted(first)
