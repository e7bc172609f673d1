"""`mmulator compare-builds`: which kernels of a suite have other bits with another compiler, and since which line."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

from mmulator.cli.parser import Json, Option, ProgramWords


def compare_builds(
    suite: Annotated[
        list[str], ProgramWords("Two folders of exec --record; with --build a program, as for exec.", "A B|PROGRAM [ARGS]...")
    ],
    build: Annotated[
        list[str] | None, Option("A build: variables, an interpreter, or both. Given twice.", "[VARIABLE=VALUE]... [PYTHON]")
    ] = None,
    device: Annotated[str | None, Option("Whose arithmetic, such as sm_90 or H100.", "DEVICE")] = None,
    records: Annotated[Path | None, Option("A folder that keeps both records.", "DIR")] = None,
    to: Annotated[Path | None, Option("Write the answer as a page, too.", "FILE.html")] = None,
    json: Json = False,
) -> None:
    """Which kernels have other bits in another build, since which line, and whether their algebra is the same.

    A build is another Triton, another nvcc, another flag: an interpreter in which mmulator is installed, or variables of the
    environment. The program runs once in each build, and every launch is recorded; or two records that `exec --record DIR` made
    are compared. Launches belong together by test, kernel, grid and arrays, the n-th to the n-th; what has no partner is named.

    The exit code is 3 if bits differ; else 4 if something could not be compared, was refused, or failed; else 0.

    Examples:
        mmulator compare-builds old new
        mmulator compare-builds --build old/bin/python --build new/bin/python -m pytest tests
        mmulator compare-builds --build FLAG=1 --build FLAG=0 --to builds.html prog.py
    """
    from mmulator.cli.compare_builds.running import build_of, recorded
    from mmulator.cli.output import WrongUsage, check_writable, print_json, print_line
    from mmulator.cli.program import check_program
    from mmulator.cli.progress import Progress
    from mmulator.evaluation.builds.changes import compare_builds as compared
    from mmulator.evaluation.builds.changes import sentences
    from mmulator.evaluation.builds.page import alone, as_dict, head, page
    from mmulator.evaluation.builds.suites import read
    from mmulator.isa.chips import as_device

    usage = "mmulator compare-builds A B; or --build PYTHON --build PYTHON PROGRAM; options stand before A or PROGRAM"
    if build is not None and len(build) != 2:
        raise WrongUsage(f"--build is given {len(build)} time{'s' * (len(build) != 1)}: two builds are compared", hint=usage)
    if build is None and len(suite) != 2:
        raise WrongUsage(f"{len(suite)} word{'s' * (len(suite) != 1)}, and no --build: two records are compared", hint=usage)
    if build is None and (device or records):
        raise WrongUsage(f"{'--device' if device else '--records'} goes with --build", hint=usage)
    if to is not None:
        if to.suffix != ".html":
            raise WrongUsage(f"--to {to}", hint="the name ends in .html")
        check_writable(str(to))
    with tempfile.TemporaryDirectory(prefix="mmulator-") as folder, Progress(quiet=json) as progress:
        if build is None:
            first, second = read(Path(suite[0])), read(Path(suite[1]))
        else:
            check_program(suite)
            place = records or Path(folder)
            more = {"MMULATOR_DEVICE": as_device(device)} if device else {}
            both = [(words, *build_of(words), place / name) for words, name in zip(build, ("first", "second"))]
            if taken := next((kept for *_, kept in both if kept.exists()), None):
                raise WrongUsage(f"--records {place}: {taken} is there already", hint="a record has a folder of its own")
            first, second = (recorded(*one, more, suite) for one in both)
        found = compared(first, second, progress.update)
    if to is not None:
        from mmulator.base.files import write

        write(to, page(found))
    if json:
        print_json("compare-builds", as_dict(found))
    else:
        for line in head(found):
            print_line(line)
        for k in found.kernels:
            print_line(f"{k.kernel}: {k.change}", 2)
            for line in sentences(k):
                print_line(f"  {line}", 4)
        for line in alone(found):
            print_line(line)
    if found.exit_code:
        sys.exit(found.exit_code)
