"""A launch as a file or as options: which kernel, which arguments, what to compare with.

    ptx = "gemm.ptx"                 # beside the launch file
    entry = "gemm"                   # may be left out if the module has one kernel
    grid = [4, 4, 1]
    block = [128, 1, 1]
    shared = 98304                   # dynamic shared bytes
    device = "sm_90"
    seed = 0

    [[arg]]                          # one for each parameter, in order
    name = "A"
    type = "f16"
    shape = [512, 512]
    random = { seed = 1 }            # or zeros = true | npy = "a.npy" | npz = "file.npz:key" | values = [..]
    [[arg]]
    type = "i32"
    value = 512                      # a scalar

    [expect]
    file = "expected.npz"            # arrays by argument name
    compare = "bits"                 # or "close" with tolerance = 1e-3 (of the largest value)
    source = "H200"                  # where the reference comes from

Random floats are numpy.random.default_rng(seed).standard_normal(shape, dtype=float32), rounded to the type; integers are
default_rng(seed).integers(low, high, shape), low and high given beside the seed (-8 and 8, or 0 and 16 for unsigned types).
"""

from __future__ import annotations

import tomllib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.errors import LaunchError
from mmulator.isa.types import TYPES
from mmulator.machine.module import Module
from mmulator.machine.report import Report
from mmulator.machine.watch import Watched

Progress = Callable[[str, int, int], None]


@dataclass
class Argument:
    """name: for messages, saved files and expectations. value: an array or a scalar. is_output: zeros at the start."""

    name: str
    value: Any
    is_output: bool = False


@dataclass
class Expectation:
    """Arrays by argument name. tolerance: 0 for bits, else of the largest absolute value."""

    arrays: dict[str, np.ndarray]
    tolerance: float = 0.0
    source: str = ""


@dataclass
class Job:
    ptx: Path
    entry: str | None
    grid: Any
    block: Any
    shared: int = 0
    device: str | None = None
    seed: int = 0
    arguments: list[Argument] = field(default_factory=list)
    expect: Expectation | None = None


@dataclass(frozen=True)
class Comparison:
    """One output against its reference. wrong: elements whose bits differ; first: index of the first of them.

    worst: largest difference, as a part of the largest absolute reference value. ok: within what was asked.
    """

    name: str
    size: int
    wrong: int
    first: tuple[int, ...] | None
    got: Any
    want: Any
    worst: float
    ok: bool


@dataclass
class JobResult:
    report: Report
    comparisons: list[Comparison]

    @property
    def ok(self) -> bool:
        return all(c.ok for c in self.comparisons)


# element types ------------------------------------------------------------------------------------------------------
def dtype_of(name: str, where: str) -> np.dtype[Any]:
    """NumPy dtype of an element type: PTX names, i8 to i64 for signed integers."""
    import ml_dtypes

    t = TYPES.get("s" + name[1:] if name[:1] == "i" else name)
    if t is None or not t.numpy or t.kind == "pred":
        raise LaunchError(f"{where}: {name!r} is no element type", hint="such as f16, bf16, f32, e4m3, i32, u8")
    return np.dtype(getattr(ml_dtypes, t.numpy, None) or t.numpy)


