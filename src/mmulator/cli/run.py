"""`mmulator run`: executes a launch file, or a kernel with the launch given as options."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mmulator.machine.job import Job, JobResult


def run(
    file: Annotated[Path, typer.Argument(help="Launch file (.toml), or a PTX file with the options below.", show_default=False)],
    entry: Annotated[str | None, typer.Option(help="Kernel; may be left out if the module has one.")] = None,
    grid: Annotated[str | None, typer.Option(help="Blocks: 2,2 or 4.")] = None,
    block: Annotated[str | None, typer.Option(help="Threads of a block: 128 or 16,16.")] = None,
    shared: Annotated[int | None, typer.Option(help="Dynamic shared memory in bytes.")] = None,
    device: Annotated[str | None, typer.Option(help="Whose arithmetic, such as sm_90. Default: that of .target.")] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(help="An argument: a.npy, b.npz:key, out:f16:256x256, random:f16:256x256:SEED, i32:256, f32:0.5."),
    ] = None,
    expect: Annotated[Path | None, typer.Option(help="Compare with these arrays (.npz, by argument name), bit for bit.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the arrays that the kernel wrote (.npz).")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the scheduler's choices.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    threads: Annotated[int | None, typer.Option(help="Cores to use. Default: all.", min=1)] = None,
    watch: Annotated[list[str] | None, typer.Option(help="List the stores to an element of an argument: C[3,5].")] = None,
    compare_gpu: Annotated[
        bool, typer.Option("--compare-gpu", help="Run it on the GPU of this machine too, and compare every array.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a kernel on the CPU with a device's bits.

    Examples: mmulator run examples/hopper_gemm/launch.toml

    mmulator run k.ptx --entry gemm --grid 2,2 --block 128 --shared 98304 --arg a.npy --arg C=out:f16:256x256 --arg i32:256
    --save out.npz

    The exit code is 0 only if the kernel ran and every expected output matches (with --compare-gpu: every array).
    """
    from mmulator.machine.job import load_job, run_job

    if file.suffix == ".toml":
        _no_launch_options(entry=entry, grid=grid, block=block, shared=shared, arg=arg, expect=expect)
        job = load_job(file)
    else:
        job = _job_from_options(file, entry, grid, block, shared or 0, arg or [], expect)
    job.device = device or job.device
    job.seed = job.seed if seed is None else seed
    before = _digests(job)
    if compare_gpu:
        _compare_gpu(job, timeout, threads, save, before, json)
        return
    with _where_it_was(), _Progress(quiet=json) as progress:
        result = run_job(job, timeout=timeout, threads=threads, progress=progress.update, watch=_watched(job, watch or []))
    if save is not None:
        _save(save, job, before)
    if json:
        _as_json(result)
    else:
        _as_text(result, job)
    if not result.ok:
        raise typer.Exit(1)


def _compare_gpu(
    job: Job, timeout: float | None, threads: int | None, save: Path | None, before: list[int], json: bool
) -> None:
    from dataclasses import asdict

    from mmulator.cli.output import print_json
    from mmulator.conformance.gpu import Gpu
    from mmulator.conformance.launches import compare_launch

    gpu = Gpu(limit_s=timeout or 60.0)
    with _Progress(quiet=json) as progress:
        result, arrays = compare_launch(job, gpu, timeout=timeout, threads=threads, progress=progress.update)
    if save is not None:
        _save(save, job, before)
    ok = result.ok and all(not a.wrong for a in arrays)
    if json:
        data = {"gpu": gpu.info.as_dict(), "arrays": [asdict(a) for a in arrays]}
        print_json({"ok": ok, "report": result.report.as_dict(), **data})
    else:
        _as_text(result, job)
        for array in arrays:
            print("\n".join(array.lines(gpu.info.name)))
    if not ok:
        raise typer.Exit(1)


def _no_launch_options(**given: Any) -> None:
    from mmulator.errors import LaunchError

    for name, value in given.items():
        if value:
            raise LaunchError(f"--{name} goes with a PTX file: a launch file says it itself")


def _job_from_options(
    file: Path, entry: str | None, grid: str | None, block: str | None, shared: int, args: list[str], expect: Path | None
) -> Job:
    from mmulator.errors import LaunchError
    from mmulator.machine.job import Job, parse_argument, read_expectation

    if grid is None or block is None:
        raise LaunchError("a PTX file needs --grid and --block", hint="or write a launch file: see `mmulator run --help`")
    job = Job(file, entry, _numbers(grid, "--grid"), _numbers(block, "--block"), shared)
    job.arguments = [parse_argument(text, n) for n, text in enumerate(args)]
    if expect is not None:
        job.expect = read_expectation(expect)
    return job


