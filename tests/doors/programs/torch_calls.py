"""Every operator of torch's, by its schema, on the CPU and on cuda: no call may end the process, or in an assert of torch's.

    python -m mmulator exec tests/doors/programs/torch_calls.py [STEP] [FIRST] [NAMES]

Arguments are drawn from the types in the schema, from a seed that the operator's name gives, until a few calls work on the CPU.
Prints a line of JSON for each call whose outcome is not right, then how many there were of each outcome. STEP: every how many-th
operator is called, beginning with number FIRST. NAMES: a regular expression.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import torch

from mmulator.errors import UnsupportedError

TRIES, WORK = 40, 2  # calls of an operator on the CPU, and how many of those that work are made on cuda
SECONDS = 15  # of processor time, of an operator
NAMESPACES = ("aten::", "prims::", "quantized::", "c10d_functional::", "profiler::", "sparse::", "_quantized::", "mkldnn::")
# But not what is said of `out` of a wrong length.
ASSERTS = re.compile(r"(?<!dst\.size\(\) == src\.size\(\) )INTERNAL ASSERT|DispatchStub|missing kernel")
DTYPES = (
    torch.float32, torch.float32, torch.float32, torch.int64, torch.float64, torch.complex64, torch.bool, torch.float16,
    torch.bfloat16, torch.uint8, torch.int32,
)  # fmt: skip
SHAPES = ((4, 4), (4,), (2, 4, 4), (2, 4, 4, 4), (1, 2, 4, 4, 4), (), (1, 4), (2, 2, 4, 4))
# Kernels of the CPU's that take what they are given: they write where indices say, or read whole numbers as f32, and the process
# lives or dies by what lies there.
UNCHECKED = ("aten::embedding_dense_backward", "aten::_nnpack_spatial_convolution")
WORDS = (
    "none", "mean", "sum", "linear", "constant", "reflect", "floor", "prod", "amax", "ij", "L", "reduced", "S", "fro", "nuc", "x",
    "relu", "tanh", "right", "lower",
)  # fmt: skip


class Draw:
    """Arguments of one call. rng: where they come from."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.dtype, self.shape = rng, rng.choice(DTYPES), rng.choice(SHAPES)

    def tensor(self, name: str) -> torch.Tensor:
        rng, dtype, shape = self.rng, self.dtype, self.shape
        if rng.random() < 0.25:
            dtype = rng.choice((torch.int64, torch.bool, torch.float32, torch.int32))
        if re.search("ind|target|offsets|length|size|split|seq", name):
            dtype = torch.int64
        elif re.search("mask|condition|found", name) and rng.random() < 0.7:
            dtype = torch.bool
        if rng.random() < 0.4:
            shape = rng.choice(SHAPES)
        elif re.search("weight|bias|mean|var|scale|zero_point|running", name) and rng.random() < 0.5:
            shape = rng.choice(((4,), (2,), (1,), ()))
        count = torch.Size(shape).numel()
        values = torch.tensor([rng.randint(0, 3) for _ in range(count)], dtype=torch.float64).reshape(shape)
        return (values / 4 + 0.125 if dtype.is_floating_point or dtype.is_complex else values).to(dtype)

    def value(self, kind: str, name: str) -> Any:
        """A value of a type, as schemas write it."""
        rng = self.rng
        if kind.startswith("Optional["):
            return self.value(kind[9:-1], name) if rng.random() < 0.25 else None
        if kind.startswith("List["):
            if kind[5:-1] in ("int", "SymInt", "float", "bool"):
                return [self.value(kind[5:-1], name)] * rng.choice((1, 2, 2, 3, len(self.shape)))
            return [self.value(kind[5:-1], name) for _ in range(rng.choice((1, 2, 2, 3)))]
        if kind == "Tensor":
            return self.tensor(name)
        if kind in ("int", "SymInt"):
            if name in ("dtype", "layout", "memory_format"):
                return None
            return rng.choice((0, 1, 1, 2, 4, -1)) if "dim" in name else rng.choice((1, 1, 2, 4, 0, 3))
        if kind in ("float", "number", "Scalar"):
            return rng.choice((0.5, 1, 2, 0.25)) if kind != "float" else rng.choice((0.5, 1.0, 0.25))
        if kind in ("bool", "str"):
            return rng.choice((False, True) if kind == "bool" else WORDS)
        if kind == "Device":
            return torch.device("cpu")
        raise NotImplementedError(kind)


def moved(value: Any) -> Any:
    """A copy of an argument on cuda."""
    if isinstance(value, torch.Tensor):
        return value.clone().cuda()
    if isinstance(value, torch.device):
        return torch.device("cuda")
    return [moved(v) for v in value] if isinstance(value, list) else value


def copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return [copied(v) for v in value] if isinstance(value, list) else value