def random_array(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int, low: int | None, high: int | None) -> np.ndarray:
    """See the module's docstring."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "iu" or dtype.name in ("int4", "uint4"):
        unsigned = dtype.kind == "u" or dtype.name == "uint4"
        low = (0 if unsigned else -8) if low is None else low
        high = (16 if unsigned else 8) if high is None else high
        return rng.integers(low, high, shape).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def _read_array(text: str, folder: Path, where: str) -> np.ndarray:
    """`a.npy` or `b.npz:key`."""
    name, _, key = text.partition(".npz:")
    path = folder / (name + ".npz" if key else text)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return np.ascontiguousarray(loaded)
        if key not in loaded:
            raise LaunchError(f"{where}: {path} has no array {key!r}; it has {', '.join(loaded.files)}")
        return np.ascontiguousarray(loaded[key])
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise LaunchError(f"{where}: cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _typed(values: np.ndarray, dtype: np.dtype[Any] | None) -> np.ndarray:
    """A loaded array in its element type: .npy files keep bf16 and the like as raw bytes."""
    if dtype is None or values.dtype == dtype:
        return values
    if values.dtype.itemsize == dtype.itemsize and (values.dtype.kind == "V" or dtype.kind == "V"):
        return values.view(dtype)
    return values.astype(dtype)


# launch files -------------------------------------------------------------------------------------------------------
def load_job(path: str | Path) -> Job:
    """Read a launch file (TOML). Raises LaunchError naming the file and the key."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LaunchError(f"{path}: {error}") from None
    known = {"ptx", "entry", "grid", "block", "shared", "device", "seed", "arg", "expect"}
    unknown = sorted(set(data) - known)
    if unknown:
        raise LaunchError(f"{path}: unknown key {unknown[0]!r}", hint="keys: " + ", ".join(sorted(known)))
    for key in ("ptx", "grid", "block"):
        if key not in data:
            raise LaunchError(f"{path}: {key!r} is missing")
    arguments = data.get("arg", [])
    if not isinstance(arguments, list) or not all(isinstance(a, dict) for a in arguments):
        raise LaunchError(f"{path}: arguments are tables: [[arg]]")
    job = Job(
        path.parent / str(data["ptx"]), data.get("entry"), data["grid"], data["block"], _int(data, "shared", path),
        data.get("device"), _int(data, "seed", path),
        [_argument(a, n, path) for n, a in enumerate(arguments)],
    )  # fmt: skip
    if "expect" in data:
        job.expect = _expectation(data["expect"], path)
    return job


def _int(data: dict[str, Any], key: str, path: Path) -> int:
    value = data.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise LaunchError(f"{path}: {key} is {value!r}, not a whole number")
    return value


_SOURCES = ("value", "zeros", "random", "npy", "npz", "values")


def _argument(a: dict[str, Any], number: int, path: Path) -> Argument:
    name = str(a.get("name", f"arg{number}"))
    where = f"{path}: argument {number} ({name})"
    unknown = sorted(set(a) - {"name", "type", "shape", *_SOURCES})
    if unknown:
        raise LaunchError(f"{where}: unknown key {unknown[0]!r}")
    given = [s for s in _SOURCES if s in a]
    if len(given) != 1:
        raise LaunchError(f"{where}: give one of {', '.join(_SOURCES)}")
    if given[0] == "value":
        return Argument(name, _scalar(a["value"], where))
    dtype = dtype_of(str(a["type"]), where) if "type" in a else None
    if given[0] in ("npy", "npz"):
        return Argument(name, _typed(_read_array(str(a[given[0]]), path.parent, where), dtype))
    if dtype is None:
        raise LaunchError(f"{where}: 'type' is missing")
    if given[0] == "values":
        try:
            return Argument(name, np.ascontiguousarray(np.array(a["values"]).astype(dtype)))
        except (TypeError, ValueError) as error:
            raise LaunchError(f"{where}: {error}") from None
    shape = _shape(a.get("shape"), where)
    if given[0] == "zeros":
        return Argument(name, np.zeros(shape, dtype), is_output=True)
    random = a["random"]
    if isinstance(random, int) and not isinstance(random, bool):
        random = {"seed": random}
    if not isinstance(random, dict) or not isinstance(random.get("seed"), int):
        raise LaunchError(f"{where}: random needs a seed: random = {{ seed = 1 }}")
    return Argument(name, random_array(dtype, shape, random["seed"], random.get("low"), random.get("high")))


def _scalar(value: Any, where: str) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise LaunchError(f"{where}: a value is a number, not {value!r}")
    return value


def _shape(value: Any, where: str) -> tuple[int, ...]:
    items = [value] if isinstance(value, int) else value
    if not isinstance(items, list) or not items or not all(isinstance(n, int) and n >= 0 for n in items):
        raise LaunchError(f"{where}: shape is a list of extents, such as [512, 512]")
    return tuple(items)


def _expectation(data: Any, path: Path) -> Expectation:
    if not isinstance(data, dict) or "file" not in data:
        raise LaunchError(f"{path}: [expect] needs a file")
    compare = data.get("compare", "bits")
    if compare not in ("bits", "close"):
        raise LaunchError(f"{path}: [expect] compare is 'bits' or 'close'")
    tolerance = float(data.get("tolerance", 1e-3)) if compare == "close" else 0.0
    return read_expectation(path.parent / str(data["file"]), tolerance, str(data.get("source", "")))


