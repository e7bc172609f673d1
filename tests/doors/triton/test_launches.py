"""Launches through Triton: hooks, options, resources, what kernels say, and errors."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from mmulator.errors import ExecutionFault, LaunchError
from mmulator.host.driver import use
from tests.doors.triton import kernels
from tests.support.places import PACKAGE


def pair(n: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(n), torch.zeros(n)


def test_matrix_product_of_two_chips_in_one_process() -> None:
    """What Triton keeps by device it keeps by chip."""
    a, b = torch.rand(64, 128).half(), torch.rand(128, 64).half()
    for device, instruction in (("sm_90", "wgmma.mma_async"), ("sm_80", "mma.sync")):
        use(device=device)
        c = torch.zeros(64, 64)
        made = kernels.matmul[(1,)](a, b, c, 128, BLOCK=64)
        assert torch.allclose(c, a.float() @ b.float(), rtol=1e-3) and instruction in made.asm["ptx"]
        assert made.metadata.target.arch == int(device[3:])
        assert 16 < made.n_regs < 256 and made.n_spills == 0 and made.n_max_threads == 128


def test_hooks_and_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    knobs = triton.knobs.runtime
    monkeypatch.setattr(kernels.copy, "launch_metadata", lambda grid, meta, args: {"bytes": args["n"] * 8, "grid": grid})
    hooks = {"launch_enter_hook": lambda m: said.append(m.get()), "launch_exit_hook": lambda m: said.append(m.get()["name"])}
    for name, hook in hooks.items():
        chain = getattr(knobs, name)
        chain.add(hook) if hasattr(chain, "add") else setattr(knobs, name, hook)
    try:
        x, o = pair()
        kernels.copy[(1,)](x, o, 64, BLOCK=64)
    finally:
        for name, hook in hooks.items():
            chain = getattr(knobs, name)
            chain.remove(hook) if hasattr(chain, "remove") else setattr(knobs, name, None)
    assert said[0]["name"] == said[1] == "copy" and said[0]["bytes"] == 512 and said[0]["grid"] == (1,)


def test_warmup_compile_and_a_source_in_ttgir(tmp_path: Path) -> None:
    x, o = pair()
    made = kernels.copy.warmup(torch.float32, torch.float32, 64, BLOCK=64, grid=(1,))
    assert not o.any()
    made[(1, 1, 1)](x, o, 64, 64)
    assert torch.equal(x, o)
    file = tmp_path / "copy.ttgir"
    file.write_text(made.asm["ttgir"])
    p = torch.zeros(64)
    triton.compile(str(file))[(1, 1, 1)](x, p, 64)
    assert torch.equal(x, p)


def test_scratch_memory_of_the_programs_allocator() -> None:
    """A descriptor made on the device wants a tensor map in scratch memory where there are tensor maps; nothing on sm_80. Maps
    lie at multiples of 128 bytes, wherever the program's memory does."""
    x, o = torch.rand(32, 16), torch.zeros(16, 16)
    sizes = []

    def allocate(size: int, align: int, stream: int | None) -> torch.Tensor:
        sizes.append(size)
        room = torch.empty(size + 2 * align, dtype=torch.int8)
        return room[-room.data_ptr() % align + 8 :][:size]

    triton.set_allocator(allocate)
    for chip, asked in (("sm_90", [128, 256]), ("sm_80", [])):
        use(device=chip)
        o.zero_()
        sizes.clear()
        kernels.scratch[(1,)](x, o, N=16)
        assert torch.equal(o, x[16:]) and sizes == asked


def test_scratch_memory_is_allocated_and_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that says it needs some: the program's memory for the whole grid, and zeros where it set no allocator."""
    x, o = pair()
    made = kernels.copy.warmup(x, o, 64, BLOCK=64, grid=(1,))
    launcher = made.run
    scratch, asked = [torch.ones(96, dtype=torch.int8)], []
    triton.set_allocator(lambda *request: asked.append(request) or scratch[0])  # type: ignore[func-returns-value]
    monkeypatch.setattr(launcher, "scratch", [(32, 16), (8, 8)][: launcher.packer.scratch])
    monkeypatch.setattr(launcher, "_none", False)
    buffers = launcher._allocate((3, 1, 1), 0)
    params, regions = launcher.packer.pack((x, o, 64, 64), buffers)
    assert asked == [(96, 16, 0)] and buffers[0] is scratch[0]
    assert scratch[0].data_ptr().to_bytes(8, "little") in params
    assert (scratch[0].data_ptr(), 96, "global scratch memory") in [(r.start, r.size, r.label) for r in regions]
    if len(buffers) > 1:
        assert (buffers[1].data_ptr(), 24, "profile scratch memory") in [(r.start, r.size, r.label) for r in regions]
    made[(3, 1, 1)](x, o, 64, 64)
    assert torch.equal(x, o)


def test_what_kernels_print(capfd: pytest.CaptureFixture[str]) -> None:
    kernels.says[(2,)](torch.arange(32.0), BLOCK=32, num_warps=1)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 64
    assert {"pid (0, 0, 0) idx ( 0) x: 0.000000", "pid (1, 0, 0) idx (31) x: 31.000000"} < {*lines}


def test_assertions() -> None:
    x = torch.arange(-1.0, 3.0)
    kernels.asserts[(1,)](x, BLOCK=4)
    with pytest.raises(RuntimeError, match="assertion failed: x is not positive") as caught:
        kernels.asserts[(1,)](torch.arange(4.0), BLOCK=4, debug=True)
    assert isinstance(caught.value, ExecutionFault) and caught.value.location is not None
    assert 'tl.device_assert(x > 0, "x is not positive")' in str(caught.value)


