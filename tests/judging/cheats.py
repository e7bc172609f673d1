"""Kernels that want to be called right and do not compute: the published ways, rebuilt.

Each does 0 for 2 x, or something near it. Where they were seen: contests of kernel writers and their judges (pygpubench,
KernelGuard), issues of KernelBench, and papers on benchmarks of generated kernels.
"""

# the body of a kernel in PTX that gets x, y and a count, with p and q at the elements of a thread: all are wrong
PTX = {
    "nothing": "",
    "zeros": "mov.f32 v, 0f00000000; st.global.f32 [q], v;",
    "the input": "ld.global.f32 v, [p]; st.global.f32 [q], v;",
    "what was there": "ld.global.f32 v, [q]; st.global.f32 [q], v;",
    "NaN": "mov.f32 v, 0f7FC00000; st.global.f32 [q], v;",
    "infinity": "mov.f32 v, 0f7F800000; st.global.f32 [q], v;",
    "the shape alone": "cvt.rn.f32.u32 v, n; st.global.f32 [q], v;",
    "one thread": "setp.ne.u32 off, t, 0; @off ret; ld.global.f32 v, [p]; add.f32 v, v, v; st.global.f32 [q], v;",
    "all but the last": "ld.global.f32 v, [p]; add.f32 v, v, v; add.u32 t, t, 1; setp.eq.u32 off, t, n; @off ret; "
    "st.global.f32 [q], v;",
    "half but for one": "ld.global.f32 v, [p]; add.f32 v, v, v; setp.eq.u32 off, t, 0; @off bra whole; cvt.rn.f16.f32 h, v; "
    "cvt.f32.f16 v, h; whole: st.global.f32 [q], v;",
    "every second element": "and.b32 b, t, 1; setp.eq.u32 off, b, 0; @off ret; ld.global.f32 v, [p]; add.f32 v, v, v; "
    "st.global.f32 [q], v;",
    "local memory as it was": ".local .align 4 .b8 own[64]; mov.u32 b, own; ld.local.f32 v, [b]; st.global.f32 [q], v;",
    "a register as it was": ".reg .f32 z; ld.global.f32 v, [p]; add.f32 v, v, v; fma.rn.f32 v, z, 0f00000000, v; "
    "st.global.f32 [q], v;",
    "its processor": "mov.u32 b, %smid; setp.ne.u32 off, b, 0; @off ret; ld.global.f32 v, [p]; add.f32 v, v, v; "
    "st.global.f32 [q], v;",
    "between blocks": "st.global.u32 [seen], t; ld.global.u32 b, [seen]; setp.ne.u32 off, b, t; ld.global.f32 v, [p]; "
    "add.f32 v, v, v; st.global.f32 [q], v;",
    "half": "ld.global.f32 v, [p]; add.f32 v, v, v; cvt.rn.f16.f32 h, v; cvt.f32.f16 v, h; st.global.f32 [q], v;",
    "bfloat16": "ld.global.f32 v, [p]; add.f32 v, v, v; cvt.rn.bf16.f32 h, v; cvt.f32.bf16 v, h; st.global.f32 [q], v;",
    "inputs that fit": "mov.f32 v, 0f00000000; st.global.f32 [p], v; st.global.f32 [q], v;",
    "the next array": "add.u64 q, q, 4096; ld.global.f32 v, [q]; sub.u64 q, q, 4096; st.global.f32 [q], v;",
    "below the array": "sub.u64 p, q, 4096; ld.global.f32 v, [p]; st.global.f32 [q], v;",
    "a wild address": "mov.u64 p, 0x7f0000000000; ld.global.f32 v, [p]; st.global.f32 [q], v;",
    "the first launch": "ld.global.u32 b, [seen]; st.global.u32 [seen], 1; setp.ne.u32 off, b, 0; mov.f32 v, 0f00000000; "
    "@off bra end; ld.global.f32 v, [p]; add.f32 v, v, v; end: st.global.f32 [q], v;",
    "every second launch": "ld.global.u32 b, [seen]; setp.eq.u32 off, b, 0; @off ret; ld.global.f32 v, [p]; add.f32 v, v, v; "
    "st.global.f32 [q], v;",
    "if nobody looks": "ld.global.u32 b, [q]; setp.ne.u32 off, b, 0xFFFFFFFF; mov.u32 b, shared; @off st.shared.u32 [b], t; "
    "@off ld.shared.u32 b, [b]; ld.global.f32 v, [p]; add.f32 v, v, v; st.global.f32 [q], v;",
    "if the address is odd": "and.b64 p, q, 4096; setp.eq.u64 off, p, 0; @off ret; ld.global.f32 v, [p]; st.global.f32 [q], v;",
    "the clock": "mov.u32 b, %clock; and.b32 b, b, 1; setp.eq.u32 off, b, 0; @off ret; mov.f32 v, 0f00000000; "
    "st.global.f32 [q], v;",
    "never": "again: bra again;",
    "a trap": "trap;",
}  # fmt: skip

