"""`mmulator judge`: one verdict on a launch file's kernel, or on a program, from a child process within limits."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

from mmulator.cli.parser import Given, Option, ProgramWords, RowsOf

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _bytes(text: str) -> int:
    """`512M` as a number of bytes."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not found:
        raise ValueError("a number of bytes: 4G, 512M")
    return int(found[1]) * _UNITS[found[2]]


def judge(
    candidate: Annotated[
        list[str], ProgramWords("A launch, or a program as exec takes it.", "LAUNCH.toml|PROGRAM [ARGS]...")
    ],
    given: Annotated[Given, RowsOf("judge")],
    kernel: Annotated[Path | None, Option("PTX or a .cu in place of the launch file's.", "FILE")] = None,
    reference: Annotated[Path | None, Option("Outputs by name, in place of the launch file's.", "FILE.npz")] = None,
    inout: Annotated[list[str] | None, Option("An output whose contents the kernel uses.", "NAME")] = None,
    seconds: Annotated[float, Option("Limit of time, of compilation and of the run. Default: 60.", "N")] = 60.0,
    bytes: Annotated[int, Option("Limit of memory and temporary files: 512M, 4G. Default: 4G.", "N", read=_bytes)] = 4 << 30,
) -> None:
    """One verdict on a kernel or a program.

    It runs in a child process, inside a fence, which is ended at a limit of time or memory. A kernel of a launch file is given
    its arguments and never the reference. Its outputs hold random bytes before each run, so that an element that it does not
    store is seen; they are compared here. A program compares its own results, and the verdict says so. The verdict says, too,
    what this system does not enforce.

    The exit code is 0 if the verdict is right, 3 if it is undefined or if a mutant of --mutate passes, too, else 1.

    Examples:
        mmulator judge examples/hopper_gemm/launch.toml
        mmulator judge --json --kernel mine.cu --ulp 2 launch.toml
        mmulator judge --mutate --mutate-seconds 30 examples/hopper_gemm/launch.toml
        mmulator judge --seconds 20 --bytes 2G prog.py --its-own-option
    """
    from mmulator.cli.output import WrongUsage, print_json, print_line
    from mmulator.cli.program import check_program
    from mmulator.evaluation.judging.child import Limits
    from mmulator.evaluation.judging.judge import judge as ask

    launch = candidate[0].endswith(".toml")
    if launch and len(candidate) > 1:
        raise WrongUsage(f"{candidate[1]} is a word too many: {candidate[0]} is a launch file")
    of_a_launch: dict[str, Any] = {"--kernel": kernel, "--reference": reference, "--inout": inout}
    if not launch and (named := [name for name, value in of_a_launch.items() if value]):
        raise WrongUsage(f"{named[0]} goes with a launch file")
    if not launch and Path(candidate[0]).suffix in (".ptx", ".cuh"):
        hint = f"mmulator judge --kernel {candidate[0]} LAUNCH.toml"
        raise WrongUsage(f"{candidate[0]} is a kernel, and nothing says how it is launched", hint=hint)
    if not launch:
        check_program(candidate)
    verdict = ask(
        candidate[0] if launch else candidate, reference=reference, kernel=kernel, inout=tuple(inout or ()), device=given.device,
        seeds=given.seeds, sanitize=not given.no_sanitize, certify=given.certify, profile=given.profile,
        rtol=given.rtol or 0.0, atol=given.atol or 0.0, ulp=given.ulp or 0, limits=Limits(seconds, bytes),
        bounds=given.bounds, mutate=(given.mutate_seconds or 60.0) if given.mutate else 0.0,
    )  # fmt: skip
    if given.json:
        print_json("judge", verdict.as_dict())
    else:
        for line in str(verdict).splitlines():
            print_line(line, 4)
    if not verdict.ok:
        sys.exit(3 if verdict.outcome == "undefined" else 1)
    if verdict.weak:
        sys.exit(3)
