"""`mmulator conformance`: the model against the GPU at hand, or against the vectors that GPUs gave."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.base.errors import MmulatorError
from mmulator.cli.output import exclude, print_heading, print_json
from mmulator.cli.parser import Given, Option, RowsOf
from mmulator.cli.progress import Progress
from mmulator.host.settings.readers import decimal, whole

if TYPE_CHECKING:
    from mmulator.evaluation.conformance.run import ItemResult, RunOutcome, RunSettings


def conformance(
    rows: Annotated[Given, RowsOf("conformance")],
    gpu: Annotated[bool, Option("Compare with the NVIDIA GPU of this machine.")] = False,
    library: Annotated[
        bool, Option("With --gpu: compare torch's products with the known orders of cuBLAS's sums. --cases: products, 1000.")
    ] = False,
    vectors: Annotated[Path | None, Option("Folder of vectors to replay. Default: that of the repository.", "DIR")] = None,
    filter: Annotated[str, Option("Only forms (and edges) that this regular expression finds.", "REGEX")] = "",
    cases: Annotated[
        int | None, Option("With --gpu: cases a form, eight columns of results each. Default: 10000.", read=whole(1))
    ] = None,
    report: Annotated[list[Path] | None, Option("Write a report: FILE.json or FILE.html.", "FILE")] = None,
    capture: Annotated[Path | None, Option("Write what the GPU answers as vectors to this folder.", "DIR")] = None,
    resume: Annotated[bool, Option("Go on with a run that was interrupted, or that --seconds ended.")] = False,
    seconds: Annotated[
        float | None,
        Option(
            "End after this time; forms of every group are taken in turn. --resume goes on.", "SECONDS",
            read=decimal(1, "a number from 1 on"),
        ),
    ] = None,
    processes: Annotated[int, Option("Processes to use. Default: all cores.", read=whole(0))] = 0,
) -> None:
    """Compare the model with a GPU, register by register, on operands that are hard to get right.

    Without --gpu, replays what GPUs answered, as kept in the repository's vectors/.

    Examples:
        mmulator conformance --filter wgmma.*f16
        mmulator conformance --gpu --cases 10000 --report conformance.html
        mmulator conformance --seconds 600
        mmulator conformance --library --gpu --seconds 300

    The exit code is 0 only if everything was compared that --filter and --seconds ask for, and no bit differs.
    """
    if library:
        exclude({"--library": True, "--filter": filter or None}, "products have no forms")
        others = {"--report": report, "--capture": capture, "--resume": resume, "--dask": rows.dask, "--vectors": vectors}
        for name, value in others.items():
            exclude({"--library": True, name: value or None}, "--json writes what was compared")
        _library(gpu, 1 if rows.seed is None else rows.seed, cases, seconds, rows.json)
        return
    from mmulator.evaluation.conformance import report as reports
    from mmulator.evaluation.conformance.run import RunSettings
    from mmulator.evaluation.spread.hosts import cluster_at

    _check(gpu, vectors, rows.device, capture, filter, report or [])
    exclude({"--dask": rows.dask, "--gpu": gpu}, "the GPU is that of this machine")
    exclude({"--dask": rows.dask, "--processes": processes or None}, "the cluster has its own")
    for name, value in (("--cases", cases), ("--seed", rows.seed)):
        if value is not None and not gpu:
            raise MmulatorError(f"{name} goes with --gpu: vectors have their own operands")
    seed = 1 if rows.seed is None else rows.seed
    settings = RunSettings(seed, cases or 10_000, filter, processes=processes, capture=capture is not None)
    settings = replace(settings, limit=seconds or 0.0)
    if gpu:
        outcomes = [(settings, _run(settings, _state(settings), resume, rows.json))]
    else:
        outcomes = []
        with cluster_at(rows.dask) as client:
            for folder in _folders(vectors, rows.device):
                each = replace(settings, replay=str(folder))
                outcomes.append((each, _run(each, _state(each), resume, rows.json, client)))
    for path in report or []:
        reports.write(path, outcomes)
    if capture is not None:
        for path in reports.write_vectors(capture, outcomes[0][1], settings):
            print(f"wrote {path}", file=sys.stderr)
    if rows.json:
        print_json("conformance", reports.as_data(outcomes))
    else:
        _print(outcomes)
    if any(not o.complete for _, o in outcomes):
        sys.exit(130)
    if not all(o.ok for _, o in outcomes):
        sys.exit(1)


def _library(gpu: bool, seed: int, cases: int | None, seconds: float | None, as_json: bool) -> None:
    """Compare products of torch on the GPU, and end with 1 if bits differ that are called known."""
    from mmulator.evaluation.conformance.library import lines, run

    if not gpu:
        raise MmulatorError("--library compares with a GPU", hint="add --gpu, on a machine that has one")
    with Progress(as_json, count=True) as progress:
        count = cases or (0 if seconds else 1000)
        outcome = run(seed, count, seconds or 0.0, lambda done, total: progress.update("products", done, max(total, done)))
    if as_json:
        print_json("library", outcome.as_dict())
    else:
        first, *rest = lines(outcome)
        print_heading(first)
        print("\n".join(rest))
    if not outcome.complete:
        print(f"interrupted after {outcome.totals[0]:,} products", file=sys.stderr)
        sys.exit(130)
    if outcome.differences:
        sys.exit(1)


def _check(gpu: bool, vectors: Path | None, device: str | None, capture: Path | None, filter: str, paths: list[Path]) -> None:
    for given, name in ((vectors, "--vectors"), (device, "--device")):
        if gpu and given is not None:
            raise MmulatorError(f"{name} goes with a replay, not with --gpu")
    if capture is not None and not gpu:
        raise MmulatorError("--capture goes with --gpu")
    for path in paths:
        if path.suffix not in (".json", ".html"):
            raise MmulatorError(f"--report {path}: the name must end in .json or .html")
    try:
        re.compile(filter)
    except re.error as error:
        raise MmulatorError(f"--filter {filter}: {error}") from None


def _folders(vectors: Path | None, device: str | None) -> list[Path]:
    from mmulator.evaluation.conformance.vectors import default_folder, files
    from mmulator.isa.chips import as_device

    root = vectors or default_folder()
    found = files(root)
    device = as_device(device) if device is not None else None
    if device is not None and device not in found:
        raise MmulatorError(f"{root} has no vectors of {device}", hint=f"it has those of {', '.join(found)}")
    return [root / name for name in found if device in (None, name)]


def _state(settings: RunSettings) -> Path | None:
    from mmulator.base.codegen.engine import cache_folder

    folder = cache_folder()
    name = f"replay-{Path(settings.replay).name}" if settings.replay else f"gpu{settings.gpu}"
    return folder / "conformance" / f"{name}.jsonl" if folder else None


def _run(settings: RunSettings, state: Path | None, resume: bool, quiet: bool, client: Any = None) -> RunOutcome:
    from mmulator.evaluation.conformance.run import run

    if state is not None and not resume:
        state.unlink(missing_ok=True)
    with Progress(quiet, count=True) as progress:

        def update(done: int, total: int, row: ItemResult | None) -> None:
            if row is not None and row.verdict != "same":
                progress.say(f"{row.item.name}: {row.verdict}")
            progress.update("forms", done, total)

        outcome = run(settings, state, update, client)
    if not outcome.complete:
        again = "; the same command with --resume goes on" if state is not None and not settings.capture else ""
        print(f"interrupted after {len(outcome.rows)} forms{again}", file=sys.stderr)
    return outcome


def _print(outcomes: list[tuple[RunSettings, RunOutcome]]) -> None:
    from mmulator.evaluation.conformance.report import lines

    for settings, outcome in outcomes:
        first, *rest = lines(outcome, settings)
        print_heading(first)
        print("\n".join(rest))
