"""A launch as a file or as options: which kernel, which arguments, what to compare with.

    ptx = "gemm.ptx"                 # beside the launch file
    entry = "gemm"                   # may be left out if the module has one kernel
    grid = [4, 4, 1]
    block = [128, 1, 1]
    shared = 98304                   # dynamic shared bytes
    cluster = [2, 1, 1]              # blocks of a cluster
    cooperative = true               # all blocks resident at once
    device = "sm_90"
    seed = 0
    order = 3                        # the seed of the order in which blocks begin; else they begin in order

    [[arg]]                          # one for each parameter, in order
    name = "A"
    type = "f16"
    shape = [512, 512]
    random = { seed = 1 }            # or zeros = true | npy = "a.npy" | npz = "file.npz:key" | values = [..]
    [[arg]]
    value = 512                      # a scalar, in the parameter's type
    [[arg]]                          # a struct; an array in it is a pointer to it
    struct = [{ type = "i32", value = 3 }, { type = "f32", shape = [8], zeros = true }]
    [[arg]]
    hex = "0100 0000"                # raw bytes
    [[arg]]                          # a tensor map of the array of another argument, or of one of its own
    tensormap = { of = "A", box = [64, 64], swizzle = "128B" }

    [[memory]]                       # memory that pointers in structs and in other memory lead to
    address = 0x7f0000000000         # where kernels find it; arrays of arguments may have one, too
    npy = "b.npy"

    [variables]                      # .const and .global variables of the module
    coef = { type = "f32", values = [1, 2, 3, 4] }

    [expect]
    file = "expected.npz"            # arrays by argument name
    compare = "bits"                 # or "close" with tolerance = 1e-3 (of the largest value), rtol, atol or ulp
    source = "H200"                  # where the reference comes from

    [[suppress]]                     # findings of the sanitizer that are expected
    rule = "race-*"                  # a rule, a topic or a pattern
    line = 57                        # of the PTX; or source = "mm.cu:31"; may be left out
    reason = "..."

Random floats are numpy.random.default_rng(seed).standard_normal(shape, dtype=float32), rounded to the type; integers are
default_rng(seed).integers(low, high, shape), low and high given beside the seed (-8 and 8, or 0 and 16 for unsigned types).
"""

from __future__ import annotations

import math
import tomllib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.errors import LaunchError, MmulatorError
from mmulator.base.names import choose, readable
from mmulator.host import entries
from mmulator.host.jobs.comparison import Comparison, Expectation, Tolerance, accumulators, check_expectation, compare
from mmulator.host.jobs.inputs import Argument, dtype_of, load_arrays, parse_argument, random_array, table_argument
from mmulator.host.jobs.maps import resolve
from mmulator.host.module import Kernel, Module
from mmulator.host.report import Report
from mmulator.host.variables import Variables
from mmulator.runtime.launch.regions import Region

if TYPE_CHECKING:
    from mmulator.host.jobs.judgement import Judged, SanitizerOptions
    from mmulator.host.jobs.suppressions import Suppression
    from mmulator.isa.form import Form
    from mmulator.sanitizer.diagnostics.watch import Watched

Progress = Callable[[str, int, int], None]
AUTO, REFERENCE = "auto", "reference"  # observation/record/names.py, observation/record/launches/answers.py
FEW = 3  # elements that are explained by themselves


