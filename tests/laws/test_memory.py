"""No access goes round the windows: every way into memory, in every space, at every edge."""

import subprocess
import sys
import threading
from functools import cache

import numpy as np
import pytest

from mmulator.errors import ExecutionFault, InvalidInstructionError, LaunchError
from mmulator.host.module import Module
from tests.support import memory_ways
from tests.support.memory_ways import Walk, statements
from tests.support.ptx_text import kernel
from tests.support.waiting import PATIENCE

KINDS = sorted({s.name.partition(".")[0] for s in statements()})


@cache
def walk() -> Walk:
    return Walk(statements())


def test_every_row_with_an_address_is_walked() -> None:
    assert not memory_ways.unknown(), "say in memory_ways.ACCESS what these do with the bytes at their address"


@pytest.mark.parametrize("kind", KINDS)
def test_edges_of_the_windows(kind: str) -> None:
    numbers = [n for n, s in enumerate(walk().statements) if s.name.partition(".")[0] == kind]
    found = [walk().problem(n, a) for n in numbers for a in walk().edges(n)]
    assert not any(found), "\n".join(p for p in found if p)


@pytest.mark.parametrize(("edge", "at"), [("left", -1), ("right", 100)])
def test_the_pages_do_trap(edge: str, at: int) -> None:
    """One byte beyond a window ends the process; the bytes inside do not."""
    code = (
        "import ctypes, sys; from mmulator.runtime.launch.arena import Heap, pointer;"
        f"held = Heap('{edge}').bytes(100, 1); p = pointer(held); [ctypes.string_at(p + n, 1) for n in range(100)];"
        f"print('inside', flush=True); ctypes.string_at(p + {at}, 1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "inside" and done.returncode < 0


# what is known when the module is read ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("ld.param.u64 %rd1, [out+4096];", "ld.param reads bytes 4096 to 4103, but the parameters of k (12 bytes) end at 11"),
        ("ld.param.u64 %rd1, [out+1099511627776];", "reads bytes 1099511627776"),
        ("ld.param.u32 %r1, [out+-4];", "reads bytes -4 to -1"),
        ("ld.param.v4.u32 {%r1, %r2, %r3, %r4}, [out];", "reads bytes 0 to 15"),
        ("ld.param.u64 %rd1, [n];", "reads bytes 8 to 15"),
        ("{ .param .b32 given; st.param.b32 [given+4], %r1; }", "st.param writes bytes 4 to 7, but given"),
        ("{ .param .align 8 .b8 given[12]; ld.param.b64 %rd1, [given+8]; }", "reads bytes 8 to 15, but given"),
    ],
)
def test_parameters_beyond_their_end_are_errors_of_the_module(statement: str, message: str) -> None:
    with pytest.raises(InvalidInstructionError, match="Data Movement") as caught:
        Module.load(kernel("  " + statement, ".param .u64 out, .param .u32 n"), name="test.ptx")
    assert message in str(caught.value).replace("@k", "") and "test.ptx:" in str(caught.value) and "^" in str(caught.value)


def test_a_misaligned_parameter_is_a_fault() -> None:
    """As on an H100, though the place is known before."""
    with pytest.raises(ExecutionFault, match=r"misaligned: ld\.param\.u64 of 8 bytes at .*byte 4 of the parameters"):
        text = kernel("  ld.param.u64 %rd1, [out+4];", ".param .u64 out, .param .u64 n")
        Module.load(text)["k"].launch(1, 1, [np.zeros(1), 0])


def test_a_parameter_by_the_name_of_the_one_before() -> None:
    """Parameters lie one behind the other: an offset that reaches the next one reads it."""
    out = np.zeros(1, np.uint32)
    text = kernel("  ld.param.u32 %r1, [out+8];\n  st.global.u32 [%rd0], %r1;", ".param .u64 out, .param .u32 n")
    Module.load(text)["k"].launch(1, 1, [out, 77])
    assert out[0] == 77


# offsets ------------------------------------------------------------------------------------------------------------
def run(body: str, top: str = "", lanes: int = 1, **options: object) -> np.ndarray:
    out = np.zeros(32, np.uint32)
    text = kernel(body, top=top).replace(".version 8.0", ".version 8.4")
    Module.load(text, name="test.ptx")["k"].launch(1, lanes, [out], timeout=600, **options)
    return out


