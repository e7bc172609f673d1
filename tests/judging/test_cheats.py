"""No cheat is called right, whatever it is written in, and none leaves anything behind; kernels that compute are called right."""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.evaluation.judging.verdict import Verdict, VerdictKind
from mmulator.evaluation.judging.warden import below
from tests.judging import cheats
from tests.support.nvcc import compiled

COUNT = 300
LIMITS = mm.Limits(seconds=60, bytes=2 << 30)
PTX = """.version 8.0
.target sm_90
.address_size 64
.global .u32 seen;
.visible .entry k(.param .u64 y, .param .u64 x, .param .u32 count)
{
  .reg .b64 p, q; .reg .b32 t, n, b; .reg .b16 h; .reg .f32 v; .reg .pred off;
  .shared .align 4 .b32 shared[1];
  ld.param.u64 p, [x]; ld.param.u64 q, [y]; ld.param.u32 n, [count];
  mov.u32 t, %tid.x; mov.u32 b, %ctaid.x; mad.lo.u32 t, b, 64, t;
  setp.ge.u32 off, t, n;
  @off ret;
  mad.wide.u32 p, t, 4, p; mad.wide.u32 q, t, 4, q;
  BODY
  ret;
}
"""
TRITON = """
import triton, triton.language as tl
ANSWER = 0.0
PRELUDE
@triton.jit
def k(y, x, n, B: tl.constexpr, A: tl.constexpr = tl.constexpr(ANSWER)):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 0 + A, mask=at < n)
"""
CUDA = """
#include <cuda_fp16.h>
__device__ float* kept; __device__ int calls; __device__ float cache[1 << 12];
extern "C" __global__ void k(float* y, const float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    BODY
}
"""


def inputs(seed: int) -> dict[str, Any]:
    x = np.random.default_rng(seed).standard_normal(COUNT, np.float32)
    return {"y": np.zeros(COUNT, np.float32), "x": x, "n": COUNT}


def reference(x: np.ndarray, **_: Any) -> dict[str, np.ndarray]:
    return {"y": 2 * x}


def judged(source: Any, **more: Any) -> Verdict:
    more = {"args": inputs, "reference": reference, "limits": LIMITS, "grid": 5, "block": 64, **more}
    return mm.judge(source, more.pop("args"), entry="k", **more)


def triton(source: Path, **more: Any) -> Verdict:
    pytest.importorskip("triton")
    return judged(source, args=lambda seed: {**inputs(seed), "B": 64}, block=None, **more)


# PTX ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", cheats.PTX)
def test_ptx(name: str) -> None:
    text = PTX.replace("BODY", cheats.PTX[name])
    verdict = judged(text, rtol=1e-2, atol=1e-3, limits=mm.Limits(seconds=5) if name == "never" else LIMITS)
    assert verdict.outcome not in (VerdictKind.RIGHT, VerdictKind.REFUSED, VerdictKind.CRASHED), str(verdict)


def test_the_kernel_that_computes() -> None:
    assert judged(PTX.replace("BODY", "ld.global.f32 v, [p]; add.f32 v, v, v; st.global.f32 [q], v;")).ok


def test_large_integers_are_not_rounded() -> None:
    """Steps and differences of int64 and uint64 are exact, where float64 has a value for each 256 of them."""
    for kind, ok in ((np.int64, True), (np.uint64, True), (np.int64, False), (np.uint64, False)):
        body = f"ld.global.u64 p, [p]; add.u64 p, p, {2 if ok else 30}; st.global.u64 [q], p;"
        text = PTX.replace("t, 4, p;", "t, 8, p;").replace("t, 4, q;", "t, 8, q;")

        def arguments(seed: int, kind: Any = kind) -> dict[str, Any]:
            x = np.random.default_rng(seed).integers(1 << 60, 1 << 61, COUNT).astype(kind)
            return {"y": np.zeros(COUNT, kind), "x": x, "n": COUNT}

        for tolerance in ({"ulp": 1}, {"atol": 1.0}):
            wants = lambda x, **_: {"y": x + x.dtype.type(1)}  # noqa: E731
            verdict = judged(text.replace("BODY", body), args=arguments, reference=wants, **tolerance)
            assert verdict.ok is ok and (ok or verdict.outputs[0].beyond == COUNT), str(verdict)


