"""Device memory that neither the host nor a kernel has written: who marks it, what is a use of it, and what is none."""

from typing import Any

import numpy as np
import pytest

from mmulator.base.findings import Finding
from mmulator.host.driver import Allocation, Driver, Settings
from mmulator.runtime.native.state import BY_HOST, BY_KERNEL
from tests.spread.kernels import kernel
from tests.spread.test_touched import LANES, told
from tests.support import breaches
from tests.support.memory_ways import TARGET, Walk, pattern, statements

HEAD = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<6>;
    .reg .b16 %h<6>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<12>;
    .reg .b128 %q<2>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r9, %ctaid.x;
    mad.lo.u32 %r1, %r9, 64, %r1;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    setp.lt.u32 %p1, %r1, 64;
"""
USES = breaches.ROOT / "values" / "device_uses.ptx"
COPY = "ld.global.u32 %r2, [%rd4]; add.u32 %r2, %r2, 1; st.global.u32 [%rd5], %r2;"


def driver(**settings: Any) -> Driver:
    made = Driver(Settings(**{"sanitize": "strict", "timeout": 60, **settings}))
    made.readers.clear()
    return made


def memory(d: Driver, size: int, filled: int = 0) -> Allocation:
    made = d.memory.allocate(size, "device memory", watched=d.watches)
    d.memory.wrote(made.address, filled)
    return made


def words(*values: int) -> bytes:
    return b"".join(v.to_bytes(8, "little") for v in values)


def launch(d: Driver, body: str, *given: Allocation, grid: int = 1, block: int = 64) -> tuple[Finding, ...]:
    function = d.load(f"{HEAD}{body}\n    ret;\n}}\n").function("k")
    return d.launch(function, (grid, 1, 1), (block, 1, 1), words(*(a.address for a in given))).findings


def rules(d: Driver, body: str, *given: Allocation, **more: int) -> list[str]:
    return sorted({f.rule for f in launch(d, body, *given, **more)})


def marks(a: Allocation) -> np.ndarray:
    assert a.written is not None
    found = a.written.of(0, a.size)
    assert found is not None
    return found


# who marks ----------------------------------------------------------------------------------------------------------
def test_every_way_to_write_marks_what_it_writes() -> None:
    """A statement of each kind: stores, atomic operations, copies of all sorts, matrices; as a trace has the bytes."""
    kinds = {(s.text.split(".")[0], s.access, s.size, s.lanes): s for s in statements() if s.space in ("", "global")}
    w = Walk(list(kinds.values()))
    d = driver(device=TARGET.removesuffix("a"))
    function = d.load(w.text).function("k")
    (start, *_), (out_start, *_) = w.windows["global"], w.windows["out"]
    seen = 0
    for number, s in enumerate(w.statements):
        args = [pattern().copy(), np.zeros_like(w.out), start, number, pattern()]
        _, wanted = told(w.kernel, 1, s.lanes, args)
        own, out = memory(d, w.memory.nbytes, w.memory.nbytes - 1), memory(d, w.out.nbytes)  # what is whole has no marks made
        own.bytes()[:] = pattern()
        params = words(own.address, out.address, own.address) + number.to_bytes(8, "little") + pattern().tobytes()
        d.launch(function, (1, 1, 1), (s.lanes, 1, 1), params)
        for held, first, before in ((own, start, BY_HOST), (out, out_start, 0)):
            expected = np.full(held.size, before, np.uint8)
            expected[-1] = 0
            lost = held is own and s.access == "drop"  # discard takes the value away
            expected[[a - first for a in wanted if 0 <= a - first < held.size]] = 0 if lost else BY_KERNEL
            assert (marks(held) == expected).all(), s.name
        seen += bool((marks(own) == BY_KERNEL).any())
    assert seen > 10


@pytest.mark.parametrize("lanes", LANES.values(), ids=LANES)
@pytest.mark.parametrize(("kind", "bytes"), [("u8", 1), ("u16", 2), ("u32", 4), ("v2.u32", 8), ("v4.u32", 16)])
def test_lanes_mark_what_they_store(lanes: str, kind: str, bytes: int) -> None:
    registers = {"v2.u32": "{%r2, %r3}", "v4.u32": "{%r2, %r3, %r6, %r7}"}.get(kind, "%r2")
    k = kernel(
        f"{lanes} mul.wide.u32 %rd1, %i, {bytes}; ld.param.u64 %rd2, [x]; add.u64 %rd2, %rd2, %rd1; ld.param.u64 %rd3, [y]; "
        f"add.u64 %rd3, %rd3, %rd1; ld.global.{kind} {registers}, [%rd2+{bytes}]; st.global.{kind} [%rd3], {registers};"
    )  # fmt: skip
    y = np.zeros(8192, np.uint8)
    _, wanted = told(k, 2, 48, [np.zeros(8192, np.uint8), y])
    d = driver(device=k.module.default_device)
    x, out = memory(d, 8192, 8192), memory(d, 8192)
    d.launch(d.load(k.module.tree.source.text).function(k.name), (2, 1, 1), (48, 1, 1), words(x.address, out.address))
    first = min(wanted) >> 32 << 32
    assert sorted(a - first for a in wanted) == np.flatnonzero(marks(out) == BY_KERNEL).tolist() and len(wanted) >= bytes


def test_threads_of_the_host_mark_beside_each_other() -> None:
    d = driver(threads=4)
    x, y = memory(d, 4 << 14, 4 << 14), memory(d, 4 << 14)
    assert rules(d, COPY, x, y, grid=256) == []
    assert (marks(y) == BY_KERNEL).all() and (marks(x) == BY_HOST).all()


# what is a use: tests/ub/values/device_uses.ptx -----------------------------------------------------------------------
@pytest.mark.parametrize("change", breaches.changes(USES), ids=str)
def test_what_the_host_has_filled_is_no_finding(change: breaches.Change) -> None:
    result = breaches.launch(USES, change.name, args=["u32[256] filled=1024", "u32[256] filled=0"])
    assert not [rule for rule in breaches.rules_found(result) if rule.startswith("uninit")]


# from launch to launch ----------------------------------------------------------------------------------------------
def test_marks_stay_with_the_memory() -> None:
    d = driver()
    x, y, z = memory(d, 256, 256), memory(d, 256), memory(d, 256)
    assert launch(d, COPY, x, y) == () == launch(d, COPY, y, z)
    d.memory.free(y.address)
    assert rules(d, COPY, memory(d, 256), z) == ["uninitialized-global"]
    assert rules(d, COPY, z, x) == []  # what was stored is told once, where it was stored


def test_a_copy_leaves_unwritten_what_was_unwritten() -> None:
    d = driver()
    x, y, z = memory(d, 256, 128), memory(d, 256, 256), memory(d, 256)
    d.memory.copied(y.address, x.address, 256)
    assert rules(d, COPY, y, z) == ["uninitialized-global"]
    d.memory.copied(y.address + 128, x.address, 128)
    assert rules(d, COPY, y, z) == []
    host = np.zeros(256, np.uint8)
    d.memory.copied(x.address, host.ctypes.data, 256)
    assert rules(d, COPY, x, z) == []


def test_what_nobody_saw_may_have_been_written() -> None:
    """A launch without the sanitizer, or without the rules; a memory that somebody else has, too."""
    for other in ({"sanitize": ""}, {"rules": "races"}):
        d = driver()
        before, x, y = d.settings, memory(d, 256), memory(d, 256)
        assert rules(d, COPY, x, y) == ["uninitialized-global"]
        x = memory(d, 256)
        d.change(driver(**other).settings)
        launch(d, "", y, y)
        assert memory(d, 256).written is None
        d.change(before)
        assert launch(d, COPY, x, y) == ()
    d = driver()
    x, y = memory(d, 256), memory(d, 256)
    owner = np.zeros(1)
    d.memory.expose(x.address + 64, 64, owner.view())
    assert launch(d, COPY, x, y) == ()


def test_memory_that_is_not_watched_has_values() -> None:
    d = driver()
    x, y = d.memory.allocate(256), d.memory.allocate(256)
    assert launch(d, COPY, x, y) == ()


def test_each_seed_begins_with_the_same_marks() -> None:
    d = driver(seeds=3)
    x, y = memory(d, 256), memory(d, 256)
    (finding,) = launch(d, "ld.global.u32 %r2, [%rd4]; st.global.u32 [%rd4], %r2;", x, y)
    assert finding.seeds == (0, 1, 2)
