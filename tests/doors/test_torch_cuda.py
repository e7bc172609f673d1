"""torch.cuda under exec: what programs ask a GPU for. A process for the namespace, one for torch.compile, one opens late."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks
from tests.support.places import PACKAGE

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

# Each line is a fact: a name, and an expression of the program's. An error is a fact too: its types, then its first lines.
HEAD = """
import json, sys, torch
def fact(name, find):
    try:
        found = find()
    except BaseException as error:
        found = [[t.__name__ for t in type(error).__mro__[:-2]], str(error)]
    print(json.dumps([name, found], default=str))
c, b = torch.cuda, torch.backends.cudnn
"""
NAMESPACE = {
    "there": "[c.is_available(), c.device_count(), c.current_device(), torch.backends.cuda.is_built(), torch.version.cuda]",
    "chip": "[c.get_device_name(), c.get_device_capability('cuda:0'), c.is_bf16_supported(including_emulation=False)]",
    "properties": "{k: getattr(c.get_device_properties(0), k) for k in ('multi_processor_count', 'warp_size', 'total_memory', "
    "'shared_memory_per_block_optin', 'shared_memory_per_multiprocessor', 'max_threads_per_multi_processor', 'L2_cache_size')}",
    "shown": "repr(c.get_device_properties())",
    "compiled for it": "f'sm_{c.get_device_capability()[0]}{c.get_device_capability()[1]}' in c.get_arch_list()",
    "second device": "c.set_device(1)",
    "second tensor": "torch.zeros(1, device='cuda:1')",
    "too large": "torch.zeros(1 << 50, device='cuda')",
    "properties of a second": "c.get_device_properties(1)",
    "device": "[c.device(0).__enter__(), c.set_device('cuda:0'), c.synchronize(), c.empty_cache(), c.ipc_collect()]",
    "stream": "(lambda s: [s != c.current_stream(), isinstance(s, torch.Stream), s.query(), str(s.device), s.cuda_stream > 0])"
    "(c.Stream())",
    "in a stream": "streams()",
    "external": "c.ExternalStream(77).cuda_stream",
    "time": "times()",
    "no timing": "c.Event().elapsed_time(c.Event())",
    "not recorded": "c.Event(enable_timing=True).elapsed_time(c.Event(enable_timing=True))",
    "memory": "memory()",
    "total": "c.mem_get_info()[1]",
    "summary": "'CUDA memory summary' in c.memory_summary()",
    "markers": "[c.nvtx.range_push('a'), c.nvtx.range_pop(), c.nvtx.mark('b'), c.cudart().cudaProfilerStart()]",
    "seeds": "seeds()",
    "accelerator": "[str(torch.accelerator.current_accelerator()), torch.accelerator.device_count(), "
    "torch.get_device_module() is c, str(torch.accelerator.current_stream().device)]",
    "handle": "c.current_stream()._as_parameter_.value or 0",
    "capturing": "c.is_current_stream_capturing()",
    "settings": "settings()",
    "halves of six": "torch.fft.fft(torch.ones(6, device='cuda').half())",
    "halves": "torch.fft.irfft(torch.fft.rfft(torch.arange(4, device='cuda').half())).tolist()",
    "cudnn": "[b.is_available(), b.version(), b.enabled, b.is_acceptable(torch.ones(1, device='cuda'))]",
    "blas": "c.current_blas_handle()",
    "interprocess": "c.Event(interprocess=True)",
    "asked": "hasattr(torch._C, '_cuda_nothing_of_the_kind')",
    "parallel": "parallel()",
    "profiler": "profiler()",
    "types": "torch.float8_e4m3fn in torch.accelerator.get_device_capability()['supported_dtypes']",
    "legacy": "[isinstance(torch.ones(1, device='cuda'), torch.cuda.FloatTensor), torch.ones(1, device='cuda').type()]",
}
FUNCTIONS = """
def streams():
    s = c.Stream()
    with c.stream(s):
        inside = [c.current_stream() == s, torch._C._cuda_getCurrentRawStream(0) == s.cuda_stream]
    with s:
        inside.append(c.current_stream() == s)
    s.wait_stream(c.current_stream())
    return [*inside, c.current_stream() == c.default_stream(), c.current_stream().cuda_stream]
def times():
    begin, end = c.Event(enable_timing=True), c.Event(enable_timing=True)
    begin.record()
    c._sleep(10**6)
    end.record()
    return begin.elapsed_time(end)
def memory():
    before = c.memory_allocated()
    x = torch.zeros(1000, device="cuda")
    y = x.view(10, 100)
    held = c.memory_allocated() - before
    c.reset_peak_memory_stats()
    z = torch.zeros(1 << 20, device="cuda")
    del z
    peak = c.max_memory_allocated() - before
    del x
    still = c.memory_allocated() - before
    del y
    return [held, peak, still, c.memory_allocated() - before]
