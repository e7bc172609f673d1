"""Memory that goes: no launch touches it any more, and one that is under way keeps it until it ends."""

import gc
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from mmulator.doors.triton.arguments import address_of
from mmulator.doors.triton.arrays import stand_in
from mmulator.errors import ExecutionFault
from mmulator.host.driver import Driver, Memory, Settings, current, use
from mmulator.host.driver.addresses import watch
from mmulator.host.module import Module
from tests.support.waiting import PATIENCE, wait_until

# Sets the second of two words, waits until the first is not 0, then stores 7 at an address
PTX = """
.version 8.3
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 flag, .param .u64 at) {
  .reg .b32 %r; .reg .b64 %rd<2>; .reg .pred %p;
  ld.param.u64 %rd0, [flag]; ld.param.u64 %rd1, [at]; st.volatile.global.u32 [%rd0+4], 1;
L: ld.volatile.global.u32 %r, [%rd0]; setp.eq.u32 %p, %r, 0; @%p bra L;
  st.global.u32 [%rd1], 7; ret;
}
"""


@contextmanager
def under_way(driver: Driver, at: int) -> Iterator[None]:
    """A launch in another thread that stores to `at` when the block is over, and ends well."""
    flag, ended = driver.memory.allocate(8), []
    flag.bytes()[:] = 0
    function = driver.load(PTX).function("kernel")

    def launch() -> None:
        try:
            driver.launch(function, 1, 1, struct.pack("<2Q", flag.address, at))
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    wait_until(lambda: ended or flag.bytes()[4], "the kernel's begin")
    try:
        yield
    finally:
        flag.bytes()[0] = 1
        thread.join()
        driver.memory.free(flag.address)
    assert ended == [None]


def touched(driver: Driver, address: int) -> bool:
    """Whether a launch may store there."""
    one = driver.memory.allocate(8)
    one.bytes()[:] = 1
    try:
        driver.launch(driver.load(PTX).function("kernel"), 1, 1, struct.pack("<2Q", one.address, address))
    except ExecutionFault as error:
        assert "out of bounds" in error.message
        return False
    finally:
        driver.memory.free(one.address)
    return True


@pytest.fixture
def driver() -> Iterator[Driver]:
    before = current()
    watch(torch)
    yield use(Driver(Settings(timeout=PATIENCE)))
    use(before)


def test_what_is_freed_lives_until_the_launches_end() -> None:
    """cuMemFree from another thread."""
    driver = Driver(Settings(timeout=PATIENCE))
    freed = driver.memory.allocate(1 << 16)
    alive, address = weakref.ref(freed.owner), freed.address
    with under_way(driver, address):
        driver.memory.free(address)
        del freed
        gc.collect()
        assert alive() is not None and not touched(driver, address)
    gc.collect()
    assert alive() is None


def test_owners_live_until_the_launches_end(driver: Driver) -> None:
    x = torch.zeros(1 << 14, dtype=torch.int32)
    alive, address = weakref.ref(x.untyped_storage()), x.data_ptr()
    with under_way(driver, address):
        del x
        gc.collect()
        assert alive() is not None
    gc.collect()
    assert alive() is None and not touched(driver, address)


def resized(x: Any) -> None:
    x.untyped_storage().resize_(0)


def grown(x: Any) -> None:
    x.resize_(1 << 20)


def replaced(x: Any) -> None:
    x.set_(torch.zeros(4, dtype=torch.int32).untyped_storage())
    gc.collect()


def assigned(x: Any) -> None:
    x.data = torch.zeros(4, dtype=torch.int32)
    gc.collect()


@pytest.mark.parametrize("change", [resized, grown, replaced, assigned])
def test_memory_that_a_storage_left_is_no_kernels(driver: Driver, change: Any) -> None:
    """FSDP frees parameters so, and keeps the tensors."""
    x = torch.zeros(1 << 14, dtype=torch.int32)
    address = x.data_ptr()
    assert touched(driver, address) and x[0] == 7
    change(x)
    assert driver.memory.find(address) is None and not touched(driver, address)
    if x.numel() and x.untyped_storage().nbytes():
        assert touched(driver, x.data_ptr()) and x.reshape(-1)[0] == 7  # whoever asks again has the new one


def test_a_storage_waits_for_the_launches_of_others(driver: Driver) -> None:
    x, done = torch.zeros(1 << 14, dtype=torch.int32), []
    address = x.data_ptr()
    resizing = threading.Thread(target=lambda: done.append(x.untyped_storage().resize_(0)))
    with under_way(driver, address):
        resizing.start()
        time.sleep(0.05)
        assert not done and x.untyped_storage().nbytes()
    resizing.join()
    assert done and not x.untyped_storage().nbytes()


def test_nobody_waits_for_a_launch_of_its_own() -> None:
    memory = Memory()
    memory.begin()
    memory.settle()


def test_arrays_stay_where_they_are_while_a_kernel_has_them() -> None:
    """NumPy resizes in place what nobody refers to, and with refcheck=False what somebody does."""
    array, regions = np.zeros(1 << 12, np.uint32), {}
    address_of(stand_in(array), "x", 0, regions)
    assert regions
    with pytest.raises(ValueError, match="cannot resize"):
        array.resize(1 << 20)
    seen = []
    flag = np.zeros(2, np.uint32)
    kernel = Module.load(PTX)["kernel"]
    begun = threading.Event()
    how = {"timeout": PATIENCE, "progress": lambda phase, *_: phase == "run" and begun.set()}
    launch = threading.Thread(target=lambda: seen.append(kernel.launch(1, 1, [flag, array], **how)))
    regions.clear()
    launch.start()
    assert begun.wait(PATIENCE)
    with pytest.raises(ValueError, match="cannot resize"):
        array.resize(1 << 20, refcheck=False)
    flag[0] = 1
    launch.join()
    assert array[0] == 7 and seen