def bits(value: Any) -> Any:
    """The parts of a result that must be the same on both devices."""
    if isinstance(value, torch.Tensor):
        assert value.layout == torch.strided, value.layout
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        return str(value.dtype), tuple(value.shape), plain
    return [bits(v) for v in value] if isinstance(value, (list, tuple)) else value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        if a.dtype.is_floating_point or a.dtype.is_complex:
            wide = torch.complex128 if a.dtype.is_complex else torch.float64
            return torch.allclose(a.to(wide), b.to(wide), 1e-2 if a.dtype.itemsize < 4 else 1e-5, 1e-5, equal_nan=True)
        return torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or a is None or isinstance(a, (torch.device, torch.Generator)) or a != a


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"


def outcome(op: Any, args: list[Any], named: dict[str, Any], works: bool, wanted: Any) -> tuple[str, str]:
    """Outcome of one call on cuda. works: whether it does on the CPU. wanted: with what result."""
    try:
        torch.manual_seed(0)
        given = [moved(v) for v in args], {k: moved(v) for k, v in named.items()}
        found = op(*given[0], **given[1])
        if works and not same(wanted, (bits(found), bits(given[0]))):
            return "differs", ""
        return "right", ""
    except UnsupportedError as error:
        return "refused", said(error)
    except Exception as error:
        return "assert" if ASSERTS.search(str(error)) else "error" if works else "both refuse", said(error)


def attempt(op: Any, begin: Callable[[str], object]) -> list[tuple[str, str, str]]:
    """Outcomes of an operator: kind, call, message. begin: is given each call on cuda before it is made."""
    rng = random.Random(zlib.crc32(str(op).encode()))
    found: list[tuple[str, str, str]] = []
    good = bad = 0
    for _ in range(TRIES):
        draw = Draw(rng)
        try:
            given = [(a, draw.value(str(a.type), a.name)) for a in op._schema.arguments]
        except NotImplementedError:
            return [("no arguments", "", "")]
        args, named = [v for a, v in given if not a.kwarg_only], {a.name: v for a, v in given if a.kwarg_only}
        try:
            torch.manual_seed(0)
            mine = copied(args), {k: copied(v) for k, v in named.items()}
            wanted, works = (bits(op(*mine[0], **mine[1])), bits(mine[0])), True
        except Exception as error:
            wanted, works = None, False
            if ASSERTS.search(str(error)):  # of the CPU's, too
                continue
        if not works and bad >= WORK:
            continue
        good, bad = good + works, bad + (not works)
        call = repr((args, named))[:300]
        begin(call)
        kind, why = outcome(op, args, named, works, wanted)
        begin("")
        found.append((kind, call, why))
        if good == WORK:
            break
    return found if good else [*found, ("never works", "", "")]


def operators(names: str) -> list[Any]:
    """All operators with a name that the expression finds, in order."""
    every = torch._C._dispatch_get_all_op_names()
    out = []
    for full in sorted(every):
        name, _, overload = full.partition(".")
        namespace, _, base = name.partition("::")
        if full.startswith(NAMESPACES) and not full.startswith(UNCHECKED) and re.search(names, full):
            with suppress(AttributeError, RuntimeError):
                out.append(getattr(getattr(getattr(torch.ops, namespace), base), overload or "default"))
    return out


def write(file: int, *words: str) -> None:
    os.write(file, json.dumps(words).encode() + b"\n")


def main(step: str = "1", first: str = "0", names: str = "") -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for device in ("cuda", "meta"):  # what is imported at the first call takes seconds
        torch.ops.aten._foreach_sqrt([torch.ones(1, device=device, dtype=torch.float16)])
        torch.ones(1, device=device).bool().bitwise_not_()
    import_module("torch._refs")
    asked = operators(names)[int(first) :: int(step)]
    total: Counter[str] = Counter()
    while asked:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            for output in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), output)
            for op in asked:
                tell = partial(write, writer, str(op))
                tell()
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                for said_ in attempt(op, tell):
                    tell(*said_)
            os._exit(0)
        os.close(writer)
        begun, call = 0, ""
        with os.fdopen(reader) as lines:
            for line in lines:
                name, *rest = json.loads(line)
                begun += not rest
                call = rest[0] if len(rest) == 1 else "" if not rest else call
                if len(rest) > 1:
                    total[rest[0]] += 1
                    if rest[0] not in ("right", "both refuse", "never works", "no arguments"):
                        print(json.dumps([rest[0], name, *rest[1:]]), flush=True)
        _, status = os.waitpid(child, 0)
        if status:
            kind = "died" if call else "the CPU died"
            total[kind] += 1
            print(json.dumps([kind, name, call, str(status)]), flush=True)
        asked = asked[begun:]
    print(json.dumps(total))


main(*sys.argv[1:])