def read_expectation(path: Path, tolerance: float = 0.0, source: str = "") -> Expectation:
    """An .npz of arrays by argument name."""
    try:
        with np.load(path, allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise LaunchError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    return Expectation(arrays, tolerance, source)


# options ------------------------------------------------------------------------------------------------------------
def parse_argument(text: str, number: int) -> Argument:
    """An argument as an option: `a.npy`, `b.npz:key`, `out:f16:256x256`, `random:f16:256x256:SEED`, `i32:256`, `f32:0.5`.

    `NAME=` before any of them names it. Raises LaunchError.
    """
    name, equals, spec = text.partition("=")
    if not equals:
        name, spec = f"arg{number}", text
    where = f"--arg {text}"
    if spec.endswith(".npy") or ".npz:" in spec:
        return Argument(name, _read_array(spec, Path(), where))
    parts = spec.split(":")
    if parts[0] in ("out", "zeros", "random") and len(parts) >= 3:
        dtype = dtype_of(parts[1], where)
        try:
            shape = tuple(int(n) for n in parts[2].split("x"))
            seed = int(parts[3]) if len(parts) > 3 else number
        except ValueError:
            raise LaunchError(f"{where}: a shape is 256x256, a seed a number") from None
        if parts[0] == "random":
            return Argument(name, random_array(dtype, shape, seed, None, None))
        return Argument(name, np.zeros(shape, dtype), is_output=True)
    if len(parts) == 2:
        dtype_of(parts[0], where)
        try:
            return Argument(name, float(parts[1]) if "f" in parts[0] else int(parts[1], 0))
        except ValueError:
            raise LaunchError(f"{where}: {parts[1]!r} is no .{parts[0]}") from None
    raise LaunchError(
        f"{where}: not an argument", hint="a.npy, b.npz:key, out:f16:256x256, random:f16:256x256:1, i32:256 or f32:0.5"
    )


# running ------------------------------------------------------------------------------------------------------------
def run_job(
    job: Job, *, timeout: float | None = None, threads: int | None = None, progress: Progress | None = None,
    watch: Sequence[Watched] = (),
) -> JobResult:  # fmt: skip
    """Load, launch, compare. Arrays of the job's arguments are updated in place."""
    module = Module.load(job.ptx)
    entry = job.entry
    if entry is None:
        if len(module) != 1:
            raise LaunchError(f"{job.ptx} has {len(module)} kernels: say which", hint="kernels: " + ", ".join(module))
        entry = next(iter(module))
    report = module[entry].launch(
        job.grid, job.block, [a.value for a in job.arguments], job.shared, job.device, seed=job.seed, timeout=timeout,
        threads=threads, progress=progress, watch=watch,
    )  # fmt: skip
    comparisons = []
    if job.expect is not None:
        by_name = {a.name: a.value for a in job.arguments}
        for name, want in job.expect.arrays.items():
            got = by_name.get(name)
            if not isinstance(got, np.ndarray):
                raise LaunchError(f"the reference has an array {name!r}, but no array argument has that name")
            comparisons.append(compare(name, got, want, job.expect.tolerance))
    return JobResult(report, comparisons)


def compare(name: str, got: np.ndarray, want: np.ndarray, tolerance: float) -> Comparison:
    """Bits, or values within a tolerance."""
    if got.nbytes != want.nbytes:
        raise LaunchError(f"reference {name!r} has {want.nbytes} bytes ({want.dtype}{want.shape}), the output {got.nbytes}")
    want = np.ascontiguousarray(want).view(got.dtype).reshape(got.shape)
    raw = np.dtype(f"u{got.dtype.itemsize}")
    different = got.view(raw) != want.view(raw)
    wrong = int(different.sum())
    if not wrong:
        return Comparison(name, got.size, 0, None, None, None, 0.0, True)
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(different)), got.shape))
    with np.errstate(all="ignore"):
        g, w = got.astype(np.float64), want.astype(np.float64)
        both = np.isfinite(g) & np.isfinite(w)
        scale = float(np.max(np.abs(w[both]), initial=0.0)) or 1.0
        worst = float(np.max(np.abs(g - w)[both], initial=0.0)) / scale
        same_specials = bool(np.array_equal(g[~both], w[~both], equal_nan=True))
    ok = tolerance > 0 and worst <= tolerance and same_specials
    return Comparison(name, got.size, wrong, first, got[first].item(), want[first].item(), worst, ok)