def settings():
    # what only steers memory or speed, or asks for a profiler, is taken
    c.set_per_process_memory_fraction(0.5)
    c.set_sync_debug_mode("warn")
    c.memory._record_memory_history()
    pool = c.MemPool()
    with c.use_mem_pool(pool):
        x = torch.ones(1 << 18, device="cuda")
    shown = [s for s in c.memory_snapshot() if s["address"] == x.data_ptr()]
    plans = torch.backends.cuda.cufft_plan_cache
    plans.max_size = 7
    plans.clear()
    c.tunable.enable(True)
    torch.backends.cuda.preferred_linalg_library("cusolver")
    with torch.autograd.profiler.emit_nvtx():
        x.sum()
    return [c.get_per_process_memory_fraction(), c.get_sync_debug_mode(), len(shown), shown[0]["total_size"], plans.max_size,
            plans.size, c.tunable.is_enabled(), c.host_memory_stats()["allocated_bytes.current"]]
def seeds():
    torch.manual_seed(7)
    x, state = torch.rand(4, device="cuda"), c.get_rng_state()
    y = torch.rand(4, device="cuda")
    c.set_rng_state(state)
    again = torch.equal(y, torch.rand(4, device="cuda"))
    c.manual_seed_all(7)
    return [again, torch.equal(x, torch.rand(4, device="cuda")), c.initial_seed()]
def parallel():
    model, x = torch.nn.Linear(3, 2).cuda(), torch.ones(4, 3, device="cuda")
    from torch.cuda.comm import gather, scatter
    whole = gather(scatter(x, [0]), destination=0)
    return [torch.equal(torch.nn.DataParallel(model)(x), model(x)), torch.equal(whole, x)]
def profiler():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        torch.ones(3, device="cuda").sum()
    return any(e.key == "aten::sum" for e in seen.key_averages())
"""


def started(program: str, folder: Path, *options: str) -> dict[str, Any]:
    """The facts of a program that exec runs."""
    (folder / "prog.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": str(PACKAGE), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    done = forks.run(["-m", "mmulator", "exec", *options, "prog.py"], folder, environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    lines = [f"fact({name!r}, lambda: {find})" for name, find in NAMESPACE.items()]
    return started("\n".join((HEAD, FUNCTIONS, *lines)), tmp_path_factory.mktemp("cuda"), "--device", "A100")


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("there", [True, 1, 0, True, "13.0"]),
        ("chip", ["NVIDIA A100-SXM4-80GB", [8, 0], True]),
        ("properties", {"multi_processor_count": 108, "warp_size": 32, "total_memory": 80 << 30,
                        "shared_memory_per_block_optin": 163 << 10, "shared_memory_per_multiprocessor": 164 << 10,
                        "max_threads_per_multi_processor": 2048, "L2_cache_size": 40 << 20}),
        ("compiled for it", True),
        ("device", [None] * 5),
        ("stream", [True, True, True, "cuda:0", True]),
        ("in a stream", [True, True, True, True, 0]),
        ("external", 77),
        ("memory", [4096, 4096 + (4 << 20), 4096, 0]),
        ("total", 80 << 30),
        ("summary", True),
        ("settings", [0.5, 1, 1, 1 << 20, 7, 0, True, 0]),
        ("halves", [0.0, 1.0, 2.0, 3.0]),
        ("cudnn", [True, 91900, True, True]),
        ("markers", [0, 0, None, 0]),
        ("seeds", [True, True, 7]),
        ("accelerator", ["cuda", 1, True, "cuda:0"]),
        ("handle", 0),
        ("capturing", False),
        ("asked", False),
        ("parallel", [True, True]),
        ("profiler", True),
        ("types", True),
        ("legacy", [True, "torch.cuda.FloatTensor"]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_a_program_finds_a_gpu(facts: dict[str, Any], name: str, want: object) -> None:
    assert facts[name] == want


def test_properties_are_shown_as_torch_shows_them(facts: dict[str, Any]) -> None:
    head = (
        "_CudaDeviceProperties(name='NVIDIA A100-SXM4-80GB', major=8, minor=0, total_memory=81920MB, multi_processor_count=108, "
    )
    assert facts["shown"].startswith(head) and facts["shown"].endswith("L2_cache_size=40MB)")


def test_time_is_counted_work(facts: dict[str, Any]) -> None:
    """A million cycles at 1410 MHz, and what recording takes: the same each time."""
    assert facts["time"] == pytest.approx(1e6 / 1.41e6 + 1e-3)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("second device", "AcceleratorError", "CUDA error: invalid device ordinal\nGPU device may be out of range"),
        ("second tensor", "AcceleratorError", "CUDA error: invalid device ordinal"),
        ("too large", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 4194304.00 GiB."),
        ("properties of a second", "AssertionError", "Invalid device id"),
        ("no timing", "ValueError", "Both events must be created with argument 'enable_timing=True'"),
        ("not recorded", "ValueError", "Both events must be recorded before calculating elapsed time"),
        ("halves of six", "RuntimeError", "cuFFT only supports dimensions whose sizes are powers of two when computing in half"),
        ("blas", "UnsupportedError", "torch._C._cuda_getCurrentBlasHandle"),
        ("interprocess", "UnsupportedError", "torch.cuda.Event(interprocess=True)"),
    ],
)
def test_what_there_is_not_is_said(facts: dict[str, Any], name: str, kind: str, message: str) -> None:
    """By torch where a GPU would have it said so, else by mmulator, with the name."""
    kinds, said = facts[name]
    assert kind in kinds and said.startswith(message), facts[name]


# torch.compile --------------------------------------------------------------------------------------------------------
COMPILED = """
import os
def compare(name, f, *args, **how):
    def find():
        torch.testing.assert_close(torch.compile(f, **how)(*args), f(*args), rtol=1e-3, atol=1e-3)
        return "equal"
    fact(name, find)
