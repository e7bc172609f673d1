"""Threads, forks, time limits and Ctrl-C around compilation. Each case runs in a process with a cold cache of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.ptx_text import STORE_R1, kernel
from tests.support.waiting import PATIENCE

SETUP = """
import os, sys, threading, time
import numpy as np
import mmulator as mm
from tests.support.ptx_text import STORE_R1, kernel

def body(number, length):
    lines = ["mov.u32 %r1, %tid.x;"]
    for n in range(1, length):
        lines.append(f"mad.lo.u32 %r1, %r1, {2 * n + number}, {n};")
        if n % 80 == 0:
            lines.append(f"setp.eq.u32 %p1, %r1, {n}; @%p1 bra L{n}; L{n}:")
    return kernel("\\n".join(lines) + STORE_R1)

def wanted(number, length):
    out = np.arange(32, dtype=np.uint32)
    for n in range(1, length):
        out = out * np.uint32(2 * n + number) + np.uint32(n)
    return out

def launch(module, number, length, **options):
    out = np.zeros(32, np.uint32)
    module["k"].launch(1, 32, [out], **options)
    assert (out == wanted(number, length)).all(), number

A = (np.arange(512 * 512).reshape(512, 512) % 7).astype(np.float16)
def matmul():
    D = mm.matmul(A, A, instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", device="sm_90")
    assert (D == (A.astype(np.float32) @ A.astype(np.float32))).all()
"""


def start(code: str, cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "MMULATOR_CACHE": str(cache)}
    command = [sys.executable, "-c", SETUP + code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def finish(process: subprocess.Popen[str], seconds: float = PATIENCE) -> str:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it hangs: {process.communicate()[1]}") from None
    assert process.returncode == 0, err
    assert err == ""
    return out


def test_threads_compile_and_launch(tmp_path: Path) -> None:
    """Distinct kernels and modules, one kernel that all share, and matmul, all at once."""
    code = """
shared = mm.Module.load(body(1000, 150))
failures = []
def work(number):
    try:
        launch(mm.Module.load(body(number, 150)), number, 150)
        launch(shared, 1000, 150)
        if number % 2:
            matmul()
    except BaseException as error:
        failures.append(f"{number}: {error!r}"[:300])
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
for t in threads: t.start()
for t in threads: t.join()
print(failures)
"""
    assert finish(start(code, tmp_path)) == "[]\n"


FORKED = """
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    deadline = time.monotonic() + 300
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return "hangs"
        time.sleep(0.01)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_while_a_property_is_computed(tmp_path: Path) -> None:
    code = FORKED + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
from mmulator.base.lazy import cached_property
begun, over, parent = threading.Event(), threading.Event(), os.getpid()
class Slow:
    @cached_property
    def value(self):
        begun.set()
        if os.getpid() == parent:
            over.wait()
        return object()
slow = Slow()
thread = threading.Thread(target=lambda: slow.value)
thread.start()
begun.wait()
print(child(lambda: Slow().value))
over.set()
thread.join()
print(slow.value is slow.value)
"""
    assert finish(start(code, tmp_path)) == "0\nTrue\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork(tmp_path: Path) -> None:
    """After matmul, whose threads the child lacks; while other threads compile; and from a forked child again."""
    code = FORKED + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
matmul()
def both():
    matmul()
    launch(mm.Module.load(body(1, 100)), 1, 100)
print(child(both))

stop = False
shared = mm.Module.load(body(7, 1000))
def compile_on():
    number = 100
    while not stop:
        mm.Module.load(body(number, 150))["k"].compile()
        number += 1
threads = [threading.Thread(target=compile_on), threading.Thread(target=shared["k"].compile)]
for t in threads: t.start()
print([child(lambda: launch(mm.Module.load(body(50 + n, 40)), 50 + n, 40)) for n in range(3)])
print(child(lambda: launch(shared, 7, 1000)))
stop = True
for t in threads: t.join()
launch(shared, 7, 1000)
print(child(lambda: sys.exit(child(both))))
"""
    assert finish(start(code, tmp_path)) == "0\n[0, 0, 0]\n0\n0\n"


def test_multiprocessing_workers(tmp_path: Path) -> None:
    """As a loader of data does it: workers are forked, work, and are forked anew."""
    code = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
import multiprocessing
def item(number):
    launch(mm.Module.load(body(number, 40)), number, 40)
    matmul()
    return number
item(1)
context = multiprocessing.get_context("fork")
for epoch in range(2):
    with context.Pool(2) as pool:
        print(pool.map_async(item, range(2, 6)).get(400))
"""
    assert finish(start(code, tmp_path)) == "[2, 3, 4, 5]\n" * 2


def test_time_limit_and_ctrl_c_reach_compilation(tmp_path: Path) -> None:
    """A compilation of seconds ends when its time is up and at Ctrl-C, at once; a later launch goes on from there."""
    code = """
import signal
launch(mm.Module.load(body(4, 30)), 4, 30)
module = mm.Module.load(body(3, 20000))
began = time.process_time()
try:
    launch(module, 3, 20000, timeout=0.4)
except mm.errors.LaunchError as error:
    print(error)
assert time.process_time() - began < 2

longer, pressed = mm.Module.load(body(5, 20000)), []
def press():
    pressed.append(time.process_time())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.4, press).start()
try:
    launch(longer, 5, 20000)
except KeyboardInterrupt:
    assert time.process_time() - pressed[0] < 1.5
    print("interrupted")
launch(mm.Module.load(body(6, 30)), 6, 30)
launch(module, 3, 20000)
"""
    said = finish(start(code, tmp_path))
    assert re.fullmatch(
        r"k was not compiled within 0\.4 s(: \d+ of \d+ instructions are done)?; nothing was run\n"
        r"  hint: what is compiled is kept: the next launch goes on from there, or allow more time\ninterrupted\n", said,
    )  # fmt: skip


def test_the_command_ends_soon_after_ctrl_c(tmp_path: Path) -> None:
    text = "\n".join(f"mad.lo.u32 %r1, %r1, {2 * n + 1}, {n};" for n in range(4000))
    (tmp_path / "k.ptx").write_text(kernel(text + STORE_R1))
    command = ["mmulator", "run", str(tmp_path / "k.ptx"), "--grid", "1", "--block", "32", "--arg", "out:u32:32"]
    environment = {**os.environ, "MMULATOR_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen([sys.executable, "-m", *command], stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    assert "compiling" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, said.splitlines()[-1]) == (130, "interrupted")


def test_a_text_is_loaded_while_llvm_works(tmp_path: Path) -> None:
    """The first text waits for a lock that LLVM's thread holds, since it imports what reads texts; later ones do not."""
    code = """
from mmulator.base.codegen.locks import no_fork
mm.Module.load(body(1, 9))
held, over = threading.Event(), threading.Event()
def hold():
    with no_fork:
        held.set()
        over.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
module = mm.Module.load(body(2, 9))
assert not over.is_set()
over.set()
launch(module, 2, 9)
print("ok")
"""
    assert finish(start(code, tmp_path)) == "ok\n"
