"""`mmulator run`: executes a launch file, or a kernel with the launch given as options."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.base.errors import LaunchError, MmulatorError
from mmulator.cli.output import error_data, exclude, print_error, print_json, print_line, print_table, print_text, width
from mmulator.cli.parser import Given, Option, Positional, RowsOf, grouped
from mmulator.cli.progress import Progress
from mmulator.host.settings import COMPARING, RESULTS, WHAT, taken

if TYPE_CHECKING:
    from mmulator.evaluation.conformance.launches import ArrayComparison
    from mmulator.host.backend import Chip
    from mmulator.host.certificate import Certificate
    from mmulator.host.jobs.job import Argument, Comparison, Job, JobResult
    from mmulator.host.jobs.judgement import Judged
    from mmulator.sanitizer.diagnostics.watch import WatchedStore
    from mmulator.sanitizer.sarif import Baseline

    Compared = tuple[Chip, list[ArrayComparison]]
    Watched = list[tuple[int, tuple[int, ...]]]


_what = grouped(WHAT)
_X = "X[,Y[,Z]]"
Texts = list[str] | None
# options of a launch, which `reduce` has, too
Entry = Annotated[str | None, _what("Kernel; a part of its C++ name will do if only it has it.", "NAME")]
Grid = Annotated[str | None, _what("Blocks of the grid.", _X)]
Block = Annotated[str | None, _what("Threads of a block.", _X)]
Shared = Annotated[int | None, _what("Dynamic shared memory.", "BYTES")]
Cluster = Annotated[str | None, _what("Blocks of a cluster.", _X)]
Cooperative = Annotated[bool, _what("All blocks are resident at once.")]
Arguments = Annotated[Texts, _what("An argument, in order: one of Values (`mmulator run --help`).", "[NAME=]VALUE")]
Variables = Annotated[Texts, Option("A .const or .global variable before the launch.", "NAME=VALUE")]
Expected = Annotated[Path | None, grouped(COMPARING)("Arrays by argument name (.npz); of one output .npy.", "FILE")]


def run(
    file: Annotated[Path, Positional("Launch file (.toml); or, with the options below, a .ptx, .cu, program...")],
    given: Annotated[Given, RowsOf("run")],
    entry: Entry = None,
    grid: Grid = None,
    block: Block = None,
    shared: Shared = None,
    cluster: Cluster = None,
    cooperative: Cooperative = False,
    arg: Arguments = None,
    set_: Variables = None,
    expect: Expected = None,
    compare_gpu: Annotated[bool, grouped(COMPARING)("Run it on the GPU of this machine too, and compare every array.")] = False,
    save: Annotated[Path | None, grouped(RESULTS)("Write the arrays that the kernel wrote.", "FILE.npz")] = None,
    print_: Annotated[Texts, grouped(RESULTS)("Print an array after the run.", "NAME")] = None,
) -> None:
    """Run a kernel on the CPU with a device's bits.

    The exit code is 0 only if the kernel ran and every expected output matches (with --compare-gpu: every array); it is 3
    if undefined behaviour was found (--sanitize).

    Examples:
        mmulator run examples/hopper_gemm/launch.toml
        mmulator run k.ptx --entry gemm --grid 2,2 --block 128 --arg a.npy --arg C=out:f16:256x256 --arg 256 --save c.npz

    Values of --arg and --set:
        a.npy, b.npz:KEY                 an array of a file
        out:f16:256x256                  an array of zeros, an output
        random:f16:256x256:SEED          random elements
        256, 0.5, i32:256, f32:0.5       a scalar
        null                             a null pointer
        i32,i32,f32x2:1,2,0.5,0.25       a struct: types, then values
        hex:01000000                     raw bytes

    A launch file:
        ptx = "k.ptx"                    # paths from this file's folder
        entry = "gemm"
        grid = [2, 2]
        block = 128
        shared = 98304
        cluster = [2, 1]                 # if there are any
        device = "sm_90"
        [[arg]]                          # one for each parameter, in order
        name = "A"
        type = "f16"
        shape = [256, 256]
        random = { seed = 1 }            # or zeros = true, values = [1, 2],
        [[arg]]                          # npy = "a.npy", npz = "b.npz:KEY",
        value = 256                      # hex = "0100", struct = [...]
        [variables]
        coef = { type = "f32", values = [1, 2] }
        [expect]
        file = "c.npz"                   # arrays by argument name
        compare = "bits"                 # or "close" with rtol, atol, ulp
        [[suppress]]                     # findings that are expected
        rule = "race-*"                  # and line = 57, source = "mm.cu:31"
        reason = "..."
    """
    from mmulator.cli import findings
    from mmulator.evaluation.spread.hosts import cluster_at
    from mmulator.host.jobs.job import run_job, watched_elements

    _check_save(save)
    if given.profile_to is not None or given.trace is not None:
        from mmulator.cli.recording import check_recording, write_profile

        check_recording(given.profile_to, given.trace)
    job = job_of(file, {"entry": entry, "grid": grid, "block": block, "shared": shared, "cluster": cluster,
                      "cooperative": cooperative or None, "arg": arg, "expect": expect})  # fmt: skip
    job.device = given.device or job.device
    job.nvcc = given.nvcc_flags or ""
    job.seed = job.seed if given.seed is None else given.seed
    job.order = job.order if given.order is None else given.order
    job.variables += variables_of(set_ or [])
    _tolerate(job, {name: getattr(given, name) for name in ("rtol", "atol", "ulp")})
    job.show = print_ or []
    watched = watched_elements(job, given.watch or [])
    wish, known, profile = None, findings.baseline(given.baseline), given.profile or given.profile_to is not None
    _exclude(given, compare_gpu, profile)
    if _finds(given):
        wish = findings.wish(given.seeds, given.rules, given.certify or False, given.strict, given.keep_going)
        findings.check_sarif(given.sarif)
    if given.why_to is not None or given.why_against is not None:
        from mmulator.cli.recording import check_why

        check_why(given.why, given.why_to, given.why_against)
    bounds = _bounds(job) if given.bounds else {}
    arrays: list[Compared] = []
    if compare_gpu:
        result, arrays = _on_gpu(job, given.timeout, given.threads, given.json)
    else:
        to = given.why_against
        try:
            with cluster_at(given.dask) as workers, _where_it_was(), Progress(given.json, once=True) as progress:
                result = run_job(
                    job, timeout=given.timeout, threads=given.threads, progress=_phases(progress), watch=watched, sanitize=wish,
                    workers=workers, why=given.why or (), why_depth=given.why_depth, profile=profile, trace=given.trace,
                    nan=given.nan or "",
                    against=int(to) if to and to.isdigit() else to,
                )  # fmt: skip
        except MmulatorError as error:
            sys.exit(_stopped(error, given, known))
    if save is not None:
        _save(save, result)
    if given.why_to is not None:
        from mmulator.observation.record.tree import write_page

        write_page(Path(given.why_to), [a._repr_html_() for a in result.report.why], result.report.kernel)
    if result.judged is not None:
        if given.sarif is not None:
            findings.write_sarif(given.sarif, result.judged.findings, result.judged.suppressed, known)
        result = replace(result, judged=result.judged.against(known))
    if given.profile_to is not None and result.report.profile is not None:
        write_profile(given.profile_to, [result.report.profile])
    if given.sarif != "-":
        (_as_json if given.json else _as_text)(result, job, watched, arrays, bounds)
    found = findings.code_of(result.judged.findings, given.strict) if result.judged is not None else 0
    found = found or findings.code_of_certificate(result.report.certificate)
    if found or not result.ok or any(a.wrong for _, compared in arrays for a in compared):
        sys.exit(found or 1)


def _finds(given: Given) -> bool:
    """Whether undefined behaviour is looked for."""
    wanted = given.sanitize or given.rules is not None or given.seeds
    return bool(wanted or any(getattr(given, setting.name) for setting in taken("run") if setting.includes))


def _exclude(given: Given, compare_gpu: bool, profile: bool) -> None:
    """Raise WrongUsage for options that do not go together."""
    alone = {"--watch": given.watch, "--why": given.why, "--nan": given.nan, "--profile": profile, "--trace": given.trace}
    counted = "counts are those of one machine"
    of_one = {"--threads": given.threads, "--compare-gpu": compare_gpu, **alone}
    for other, why in {
        "--threads": "each worker has threads of its own", "--watch": "stores are listed in the order of one machine",
        "--why": "the launch is run again on one machine", "--compare-gpu": "it is about the GPU of this machine",
        "--profile": counted, "--trace": counted,
    }.items():  # fmt: skip
        exclude({"--dask": given.dask, other: of_one[other] or None}, why)
    for other, why in {
        "--watch": "it lists the stores to what differs", "--why": "a GPU does not say what its registers held",
        "--nan": "it is about this machine", "--profile": "it is another question", "--trace": "it is another question",
    }.items():  # fmt: skip
        exclude({"--compare-gpu": compare_gpu, other: alone[other] or None}, why)
    if _finds(given):
        exclude({"--sanitize": True, "--compare-gpu": compare_gpu}, "it is another question")
        exclude({"--sanitize": True, "--dask": given.dask}, "the sanitizer looks at all blocks together")
        exclude({"--sarif -": given.sarif == "-", "--json": given.json}, "both write to standard output")


def _stopped(error: MmulatorError, given: Given, known: Baseline | None) -> int:
    """Print why the run stopped and what the sanitizer had found; returns the exit code."""
    from mmulator.cli import findings

    judged: Judged | None = error.__dict__.get("judged")
    if judged is None:
        raise error
    if given.sarif is not None:
        findings.write_sarif(given.sarif, judged.findings, judged.suppressed, known)
    judged = judged.against(known)
    error.findings = ()  # the findings follow
    certificate: Certificate | None = error.__dict__.get("certificate")
    if given.json:
        more = {"certificate": certificate.as_dict()} if certificate is not None else {}
        print_json("error", {"ok": False, "errors": [error_data(error)], "sanitizer": judged.as_dict(), **more})
    else:
        print_error(error, as_json=False)
        sys.stderr.flush()
        if given.sarif != "-":
            findings.print_findings(judged)
            findings.print_certificate(certificate)
    return findings.code_of(judged.findings, given.strict) or findings.code_of_certificate(certificate) or 1


# the job ------------------------------------------------------------------------------------------------------------
def job_of(file: Path, given: dict[str, Any]) -> Job:
    """The launch of a launch file, or of another file and options. given: values of these, by name."""
    from mmulator.host.jobs.job import Job, load_job, parse_argument, read_expectation
    from mmulator.ptx.text import check_text

    if not file.is_file() and not (file.exists() and not file.is_dir()):
        reason = "Is a directory" if file.is_dir() else "No such file or directory"
        raise LaunchError(f"cannot read {file}: {reason}")
    if file.suffix == ".toml":
        for name, value in given.items():
            if value is not None and value != []:
                raise LaunchError(f"--{name} goes with a PTX file: a launch file says it itself")
        return load_job(file)
    check_text(file)
    if given["grid"] is None or given["block"] is None:
        whole = f"; a program with a main: `mmulator exec {file}`" if file.suffix == ".cu" else ""
        raise LaunchError(
            f"{file} needs --grid and --block", hint=f"or write a launch file: `mmulator run --help` shows one{whole}"
        )
    job = Job(file, given["entry"], _numbers(given["grid"], "--grid"), _numbers(given["block"], "--block"), given["shared"] or 0)
    job.cluster = None if given["cluster"] is None else _numbers(given["cluster"], "--cluster")
    job.cooperative = bool(given["cooperative"])
    job.arguments = [parse_argument(text, n) for n, text in enumerate(given["arg"] or [])]
    if given["expect"] is not None:
        job.expect = read_expectation(given["expect"], outputs=job.outputs())
    return job


def variables_of(texts: list[str]) -> list[Argument]:
    """Values of variables, from texts of --set."""
    from mmulator.host.jobs.job import parse_argument

    for text in texts:
        if "=" not in text:
            raise LaunchError(f"--set {text}: write it as NAME=VALUE", hint="such as coef=f32:1,2,3,4")
    return [parse_argument(text, 0, "--set") for text in texts]


def _tolerate(job: Job, given: dict[str, float | int | None]) -> None:
    from mmulator.host.jobs.job import tolerance_of

    said = {name: value for name, value in given.items() if value is not None}
    if not said:
        return
    if job.expect is None:
        raise LaunchError(f"--{next(iter(said))} goes with --expect: there is no reference")
    job.expect.tolerance = tolerance_of(said, "the command line:")


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(n) for n in text.replace("x", ",").split(",")]
    except ValueError:
        raise LaunchError(f"{option} {text}: whole numbers with commas, such as 2,2") from None


def _on_gpu(job: Job, timeout: float | None, threads: int | None, quiet: bool) -> tuple[JobResult, list[Compared]]:
    from mmulator.evaluation.conformance.gpu import Gpu
    from mmulator.evaluation.conformance.launches import compare_launch

    gpu = Gpu(limit_s=timeout or 60.0)
    with Progress(quiet, once=True) as progress:
        result, arrays = compare_launch(job, gpu, timeout=timeout, threads=threads, progress=_phases(progress))
    return result, [(gpu.chip, arrays)]


def _bounds(job: Job) -> dict[str, Any]:
    """The tolerance that rounding justifies, of each array of floating point that the kernel stores to. Raises LaunchError."""
    from mmulator.host.jobs.job import kernel_name, set_variables
    from mmulator.observation.tolerance.tolerance import tolerances_of_job

    module = job.load()
    kernel = module[kernel_name(module, job)]
    set_variables(module, job)
    found = {name: t.as_dict() for name, t in tolerances_of_job(kernel, job).items()}
    if not found:
        raise LaunchError("--bounds: the launch stores to no argument of floating point")
    return found


# results ------------------------------------------------------------------------------------------------------------
def _check_save(path: Path | None) -> None:
    """Check, before the run, that the file can be written."""
    if path is None:
        return
    if path.suffix != ".npz":
        raise LaunchError(f"--save {path}: the name must end in .npz", hint="numpy.load reads it; its arrays have names")
    if path.is_dir() or not path.parent.is_dir():
        raise LaunchError(f"--save {path}: {'it is a folder' if path.is_dir() else f'there is no folder {path.parent}'}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise LaunchError(f"--save {path}: no permission to write it")


def _save(path: Path, result: JobResult) -> None:
    import numpy as np

    from mmulator.base.files import replacing

    with replacing(path) as file:
        np.savez(file, **result.written)  # type: ignore[arg-type]


@contextmanager
def _where_it_was() -> Iterator[None]:
    """Context in which Ctrl-C prints where the warps were."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if stop.args:
            if sys.stderr.isatty():
                print_text(str(stop), 2, sys.stderr)
            else:
                print(stop, file=sys.stderr)
        raise