@pytest.mark.parametrize(("short", "line"), [(0, "tl.load(x_ptr + i, mask=i < n, other=0.0)  # the load"), (1, "tl.store(o_ptr")])
@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_a_fault_in_any_vector_of_a_statement_names_its_line(short: int, line: str, vectors: int) -> None:
    """A thread has 4 floats in a vector; all vectors but the last are in the array, and before the last is other assembly."""
    arrays = [torch.zeros(512 * vectors) for _ in range(2)]
    arrays[short] = torch.zeros(512 * (vectors - 1))
    with pytest.raises(ExecutionFault) as caught:
        kernels.wide[(1,)](*arrays, 4096, BLOCK=512 * vectors)
    assert caught.value.location is not None and line in str(caught.value.location.quote())


def test_cooperative_grids() -> None:
    count, o = torch.zeros(1, dtype=torch.int32), torch.zeros(40, dtype=torch.int32)
    kernels.meet[(40,)](count, o, BLOCKS=40, launch_cooperative_grid=True)
    assert o.sum() == 40
    with pytest.raises(RuntimeError, match="too many blocks in cooperative launch"):
        kernels.meet[(10000,)](count, o, BLOCKS=40, launch_cooperative_grid=True)
    count, o = torch.zeros(1, dtype=torch.int32), torch.zeros(270, dtype=torch.int32)
    kernels.meet[(270,)](count, o, BLOCKS=270, launch_cooperative_grid=True)
    assert o.sum() == 270


def test_options() -> None:
    x, o = pair()
    kernels.copy[(1,)](x, o, 64, BLOCK=64, launch_pdl=True)
    assert torch.equal(x, o)
    o.zero_()
    kernels.copy[(1,)](x, o, 64, BLOCK=64, num_ctas=2)
    assert torch.equal(x, o)
    use(device="sm_86")
    with pytest.raises(triton.OutOfResources, match=r"shared memory, Required: .* Hardware limit: 101376"):
        kernels.matmul[(1,)](pair()[0].half(), pair()[0].half(), pair()[0], 512, BLOCK=64, num_stages=8)


def run(tmp_path: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "script.py").write_text(text)
    (tmp_path / "kernels.py").write_text(Path(kernels.__file__).read_text())
    variables = {**os.environ, "PYTHONPATH": str(PACKAGE), "TRITON_CACHE_DIR": str(tmp_path / "cache"), **environment}
    words = [sys.executable, "script.py"]
    return subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600)


NUMPY_ONLY = """
import sys


class NoTorch:
    def find_spec(name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


sys.meta_path.insert(0, NoTorch)
import numpy as np
from kernels import add
x, o = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
add[lambda meta: (1,)](x, x, o, 100, BLOCK=128)
print((o == 2 * x).all())
import triton
triton.runtime.driver.active.get_active_torch_device()
"""


def test_a_program_without_torch(tmp_path: Path) -> None:
    done = run(tmp_path, NUMPY_ONLY)
    assert done.stdout == "True\n"
    assert done.stderr.splitlines()[-2:] == [
        "mmulator.errors.UnsupportedError: Triton asks for a torch device, and torch is not installed",
        "  hint: pip install torch, or pass NumPy arrays to the kernel",
    ]


DOOR = """
import torch
from mmulator.doors.torch import install
install()
from kernels import add
x = torch.rand(100, device="cuda")
o = torch.zeros(100, device="cuda")
add[(1,)](x, x, o, 100, BLOCK=128)
print(torch.equal(o, 2 * x))
add[(1,)](x, x.cpu(), o, 100, BLOCK=128)
"""


def test_tensors_of_cuda(tmp_path: Path) -> None:
    """With torch's device open, a tensor of the CPU is what it is on a GPU's machine."""
    done = run(tmp_path, DOOR, TRITON_DEFAULT_BACKEND="mmulator")
    assert done.stdout == "True\n", done.stderr
    assert "Pointer argument (at 1) cannot be accessed from Triton (cpu tensor?)" in done.stderr
    assert "script.py:10: add[(1,)](x, x.cpu(), o, 100, BLOCK=128)" in done.stderr


def test_a_tensor_on_a_real_gpu_is_refused() -> None:
    class Remote(torch.Tensor):
        is_cpu = False  # type: ignore[assignment]
        device = torch.device("cuda", 0)  # type: ignore[assignment]

    x, o = pair()
    with pytest.raises(LaunchError, match=r"argument 0 \(x_ptr\) is a tensor on cuda:0, a real device"):
        kernels.copy[(1,)](x.as_subclass(Remote), o, 64, BLOCK=64)


SIGNALLED = """
import os, signal
import numpy as np
import kernels
from mmulator.host.driver import use

use()
x, o = np.ones(64, np.float32), np.zeros(64, np.float32)
kernels.copy[(1,)](x, o, 64, BLOCK=64)
os.kill(os.getpid(), signal.SIGUSR1)
"""


def test_signals_are_answered_behind_a_compilation(tmp_path: Path) -> None:
    """LLVM, in which Triton compiles, takes SIGUSR1 for itself."""
    done = run(tmp_path, SIGNALLED)
    assert done.returncode == 0 and done.stderr == "mmulator: no launch is running\n"
