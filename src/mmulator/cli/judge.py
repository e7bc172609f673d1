"""`mmulator judge`: one verdict on a launch file's kernel, or on a program, from a child process within limits."""

from __future__ import annotations

import re
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

from mmulator.cli.words import Option, Positional

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _bytes(text: str) -> int:
    """`512M` as a number of bytes."""
    from mmulator.cli.output import misused

    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not found:
        raise misused(f"{text!r} is no number of bytes: 4G, 512M", "--bytes")
    return int(found[1]) * _UNITS[found[2]]


def judge(
    candidate: Annotated[
        list[str],
        Positional(metavar="LAUNCH.toml|PROGRAM [ARGS]...", help="A launch, or a program as exec takes it.", show_default=False),
    ],
    kernel: Annotated[Path | None, Option(metavar="FILE", help="PTX or a .cu in place of the launch file's.")] = None,
    reference: Annotated[Path | None, Option(metavar="FILE.npz", help="Outputs by name, in place of the launch file's.")] = None,
    inout: Annotated[list[str] | None, Option(metavar="NAME", help="An output whose contents the kernel uses.")] = None,
    device: Annotated[str | None, Option(metavar="DEVICE", help="Whose arithmetic is used: H100, sm_80.")] = None,
    seeds: Annotated[int, Option(metavar="N", help="Under how many seeds a kernel runs.", min=1)] = 2,
    no_sanitize: Annotated[bool, Option("--no-sanitize", help="Do not look for undefined behaviour.")] = False,
    profile: Annotated[bool, Option("--profile", help="Count what each line does; part of the JSON.")] = False,
    rtol: Annotated[float | None, Option(metavar="X", help="Relative tolerance.")] = None,
    atol: Annotated[float | None, Option(metavar="X", help="Absolute tolerance.")] = None,
    ulp: Annotated[int | None, Option(metavar="N", help="Tolerance in steps of the type.", min=0)] = None,
    seconds: Annotated[float, Option(metavar="N", help="Limit of time, of compilation and of the run.")] = 60.0,
    bytes: Annotated[str, Option(metavar="N", help="Limit of memory: 512M, 4G.")] = "4G",
    json: Annotated[bool, Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """One verdict on a kernel or a program.

    It runs in a child process, which is ended at a limit of time or memory. A kernel of a launch file is given its arguments and
    never the reference. Its outputs are filled with NaNs before the first run and with random bytes before others, so that an
    element that it does not store is seen; they are compared here. A program compares its own results, and the verdict says so.

    The exit code is 0 if the verdict is right, 3 if it is undefined, else 1.
    """
    from mmulator.cli.output import WrongUsage, print_json, print_line
    from mmulator.cli.program import check_program
    from mmulator.judging.child import Limits
    from mmulator.judging.judge import judge as ask

    launch = candidate[0].endswith(".toml")
    if launch and len(candidate) > 1:
        raise WrongUsage(f"{candidate[1]} stands behind the launch file", hint="options come first: mmulator judge --json x.toml")
    given: dict[str, Any] = {"--kernel": kernel, "--reference": reference, "--inout": inout}
    if not launch and (named := [name for name, value in given.items() if value]):
        raise WrongUsage(f"{named[0]} goes with a launch file")
    if not launch and Path(candidate[0]).suffix in (".ptx", ".cuh"):
        hint = f"mmulator judge --kernel {candidate[0]} LAUNCH.toml"
        raise WrongUsage(f"{candidate[0]} is a kernel, and nothing says how it is launched", hint=hint)
    if not launch:
        check_program(candidate)
    verdict = ask(
        candidate[0] if launch else candidate, reference=reference, kernel=kernel, inout=tuple(inout or ()), device=device,
        seeds=seeds, sanitize=not no_sanitize, profile=profile, rtol=rtol or 0.0, atol=atol or 0.0, ulp=ulp or 0,
        limits=Limits(seconds, _bytes(bytes)),
    )  # fmt: skip
    if json:
        print_json("judge", verdict.as_dict())
    else:
        for line in str(verdict).splitlines():
            print_line(line, 4)
    if not verdict.ok:
        sys.exit(3 if verdict.outcome == "undefined" else 1)


EXAMPLES = """
mmulator judge examples/hopper_gemm/launch.toml

mmulator judge --json --kernel mine.cu --ulp 2 launch.toml

mmulator judge --seconds 20 --bytes 2G prog.py --its-own-option
"""
judge.__doc__ = "\n\n".join((cleandoc(judge.__doc__ or ""), r"[bold]Examples[/bold]", EXAMPLES.strip()))