@dataclass
class Job:
    """A launch. variables: values of the module's variables before it, by name. show: arrays to return (parts of names).
    nvcc: flags for it, where the file is a source of CUDA C++. memory: arrays that are no arguments, each at its address.
    waits: an access to an accumulator of wgmma in flight waits. order: the seed of the order in which blocks begin.
    """

    ptx: Path
    entry: str | None
    grid: Any
    block: Any
    shared: int = 0
    device: str | None = None
    seed: int = 0
    arguments: list[Argument] = field(default_factory=list)
    expect: Expectation | None = None
    variables: list[Argument] = field(default_factory=list)
    show: list[str] = field(default_factory=list)
    cluster: Any = None
    cooperative: bool = False
    suppress: list[Suppression] = field(default_factory=list)
    memory: list[Argument] = field(default_factory=list)
    waits: bool = False
    nvcc: str = ""
    order: int | tuple[int, ...] | None = None

    def load(self, timeout: float | None = None) -> Module:
        """The module of the kernel."""
        return Module.load(self.ptx, timeout=timeout, device=self.device, entry=self.entry, nvcc=self.nvcc)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the arguments by name, with those that structs point to. Raises LaunchError for equal names."""
        found: dict[str, np.ndarray] = {}
        for a in self.named():
            if isinstance(a.value, np.ndarray):
                if a.name in found:
                    raise LaunchError(f"two array arguments are called {a.name}", hint="NAME= before a value names it")
                found[a.name] = a.value
        return found

    def named(self) -> list[Argument]:
        """The arguments and variables that are maps, each followed by the arrays that it points to; and other memory."""
        given = (*self.arguments, *(v for v in self.variables if v.pointed), *self.memory)
        return [x for a in given for x in (a, *a.pointed)]

    def placed(self) -> list[Region]:
        """Memory at addresses that the job says."""
        return [a.region for a in self.named() if a.address is not None]

    def outputs(self) -> list[str]:
        """Names of the arrays that are there for the kernel to fill."""
        return [a.name for a in self.named() if a.is_output]


@dataclass(frozen=True)
class JobResult:
    """written: outputs, and arrays and variables that changed, by name. shown: those that the job asks for. uncompared: the
    written ones without a reference. judged: what the sanitizer found, if it was asked."""

    report: Report
    comparisons: list[Comparison]
    written: dict[str, np.ndarray] = field(default_factory=dict)
    shown: dict[str, np.ndarray] = field(default_factory=dict)
    uncompared: tuple[str, ...] = ()
    judged: Judged | None = None

    @property
    def compares_nothing(self) -> bool:
        """There is a reference, and nothing that the kernel wrote is in it."""
        return bool(self.comparisons and self.uncompared) and not any(c.name in self.written for c in self.comparisons)

    @property
    def ok(self) -> bool:
        return all(c.ok for c in self.comparisons) and not self.compares_nothing


# launch files -------------------------------------------------------------------------------------------------------
_KEYS = (
    "ptx", "entry", "grid", "block", "shared", "cluster", "cooperative", "waits", "device", "seed", "order", "arg", "memory",
    "variables", "expect", "suppress",
)  # fmt: skip


def load_job(path: str | Path, expecting: bool = True) -> Job:
    """Read a launch file (TOML). expecting: the reference is read, too. Raises LaunchError naming the file and the key."""
    path = Path(path)
    data = _toml(path)
    unknown = sorted(set(data) - set(_KEYS))
    if unknown:
        raise LaunchError(f"{path}: unknown key {unknown[0]!r}", hint="keys: " + ", ".join(sorted(_KEYS)))
    for key in ("ptx", "grid", "block"):
        if key not in data:
            raise LaunchError(f"{path}: {key!r} is missing")
    for key in ("ptx", "entry", "device"):
        if not isinstance(data.get(key, ""), str):
            raise LaunchError(f"{path}: {key} is {data[key]!r}, not a text")
    for key in ("cooperative", "waits"):
        if not isinstance(data.get(key, False), bool):
            raise LaunchError(f"{path}: {key} is {data[key]!r}, not true or false")
    arguments, memory, variables = data.get("arg", []), data.get("memory", []), data.get("variables", {})
    for key, what, tables in (("arg", "arguments are", arguments), ("memory", "memory is", memory)):
        if not isinstance(tables, list) or not all(isinstance(a, dict) for a in tables):
            raise LaunchError(f"{path}: {what} tables: [[{key}]]")
    if any("address" not in table for table in memory):
        raise LaunchError(f"{path}: [[memory]] needs an address", hint="such as address = 0x7f0000000000")
    if not isinstance(variables, dict) or not all(isinstance(v, dict) for v in variables.values()):
        raise LaunchError(f"{path}: variables are tables: [variables] NAME = {{ type = 'f32', value = 0.5 }}")
    job = Job(
        path.parent / data["ptx"], data.get("entry"), data["grid"], data["block"], _int(data, "shared", path),
        data.get("device"), _int(data, "seed", path), [table_argument(a, n, path) for n, a in enumerate(arguments)],
        variables=[table_argument(v, 0, path, default=name) for name, v in variables.items()],
        cluster=data.get("cluster"), cooperative=data.get("cooperative", False), waits=data.get("waits", False),
        memory=[table_argument(a, len(arguments) + n, path) for n, a in enumerate(memory)],
        order=_order(data, path) if "order" in data else None,
    )  # fmt: skip
    if "suppress" in data:
        from mmulator.host.jobs import suppressions

        job.suppress = suppressions.read(data["suppress"], path)
    if "expect" in data and expecting:
        job.expect = _expectation(data["expect"], path, job.outputs())
    return job


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchError(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise LaunchError(f"{path}: it is nested too deeply") from None
    except UnicodeDecodeError:
        raise LaunchError(f"{path} is not text in UTF-8, which a launch file is") from None
    except ValueError as error:  # TOML, dates that there are not
        raise LaunchError(f"{path}: {error}") from None


def _int(data: dict[str, Any], key: str, path: Path) -> int:
    value = data.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise LaunchError(f"{path}: {key} is {value!r}, not a whole number")
    return value


def _order(data: dict[str, Any], path: Path) -> int | tuple[int, ...]:
    turns = data["order"]
    if isinstance(turns, list):
        return tuple(_int({"a thread of order": t}, "a thread of order", path) for t in turns)
    return _int(data, "order", path)


_EXPECT = ("file", "compare", "tolerance", "rtol", "atol", "ulp", "source")


def _expectation(data: Any, path: Path, outputs: Sequence[str]) -> Expectation:
    if not isinstance(data, dict) or "file" not in data:
        raise LaunchError(f"{path}: [expect] needs a file")
    unknown = sorted(set(data) - set(_EXPECT))
    if unknown:
        raise LaunchError(f"{path}: unknown key {unknown[0]!r} of [expect]", hint="keys: " + ", ".join(_EXPECT))
    compare = data.get("compare", "bits")
    if compare not in ("bits", "close"):
        raise LaunchError(f"{path}: [expect] compare is 'bits' or 'close'")
    given = {key: data[key] for key in ("tolerance", "rtol", "atol", "ulp") if key in data}
    if given and "compare" not in data:
        compare = "close"
    if given and compare == "bits":
        raise LaunchError(f"{path}: [expect] {next(iter(given))} goes with compare = 'close'")
    if compare == "close" and not given:
        given = {"tolerance": 1e-3}
    where = f"{path}: [expect]"
    return read_expectation(path.parent / str(data["file"]), tolerance_of(given, where), str(data.get("source", "")), outputs)


def tolerance_of(given: Mapping[str, Any], where: str) -> Tolerance:
    """The tolerance of numbers named tolerance, rtol, atol, ulp. Raises LaunchError for what is no tolerance."""
    for key, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        if not number or (key == "ulp" and value != int(value)):
            raise LaunchError(f"{where} {key} is {value!r}, not a {'whole ' * (key == 'ulp')}number of 0 or more")
    get = given.get
    return Tolerance(float(get("tolerance", 0)), float(get("rtol", 0)), float(get("atol", 0)), int(get("ulp", 0)))


def read_expectation(
    path: Path, tolerance: Tolerance | None = None, source: str = "", outputs: Sequence[str] = ()
) -> Expectation:
    """An .npz of arrays by argument name, or a .npy of the only output. Raises LaunchError."""
    try:
        found = load_arrays(path)
    except MmulatorError as error:
        raise LaunchError(error.message, hint=error.hint) from None
    if isinstance(found, np.ndarray):
        if len(outputs) != 1:
            said = ", ".join(outputs) or "none"
            hint = "numpy.savez(file, NAME=array) writes arrays by argument name"
            raise LaunchError(f"{path} is one array, and which output it is of is open (outputs: {said})", hint=hint)
        found = {outputs[0]: found}
    return Expectation(found, tolerance or Tolerance(), source, str(path))


# running ------------------------------------------------------------------------------------------------------------
def run_job(
    job: Job, *, timeout: float | None = None, threads: int | None = None, progress: Progress | None = None,
    watch: Sequence[Watched] = (), sanitize: SanitizerOptions | None = None, workers: Any = None,
    profile: bool = False, trace: str | None = None, why: Sequence[str] = (),
    why_depth: int | None = None, against: object = None, debug: Any = None, looked_at: bool = False, nan: str = "",
) -> JobResult:  # fmt: skip
    """Load, launch, compare. Arrays of the job's arguments are updated in place. sanitize: what the sanitizer is asked for; of
    several seeds the first decides what is in the arrays. workers: a client of a Dask cluster. profile: what each line did is
    counted. trace: a file for what happened when. why: elements whose values the report explains; "auto": the first that each
    comparison rejects. why_depth: how many instructions they tell. against: a device, a seed or "reference" that they are
    compared with. debug: the debugger under whose control the launch runs; looked_at: by the sanitizer, too. nan: as in
    Kernel.launch."""
    if timeout is not None and not timeout > 0:
        raise LaunchError(f"a time limit of {timeout} s: it must be more than 0")
    module = job.load(timeout)
    kernel = module[kernel_name(module, job)]
    own = job.arrays()
    for argument in (*job.arguments, *job.variables):
        argument.value = resolve(argument.value, own)
    set_variables(module, job)
    arrays = {**module.variables, **own}
    if job.expect is not None:
        check_expectation(job.expect, arrays)
    shown = {found: arrays[found] for name in job.show for found in [choose(arrays, name, "there is no array")]}
    before = {name: _digest(a) for name, a in arrays.items()}
    asked = [element for element in why if element != AUTO]
    if len(asked) < len(why) and job.expect is None:
        raise LaunchError("why auto: there is no reference to compare with", hint="[expect] of the launch file, or --expect")
    reference = _reference(job.expect) if why and job.expect is not None else None
    against = reference if against == REFERENCE and reference is not None else against
    found = {name: a.copy() for name, a in arrays.items()} if len(asked) < len(why) else {}
    timeout = None if timeout == math.inf else timeout
    values = [a.value for a in job.arguments]
    launch = partial(
        kernel.launch, job.grid, job.block, values, job.shared, job.device, timeout=timeout, threads=threads,
        cluster=job.cluster, cooperative=job.cooperative, memory=job.placed(), waits=job.waits, order=job.order,
    )  # fmt: skip
    deep = {"why_depth": why_depth} if why_depth else {}
    repeat = partial(launch, seed=job.seed, names=own, against=against or reference, **deep)
    more = {"why": asked, "names": own, "against": against, **deep} if asked else {}
    launch = partial(launch, profile=profile, trace=trace, **({"nan": nan} if nan else {}), **more)
    judged = None
    if debug is not None:
        report = launch(seed=job.seed, names=own, debug=debug, sanitize=looked_at)
    elif sanitize is None:
        report = launch(seed=job.seed, progress=progress, watch=watch, workers=workers)
    else:
        from mmulator.host.jobs import judgement

        def looking(seed: int, progress: Progress | None) -> Report:
            own = seed == job.seed  # blocks begin as the job says under its own seed
            return launch(
                seed=seed, progress=progress, sanitize="strict", watch=watch, keep_going=sanitize.keep_going,
                order=job.order if own else seed, certify=own and sanitize.certify,
            )  # fmt: skip

        report, judged = judgement.run(looking, kernel, arrays, job.seed, sanitize, job.suppress, progress)
    outputs = job.outputs()
    written = {name: a for name, a in arrays.items() if name in outputs or _digest(a) != before[name]}
    if job.expect is None:
        return JobResult(report, [], written, shown, judged=judged)
    held = cache(lambda: accumulators(_matrix_forms(module, kernel)))
    comparisons = [compare(name, arrays[name], want, job.expect.tolerance, held) for name, want in job.expect.arrays.items()]
    missing = tuple(name for name in written if name not in job.expect.arrays)
    if found:
        report.why += _rejected(comparisons, arrays, found, repeat)
    return JobResult(report, comparisons, written, shown, missing, judged)


def _reference(expect: Expectation) -> Any:
    """The expected arrays as what elements are compared with."""
    return entries.Reference(expect.source or Path(expect.file).name, expect.arrays)


def _rejected(
    comparisons: Sequence[Comparison], arrays: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray],
    again: Callable[..., Report],
) -> list[Any]:  # fmt: skip
    """Answers about the first element that each comparison rejects, of a launch from the memory that the first one found.

    arrays: of the job, as the launch left them; they are so afterwards. found: as it found them. again: launches.
    """
    elements = [f"{c.name}[{','.join(map(str, c.first))}]" for c in comparisons if not c.ok and c.first is not None]
    if not elements:
        return []
    left = {name: a.copy() for name, a in arrays.items()}
    try:
        for name, a in found.items():
            arrays[name][...] = a
        return list(again(why=elements[:FEW]).why)
    finally:
        for name, a in left.items():
            arrays[name][...] = a


def watched_elements(job: Job, elements: Sequence[str]) -> list[tuple[int, tuple[int, ...]]]:
    """Elements as --watch has them: `C[3,5]` as number of the argument and index. Raises LaunchError."""
    found: list[tuple[int, tuple[int, ...]]] = []
    names = [a.name for a in job.arguments]
    for text in elements:
        name, bracket, rest = text.partition("[")
        try:
            index = tuple(int(n) for n in rest.removesuffix("]").split(","))
        except ValueError:
            index = ()
        if not bracket or not rest.endswith("]") or not index:
            raise LaunchError(f"--watch {text}: write it as NAME[ROW,COLUMN]")
        if name not in names:
            raise LaunchError(f"--watch {text}: no argument is called {name}", hint="arguments: " + ", ".join(names))
        number = names.index(name)
        array = job.arguments[number].value
        if not hasattr(array, "shape"):
            raise LaunchError(f"--watch {text}: {name} is no array")
        if len(index) != len(array.shape) or not all(0 <= i < n for i, n in zip(index, array.shape)):
            extents = ", ".join(map(str, array.shape))
            raise LaunchError(f"--watch {text}: {name} is [{extents}] and has no such element")
        found.append((number, index))
    return found


def kernel_name(module: Module, job: Job) -> str:
    """The entry that is meant. Raises LaunchError."""
    if job.entry is not None:
        return choose(module, job.entry, f"{job.ptx} has no kernel")
    if len(module) != 1:
        raise LaunchError(
            f"{job.ptx} has {len(module)} kernels: say which", hint="kernels: " + ", ".join(readable(n) for n in module)
        )
    return next(iter(module))


def _matrix_forms(module: Module, kernel: Kernel) -> list[Form]:
    """Forms of the matrix instructions of the kernel and of functions that it may call."""
    functions = [kernel.function, *(f for f in module.tree.functions if not f.is_entry)]
    return [i.form for f in functions for i in f.instructions if i.form.is_matrix]


def _digest(array: np.ndarray) -> int:
    """Something that changes when an array is written to."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data) if array.size else 0


# variables of the module --------------------------------------------------------------------------------------------
def set_variables(module: Module, job: Job) -> list[str]:
    """Give the variables of a module the values that the job says; their full names."""
    return [_set_variable(module.variables, v, job.ptx) for v in job.variables]


def _set_variable(cells: Variables, given: Argument, ptx: Path) -> str:
    """Give one variable its value: arrays by their bytes, whatever their type. Returns the variable's full name."""
    name = choose(cells, given.name, f"{ptx} has no .const or .global variable")
    cell, value = cells[name], given.value
    if isinstance(value, int | float) and (cell.size != 1 or (cell.dtype.kind in "iu" and value != int(value))):
        said = f"variable {name} is {cell.dtype}{list(cell.shape) or ''}, {cell.nbytes} bytes"
        raise LaunchError(f"{said}: {value} is no value of it")
    cells[name] = np.ascontiguousarray(value).tobytes() if isinstance(value, np.ndarray) else value
    return name


__all__ = [
    "Argument", "Comparison", "Expectation", "Job", "JobResult", "Tolerance", "dtype_of", "kernel_name", "load_job",
    "parse_argument", "random_array", "read_expectation", "run_job", "set_variables", "tolerance_of",
]  # fmt: skip
