"""Random products of torch on the GPU at hand against the orders of sums that this package knows of cuBLAS, bit by bit.

Sizes are drawn from 1 to 4,096 evenly by their logarithm, or from 1 to 2,048; half are multiples of 8. N and K of FP8 are
multiples of 16, as torch asks. In half of the products terms cancel in pairs, so that what is left is rounding, which another
order makes another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mmulator import __version__
from mmulator.base.errors import UnsupportedError
from mmulator.isa.targets import DEVICES

TYPES = ("f16", "bf16", "f32", "tf32", "f64", "e4m3")
CALLS = ("mm", "bmm", "addmm", "linear")
MOST = 1 << 33  # multiply-accumulates of all products of a call
_FP8 = "e4m3"


@dataclass(frozen=True)
class DrawnProduct:
    """A product, [m, k] by [k, n].

    number: in the row of draws; the operands come from it and the seed.
    type, call: one of TYPES and of CALLS, or "scaled_mm".
    layout: "n" or "t" for A and B.
    batch: products in the call.
    cancels: whether terms cancel in pairs.
    """

    number: int
    type: str
    call: str
    layout: str
    m: int
    n: int
    k: int
    batch: int
    cancels: bool


def draws(seed: int) -> Iterator[DrawnProduct]:
    """Products without an end, the same for a seed everywhere."""
    rng, number = np.random.default_rng(seed), 0
    while True:
        type, call = (x[int(rng.integers(len(x)))] for x in (TYPES, CALLS))
        call = "scaled_mm" if type == _FP8 else call
        layout = "nt" if call in ("linear", "scaled_mm") else "".join("nt"[x] for x in rng.integers(2, size=2))
        step = 8 if rng.integers(2) else 1
        steps = (step, 16, 16) if type == _FP8 else (step,) * 3
        drawn = 2 ** rng.uniform(0, 12, 3) if rng.integers(2) else rng.integers(1, 2049, 3)
        m, n, k = (max(one, round(x / one) * one) for x, one in zip(drawn.tolist(), steps))
        batch = int(rng.integers(1, 17)) if call == "bmm" else 1
        if batch * m * n * k <= MOST:
            yield DrawnProduct(number, type, call, layout, m, n, k, batch, bool(rng.integers(2)))
            number += 1


@dataclass
class LibraryOutcome:
    """The outcome of a comparison.

    chip: the GPU: its name, its device ("sm_90"), torch's and CUDA's versions.
    kinds: by kind of products: drawn, of them those called known, of them those that differ.
    types: the same by type.
    differences: the products that differ, with their elements and how many differ.
    complete: whether it was not interrupted.
    """

    seed: int
    chip: dict[str, str]
    kinds: dict[str, list[int]] = field(default_factory=dict)
    types: dict[str, list[int]] = field(default_factory=dict)
    differences: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = True

    @property
    def totals(self) -> list[int]:
        """Products drawn, called known, different."""
        return [sum(row[n] for row in self.types.values()) for n in range(3)]

    def count(self, type: str, kind: str, known: bool, differs: bool) -> None:
        for table, name in ((self.types, type), (self.kinds, kind)):
            row = table.setdefault(name, [0, 0, 0])
            row[:] = row[0] + 1, row[1] + known, row[2] + differs

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        cases, known, different = self.totals
        return {
            "ok": not different and self.complete, "seed": self.seed, "cases": cases, "known": known, "different": different,
            "mmulator": __version__, "date": datetime.now(UTC).date().isoformat(), **self.chip, "seconds": round(self.seconds, 1),
            "shares": {type: round(row[1] / row[0], 4) for type, row in sorted(self.types.items())},
            "kinds": [
                {"kind": kind, "cases": row[0], "known": row[1], "different": row[2]} for kind, row in sorted(self.kinds.items())
            ],
            "differences": self.differences,
        }  # fmt: skip


def gpu() -> dict[str, str]:
    """The GPU that torch uses. Raises UnsupportedError without torch, or without a GPU whose arithmetic is known."""
    try:
        import torch
    except ImportError:
        raise UnsupportedError("torch is not installed, whose products are compared", hint="pip install torch") from None
    if torch.version.cuda is None or not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise UnsupportedError(
            f"no NVIDIA GPU can be used: torch {torch.__version__} is {built} and finds none",
            hint="run it on a machine with a GPU, and see what nvidia-smi says there",
        )
    device = "sm_{}{}".format(*torch.cuda.get_device_capability())
    if device not in DEVICES:
        raise UnsupportedError(f"{torch.cuda.get_device_name()} is {device}: its arithmetic is not known")
    return {"gpu": torch.cuda.get_device_name(), "device": device, "torch": torch.__version__, "cuda": torch.version.cuda}


def operands(of: DrawnProduct, seed: int, where: str) -> tuple[Any, Any, Any]:
    """(A, B, what is added or None) of a product as torch's tensors. where: torch's name of the device."""
    import torch

    draw = torch.Generator(where).manual_seed(seed * 1_000_003 + of.number)
    types = {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, _FP8: torch.float8_e4m3fn}
    dtype, batch = types.get(of.type, torch.float32), (of.batch,) if of.call == "bmm" else ()
    a, b = (torch.randn(*batch, *shape, generator=draw, device=where) for shape in ((of.m, of.k), (of.k, of.n)))
    if of.cancels:
        pairs = torch.randperm(of.k, generator=draw, device=where)
        one, other = pairs[: of.k // 2], pairs[of.k // 2 : of.k // 2 * 2]
        a[..., other], b[..., other, :] = a[..., one], -b[..., one, :]
    turned = (x if turn == "n" else x.mT.contiguous().mT for x, turn in zip((a, b), of.layout))
    a, b = (x.to(dtype) for x in turned)
    added = {"addmm": ((of.m, of.n), (of.n,))[of.number % 2], "linear": (of.n,)}.get(of.call)
    return a, b, None if added is None else torch.randn(*added, generator=draw, device=where).to(dtype)


def scaling(of: DrawnProduct, where: Any) -> tuple[tuple[Any, Any], Any, bool]:
    """(scales of A and B, type of the result, whether accumulation is fast) of a scaled product: of one number or of rows."""
    import torch

    draw, rows = np.random.default_rng(of.number), of.number % 2 == 0
    shapes = ((of.m, 1), (1, of.n)) if rows else ((), ())
    one, other = (torch.tensor(draw.uniform(0.1, 2, shape), dtype=torch.float32).to(where) for shape in shapes)
    return (one, other), torch.bfloat16 if rows or of.number % 4 == 1 else torch.float32, of.number % 3 == 0


def compute(of: DrawnProduct, a: Any, b: Any, c: Any) -> Any:
    """The product, as a program asks torch for it."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = of.type == "tf32"
    match of.call:
        case "scaled_mm":
            scales, out, fast = scaling(of, a.device)
            return torch._scaled_mm(a, b, *scales, out_dtype=out, use_fast_accum=fast)
        case "addmm":
            return torch.addmm(c, a, b)
        case "linear":
            return torch.nn.functional.linear(a, b.mT, c)
        case _:
            return a @ b


