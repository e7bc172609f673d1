"""The order of blocks on one thread of the host: it follows from the kernel and its seed, whatever the clock says."""

import numpy as np
import pytest

from mmulator.host.driver import Driver, Region, Settings
from tests.support.ptx_text import stored

# Each block takes a ticket now and then, and writes its number there.
TICKETS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 log, .param .u32 rounds) {
.reg .b64 %a, %at; .reg .b32 %n, %ticket, %me, %rounds, %i; .reg .pred %p;
ld.param.u64 %a, [log]; ld.param.u32 %rounds, [rounds]; mov.u32 %me, %ctaid.x; mov.u32 %n, 0;
MORE: mov.u32 %i, 0;
WORK: add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 400; @%p bra WORK;
atom.global.add.u32 %ticket, [%a], 1;
mad.wide.u32 %at, %ticket, 4, %a; st.global.u32 [%at+4], %me;
add.u32 %n, %n, 1; setp.lt.u32 %p, %n, %rounds; @%p bra MORE;
ret; }
"""


@pytest.mark.parametrize("seed", [0, 3])
def test_one_worker_knows_no_clock(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it looks up, the same clusters are set aside at the same places."""
    monkeypatch.setattr("mmulator.runtime.launch.workers.COUNTED_TURN", 1 << 13)
    driver, blocks, rounds = Driver(Settings(threads=1, seed=seed)), 12, 60
    function = driver.load(TICKETS).function("k")
    orders = []
    for piece, slow in ((1 << 24, 1e9), (4096, 1e9), (777, 1e-9)):
        monkeypatch.setattr("mmulator.runtime.launch.workers.PIECE", slow)  # whatever took longer was too long
        log = np.zeros(1 + blocks * rounds, np.uint32)
        address = int(log.ctypes.data)
        params = address.to_bytes(8, "little") + rounds.to_bytes(4, "little")
        for compiled in function.loaded.module.loaded.compiled.values():
            compiled.piece = piece
        driver.launch(function, blocks, 1, params, [Region(address, log.nbytes, "log")])
        assert log[0] == blocks * rounds and (np.bincount(log[1:]) == rounds).all()
        orders.append(log[1:].tolist())
    assert orders[1:] == orders[:-1]
    assert np.count_nonzero(np.diff(orders[0])) > 2 * blocks  # they did take turns


# Thread 0 of each block waits for that of all others, a few hundred times over.
BARRIERS = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 count, .param .u32 rounds) {
.reg .b64 %a; .reg .b32 %rounds, %blocks, %n, %t, %goal, %come; .reg .pred %other, %p;
ld.param.u64 %a, [count]; ld.param.u32 %rounds, [rounds]; mov.u32 %blocks, %nctaid.x; mov.u32 %n, 0; mov.u32 %goal, 0;
mov.u32 %t, %tid.x; setp.ne.u32 %other, %t, 0;
AGAIN: bar.sync 0; @%other bra JOIN;
add.u32 %goal, %goal, %blocks; atom.global.add.u32 %come, [%a], 1;
WAIT: ld.volatile.global.u32 %come, [%a]; setp.ge.u32 %p, %come, %goal; @%p bra JOIN; nanosleep.u32 100; bra WAIT;
JOIN: bar.sync 0; add.u32 %n, %n, 1; setp.lt.u32 %p, %n, %rounds; @%p bra AGAIN;
ret; }
"""
# The lanes of a warp lock each other out.
LOCK = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 lock, .param .u32 none) {
.reg .b64 %a; .reg .b32 %old, %sum; .reg .pred %p;
ld.param.u64 %a, [lock];
TRY: atom.global.cas.b32 %old, [%a], 0, 1; setp.eq.u32 %p, %old, 0; @%p bra MINE; nanosleep.u32 20; bra TRY;
MINE: ld.volatile.global.u32 %sum, [%a+4]; add.u32 %sum, %sum, 1; st.volatile.global.u32 [%a+4], %sum; membar.gl;
atom.global.exch.b32 %old, [%a], 0;
ret; }
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_who_sleeps_lets_others_go_on(threads: int) -> None:
    driver, memory = Driver(Settings(threads=threads)), np.zeros(2, np.uint32)
    regions = [Region(int(memory.ctypes.data), 8, "memory")]
    params = [int(memory.ctypes.data).to_bytes(8, "little") + rounds.to_bytes(4, "little") for rounds in (300, 0)]
    done = driver.launch(driver.load(BARRIERS).function("k"), 32, 64, params[0], regions)
    assert memory[0] == 300 * 32
    if threads == 1:  # each looks about once a round
        assert done.total_instructions < 300 * 32 * 50
    memory[:] = 0
    driver.launch(driver.load(LOCK).function("k"), 4, 64, params[1], regions)
    assert memory.tolist() == [0, 4 * 64]


# A block of a cluster takes the lock again and again until each other block has had it, too.
SHARED_LOCK = stored("shared_lock")


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("blocks", [4, 8])
def test_who_releases_a_lock_is_not_who_takes_it_next(seed: int, blocks: int) -> None:
    driver = Driver(Settings(threads=1, seed=seed, timeout=600))
    words = np.zeros(2, np.uint32)
    address = int(words.ctypes.data)
    function, params = driver.load(SHARED_LOCK).function("k"), address.to_bytes(8, "little")
    driver.launch(function, blocks, 64, params, [Region(address, 8, "words")])
    assert words.tolist() == [0, 64 * blocks]