@pytest.mark.parametrize("what", ["no elements", "NaN"])
def test_a_reference_that_says_nothing(what: str) -> None:
    count = 0 if what == "no elements" else COUNT
    given = {"y": np.zeros(count, np.float32), "x": np.ones(count, np.float32), "n": count}
    text = PTX.replace("BODY", "mov.f32 v, 0f7FC00000; st.global.f32 [q], v;")
    verdict = judged(text, args=given, reference={"y": np.full(count, np.nan, np.float32)})
    assert verdict.outcome is VerdictKind.VACUOUS and what in verdict.message, str(verdict)


@pytest.mark.parametrize("case", ["zeros for zeros", "zeros within the tolerance", "one number", "other inputs"])
def test_a_reference_that_accepts_what_computes_nothing(case: str) -> None:
    """A vacuous test calls no kernel right, not even one that computes."""
    cases: dict[str, tuple[Any, dict[str, float]]] = {
        "zeros for zeros": (lambda x: 0 * np.abs(x), {}),
        "zeros within the tolerance": (lambda x: 1e-4 * np.tanh(x), {"atol": 1e-2}),
        "one number": (lambda x: 0.5 + 1e-4 * np.tanh(x), {"rtol": 1e-2}),
        "other inputs": (lambda x: np.arange(x.size, dtype=np.float32), {}),
    }
    wants, more = cases[case]
    stores = {"one number": "mov.f32 v, 0f3F000123;", "other inputs": "cvt.rn.f32.u32 v, t;"}.get(case, "mov.f32 v, 0f00000000;")
    text = PTX.replace("BODY", stores + "st.global.f32 [q], v;")
    verdict = judged(text, reference=lambda x, **_: {"y": wants(x)}, **more)
    assert verdict.outcome is VerdictKind.VACUOUS and "a kernel that reads nothing passes" in verdict.message
    if case == "zeros for zeros":
        given = {**inputs(1), "x": np.ones(COUNT, np.float32)}
        assert judged(text, args=given, reference={"y": np.zeros(COUNT, np.float32)}).outcome is VerdictKind.VACUOUS