def compare(of: DrawnProduct, seed: int, device: str, outcome: LibraryOutcome, where: str = "cuda") -> None:
    """Draw the operands of a product on the GPU, and compare its bits where they are called known."""
    import torch

    from mmulator.doors.torch import orders

    a, b, c = operands(of, seed, where)
    torch.backends.cuda.matmul.allow_tf32 = of.type == "tf32"
    if of.type == _FP8:
        scales, out, fast = scaling(of, where)
        made, kind = orders.scaled(device, a.cpu(), b.cpu(), (scales[0].cpu(), scales[1].cpu()), fast), f"{_FP8} scaled_mm"
        made = made if made is None else made.to(out)
    else:
        product, made = orders.product(device, *(x.cpu() for x in (a, b, c) if x is not None))
        kind = product.kind if product is not None else f"{of.type} empty"
    wrong = 0
    if made is not None:
        raw = {2: torch.int16, 4: torch.int32, 8: torch.int64}[made.dtype.itemsize]
        got = compute(of, a, b, c).cpu().contiguous().view(raw)
        wrong = int((got != made.contiguous().view(raw)).sum())
        if wrong:
            outcome.differences.append({**asdict(of), "kind": kind, "elements": got.numel(), "different": wrong})
    outcome.count(of.type, kind, made is not None, bool(wrong))


def run(
    seed: int, cases: int, seconds: float, update: Callable[[int, int], None] = lambda done, total: None
) -> LibraryOutcome:
    """Compare products until there are enough, or time is over.

    cases: products; 0: as many as the time allows.
    seconds: 0: no limit.
    update: is called with the products compared, and how many there will be.
    Raises UnsupportedError as `gpu` does.
    """
    chip, start = gpu(), time.monotonic()
    outcome = LibraryOutcome(seed, chip)
    try:
        for of in draws(seed):
            outcome.seconds = time.monotonic() - start
            if (cases and of.number >= cases) or (seconds and outcome.seconds > seconds):
                break
            compare(of, seed, chip["device"], outcome)
            update(of.number + 1, cases)
    except KeyboardInterrupt:
        outcome.complete = False
    return outcome


def lines(outcome: LibraryOutcome) -> list[str]:
    """The result as text."""
    cases, known, different = outcome.totals
    chip = outcome.chip
    made = [
        f"{chip['gpu']} ({chip['device']}), torch {chip['torch']}, CUDA {chip['cuda']}, seed {outcome.seed}",
        f"{cases:,} products: {known:,} called known, of them {different:,} differ",
    ]
    for type, (count, sure, wrong) in sorted(outcome.types.items()):
        made.append(f"  {type:5} {count:7,} drawn, {sure:7,} known ({100 * sure / count:.1f} percent), {wrong:,} differ")
    for kind, (count, sure, wrong) in sorted(outcome.kinds.items()):
        if wrong:
            made.append(f"  {kind}: {wrong:,} of {sure:,} called known differ ({count:,} drawn)")
    for one in outcome.differences[:10]:
        what = f"{one['type']} {one['call']} {one['layout']} m {one['m']} n {one['n']} k {one['k']} batch {one['batch']}"
        made.append(f"  number {one['number']}: {what}: {one['different']:,} of {one['elements']:,} elements")
    return made
