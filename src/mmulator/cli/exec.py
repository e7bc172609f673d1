"""`mmulator exec`: runs a program that needs a GPU. Python starts anew, with doors that open as the program imports libraries."""

from __future__ import annotations

import os
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Annotated

from mmulator.cli.output import WrongUsage, exclude
from mmulator.cli.program import absolute, check_program, gathers, hint_behind, start, surroundings
from mmulator.cli.words import Option, Positional

_setting = Option


def exec(
    program: Annotated[
        list[str],
        Positional(
            metavar="PROGRAM [ARGS]...",
            help="A Python script, -m MODULE or -c CODE; a program, or its .cu file; make, ctest.",
            show_default=False,
        ),
    ],
    device: Annotated[str | None, _setting(metavar="DEVICE", help="The chip that is found (H100). Default: sm_90.")] = None,
    seed: Annotated[int | None, _setting(metavar="N", help="Seed of the scheduler's choices. Default: 0.", min=0)] = None,
    seeds: Annotated[int | None, _setting(metavar="N", help="Launch each kernel under N seeds and compare.", min=1)] = None,
    timeout: Annotated[float | None, _setting(metavar="SECONDS", help="Stop a launch after so long.", min=0)] = None,
    threads: Annotated[int | None, _setting(metavar="N", help="Cores to use. Default: all.", min=1, max=1024)] = None,
    report: Annotated[
        str | None, _setting(metavar="FILE.jsonl", help="A line of JSON for each launch; - is text on standard error.")
    ] = None,
    sanitize: Annotated[
        bool, _setting("--sanitize", help="Look for undefined behaviour, and say on standard error what was found.")
    ] = False,
    rules: Annotated[str | None, _setting(metavar="RULES", help="What is looked for: races,wgmma-* or -races.")] = None,
    strict: Annotated[
        bool, _setting("--strict", help="Rules of severity note, too; exit code 3 for any finding. Includes --sanitize.")
    ] = False,
    sarif: Annotated[str | None, _setting(metavar="FILE", help="Write findings as SARIF 2.1.0. Includes --sanitize.")] = None,
    baseline: Annotated[
        str | None, _setting(metavar="FILE", help="An earlier SARIF file: tell only what is new, exit code 3 only for that.")
    ] = None,
    json: Annotated[
        bool, _setting("--json", help="At the end JSON on standard output; what the program prints goes to standard error.")
    ] = False,
    progress: Annotated[
        str | None, _setting(metavar="auto|always|never", help="How far launches are that take long. Default: on a terminal.")
    ] = None,
    keep_going: Annotated[
        bool, _setting("--keep-going", help="Go on behind an access out of bounds, which is a finding; includes --sanitize.")
    ] = False,
    why: Annotated[
        list[str] | None,
        _setting(
            metavar="NAME[INDEX]",
            help="Tell why z[999], KERNEL:z[999] or z[999]@3 (of launch 3) has its value; auto: what an assert rejects.",
        ),
    ] = None,
    why_to: Annotated[str | None, _setting(metavar="FILE.html", help="Write that as a page, as the program ends.")] = None,
    against: Annotated[
        str | None, _setting(metavar="DEVICE|SEED|reference", help="Say where it parts from that device, seed or reference.")
    ] = None,
    why_depth: Annotated[int | None, _setting(metavar="N", help="Instructions that are told behind each other.", min=1)] = None,
    profile: Annotated[
        bool, _setting("--profile", help="At the end, what each line of each kernel did: lanes, sectors, bank conflicts.")
    ] = False,
    profile_to: Annotated[str | None, _setting(metavar="FILE", help="Write it: .html, .json, .txt, .info (lcov).")] = None,
    trace: Annotated[str | None, _setting(metavar="FILE.json", help="Write what happened when, for Perfetto.")] = None,
    capture: Annotated[
        str | None, _setting(metavar="KERNEL[:N]", help="Write the Nth launch of a kernel with such a name as files, for run.")
    ] = None,
    capture_to: Annotated[str | None, _setting(metavar="DIR", help="The folder for these files. Default: capture.")] = None,
    record: Annotated[
        str | None, _setting(metavar="FILE.json", help="Write digests of what each launch was given and left.")
    ] = None,
    replay: Annotated[
        str | None, _setting(metavar="FILE.json", help="Run with a record's device and seed; say which launch differs first.")
    ] = None,
    autotune: Annotated[
        str | None, _setting(metavar="measure|first", help="How Triton's autotuner chooses. Default: measure counted work.")
    ] = None,
) -> None:
    """Run a program that uses a GPU on a machine without one.

    In Python, libraries find a GPU when the program imports them: torch with device="cuda", Triton, Numba, CuPy, cuda.core. In
    C++, a program that is linked with -cudart shared finds CUDA's runtime and driver. All else is as without mmulator: arguments,
    exit code, tracebacks. Options of mmulator come before the program; what is behind it is the program's own. Processes that
    the program starts run like this, too.

    With --sanitize the exit code is 3 where the program ends with 0 and undefined behaviour was found in it, or in a process that
    it started.
    """
    from mmulator.cli.findings import baseline as read
    from mmulator.cli.findings import check_sarif
    from mmulator.cli.recording import check_record, check_recording, check_why

    if replay is not None:
        from mmulator.cli.recording import replayed

        exclude({"--replay": replay, "--record": record}, "one makes a record, the other compares with it")
        device, seed = replayed(replay, device, seed)
    if device is not None:
        from mmulator.isa.chips import as_device

        device = as_device(device)
    check_program(program)
    if report is not None and report != "-" and Path(report).suffix != ".jsonl":
        raise WrongUsage(f"--report {report}", hint="a file that ends in .jsonl, or - for text on standard error")
    if report is not None:
        report = "1" if report == "-" else absolute(report)
    given = {"seed": seed, "seeds": seeds, "timeout": timeout, "threads": threads, "report": report, "autotune": autotune,
             "progress": progress}  # fmt: skip
    if sarif == "-":
        raise WrongUsage("--sarif -", hint="standard output is the program's: name a file")
    check_sarif(sarif)
    check_recording(profile_to, trace)
    if record is not None:
        check_record(record)
    known = read(baseline)
    wanted = sanitize or strict or keep_going or sarif is not None or known is not None
    wanted |= rules is not None and not os.environ.get("MMULATOR_SANITIZE")
    given |= {"sanitize": "strict" if strict else 1 if wanted else None, "rules": rules}
    given["keep_going"] = 1 if keep_going else None
    check_why(why, why_to, against)
    given |= {"why": ";".join(why) if why else None, "why_depth": why_depth, "why_against": against}
    given["why_to"] = None if why_to is None else absolute(why_to)
    given["trace"] = None if trace is None else absolute(trace)
    given["profile"] = absolute(profile_to) if profile_to is not None else 1 if profile else None
    given["capture"] = capture or (None if capture_to is None else ":1")
    given["capture_to"] = absolute(capture_to or "capture") if given["capture"] else None
    given |= {name: absolute(file) for name, file in (("record", record), ("replay", replay)) if file is not None}
    given["baseline"] = None if baseline is None else absolute(baseline)
    environment = surroundings({"device": device, **given})
    hint_behind(program)
    if not json and not gathers(environment):
        start(program, environment)
    from mmulator.cli.supervised import ReportRequest, run

    code = run(program, environment, ReportRequest(sarif, known, json, strict))
    if code:
        sys.exit(code)


EXAMPLES = r"""
mmulator exec train.py --epochs 1

mmulator exec --device sm_80 -m pytest tests -x

mmulator exec --report - -c "import torch; torch.ones(2, device='cuda')"

mmulator exec --sanitize --sarif found.sarif -m pytest tests

mmulator exec --device h100 ./gemm --m=512

mmulator exec kernel.cu
"""
exec.__doc__ = "\n\n".join((cleandoc(exec.__doc__ or ""), r"[bold]Examples[/bold]", EXAMPLES.strip()))