def _watched(job: Job, elements: list[str]) -> list[tuple[int, tuple[int, ...]]]:
    """`C[3,5]` as the number of the argument and the index."""
    from mmulator.errors import LaunchError

    found = []
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
        found.append((names.index(name), index))
    return found


def _numbers(text: str, option: str) -> list[int]:
    from mmulator.errors import LaunchError

    try:
        return [int(n) for n in text.replace("x", ",").split(",")]
    except ValueError:
        raise LaunchError(f"{option} {text}: whole numbers with commas, such as 2,2") from None


def _digests(job: Job) -> list[int]:
    """Something that changes when an array is written to."""
    import zlib

    import numpy as np

    def digest(value: object) -> int:
        return zlib.crc32(value.reshape(-1).view(np.uint8).data) if isinstance(value, np.ndarray) and value.size else 0

    return [digest(a.value) for a in job.arguments]


def _save(path: Path, job: Job, before: list[int]) -> None:
    import numpy as np

    from mmulator.errors import MmulatorError

    written = {
        a.name: a.value
        for a, old, new in zip(job.arguments, before, _digests(job))
        if isinstance(a.value, np.ndarray) and (a.is_output or old != new)
    }
    try:
        np.savez(path, **written)  # type: ignore[arg-type]
    except OSError as error:
        raise MmulatorError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def _where_it_was() -> Iterator[None]:
    """Ctrl-C says where the warps were."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if stop.args:
            print(stop, file=sys.stderr)
        raise


class _Progress:
    """A bar on a terminal; otherwise one line a phase, on standard error."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}
        self.said: set[str] = set()

    def __enter__(self) -> _Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self.bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, phase: str, done: int, total: int) -> None:
        if self.quiet:
            return
        label = {"compile": "compiling instructions", "run": "running blocks"}[phase]
        if self.bar is not None:
            if phase not in self.tasks:
                self.tasks[phase] = self.bar.add_task(label, total=total)
            self.bar.update(self.tasks[phase], completed=done)
        elif done == total and phase not in self.said:
            self.said.add(phase)
            print(f"{label}: {done}/{total}", file=sys.stderr)


def _as_json(result: JobResult) -> None:
    from dataclasses import asdict

    from mmulator.cli.output import print_json

    comparisons = [asdict(c) for c in result.comparisons]
    print_json({"ok": result.ok, "report": result.report.as_dict(), "comparisons": comparisons})


def _size(shape: tuple[int, int, int]) -> str:
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]  # type: ignore[assignment]
    return " x ".join(map(str, shape))


def _stores(result: JobResult, job: Job) -> None:
    """Stores to watched elements: of many, the last ones."""
    by_element: dict[tuple[int, tuple[int, ...]], list[object]] = {}
    for s in result.report.stores:
        by_element.setdefault((s.argument, s.index), []).append(s)
    for (argument, index), stores in by_element.items():
        print(f"stores to {job.arguments[argument].name}{list(index)}: {len(stores)}")
        for store in stores[-8:]:
            print(f"  {store}")


def _as_text(result: JobResult, job: Job) -> None:
    from mmulator.cli.output import print_table

    r = result.report
    if r.output:
        print(r.output, end="" if r.output.endswith("\n") else "\n")
    print(f"{r.kernel} on {r.device}: grid {_size(r.grid)}, block {_size(r.block)}, {r.shared} bytes of shared memory")
    rows = [(name, f"{count:,}") for name, count in r.instructions.items()]
    print_table("instructions executed, by warps", ("class", "count"), rows)
    if r.macs:
        rate = r.macs / max(r.seconds["run"], 1e-9) / 1e9
        print(f"multiply-accumulates: {r.macs:,} ({rate:.1f} G/s)")
    cached = " (from the cache)" if r.cached else ""
    s = r.seconds
    print(f"time: parse {s['parse']:.2f} s, compile {s['compile']:.2f} s{cached}, run {s['run']:.3f} s on {r.threads} threads")
    _stores(result, job)
    for note in r.notes:
        print(f"note: {note}")
    source = f"the {job.expect.source} reference" if job.expect and job.expect.source else "the reference"
    for c in result.comparisons:
        if not c.wrong:
            print(f"{c.name}: bit-identical to {source}: yes ({c.size} elements)")
        else:
            where = ", ".join(map(str, c.first or ()))
            word = "no, but close enough" if c.ok else "no"
            print(
                f"{c.name}: bit-identical to {source}: {word}: {c.wrong} of {c.size} elements differ, "
                f"the first at [{where}]: {c.got} instead of {c.want}; worst {c.worst:.3g} of the largest value"
            )
