"""Operators of torch's device cuda have a GPU's bits where CUDA computes with exact operations, or cuBLAS's order is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks
from tests.support.places import DATA, ROOT
from tests.support.schemas import checked

PROGRAMS = Path(__file__).parent / "programs"


def digests(program: str) -> Any:
    """The JSON that a program of the folder prints."""
    pytest.importorskip("torch", reason="torch is not installed")
    done = forks.run([str(PROGRAMS / program)], ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_operators_have_the_bits_of_an_h100() -> None:
    """The file has what torch 2.11 computed on an NVIDIA H100, of the operators whose results do not depend on a library."""
    wanted = json.loads((DATA / "torch_steps_sm_90.json").read_text())
    found = digests("torch_steps.py")
    known = [(kind, name) for kind, of in wanted.items() for name in of]
    assert [f"{kind} {name}" for kind, name in known if found[kind][name] != wanted[kind][name]] == []
    assert len(known) > 150


def test_f32_f64_and_scaled_products_have_the_bits_of_an_h200() -> None:
    """And exp, sigmoid, silu and sqrt. The file has what torch 2.11 (CUDA 13.0) computed on an NVIDIA H200."""
    wanted, found = json.loads((DATA / "torch_orders_sm_90.json").read_text()), digests("torch_orders.py")
    assert found.keys() == wanted.keys() and len(wanted) > 30
    assert [name for name in wanted if found[name] != wanted[name]] == []


def test_sums_norms_and_losses_have_the_bits_of_an_h200() -> None:
    """And tanh, erf, log, GELU, and operators with their gradients that the CPU's kernels compute otherwise. The file has what
    torch 2.11 (CUDA 13.0) computed on an NVIDIA H200."""
    wanted, found = json.loads((DATA / "torch_sums_sm_90.json").read_text()), digests("torch_sums.py")
    assert len(wanted) > 700 and [name for name in wanted if found[name] != wanted[name]] == []


SHAPES = """
import json
import torch, torch.nn.functional as F
from mmulator.doors.torch import install
install()
x, target, found = torch.randn(6, 5, 4), torch.tensor([1, 3, -100, 0, 2, -100]), {}
sums = {
    "all": lambda x: x.sum(), "last": lambda x: x.mean(-1), "first": lambda x: x.sum(0, keepdim=True), "middle": lambda x: x.var(1),
    "two": lambda x: x.sum((1, 2)), "ends": lambda x: x.sum((0, 2)), "turned": lambda x: x.mT.sum(-1), "one": lambda x: x[:, :1].sum(1),
    "view": lambda x: x[1:].std((0, 1)), "norm": lambda x: torch.linalg.vector_norm(x, dim=(1, 2)), "none": lambda x: x[:0].sum(0),
    "softmax": lambda x: torch.softmax(x, 1), "number": lambda x: torch.softmax(x[0, 0, 0], 0), "logsumexp": lambda x: x.logsumexp((0, 1)),
    "masked": lambda x: torch.softmax(x.masked_fill(x < 9, -torch.inf), -1), "ignored": lambda x: F.cross_entropy(x[..., 0], target.to(x.device)),
    "norms": lambda x: F.layer_norm(x, [5, 4]), "rms": lambda x: F.rms_norm(x, [4]), "out": lambda x: torch.sum(x, 0, out=x.new_empty(5, 4)),
    "tanh_": lambda x: x.clone().tanh_(), "wide": lambda x: x.double().sum(), "bool": lambda x: (x > 0).sum(),
    "turned softmax": lambda x: torch.log_softmax(x.mT, -1), "log out": lambda x: torch.log(x, out=x.new_empty(6, 5, 4)),
    "rms back": lambda x: torch.func.grad(lambda v: F.rms_norm(v, [4]).square().sum())(x),
    "layer back": lambda x: torch.func.grad(lambda v: F.layer_norm(v, [4]).pow(3).sum())(x),
}
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for name, of in sums.items():
        made, right = of(x.to(dtype).cuda()).cpu(), of(x.to(dtype)).to(of(x.to(dtype).cuda()).dtype)
        close = torch.allclose(made.double(), right.double(), rtol=16 * torch.finfo(dtype).eps, atol=16 * torch.finfo(dtype).eps, equal_nan=True)
        found[f"{name} {dtype}"] = close and made.shape == right.shape and made.dtype == right.dtype
a, one = torch.randn(32, 32).cuda().to(torch.float8_e4m3fn), torch.ones(()).cuda()
for out, bias in ((torch.float32, torch.float32), (torch.float16, torch.bfloat16), (torch.bfloat16, torch.float32)):
    try:
        torch._scaled_mm(a, a.t(), one, one, bias=torch.ones(32).cuda().to(bias), out_dtype=out)
        found[f"{out} {bias}"] = False
    except RuntimeError as error:
        found[f"{out} {bias}"] = str(error).startswith("Bias")
print(json.dumps(found))
"""


def test_sums_of_all_shapes_are_near_the_cpus_and_biases_have_the_types_that_a_gpu_takes() -> None:
    """Of tensors that lie together, and that do not; the numbers, their shapes and types."""
    pytest.importorskip("torch", reason="torch is not installed")
    done = forks.run(["-c", SHAPES], ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) > 70 and [name for name, right in found.items() if not right] == []


COUNTED = """
import torch
def rand(*shape): return torch.rand(shape).cuda()
x, y = rand(16, 8).half(), rand(8, 16).half()
x @ y
rand(5, 7) @ rand(7, 5)
rand(5, 7) @ rand(7)
rand(3, 4).cumsum(0)
rand(3, 4).mT.sum(1)
"""


def test_products_are_counted_by_whether_their_order_is_known(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "train.py").write_text(COUNTED)
    done = forks.run(["-m", "mmulator", "exec", "train.py"], tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    counts = "mmulator: 3 products: 1 in the library's order, 2 not known"
    assert last.startswith(f"{counts} (first at train.py:6: rand(5, 7) @ rand(7, 5)), whose last bits")
    sums = "2 sums in an order that is not known (first at train.py:8: rand(3, 4).cumsum(0)): 1 cumsum float32, 1 sum float32"
    assert last.endswith(f"1 f32 mv, 1 f32 nn mm not aligned; {sums}")
    told = json.loads(forks.run(["-m", "mmulator", "exec", "--json", "train.py"], tmp_path).stdout)
    assert checked(told) == "exec" and told["ok"]
    assert [told["products"][name] for name in ("products", "known", "not_known")] == [3, 1, 2]
    assert told["products"]["kinds"][0] == {"kind": "f16 nn mm", "known": 1, "not_known": 0}
    assert [(one["operator"], one["first"][:10]) for one in told["products"]["operators"]] == [
        ("cumsum float32", "train.py:8"), ("sum float32", "train.py:9"),
    ]  # fmt: skip


def test_products_have_the_bits_of_an_h200() -> None:
    """The file has what torch 2.11 (CUDA 13.0) computed on an NVIDIA H200."""
    wanted, found = json.loads((DATA / "torch_products_sm_90.json").read_text()), digests("torch_products.py")
    assert found.keys() == wanted.keys() and len(wanted) > 250
    assert [name for name in wanted if found[name] != wanted[name]] == []
