"""`mmulator reduce`: a failing launch made small, as files that fail in the same way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.cli.parser import Json, Option, Positional, grouped
from mmulator.cli.run import Arguments, Block, Cluster, Cooperative, Entry, Expected, Grid, Shared, Variables
from mmulator.host.settings import COMPARING, FINDING
from mmulator.host.settings.readers import decimal, whole

if TYPE_CHECKING:
    from mmulator.host.jobs.job import Job


def reduce(
    file: Annotated[Path, Positional("Launch file (.toml); or, with the options of the launch, a .ptx, .cu, program...")],
    out: Annotated[
        Path, Option("The folder for the smaller launch. Default: reduced.", "FOLDER", names="--out -o")
    ] = Path("reduced"),
    seconds: Annotated[float | None, Option("Stop after so long, with the smallest so far.", "S", read=decimal())] = None,
    entry: Entry = None,
    grid: Grid = None,
    block: Block = None,
    shared: Shared = None,
    cluster: Cluster = None,
    cooperative: Cooperative = False,
    arg: Arguments = None,
    set_: Variables = None,
    expect: Expected = None,
    against: Annotated[
        str | None, grouped(COMPARING)("The failure is a difference from this.", "DEVICE|FILE.ptx|reference|gpu")
    ] = None,
    rules: Annotated[str | None, grouped(FINDING)("The failure is a finding of these: races,wgmma-* or -races.", "RULES")] = None,
    nan: Annotated[bool, grouped(FINDING)("The failure is a NaN that the launch makes and stores.")] = False,
    device: Annotated[str | None, Option("Chip (H100) to compute as. Default: .target.", "DEVICE")] = None,
    seed: Annotated[int | None, Option("Seed of the scheduler's choices.", "N", read=whole())] = None,
    json: Json = False,
) -> None:
    """Make a failing launch small: instructions, grid, arrays and values go as long as it fails in the same way.

    The failure is what stops the launch; else the first error that the sanitizer finds; else the first wrong element of what the
    launch file expects. It stays the same: the same fault or rule at the same kind of instruction; a wrong element keeps its
    bits, a NaN the kind of instruction that makes it. The smaller launch is read from its files and run once more.

    The exit code is 0 if the smaller launch fails in the same way. Ctrl-C ends the search with the smallest so far.

    Examples:
        mmulator reduce launch.toml
        mmulator reduce -o small --against sm_80 --device sm_90 launch.toml
        mmulator reduce --rules races k.ptx --grid 2 --block 128 --arg out:f32:4096
    """
    from mmulator.base.errors import LaunchError, MmulatorError
    from mmulator.cli.findings import wish
    from mmulator.cli.output import check_writable, exclude, print_json, print_line, print_table
    from mmulator.cli.progress import Progress
    from mmulator.cli.run import job_of, variables_of
    from mmulator.observation.reduce.launches import ReductionRequest, reduced
    from mmulator.observation.reduce.search import Reduction

    exclude({"--against": against, "--rules": rules, "--nan": nan}, "one failure is made small")
    job = job_of(file, {"entry": entry, "grid": grid, "block": block, "shared": shared, "cluster": cluster,
                        "cooperative": cooperative or None, "arg": arg, "expect": expect})  # fmt: skip
    job.device, job.seed = device or job.device, job.seed if seed is None else seed
    job.variables += variables_of(set_ or [])
    if out.resolve() == file.parent.resolve():
        raise LaunchError(f"--out {out}: it is the folder of the launch, whose files it would replace")
    if out.exists() and not out.is_dir():
        raise LaunchError(f"--out {out}: it is a file, and the smaller launch needs a folder")
    check_writable(str(out / "launch.toml") if out.is_dir() else str(out.with_suffix(".tmp")))
    given = _against(against, job)
    wanted = ReductionRequest(
        job, out, wish(None, rules, False, False).rules, rules is not None, "nan" if nan else "",
        seconds=seconds or float("inf"), **given,
    )  # fmt: skip
    with Progress(json) as progress:

        def told(r: Reduction) -> None:
            progress.update(f"{r.lines.instructions} instructions, grid {r.job.grid}, launches tried", r.trial.tries, None)

        try:
            found = reduced(wanted, told)
        except KeyboardInterrupt:
            print(f"nothing smaller was found yet: {file} is as it was, and {out} was not written", file=sys.stderr)
            raise
    launch = out / "launch.toml"
    if json:
        print_json("reduce", {
            "ok": found.again, "failure": found.failure, "rule": found.rule, "instruction": found.instruction,
            "launch": str(launch), "options": [*found.options], "before": found.before, "after": found.after,
            "tries": found.tries, "whole": found.whole,
        })  # fmt: skip
    else:
        print_line(found.failure.splitlines()[0], 2)
        both = ((name, (n, found.after[name])) for name, n in found.before.items())
        rows = [(name, *(f"{n:,}" if isinstance(n, int) else n for n in pair)) for name, pair in both]
        print_table("", ("", "before", "after"), rows)
        print_line(f"{found.tries:,} launches tried" + ("" if found.whole else "; it was stopped: more may go"), 2)
        print_line("run again from its files, it fails in the same way:" if found.again else "", 2)
        print_line(f"mmulator run {' '.join([str(launch), *found.options])}", 2)
    if not found.again:
        if not json:
            raise MmulatorError(f"{launch} does not fail in the same way when it is read again")
        sys.exit(1)


def _against(text: str | None, job: Job) -> dict[str, Any]:
    """Fields of a request that say whose arrays those of the launch are compared with. What another file stores becomes what the
    job expects."""
    from mmulator.base.errors import LaunchError
    from mmulator.observation.reduce.failure import fresh
    from mmulator.observation.reduce.launches import arrays_of

    if text is None:
        return {}
    if text == "gpu":
        from mmulator.evaluation.conformance.gpu import Gpu
        from mmulator.evaluation.conformance.launches import on_gpu
        from mmulator.host.jobs.job import run_job

        gpu = Gpu()
        return {"other": lambda job, ptx: on_gpu(fresh(job, ptx), run_job(fresh(job, ptx), threads=1), gpu), "name": "GPU"}
    file = Path(text)
    if file.suffix == ".toml" or file.exists():
        from mmulator.host.jobs.comparison import Expectation
        from mmulator.host.jobs.job import load_job
        from mmulator.ptx.text import read_source

        if file.suffix == ".toml":
            theirs = arrays_of(load_job(file, expecting=False))
        else:
            theirs = arrays_of(fresh(job, read_source(file, None, job.device, job.entry, job.nvcc.split()).text))
        own = job.arrays()
        job.expect = Expectation({name: a for name, a in theirs.items() if name in own}, source=file.name)
    if job.expect is not None and (file.exists() or text == "reference"):
        return {"reference": True}
    if text == "reference":
        raise LaunchError("there is no reference", hint="[expect] of the launch file, or --expect")
    from dataclasses import replace

    from mmulator.isa.chips import as_device

    try:
        device = as_device(text)
    except Exception as error:
        raise LaunchError(f"--against {text}: no such file, and no device: {error}") from None
    return {"other": lambda job, ptx: arrays_of(fresh(replace(job, device=device), ptx)), "name": device}
