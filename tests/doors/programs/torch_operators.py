"""torch's own list of operators, on the CPU and on the device cuda: which give other bits, shapes, strides or errors.

python torch_operators.py [samples] [dtypes] [step]     prints of every step-th operator JSON: {"operators": n,
"other": {name: what}, "types": what torch_types.py says}
"""

import json
import sys
import types
import unittest
import warnings
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from mmulator.doors.torch import install

DTYPES = {"f": torch.float32, "l": torch.int64, "b": torch.bool, "h": torch.bfloat16, "c": torch.complex64, "d": torch.float64}
Outcome = tuple[Any, Exception | None]


def on_cuda(value: Any) -> Any:
    """The same arguments on cuda: the same strides over the same bytes."""

    def move(v: Any) -> Any:
        if isinstance(v, torch.device):
            return torch.device("cuda")
        if not isinstance(v, torch.Tensor):
            return v
        if v.layout != torch.strided:
            raise NotImplementedError("sparse arguments")
        storage = v.detach().untyped_storage()
        made = torch.empty(0, dtype=v.dtype, device="cuda")
        made.set_(storage.cuda(), v.storage_offset(), v.size(), v.stride())
        made = made.conj() if v.is_conj() else made._neg_view() if v.is_neg() else made
        return made.requires_grad_(v.requires_grad)

    return tree_map(move, value)


def attempt(function: Any, *args: Any, **kwargs: Any) -> Outcome:
    torch.manual_seed(7)
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        return None, error


def plain(t: torch.Tensor) -> torch.Tensor:
    t = t.detach().to_dense() if t.is_sparse else t.detach()
    return t.resolve_conj().resolve_neg().cpu().clone(memory_format=torch.contiguous_format).view(-1)


def difference(a: Any, b: Any) -> str:
    if not isinstance(a, torch.Tensor):
        return "" if a == b or a != a else f"{a} and {b}"
    if b.device.type != "cuda":
        return f"device {b.device}"
    if (a.dtype, a.shape) != (b.dtype, b.shape) or (a.numel() and a.stride() != b.stride()):
        return f"{a.dtype} {tuple(a.shape)} {a.stride()} and {b.dtype} {tuple(b.shape)} {b.stride()}"
    same = not a.numel() or torch.equal(plain(a).view(torch.uint8), plain(b).view(torch.uint8))
    return "" if same else "bits"


def differences(a: Any, b: Any) -> str:
    x, y = tree_leaves(a), tree_leaves(b)
    return next((d for d in map(difference, x, y) if d), "" if len(x) == len(y) else "number of results")


def failed(want: Exception | None, got: Exception | None) -> str:
    return (
        "" if bool(want) == bool(got) else f"{type(got or want).__name__} on {'cuda' if got else 'cpu'}: {str(got or want)[:200]}"
    )


def gradients(result: Any, inputs: Any) -> Outcome:
    ends = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    starts = [t for t in tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad]
    if not ends:
        return (), None
    total = sum(t.abs().sum() for t in ends)
    return attempt(torch.autograd.grad, total, starts, allow_unused=True)


def compare(op: Any, sample: Any, grad: bool) -> str:
    own = (sample.input, sample.args, sample.kwargs)
    try:
        moved = on_cuda((sample.input, sample.args, {k: "cuda" if k == "device" else v for k, v in sample.kwargs.items()}))
    except NotImplementedError as error:
        return str(error)
    (want, error), (got, other) = (attempt(op, i, *a, **k) for i, a, k in (own, moved))
    said = failed(error, other) or ("" if error else differences(want, got))
    if said or error or not grad:
        return said
    (want, error), (got, other) = gradients(want, own), gradients(got, moved)
    said = failed(error, other) or ("" if error else differences(want, got))
    return said and f"gradient: {said}"


def main(samples: int = 2, dtypes: str = "f", step: int = 1) -> None:
    # torch's tests want a package that none of what is used here does
    sys.modules.setdefault("expecttest", types.ModuleType("expecttest")).TestCase = unittest.TestCase  # type: ignore[attr-defined]
    import torch.testing._internal.common_methods_invocations as methods

    torch.set_num_threads(1)
    count, other = 0, {}
    for op in methods.op_db[::step]:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        for dtype in (DTYPES[d] for d in dtypes):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            torch.manual_seed(0)
            count += 1
            for n, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
                if n >= samples:
                    break
                if said := compare(op, sample, grad):
                    other[f"{name} {str(dtype)[6:]}"] = said
                    break
    from tests.doors.programs.torch_types import others

    print(json.dumps({"operators": count, "other": other, "types": others()}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    install()
    main(*(int(w) if w.isdigit() else w for w in sys.argv[1:]))  # type: ignore[arg-type]