x = torch.randn(24, 40, device="cuda")
h = torch.randn(64, 64, device="cuda", dtype=torch.float16)
def train(model):
    out = model(x).square().mean()
    out.backward()
    return [p.grad.clone() for p in (weight, bias)]
weight, bias = (torch.randn(n, device="cuda", requires_grad=True) for n in (40, 40))
def forward(x):
    return torch.nn.functional.layer_norm(torch.nn.functional.gelu(x), (40,), weight, bias)
def backward():
    got = train(torch.compile(forward))
    weight.grad = bias.grad = None
    for a, b in zip(got, train(forward)):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    return "equal"
def dynamic():
    g = torch.compile(lambda x: (x * 2 + 1).sum(0), dynamic=True)
    return [g(torch.ones(n, 7, device="cuda"))[0].item() for n in (8, 16, 40)]
def template():
    import torch._inductor.config as config
    with config.patch(max_autotune=True, max_autotune_gemm_backends="TRITON"):
        compiled = torch.compile(lambda a, b: torch.relu(a @ b))
        torch.testing.assert_close(compiled(h, h), torch.relu(h @ h), rtol=1e-2, atol=1e-2)
    return "equal"
compare("softmax, without a graph", lambda x: torch.softmax(x + 1, -1), x, mode="reduce-overhead")
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0
    @staticmethod
    def backward(ctx, grad):  # autograd calls this in a thread of its own
        import threading
        assert threading.current_thread() is not threading.main_thread()
        return torch.compile(lambda g: (g * 3.0).sin())(grad)
def elsewhere():
    x = torch.ones(8, device="cuda", requires_grad=True)
    Scaled.apply(x).sum().backward()
    return x.grad[0].item()
fact("backward", backward)
fact("in autograd's thread", elsewhere)
fact("dynamic", dynamic)
fact("template", template)
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.full
def test_torch_compile_runs_inductors_kernels_here(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    facts = started(HEAD + COMPILED, tmp_path, "--report", str(report))
    sine = pytest.approx(0.14112, abs=1e-5)
    assert facts == {
        "softmax, without a graph": "equal", "backward": "equal", "in autograd's thread": sine, "dynamic": [24.0, 48.0, 120.0],
        "template": "equal",
    }  # fmt: skip
    launched = {json.loads(line).get("kernel", "") for line in report.read_text().splitlines()}
    assert any("softmax" in name for name in launched) and any("layer_norm" in name for name in launched), launched
    assert sum("_tem_" in name for name in launched) == 1, launched  # the first of Triton's products, which is not measured


LATE = """
import torch
from torch.cuda import Stream, is_available
assert not torch.cuda.is_available()
from mmulator.doors.imports import open_doors
open_doors()
import json
assert torch.cuda.is_available() and is_available() and torch.cuda.current_stream() == torch.cuda.default_stream()
assert torch.zeros(3, device="cuda").sum().item() == 0 and torch.cuda.Event(enable_timing=True).record() is None
print(json.dumps(["late", torch.cuda.device_count()]))
"""


def test_the_door_may_open_late(tmp_path: Path) -> None:
    """Where torch is there already, as in a notebook."""
    environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
    done = subprocess.run([sys.executable, "-c", LATE], env=environment, capture_output=True, text=True)
    assert done.stdout == '["late", 1]\n', done.stderr
