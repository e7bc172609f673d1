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


def test_sums_of_all_shapes_are_near_the_cpus_and_biases_have_the_types_that_a_gpu_takes() -> None:
    """Of tensors that lie together, and that do not; the numbers, their shapes and types."""
    found = digests("torch_shapes.py")
    assert len(found) > 90 and [name for name, right in found.items() if not right] == []


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
    assert [one["operator"] for one in told["products"]["operators"]] == ["cumsum float32", "sum float32"]


def test_products_have_the_bits_of_an_h200() -> None:
    """The file has what torch 2.11 (CUDA 13.0) computed on an NVIDIA H200."""
    wanted, found = json.loads((DATA / "torch_products_sm_90.json").read_text()), digests("torch_products.py")
    assert found.keys() == wanted.keys() and len(wanted) > 250
    assert [name for name in wanted if found[name] != wanted[name]] == []