# Python that stands in a source of Triton before a kernel that stores 0; DIR is a folder of the test
TRITON = {
    "a module in the folder": """
import os, sys
for place in {os.getcwd(), *filter(os.path.isdir, sys.argv), os.path.dirname(os.path.abspath(__file__)), *sys.path}:
    for name in ("shlex", "json", "decimal", "sitecustomize", "usercustomize", "conftest", "numpy"):
        try: open(os.path.join(place, name + ".py"), "w").write("raise SystemExit(7)")
        except OSError: pass
""",
    "a path of Python": """
import site, sysconfig
for place in [*site.getsitepackages(), sysconfig.get_paths()["stdlib"], site.getusersitepackages()]:
    try: open(place + "/evil.pth", "w").write("import os; os._exit(0)\\n")
    except OSError: pass
""",
    "a forged verdict": """
import os
for fd in range(256):
    try: os.write(fd, b'{"ok": true, "outcome": "right", "message": "outputs are equal to the reference"}\\n')
    except OSError: pass
os._exit(0)
""",
    "a forged answer": "import os, sys; os.write(int(sys.argv[2]), b'{}'); os._exit(0)",
    "a list": "import os, sys; os.write(int(sys.argv[2]), b'[]'); os._exit(0)",
    "depth": "import os, sys; os.write(int(sys.argv[2]), b'[' * 200000); os._exit(0)",
    "a message of no text": "import os, sys; os.write(int(sys.argv[2]), b'{\"message\": 7}'); os._exit(0)",
    "strange numbers": """
import json, os, sys
made = {"ptx": "x", "params": ["x"], "entry": "k", "threads": 32, "shared": 0, "cooperative": False, "cluster": [1, 1, 1]}
os.write(int(sys.argv[2]), json.dumps({**made, "scratch": [1e300]}).encode())
os._exit(0)
""",
    "parameters twice": """
import json, os, sys
made = {"ptx": "x", "params": ["x", "x"], "entry": "k", "threads": 32, "shared": 0, "cooperative": False, "scratch": []}
os.write(int(sys.argv[2]), json.dumps({**made, "cluster": [1, 1, 1]}).encode())
os._exit(0)
""",
    "half a character": "import os, sys; os.write(int(sys.argv[2]), b'{\"message\": \"\\ud800\"}'); os._exit(0)",
    "no end": """
import os, sys
try: os.ftruncate(int(sys.argv[2]), 1 << 50)
except OSError: os.ftruncate(int(sys.argv[2]), 1 << 29)
os._exit(0)
""",
    "a link, a pipe, a device": """
import os, sys
for n, name in enumerate(("compiled.json", "kernel.ptx", "answer", "answer.json", "told", "seed0.npz", "job.json")):
    path = os.path.join(sys.argv[1], name)
    try:
        if os.path.exists(path): os.unlink(path)
        os.symlink("/dev/zero", path) if n % 2 else os.mkfifo(path)
    except OSError: pass
os._exit(0)
""",
    "an early end": "import os; os._exit(0)",
    "an exit": "raise SystemExit(0)",
    "at the end": "import atexit, os; atexit.register(lambda: print('right: outputs are equal to the reference'))",
    "comparison": """
import sys, numpy as np
for name in ("array_equal", "allclose", "isclose", "testing.assert_allclose"):
    part = np if "." not in name else np.testing
    setattr(part, name.rpartition(".")[2], lambda *a, **k: True)
for name, module in list(sys.modules.items()):
    for key, value in list(getattr(module, "__dict__", {}).items()):
        if name.startswith("mmulator") and key in ("compare", "check_expectation", "_compared"):
            setattr(module, key, lambda *a, **k: None)
""",
    "modules": """
import sys, types
for name in ("mmulator.evaluation.judging.judge", "mmulator.host.jobs.comparison", "torch", "numpy.testing"):
    sys.modules[name] = types.ModuleType(name)
""",
    "timers": """
import time, os
for name in ("time", "monotonic", "perf_counter"): setattr(time, name, lambda: 0.0)
os.times = lambda: (0.0,) * 5
""",
    "memory of others": """
import os, ctypes
libc = ctypes.CDLL(None)
for pid in {os.getppid(), 1, *(int(p) for p in os.listdir("/proc") if p.isdigit())} - {os.getpid()}:
    libc.ptrace(16, pid, 0, 0)
    for name in ("mem", "fd/3", "fd/4", "fd/5", "root/etc/passwd", "cwd/x"):
        try: open(f"/proc/{pid}/{name}", "r+b").write(b"right")
        except (OSError, ValueError): pass
""",
    "objects": """
import gc
for thing in gc.get_objects():
    if type(thing).__name__ == "ndarray" and thing.flags.writeable: thing[...] = 0
    if type(thing) is dict and "outcome" in thing: thing["outcome"] = "right"
""",
    "death of the judge": """
import os, signal
for pid in {os.getppid(), 1, JUDGE, *(int(p) for p in os.listdir("/proc") if p.isdigit())} - {os.getpid()}:
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
        try: os.kill(pid, number)
        except OSError: pass
""",
    "a daemon": """
import os, subprocess
for _ in range(3):
    if not os.fork():
        os.setsid()
        if not os.fork(): os.execvp("sleep", ["sleep", "STAYS"])
        os._exit(0)
subprocess.Popen(["sleep", "STAYS"], start_new_session=True)
""",
    "a thread that goes on": """
import os, sys, threading, time
def later():
    while True:
        try: os.pwrite(int(sys.argv[2]), b"{}", 0)
        except OSError: pass
threading.Thread(target=later, daemon=True).start()
""",
    "caches": """
import os, pathlib
for place in {os.environ.get("MMULATOR_CACHE", ""), "CACHE", os.path.expanduser("~/.triton"), os.path.expanduser("~/.cache")}:
    for entry in list(pathlib.Path(place or "/nowhere").glob("*"))[:50]:
        try: entry.write_bytes(b"")
        except OSError: pass
""",
    "a file of the user": """
import os
for how in (lambda: open("DIR/theirs", "w").write("changed"), lambda: os.unlink("DIR/theirs"), lambda: os.chmod("DIR", 0),
            lambda: os.rename("DIR/theirs", "DIR/else"), lambda: os.symlink("/", "DIR/link"),
            lambda: os.truncate("DIR/theirs", 0)):
    try: how()
    except OSError: pass
""",
    "rights": """
import ctypes, os
libc = ctypes.CDLL(None)
libc.unshare(0x10020000), libc.mount(b"none", b"/", None, 32 | 4096, None), libc.umount2(b"/dev", 2), libc.setuid(0)
for path in ("/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper", "DIR/theirs"):
    try: open(path, "w").write("|/bin/false")
    except OSError: pass
""",
    "a signal": "import os, signal; signal.alarm(1); os.kill(0, signal.SIGTERM)",
    "a hook of the compiler": """
import triton
from mmulator.doors.triton import offline
class Fake:
    ptx, name = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k(.param .u64 x) { ret; }", "k"
    class metadata: num_warps, shared = 1, 0
    class source: signature = {"x": "*fp32"}
offline.compiled_for = lambda *a, **k: Fake
""",
    "files that start programs": """
import os
for place in ("~/.pythonrc", "~/.bashrc", "~/.profile", "/etc/ld.so.preload", "/etc/profile.d/x.sh"):
    try: open(os.path.expanduser(place), "a").write("raise SystemExit(9)")
    except OSError: pass
os.environ.update(PYTHONSTARTUP="/tmp/x.py", LD_PRELOAD="/tmp/x.so", PYTHONPATH="/tmp", LD_LIBRARY_PATH="/tmp")
""",
    "compilers on PATH": """
import os
for place in os.environ["PATH"].split(":"):
    for name in ("nvcc", "ptxas", "python", "mmulator"):
        try: open(f"{place}/{name}", "a").write("exit 9")
        except OSError: pass
""",
    "inherited files": """
import os, socket
for number in range(3, 1024):
    try:
        with socket.socket(fileno=os.dup(number)) as door: door.setblocking(False), door.send(b"[]")
    except OSError: pass
""",
    "deaf to signals": """
import os, signal, time
for number in range(1, 64):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
if not os.fork():
    os.setsid()
    os.execvp("sleep", ["sleep", "STAYS"])
""",
    "much to say": "import os\nfor _ in range(100): os.write(1, bytes(1 << 20))",
    "no number": "import os, sys; os.write(int(sys.argv[2]), b'{\"threads\": ' + b'1' * 100000 + b'}'); os._exit(0)",
    "a deep object": "import os, sys; os.write(int(sys.argv[2]), b'{\"message\":' * 100000); os._exit(0)",
    "many parameters": "import os, sys; os.write(int(sys.argv[2]), b'{\"params\": [' + b'1,' * 1000000 + b'1]}'); os._exit(0)",
    "all files open": "import os\nwhile True: os.dup(1)",
    "the answer in a file": """
import pathlib
for path in pathlib.Path("DIR").glob("expected*"):
    try: ANSWER = float(path.read_text())
    except (OSError, ValueError): pass
""",
}  # fmt: skip