_PHASES = {"compile": "compiling instructions", "run": "running blocks", "seeds": "running seeds",
           "needed": "leaving out barriers and fences", "explore": "interleavings run"}  # fmt: skip


def _phases(progress: Progress) -> Callable[[str, int, int], None]:
    """The function that a job calls as it goes on."""

    def update(phase: str, done: int, total: int) -> None:
        progress.update(_PHASES[phase], done, total)
        if phase == "compile" and done == total:  # a kernel that never ends would leave no message
            progress.update("running", 0, None)

    return update


def _as_json(result: JobResult, job: Job, watched: Watched, gpus: list[Compared], bounds: dict[str, Any]) -> None:
    from mmulator.cli import findings

    judged = result.judged
    ok = result.ok and all(not a.wrong for _, found in gpus for a in found) and not (judged and judged.errors)
    ok = ok and not findings.code_of_certificate(result.report.certificate)
    data: dict[str, Any] = {"ok": ok, "report": result.report.as_dict()}
    if bounds:
        data["bounds"] = bounds
    if judged is not None:
        data["sanitizer"] = judged.as_dict()
        del data["report"]["findings"]  # before rules were chosen, and others suppressed
    for info, found in gpus:
        print_json("run", data | {"gpu": info.as_dict(), "arrays": [asdict(a) for a in found]})
        return
    data["comparisons"] = [asdict(c) for c in result.comparisons]
    data["not_compared"] = list(result.uncompared)
    if watched:
        data["watched"] = [
            {"argument": job.arguments[number].name, "index": list(index), "stores": len(_stores_to(result, number, index))}
            for number, index in watched
        ]
    if result.shown:
        data["arrays"] = {
            name: {"dtype": str(a.dtype), "shape": list(a.shape), "values": a.tolist()} for name, a in result.shown.items()
        }
    print_json("run", data)