@pytest.mark.parametrize(
    ("access", "space"),
    [
        ("st.local.u32 [x+4294967296], %r1;", "local"),
        ("ld.local.u32 %r1, [x+-4294967296];", "local"),
        ("st.u32 [x+4294967296], %r1;", "local"),
        ("ld.const.u32 %r1, [c+4294967296];", "const"),
        ("ld.const.u32 %r1, [c+-4];", "const"),
        ("mov.u64 %rd1, c; cvta.const.u64 %rd1, %rd1; ld.const.u32 %r1, [%rd1];", "const"),
        ("mov.u64 %rd1, x; cvta.local.u64 %rd1, %rd1; st.local.u32 [%rd1], %r1;", "local"),
        ("mov.u64 %rd1, out; cvta.param.u64 %rd1, %rd1; ld.param.u32 %r1, [%rd1];", "param"),
    ],
)
def test_an_offset_does_not_wrap_into_its_space(access: str, space: str) -> None:
    with pytest.raises(ExecutionFault, match=rf"beyond the \.{space} space"):
        run(f"  .local .align 4 .b8 x[16];\n  mov.u32 %r1, 1;\n  {access}", ".const .align 4 .u32 c[4];")


def test_shared_addresses_beyond_four_gigabytes() -> None:
    with pytest.raises(ExecutionFault, match=r"beyond the \.shared space"):
        run("  .shared .align 4 .b8 s[16];\n  st.shared.u32 [s+4294967296], 1;")


def test_a_32_bit_register_and_an_offset_have_32_bits() -> None:
    """As measured on an H100: a negative register and a large offset meet in shared, local and const memory."""
    body = """
  .shared .align 4 .b8 s[16]; .local .align 4 .b8 x[16];
  st.shared.u32 [s+4], 7; st.local.u32 [x+8], 8;
  mov.u32 %r2, s; add.u32 %r2, %r2, -5000; ld.shared.u32 %r1, [%r2+5004]; st.global.u32 [%rd0], %r1;
  mov.u32 %r2, x; add.u32 %r2, %r2, -5000; ld.local.u32 %r1, [%r2+5008]; st.global.u32 [%rd0+4], %r1;
  mov.u32 %r2, c; add.u32 %r2, %r2, -5000; ld.const.u32 %r1, [%r2+5004]; st.global.u32 [%rd0+8], %r1;
"""
    assert run(body, ".const .align 4 .u32 c[2] = {1, 9};")[:3].tolist() == [7, 8, 9]


def test_a_function_reads_its_own_parameters_by_their_address() -> None:
    top = """
.func (.param .b32 r) f (.param .b32 a, .param .b32 b)
{ .reg .b64 %d; .reg .b32 %x; mov.u64 %d, b; ld.param.b32 %x, [%d]; st.param.b32 [r], %x; ret; }
"""
    body = """
  { .param .b32 r; .param .b32 a; .param .b32 b; st.param.b32 [a], 5; st.param.b32 [b], 6;
    call (r), f, (a, b); ld.param.b32 %r1, [r]; }
  st.global.u32 [%rd0], %r1;
"""
    assert run(body, top)[0] == 6


@pytest.mark.parametrize("access", ["ld.global.u32 %r1, [%rd1];", "st.global.u32 [%rd1], %r1;", "red.global.add.u32 [%rd1], 1;"])
@pytest.mark.parametrize("space", ["shared", "local"])
def test_global_accesses_do_not_take_other_memory(access: str, space: str) -> None:
    declared = f".{space} .align 4 .b8 x[16];\n  mov.u64 %rd1, x;\n  cvta.{space}.u64 %rd1, %rd1;"
    with pytest.raises(ExecutionFault, match="wrong state space"):
        run(f"  {declared}\n  mov.u32 %r1, 1;\n  {access}")
    # a lane in global memory and one elsewhere
    mixed = "mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; selp.b64 %rd1, %rd0, %rd1, %p1;"
    with pytest.raises(ExecutionFault, match=r"wrong state space.*thread \(1, 0, 0\)"):
        run(f"  {declared}\n  mov.u32 %r1, 1;\n  {mixed}\n  {access}", lanes=2)


def test_a_vector_of_an_atomic_operation_is_aligned_as_a_whole() -> None:
    with pytest.raises(ExecutionFault, match="misaligned"):
        run("  mov.f32 %f1, 0f3F800000;\n  red.global.add.v4.f32 [%rd0+8], {%f1, %f1, %f1, %f1};")


