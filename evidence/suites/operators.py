"""Operators of torch on a GPU and on mmulator's cuda, input by input: which results differ by more than rounding.

    python -m evidence.suites.operators run gpu.pt --jobs 8                    # on a machine with a GPU
    python -m evidence.suites.operators run door.pt --jobs 8 --door            # under mmulator, with the same build of torch
    python -m evidence.suites.operators compare gpu.pt door.pt --json operators.json

The inputs are the samples of torch's own tests (`op_db`), for each type that CUDA's kernels have, then samples whose first
tensor is filled with values at edges (infinities, NaN, halves, thresholds, largest integers) or with few different values (ties),
and conversions between all types. They are drawn on the CPU from a seed that the operator's name gives.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from mmulator.base import files

SAMPLES = 6  # of torch's own, for an operator and a type
LIMIT = 8  # seconds for an operator and a type
DIED = 70  # exit code where the GPU's context is gone
MOST = 20_000  # elements of a result that are kept
GRADIENTS = ("float32", "float64", "float16", "bfloat16")
FLOATS = (
    math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 6.0, -6.0, 20.0, -20.0, 20.5,
    1e-3, -1e-3, 1e-7, 5e-8, 6e-5, 88.0, 89.0, -87.5, -104.0, 127.0, 128.0, 255.0, 256.0, 300.0, -129.0, 32768.0, 65504.0,
    65520.0, 1e-40, -1e-40, 2147483648.0, -2147483904.0, 4294967296.0, 9.3e18, 1.9e19, -1e20, 3e38, -3e38,
)  # fmt: skip
TIES = (1.0, 0.0, 2.0, 1.0, 1.0, 0.0, 2.0)
# What is not asked: results that no two machines share, or that are not numbers.
LEFT_OUT = re.compile(
    r"^(empty|new_empty|empty_like|empty_strided|new_empty_strided|empty_permuted|linalg\.(eig|eigh|eigvals|svd|lu|qr|ldl|lstsq).*|svd.*|qr"
    r"|geqrf|lu.*|eig.*|pca_lowrank|to_sparse|sparse\..*|jiterator.*|torch\.ops\.aten\._safe_softmax.*|_batch_norm_with_update|"
    r"masked\.(logaddexp)|nn\.functional\.(ctc_loss))$"
)
NO_EDGES = re.compile(
    r"^(linalg\.|cholesky|lu|svd|qr|inverse|pinverse|triangular|ormqr|householder|logdet|matrix_exp|bernoulli|multinomial|poisson"
    r"|normal|nn\.functional\.(embedding|fractional|grid)|histc|histogram|bincount|stft|istft|fft)"
)

Found = dict[str, Any]  # by case: ("value", [tensors]) or ("error", kind, message)


class TimeIsUp(Exception):
    """An operator took too long."""


def edges(dtype: Any, zero: bool = True) -> Any:
    """Values of a type at which operators branch, as a tensor of one dimension."""
    import torch

    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point or dtype.is_complex:
        values = torch.tensor(FLOATS, dtype=torch.float64)
        return values.to(dtype) if dtype.is_floating_point else torch.complex(values, values.roll(3)).to(dtype)
    info = torch.iinfo(dtype)
    numbers = {info.min, info.min + 1, -7, -3, -2, -1, 0, 1, 2, 3, 5, 7, 31, 32, 63, 64, info.max - 1, info.max}
    return torch.tensor(sorted(n for n in numbers if info.min <= n <= info.max and (zero or n)), dtype=dtype)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, change, value)


def filled(tensor: Any, values: Any) -> Any:
    """A tensor of a tensor's shape with some values one after the other."""
    n = tensor.numel()
    return values.repeat(-(-n // len(values)))[:n].reshape(tensor.shape) if n else tensor


def inputs(op: Any, dtype: Any) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """(case, arguments, keywords) of an operator, on the CPU."""
    import torch
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

    torch.manual_seed(zlib.crc32(f"{op.name} {dtype}".encode()))
    samples = list(islice(op.sample_inputs("cpu", dtype), 200))
    step = max(1, len(samples) // SAMPLES)
    for n, s in enumerate(samples[::step][:SAMPLES]):
        yield f"sample {n}", (s.input, *s.args), s.kwargs
    if NO_EDGES.match(op.name):
        return
    if isinstance(op, UnaryUfuncInfo):
        kwargs = next(iter(samples)).kwargs
        yield "edges", (edges(dtype),), kwargs
    if isinstance(op, BinaryUfuncInfo):
        x = edges(dtype)
        for name, y in (("edges", edges(dtype, zero=dtype.is_floating_point)), ("by zero", torch.zeros(1, dtype=dtype))):
            yield name, (x[:, None].contiguous(), y), {}
    own = [s for s in samples if isinstance(s.input, torch.Tensor) and s.input.dtype == dtype and s.input.numel() > 1]
    own = sorted(own, key=lambda s: -s.input.numel())[:1] + own[len(own) // 2 : len(own) // 2 + 1]
    for n, s in enumerate(own):
        yield f"filled with edges {n}", (filled(s.input, edges(dtype)), *s.args), s.kwargs
        yield f"filled with ties {n}", (filled(s.input, torch.tensor(TIES).to(dtype)), *s.args), s.kwargs


def kept(value: Any) -> Any:
    """Results as tensors of the CPU, each with its strides."""
    import torch
    from torch.utils._pytree import tree_flatten

    out = []
    for t in tree_flatten(value)[0]:
        if isinstance(t, torch.Tensor) and t.layout == torch.strided:
            t = t.detach()
            strides = t.stride() if t.numel() else ()
            flat = t.resolve_conj().resolve_neg().cpu().contiguous().flatten()[:MOST].clone()
            out.append((str(t.dtype)[6:], tuple(t.shape), strides, bytes(flat.view(torch.uint8).numpy()) if len(flat) else b""))
        elif isinstance(t, (bool, int, float, complex, torch.dtype, torch.Size)):
            out.append(("", (), (), repr(t)))
    return out


def outcome(run: Callable[[], Any]) -> tuple[Any, ...]:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run()
            return "value", kept(found)
    except TimeIsUp:
        raise
    except Exception as error:
        if "CUDA error" in str(error) and "device-side" in str(error):
            raise
        return "error", type(error).__name__, str(error).split("\n")[0][:200]
    finally:
        torch.cuda.synchronize() if torch.cuda.is_available() else None


def gradient(function: Any, args: Any, kwargs: Any) -> Any:
    """Gradients of all floating-point inputs, for a gradient of the results that is the same on every device."""
    import torch
    from torch.utils._pytree import tree_flatten

    leaves: list[Any] = []

    def leaf(t: Any) -> Any:
        if not t.is_floating_point():
            return t
        leaves.append(t.detach().clone().requires_grad_(True))
        return leaves[-1]

    args, kwargs = mapped(args, leaf), mapped(kwargs, leaf)
    results = [t for t in tree_flatten(function(*args, **kwargs))[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    weights = [(torch.arange(t.numel()) % 7 / 4 + 0.25).to(t.dtype).reshape(t.shape).to(t.device) for t in results]
    found = torch.autograd.grad(results, leaves, weights, allow_unused=True) if results else []
    return [t for t in found if t is not None]


def conversions() -> Iterator[tuple[str, str, Callable[[str], Any]]]:
    import torch

    names = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool float8_e4m3fn float8_e5m2"
    types = [getattr(torch, name) for name in names.split()]
    for a in types:
        for b in types:
            if a != b:
                x = edges(a) if a in types[:11] or a == torch.bool else edges(torch.float32).to(a)
                yield f"to {str(b)[6:]}", str(a)[6:], lambda device, x=x, b=b: x.to(device).to(b)


def asked(shard: tuple[int, int], only: str) -> Iterator[tuple[str, Any, Any]]:
    """(name, operator, type) of a shard. Conversions have no operator."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    if re.search(only, "to") and shard[0] == 0:
        yield "to", None, None
    pairs = [(op, dtype) for op in op_db for dtype in sorted(op.supported_dtypes("cuda"), key=str)]
    for op, dtype in pairs[shard[0] :: shard[1]]:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if not LEFT_OUT.match(op.name) and re.search(only, name) and isinstance(dtype, torch.dtype):
            yield name, op, dtype


def calls(name: str, op: Any, dtype: Any, here: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(case, what computes its result) of an operator and a type. here: the device."""
    import torch

    if op is None:
        for what, ty, convert in conversions():
            yield f"{what} | {ty} | edges | forward", lambda convert=convert: convert(here)  # type: ignore[misc]
        return
    of = str(dtype)[6:]
    for what, args, kwargs in inputs(op, dtype):
        moved, named = mapped((args, kwargs), lambda t: t.detach().to(here))
        named = {k: here if k == "device" else v for k, v in named.items()}
        kinds = ("forward", "gradient") if op.supports_autograd and of in GRADIENTS else ("forward",)
        for kind in kinds:
            case = f"{name} | {of} | {what} | {kind}"

            def call(kind: str = kind, case: str = case, moved: Any = moved, named: Any = named) -> Any:
                given, by_name = mapped((moved, named), lambda t: t.clone())
                torch.manual_seed(zlib.crc32(case.encode()))
                return gradient(op.op, given, by_name) if kind == "gradient" else op.op(*given, **by_name)

            yield case, call


def run(out: Path, device: str, shard: tuple[int, int], only: str) -> int:
    """Append what the operators of a shard give to a file, case by case. Cases that are in the file are not run again."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # before op_db, which freezes them
    done = read(out)
    signal.signal(signal.SIGALRM, _stop)
    with out.open("ab") as file:

        def write(case: str, found: Any) -> None:
            pickle.dump((case, found), file)
            file.flush()

        for name, op, dtype in asked(shard, only):
            signal.alarm(LIMIT)
            where = f"{name} | {str(dtype)[6:]} | all | forward"
            try:
                for case, call in () if where in done else calls(name, op, dtype, f"{device}:0" if device == "cuda" else device):
                    where = case
                    if case not in done:
                        write(case, ("error", "died", "the process ended"))  # stands unless it is written again
                        write(case, outcome(call))
            except TimeIsUp:
                write(where, ("error", "time", f"longer than {LIMIT} seconds"))
            except Exception as error:
                write(where, ("error", "samples", f"{type(error).__name__}: {error}"[:200]))
                if "CUDA error" in str(error):  # nothing works in this process any more
                    return DIED
            finally:
                signal.alarm(0)
    return 0


def read(path: Path) -> Found:
    """Results by case."""
    found: Found = {}
    if path.exists():
        with path.open("rb") as file:
            try:
                while True:
                    case, result = pickle.load(file)
                    found[case] = result
            except (EOFError, pickle.UnpicklingError):
                pass
    return found


def all_of(options: argparse.Namespace) -> Found:
    """Run all shards in processes; one that ends on the way is started again behind the case where it ended."""
    start = [sys.executable, "-m", "mmulator", "exec"] if options.door else [sys.executable]
    parts = [options.out.with_suffix(f".{n}") for n in range(options.jobs)]

    def command(n: int) -> list[str]:
        return [*start, "-m", "evidence.suites.operators", "run", str(parts[n]), "--device", options.device,
                "--only", options.only, "--shard", f"{n}/{options.jobs}"]  # fmt: skip

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for part in parts:
        part.unlink(missing_ok=True)
    children = {n: subprocess.Popen(command(n), env=environment, stderr=subprocess.DEVNULL) for n in range(options.jobs)}
    starts: Counter[int] = Counter()
    ends = time.monotonic() + options.seconds
    while children:
        time.sleep(0.2)
        if time.monotonic() > ends:
            for child in children.values():
                child.kill()
            print(f"stopped after {options.seconds} seconds")
            break
        for n, child in list(children.items()):
            if (code := child.poll()) is None:
                continue
            del children[n]
            starts[n] += 1
            if code and starts[n] < 60:
                children[n] = subprocess.Popen(command(n), env=environment, stderr=subprocess.DEVNULL)
    found: Found = {}
    for part in parts:
        found |= read(part)
        part.unlink(missing_ok=True)
    print(f"{len(found)} cases; {sum(starts.values()) - len(parts)} processes ended on the way")
    return found


def _stop(number: int, frame: Any) -> None:
    raise TimeIsUp


def tolerance(dtype: Any) -> float:
    """What counts as rounding, as a part of the largest finite value of a result."""
    import torch

    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return {torch.float64: 1e-11, torch.complex128: 1e-11, torch.float32: 2e-5, torch.complex64: 2e-5}.get(
        dtype, 8 * torch.finfo(dtype).eps)  # fmt: skip


def difference(a: Any, b: Any) -> tuple[str, str]:
    """("", "") for results that are equal but for rounding; else (what kind, an example). a: the GPU's. b: the other's."""
    import torch

    if a[0] != b[0]:
        return f"raises {'there' if a[0] == 'error' else 'here'}", f"{(a if a[0] == 'error' else b)[1:]}"
    if a[0] == "error":
        return "", ""
    if len(a[1]) != len(b[1]):
        return "results", f"{len(a[1])} and {len(b[1])}"
    strides = ""
    for (ty, shape, stride, x), (other_ty, other, other_stride, y) in zip(a[1], b[1]):
        if (ty, shape) != (other_ty, other):
            return "shape or type", f"{ty} {shape} and {other_ty} {other}"
        if x == y:
            found = None
        elif not ty:
            found = "value", f"{x} and {y}"
        else:
            found = _values(*(torch.frombuffer(bytearray(m), dtype=torch.uint8).view(getattr(torch, ty)) for m in (x, y)))
        if found:
            return found
        if stride != other_stride and len(x) > 8:
            strides = f"{shape}: {stride} and {other_stride}"
    return ("strides", strides) if strides else ("", "")


def _values(x: Any, y: Any) -> tuple[str, str] | None:
    import torch

    if x.dtype.is_complex:
        return _values(torch.view_as_real(x.to(torch.complex128)), torch.view_as_real(y.to(torch.complex128)))
    wide = torch.float64 if x.dtype.is_floating_point else torch.int64
    if x.dtype == torch.uint64:
        x, y = x.view(torch.int64), y.view(torch.int64)
    p, q = x.to(wide).flatten(), y.to(wide).flatten()
    if wide == torch.int64:
        wrong = p != q
    else:
        finite = p[p.isfinite()]
        room = tolerance(x.dtype) * float(finite.abs().max() if len(finite) else 0)
        apart = (p.isnan() != q.isnan()) | (p.isinf() != q.isinf()) | (p.isinf() & (p != q))
        if x.dtype.itemsize == 2 or x.dtype == torch.float64:  # one may round to infinity where the other just does not
            edge = torch.finfo(x.dtype).max
            apart &= ~((p.abs() >= edge * 0.99) & (q.abs() >= edge * 0.99) & (p.sign() == q.sign()))
        near = (p - q).abs() <= room
        wrong = apart | ~(near | (p == q) | (p.isnan() & q.isnan()) | (p.isinf() & q.isinf()))
        if not bool(apart.any()) and not bool(wrong.any()):
            return None
    if not bool(wrong.any()):
        return None
    at = int(torch.nonzero(wrong)[0])
    kind = "not finite" if wide == torch.float64 and bool(apart.any()) else "value"
    at = int(torch.nonzero(apart)[0]) if kind == "not finite" else at
    return kind, f"{int(wrong.sum())} of {len(p)}: [{at}] {p[at].item()} and {q[at].item()}"


def compare(gpu: Found, model: Found) -> tuple[Counter[str], list[dict[str, str]]]:
    """(cases by kind, those that differ)."""
    counts: Counter[str] = Counter()
    lines = []
    for case in sorted(gpu.keys() & model.keys()):
        kind, example = difference(gpu[case], model[case])
        same = "both raise" if gpu[case][0] == "error" else "equal, or rounded"
        counts[kind or same] += 1
        if kind:
            name, dtype, what, of = case.split(" | ")
            lines.append({"operator": name, "type": dtype, "case": what, "of": of, "kind": kind, "example": example})
    counts["one side alone"] = len(gpu.keys() ^ model.keys())
    return counts, lines


def summary(lines: list[dict[str, str]]) -> str:
    """One line for each operator, kind and direction, with its types."""
    grouped: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for line in lines:
        grouped.setdefault((line["kind"], line["operator"], line["of"]), []).append(line)
    text = []
    for (kind, operator, of), found in sorted(grouped.items()):
        types = ",".join(sorted({line["type"] for line in found}))
        text.append(f"{kind:14} {operator} {of} [{types}] {len(found)} cases; {found[0]['case']}: {found[0]['example'][:150]}")
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="what", required=True)
    take = sub.add_parser("run")
    take.add_argument("out", type=Path)
    take.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    take.add_argument("--door", action="store_true", help="under mmulator exec")
    take.add_argument("--jobs", type=int, default=1)
    take.add_argument("--seconds", type=int, default=1800, help="when to stop")
    take.add_argument("--shard", default="")
    take.add_argument("--only", default="", help="a pattern of operators' names")
    put = sub.add_parser("compare")
    put.add_argument("gpu", type=Path)
    put.add_argument("model", type=Path)
    put.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.what == "run" and options.shard:
        part, parts = options.shard.split("/")
        return run(options.out, options.device, (int(part), int(parts)), options.only)
    elif options.what == "run":
        with options.out.open("wb") as file:
            pickle.dump(all_of(options), file)
    else:
        import torch

        counts, lines = compare(*(pickle.loads(path.read_bytes()) for path in (options.gpu, options.model)))
        print(dict(counts))
        print(summary(lines))
        if options.json:
            files.write(options.json, json.dumps({"torch": torch.__version__, "counts": dict(counts), "lines": lines}, indent=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