def _stores_to(result: JobResult, number: int, index: tuple[int, ...]) -> list[WatchedStore]:
    return [s for s in result.report.stores if (s.argument, s.index) == (number, index)]


def _stores(result: JobResult, job: Job, watched: Watched) -> None:
    """Print stores to watched elements, the last ones if there are many."""
    for number, index in dict.fromkeys(watched):
        stores = _stores_to(result, number, index)
        print(f"stores to {job.arguments[number].name}{list(index)}: {len(stores)}")
        for store in stores[-8:]:
            print_line(f"  {store}")


def _as_text(result: JobResult, job: Job, watched: Watched, gpus: list[Compared], bounds: dict[str, Any]) -> None:
    r = result.report
    if r.output:
        print(r.output, end="" if r.output.endswith("\n") else "\n")
    print_line(r.head, hang=2)
    rows = [(name, f"{count:,}") for name, count in r.instructions.items()]
    print_table("instructions executed, by warps", ("class", "count"), rows)
    for line in r.costs:
        print_line(line, hang=2)
    if r.profile:
        print(r.profile)
    _stores(result, job, watched)
    for answer in r.why:
        print(f"why {answer.wrapped(width())}")
    for note in r.notes:
        print_line(f"note: {note}", hang=2)
    for name, array in result.shown.items():
        _print_array(name, array)
    _comparisons(result, job)
    if bounds:
        keys = ("rtol", "atol", "largest_bound", "largest_error")
        rows = [(name, *("none" if b[k] is None else f"{b[k]:.3g}" for k in keys), b["unbounded"]) for name, b in bounds.items()]
        print_table("rounding errors", ("array", "rtol", "atol", "largest bound", "largest error", "without bound"), rows)
        for name, b in bounds.items():
            told = [f"without bound: {b['reason']}"] if b["unbounded"] else []
            for line in (*told, *(f"holds for these inputs: {one}" for one in b["rests_on"])):
                print_line(f"{name}: {line}", 2)
    for info, found in gpus:
        for compared in found:
            for line in compared.lines(info, result.report.device):
                print_line(line)
    if result.judged is not None:
        from mmulator.cli.findings import print_certificate, print_findings

        print_findings(result.judged)
        print_certificate(r.certificate)