def test_nothing_is_stored_after_a_fault_in_the_same_block_of_code() -> None:
    """A wmma.store right behind a load that faults, without a branch or barrier between them."""
    registers = " ".join(f"mov.b32 %r{n}, 7;" for n in range(1, 5))
    out = np.zeros(256, np.uint16)
    body = f"""
  mov.u64 %rd5, 0; {registers}
  movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r1;
  ld.global.u32 %r9, [%rd5];
  wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd0], {{%r1, %r2, %r3, %r4}}, 16;
"""
    with pytest.raises(ExecutionFault, match="null pointer"):
        Module.load(kernel(body))["k"].launch(1, 32, [out])
    assert not out.any()


def test_pending_copies_do_not_complete_after_a_fault() -> None:
    body = """
  .shared .align 16 .b8 s[16];
  mov.u64 %rd5, 0; mov.u64 %rd6, s;
  cp.async.ca.shared.global [%rd6], [%rd0], 16;
  ld.global.u32 %r9, [%rd5];
  cp.async.wait_all;
  ld.shared.u32 %r1, [%rd6];
  st.global.u32 [%rd0], %r1;
"""
    with pytest.raises(ExecutionFault, match="null pointer"):
        run(body)


# cp.async -----------------------------------------------------------------------------------------------------------
COPY = """
  .shared .align 16 .b8 s[16];
  mov.u64 %rd6, s; st.shared.v2.u64 [%rd6], {{-1, -1}}; mov.u32 %r2, {valid};
  cp.async.ca.shared.global [%rd6], [%rd0+{at}], 16, %r2;
  cp.async.wait_all;
  ld.shared.v4.u32 {{%r3, %r4, %r5, %r6}}, [%rd6];
  st.global.v4.u32 [%rd0], {{%r3, %r4, %r5, %r6}};
"""


def copy(size: int, at: int, valid: int) -> list[int]:
    data = np.arange(1, size + 1, dtype=np.uint8)
    Module.load(kernel(COPY.format(at=at, valid=valid)))["k"].launch(1, 1, [data])
    return data[:16].tolist()


@pytest.mark.parametrize("valid", [0, 1, 5, 8])
def test_a_partial_copy_reads_only_its_bytes(valid: int) -> None:
    """The tail of an array that is no multiple of 16 bytes long; the rest is zeros, as on an H100."""
    assert copy(24 + 16, 32, valid) == [*range(33, 33 + valid), *[0] * (16 - valid)]


def test_a_partial_copy_beyond_the_end_is_a_fault() -> None:
    with pytest.raises(ExecutionFault, match=r"cp\.async.* of 9 bytes at .*byte 32 of argument 0"):
        copy(40, 32, 9)


def test_the_source_of_a_copy_is_aligned_to_its_whole_size() -> None:
    with pytest.raises(ExecutionFault, match=r"misaligned: cp\.async.* of 16 bytes"):
        copy(64, 8, 8)
    assert copy(64, 8, 0) == [0] * 16  # nothing is read: any address will do


@pytest.mark.parametrize("pending", [0, 1, 62, 63, 64, 90, 99, 100, 1000])
def test_wait_group_of_any_number(pending: int) -> None:
    """100 groups of one copy each: all but the newest `pending` are there, whatever the seed."""
    loop = f"""
  .shared .align 16 .b8 s[1600];
  mov.u32 %r1, 0; mov.u32 %r3, s;
A: mad.lo.u32 %r2, %r1, 16, %r3; st.shared.u32 [%r2], 0;
  cp.async.ca.shared.global [%r2], [%rd0], 16; cp.async.commit_group;
  add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra A;
  cp.async.wait_group {pending};
  mov.u32 %r1, 0;
B: mad.lo.u32 %r2, %r1, 16, %r3; ld.shared.u32 %r4, [%r2];
  mad.wide.u32 %rd1, %r1, 4, %rd0; st.global.u32 [%rd1+16], %r4;
  add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra B;
"""
    module = Module.load(kernel(loop))
    for seed in range(3):
        out = np.zeros(104, np.uint32)
        out[:4] = 7
        module["k"].launch(1, 1, [out], seed=seed)
        done = 100 - min(pending, 100)
        assert (out[4 : 4 + done] == 7).all(), (seed, out)


