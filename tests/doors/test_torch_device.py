"""torch's device cuda over memory of the host. It changes torch for the whole process, so programs of their own are run."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks
from tests.support.places import PACKAGE, ROOT

PROGRAMS = Path(__file__).parent / "programs"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
pytestmark = needs_torch


def run(program: str, *words: str) -> list[Any]:
    """What a program printed, a line of JSON each."""
    path = os.pathsep.join((str(PACKAGE), str(ROOT)))
    done = forks.run([str(PROGRAMS / program), *words], ROOT, {**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def pieces(program: str) -> dict[str, str]:
    return dict(run(program))


NAMES = {name: program for program in ("torch_device.py", "torch_cards.py")
         for name in re.findall(r"^def (\w+)\(\) -> None:", (PROGRAMS / program).read_text(), re.M)}  # fmt: skip


TORCH = find_spec("torch")
FOR_CUDA = TORCH is not None and (Path(str(TORCH.origin)).parent / "lib" / "libc10_cuda.so").exists()


@pytest.mark.parametrize("name", NAMES)
def test_programs_find_the_device(name: str, request: pytest.FixtureRequest) -> None:
    if FOR_CUDA and name == "libraries_get_the_stream_by_dlpack":
        request.applymarker(pytest.mark.xfail(reason="torch's build for CUDA asks CUDA's runtime for this stream"))
    found = pieces(NAMES[name])
    assert not found[name], found[name]


# Operators whose results on cuda are others than on the CPU, and why.
DRAWN = {
    "cauchy", "exponential", "geometric", "log_normal", "normal.in_place", "uniform", "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu", "svd_lowrank", "pca_lowrank", "randn", "randn_like", "rand_like", "randint", "randint_like",
    "multinomial", "normal", "normal.number_mean", "bernoulli", "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.multi_head_attention_forward",
}  # fmt: skip
POISONED = {"empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty", "empty_permuted"}
OWN_FORMULA = {"min.reduction_no_dim", "renorm"}  # torch's gradient asks whether the tensor is on cuda
SUMMED = {  # doors/torch adds up as CUDA does, in them or in their gradients (test_torch_steps.py)
    "softmax", "log_softmax", "nn.functional.softmin", "nn.functional.cross_entropy", "nn.functional.linear_cross_entropy",
    "torch.ops.aten._safe_softmax.default", "nn.functional.scaled_dot_product_attention", "masked.softmax", "masked.log_softmax",
    "masked.softmin", "_softmax_backward_data", "masked.normalize", "masked.var", "masked.std", "native_layer_norm",
    "nn.functional.layer_norm", "nn.functional.rms_norm", "std", "std.unbiased", "std_mean", "std_mean.unbiased", "var",
    "var.unbiased", "var_mean", "var_mean.unbiased", "sum_to_size", "native_group_norm", "nn.functional.instance_norm",
    "nn.functional.cosine_similarity", "nn.functional.cosine_embedding_loss", "logsumexp", "__rmul__", "__rpow__", "lerp", "mul",
    "outer", "linalg.householder_product", "ormqr", "nn.functional.linear_cross_entropy.chunked",
    "nn.functional.linear_cross_entropy.chunked_none",
}  # fmt: skip
STEPPED = {  # doors/torch computes these, or functions in them or in their gradients, as CUDA does (test_torch_steps.py)
    "addcmul", "addcdiv", "nn.functional.hardswish", "nn.functional.hardsigmoid", "rsqrt", "logaddexp",
    "nn.functional.soft_margin_loss", "exp", "sigmoid", "silu", "sqrt", "acos", "acosh", "asin", "asinh", "nn.functional.silu",
    "logcumsumexp", "erf", "erfc", "erfinv", "special.ndtr", "special.ndtri", "special.log_ndtr", "special.xlog1py", "tanh",
    "pow", "nn.functional.tanhshrink", "nn.functional.gelu", "nn.functional.gaussian_nll_loss",
}  # fmt: skip
KNOWN = DRAWN | POISONED | OWN_FORMULA | SUMMED | STEPPED
REFUSED = {
    "sparse.sampled_addmm": "sparse", "sparse.mm.reduce": "sparse",
    "tensor_split": "to be on cpu",  # as on a GPU
}  # fmt: skip


@pytest.fixture(scope="module")
def operators(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The lines of torch_operators.py for every third operator, with --release for all."""
    return dict(run("torch_operators.py", "2", "f", "1" if request.config.option.release else "3")[0])


@pytest.mark.full
def test_operators_take_the_types_that_cudas_kernels_take(operators: dict[str, Any]) -> None:
    """torch's list of types that CUDA has and the CPU has not, moves of FP8 and unsigned words, histograms of integers."""
    found = operators["types"]
    assert found["tried"] > 120 and not found["other"]


@pytest.mark.full
def test_operators_give_the_cpus_bits(operators: dict[str, Any]) -> None:
    """torch's own list of operators with its own arguments: results and gradients, but for those above, are the CPU's."""
    assert operators["operators"] > 200
    for name, said in operators["other"].items():
        operator = name.removesuffix(" float32")
        if operator in REFUSED:
            assert REFUSED[operator] in said, said
        else:
            assert operator in KNOWN and said in ("bits", "gradient: bits"), f"{name}: {said}"


PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_no_call_of_an_operator_ends_the_process(part: int) -> None:
    """Calls of each operator that torch has, by its schema: none dies where the CPU's lives, or in an assert that asks for a
    report, as where torch has no function for cuda behind an operator that it composes."""
    *wrong, found = run("torch_calls.py", str(PARTS), str(part))
    assert found["right"] > 300
    assert [w for w in wrong if w[0] in ("died", "assert")] == []


NOT_A_GPUS = {"cauchy", "log_normal", "randperm", "randn torch.float64", "normal torch.float64", "exponential torch.float64"}


@pytest.mark.full
def test_random_numbers_are_a_gpus() -> None:
    """Of an H100 with the same seed; the larger size has more elements than the grid has threads."""
    (found,) = run("torch_random.py", "7", "1000", "1500003")
    assert {name for name, agrees in found.items() if not agrees} == NOT_A_GPUS


@pytest.mark.parametrize("line", ["import mmulator.doors.torch", "import mmulator.doors.torch as t; assert not t.installed()"])
def test_nothing_is_imported_before_it_is_wanted(line: str) -> None:
    code = f"{line}; import sys; assert not {{'torch', 'llvmlite', 'numpy'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(PACKAGE)}, check=True)