def _print_array(name: str, array: Any) -> None:
    import numpy as np

    from mmulator.base.interop import is_float

    wide = array.astype(np.float64) if is_float(array.dtype) and array.dtype.kind == "V" else array
    if not array.ndim:
        print(f"{name}: {array.dtype} = {wide}")
        return
    print(f"{name}: {array.dtype} {list(array.shape)}")
    print(np.array2string(wide, max_line_width=width(), threshold=1000))


def _comparisons(result: JobResult, job: Job) -> None:
    source = f"the {job.expect.source} reference" if job.expect and job.expect.source else "the reference"
    for c in result.comparisons:
        if not c.wrong:
            print_line(f"{c.name}: bit-identical to {source}: yes ({c.size} elements)", hang=2)
            continue
        where = ", ".join(map(str, c.first or ()))
        word = "no, but close enough" if c.ok else "no"
        far = f" ({c.beyond} of them beyond the tolerance)" if 0 < c.beyond < c.wrong else ""
        print_line(
            f"{c.name}: bit-identical to {source}: {word}: {c.wrong} of {c.size} elements differ{far}, "
            f"the first{' of these' if far else ''} at [{where}]: {_number(c.got, c, job)} instead of {_number(c.want, c, job)}; "
            f"worst {c.worst:.3g}" + (" of the largest value" if c.largest else ", the reference is all zeros"),
            hang=2,
        )
        _details(c, job)
    if result.uncompared and job.expect is not None:
        names = ", ".join(result.uncompared)
        print_line(f"not compared: {names}: {job.expect.file} has no such array{'s' * (len(result.uncompared) > 1)}", hang=2)
    if result.compares_nothing:
        print_line("nothing that the kernel wrote was compared: that counts as different", hang=2)


def _number(value: Any, c: Comparison, job: Job) -> str:
    """A number as its type writes it: 0.1 of f32, not its 17 digits."""
    import numpy as np

    array = job.arrays().get(c.name)
    return str(value if array is None or not isinstance(value, float) else np.asarray(value).astype(array.dtype))


def _details(c: Comparison, job: Job) -> None:
    """Print how far apart the values are, and where."""
    import numpy as np

    from mmulator.base.interop import is_float

    value = job.arrays().get(c.name)
    unit = "ULP" if value is None or is_float(np.asarray(value).dtype) else "difference"
    if c.ulps:
        print_line(f"  {unit}: " + "; ".join(f"{steps} in {count:,}" for steps, count in c.ulps))
    if c.specials:
        print_line(f"  NaN or infinite on one side only: {c.specials:,}")
    for sentence in c.where:
        print_line(f"  where: {sentence}")