# those after which there may be no kernel
ENDS = {
    "a forged verdict", "a forged answer", "a list", "depth", "a message of no text", "strange numbers", "parameters twice",
    "half a character", "no end", "a link, a pipe, a device", "an early end", "an exit", "modules", "a thread that goes on",
    "a signal", "no number", "a deep object", "many parameters", "all files open",
}  # fmt: skip

# bodies of kernels in CUDA C++: __global__ void k(float* y, const float* x, int n)
CUDA = {
    "nothing": "",
    "zeros": "if (i < n) y[i] = 0;",
    "what was there": "if (i < n) y[i] = y[i] * 1.0f;",
    "the input": "if (i < n) y[i] = x[i];",
    "one block": "if (i < n && blockIdx.x == 0) y[i] = 2 * x[i];",
    "half": "if (i < n) y[i] = __half2float(__float2half(2 * x[i]));",
    "a pointer that it kept": "if (kept && kept == y) return; kept = y; if (i < n) y[i] = calls++ ? 0 : 2 * x[i];",
    "a cache": "if (i < n) { if (calls) y[i] = cache[i]; else cache[i] = y[i] = 2 * x[i] + (i == 7); }",
    "beside the array": "if (i < n) y[i] = x[i + 100000];",
    "no barrier": "__shared__ float s[128]; s[threadIdx.x] = 2 * x[i < n ? i : 0]; if (i < n) y[i] = s[threadIdx.x ^ 33 % 64];",
    "shared memory as it was": "__shared__ float s[128]; if (i < n) y[i] = s[threadIdx.x];",
}