# Triton ---------------------------------------------------------------------------------------------------------------
def _state(folder: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


def _running(word: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [entry.parent.name] if word.encode() in entry.read_bytes().split(b"\0") else []
        except OSError:
            continue
    return found


@pytest.mark.parametrize("name", cheats.TRITON)
def test_triton(name: str, tmp_path: Path) -> None:
    """Not right, and the files and processes of the user are as they were."""
    (theirs := tmp_path / "theirs").mkdir()
    (theirs / "theirs").write_text("theirs")
    np.savez(theirs / "expected.npz", y=np.zeros(3))
    stays = f"6{time.time_ns() % 10**9}"
    cache = os.environ.get("MMULATOR_CACHE") or str(Path.home() / ".cache" / "mmulator")
    words = {"DIR": str(theirs), "STAYS": stays, "CACHE": cache, "JUDGE": str(os.getpid())}
    prelude = cheats.TRITON[name]
    for word, value in words.items():
        prelude = prelude.replace(word, value)
    (path := tmp_path / "evil.py").write_text(TRITON.replace("PRELUDE", prelude))
    before = _state(tmp_path)
    sizes = {path: path.stat().st_size for path in sorted(Path(cache).glob("*"))[:200] if path.is_file()}
    verdict = triton(path)
    gave_up = verdict.outcome in (VerdictKind.REFUSED, VerdictKind.CRASHED) and name in cheats.ENDS
    assert verdict.outcome is VerdictKind.WRONG or gave_up, str(verdict)
    assert _state(tmp_path) == before
    assert {path: path.stat().st_size for path in sizes} == sizes
    assert not _running(stays)


def test_a_file_with_the_answer_is_not_read(tmp_path: Path) -> None:
    """A reference in a file is hidden from the source."""
    np.savez(tmp_path / "expected.npz", y=np.full(COUNT, 0.25, np.float32))
    place = str(tmp_path / "expected.npz")
    prelude = f"import numpy as np\ntry: ANSWER = float(np.load({place!r})['y'][0])\nexcept Exception: pass"
    (path := tmp_path / "evil.py").write_text(TRITON.replace("PRELUDE", prelude))
    verdict = triton(path, reference=tmp_path / "expected.npz")
    assert verdict.outcome is VerdictKind.WRONG and verdict.outputs[0].got == 0, str(verdict)


# CUDA -----------------------------------------------------------------------------------------------------------------
@compiled
@pytest.mark.parametrize("name", cheats.CUDA)
def test_cuda(name: str, tmp_path: Path) -> None:
    (path := tmp_path / "evil.cu").write_text(CUDA.replace("BODY", cheats.CUDA[name]))
    verdict = judged(path, rtol=1e-2, atol=1e-3)
    assert verdict.outcome not in (VerdictKind.RIGHT, VerdictKind.REFUSED, VerdictKind.CRASHED), str(verdict)


# limits ---------------------------------------------------------------------------------------------------------------
_WAIT = "import os, time\nwait = lambda: time.sleep(600)\npart = bytes(50 << 20)\nx = []\n"
_FULL = "def full():\n  x = bytearray(len(part)); x[::4096] = bytes(len(x[::4096])); return x\n"
HOARDS = {
    "pages": "for _ in range(60): x.append(full())\nwait()",
    "memfd": "f = os.memfd_create('x')\nfor _ in range(18): os.write(f, part)\nwait()",
    "several memfd": "for _ in range(20): os.write(os.memfd_create('x'), part)\nwait()",
    "/dev/shm": "f = open('/dev/shm/x', 'wb')\nfor _ in range(60): f.write(part)\nwait()",
    "temporary files": "import tempfile\nd = tempfile.mkdtemp()\nfor n in range(60): open(f'{d}/{n}', 'wb').write(part)\nwait()",
    "pages of a child that ended": "import mmap\nfor _ in range(8):\n  m = mmap.mmap(-1, 200 << 20); x.append(m)\n"
    "  if not os.fork(): m[::4096] = bytes(len(m) // 4096); os._exit(0)\n  os.wait()\nwait()",
    "children": "for _ in range(30):\n  if not os.fork(): x = full(); wait()\nwait()",
    "System V": "import ctypes\nlibc = ctypes.CDLL(None)\nfor n in range(60):\n  at = libc.shmget(0, len(part), 0o1600)\n"
    "  if at < 0: raise OSError('No space left on device')\nwait()",
}


@pytest.mark.parametrize("name", HOARDS)
def test_memory(name: str, tmp_path: Path) -> None:
    """Storage of any kind counts: the limit is reached, or the system refuses more than the limit."""
    (path := tmp_path / "evil.py").write_text(TRITON.replace("PRELUDE", _WAIT + _FULL + HOARDS[name]))
    verdict = triton(path, limits=mm.Limits(seconds=300, bytes=900 << 20))
    refused = verdict.outcome is VerdictKind.REFUSED and "No space left on device" in verdict.message
    assert verdict.outcome is VerdictKind.MEMORY or refused, str(verdict)
    assert not Path("/dev/shm/x").exists()


def test_limits_hold_under_load(tmp_path: Path) -> None:
    """While processes fork in chains without end, the verdict comes, and none of them is left. No time is asserted but the
    limit.
    """
    stays = f"7{time.time_ns() % 10**9}"
    prelude = f"""
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(8):
    if not os.fork():
        os.setsid()
        while True:
            if os.fork(): os._exit(0)
for _ in range(4):
    if not os.fork(): os.execvp(sys.executable, [sys.executable, "-c", "while True: pass", "{stays}"])
while True: pass
"""
    (path := tmp_path / "evil.py").write_text(TRITON.replace("PRELUDE", prelude))
    before = {*below(os.getpid())}  # of other tests
    verdict = triton(path, limits=mm.Limits(seconds=3))
    assert verdict.outcome is VerdictKind.TIMEOUT and verdict.seconds["compile"] >= 3
    assert not _running(stays) and not {*below(os.getpid())} - before