# atomics on arrays that begin anywhere ------------------------------------------------------------------------------
WIDE = """
  .reg .b128 %q<4>;
  mov.u64 %rd1, 1; mov.u64 %rd2, 0x100000000;
L: ld.global.b128 %q0, [%rd0];
  mov.b128 {%rd3, %rd4}, %q0; add.u64 %rd3, %rd3, %rd1; add.u64 %rd4, %rd4, %rd2; mov.b128 %q1, {%rd3, %rd4};
  atom.global.cas.b128 %q2, [%rd0], %q0, %q1;
  mov.b128 {%rd5, %rd6}, %q2; mov.b128 {%rd7, %rd8}, %q0;
  setp.ne.u64 %p1, %rd5, %rd7; setp.ne.or.u64 %p1, %rd6, %rd8, %p1;
  @%p1 bra L;
"""


@pytest.mark.parametrize("skip", [0, 1])
def test_wide_atomics_on_any_array(skip: int) -> None:
    """128 bits that 64 blocks count up together, in an array that the host may have aligned to 8 bytes only."""
    whole = np.zeros(40, np.uint64)
    array = whole[(whole.ctypes.data // 8 + skip) % 2 :]
    text = kernel(WIDE).replace(".version 8.0", ".version 8.4")
    Module.load(text)["k"].launch(64, 1, [array], threads=4, timeout=600)
    assert array[:2].tolist() == [64, 64 << 32] and not array[2:].any()


def test_atomics_on_an_array_at_an_odd_address_and_one_that_overlaps() -> None:
    whole = np.zeros(65, np.uint8)
    one, other = whole[1:], whole[9:]
    text = kernel("  red.global.add.u64 [%rd0], 5;\n  ld.param.u64 %rd1, [b];\n  red.global.add.u64 [%rd1], 6;",
                  ".param .u64 out, .param .u64 b")  # fmt: skip
    Module.load(text)["k"].launch(2, 4, [one, other])
    assert one.view(np.uint64)[:3].tolist() == [40, 48, 0] and whole[0] == 0
    with pytest.raises(LaunchError, match=r"argument 0 \(out\) and argument 1 \(b\) overlap and begin 4 bytes apart"):
        Module.load(text)["k"].launch(1, 1, [whole[1:], whole[5:]])
    assert one.view(np.uint64)[0] == 40


def test_a_copied_array_keeps_what_was_stored_before_a_fault() -> None:
    array = np.zeros(17, np.uint8)[1:]
    with pytest.raises(ExecutionFault):
        Module.load(kernel("  red.global.add.u64 [%rd0], 5;\n  ld.global.u64 %rd1, [%rd0+16];"))["k"].launch(1, 1, [array])
    assert array[0] == 5


def test_threads_that_share_an_array_that_is_copied_lose_no_store() -> None:
    """Atomics of the host want alignment, so this array is copied; each launch brings back what it changed, no more."""
    array = np.zeros(65, np.uint8)[1:]
    add = Module.load(kernel("  red.global.add.u32 [%rd0], 1;"))["k"]
    slow = Module.load(kernel("""
  mov.u32 %r1, 0;
L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 300000; @%p1 bra L;
  red.global.add.u32 [%rd0+4], %r1;"""))["k"]  # fmt: skip
    store = Module.load(kernel("  st.global.u32 [%rd0+8], 7;"))["k"]
    add.launch(1, 1, [array])
    threads = [threading.Thread(target=lambda: [add.launch(2, 1, [array]) for _ in range(10)]) for _ in range(4)]
    threads.append(threading.Thread(target=lambda: slow.launch(1, 1, [array])))
    for t in threads:
        t.start()
    store.launch(1, 1, [array])  # on the array itself: it has no atomics
    for t in threads:
        t.join()
    assert array.view(np.uint32)[:4].tolist() == [81, 300000, 7, 0]


def test_the_time_limit_covers_the_wait_for_another_copy() -> None:
    array = np.zeros(65, np.uint8)[1:]
    add, begun, over = Module.load(kernel("red.global.add.u32 [%rd0], 1;"))["k"], threading.Event(), threading.Event()
    add.compile()

    def hold(phase: str, *_: int) -> None:
        if phase == "run":
            begun.set()
            over.wait()

    holder = threading.Thread(target=lambda: add.launch(1, 1, [array], progress=hold))
    holder.start()
    try:
        assert begun.wait(PATIENCE)
        with pytest.raises(LaunchError, match="other launches on copies"):
            add.launch(1, 1, [array], timeout=0.2)
    finally:
        over.set()
        holder.join()
    assert array.view(np.uint32)[0] == 1
