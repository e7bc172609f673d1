"""`mmulator exec`: runs a program that needs a GPU. Python starts anew, with doors that open as the program imports libraries."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from mmulator.cli.output import WrongUsage, exclude
from mmulator.cli.parser import Given, ProgramWords, RowsOf
from mmulator.cli.program import check_program, gathers, hint_behind, start, surroundings
from mmulator.host.settings import taken


def exec(
    program: Annotated[
        list[str],
        ProgramWords("A Python script, -m MODULE or -c CODE; a program, or its .cu file; make, ctest.", "PROGRAM [ARGS]..."),
    ],
    given: Annotated[Given, RowsOf("exec")],
) -> None:
    """Run a program that uses a GPU on a machine without one.

    In Python, libraries find a GPU when the program imports them: torch with device="cuda", Triton, Numba, CuPy, cuda.core. In
    C++, a program that is linked with -cudart shared finds CUDA's runtime and driver. All else is as without mmulator: arguments,
    exit code, tracebacks. Options of mmulator come before the program; what is behind it is the program's own. Processes that
    the program starts run like this, too.

    The exit code is the program's, or 3 if --nan stopped it. Where that is 0, it is 3 if --sanitize found undefined behaviour
    in the program, or in a process that it started; else 4 if a launch, a copy or another piece of work was refused and the
    program did not ask for the error. The last line says so.

    Examples:
        mmulator exec train.py --epochs 1
        mmulator exec --device sm_80 -m pytest tests -x
        mmulator exec --report - -c "import torch; torch.ones(2, device='cuda')"
        mmulator exec --sanitize --sarif found.sarif -m pytest tests
        mmulator exec --device h100 ./gemm --m=512
        mmulator exec kernel.cu
    """
    from mmulator.cli.findings import baseline as read
    from mmulator.cli.findings import check_sarif
    from mmulator.cli.recording import check_record, check_recording, check_why

    if given.replay is not None:
        from mmulator.cli.recording import replayed

        exclude({"--replay": given.replay, "--record": given.record}, "one makes a record, the other compares with it")
        given.device, given.seed = replayed(given.replay, given.device, given.seed)
    check_program(program)
    if given.sarif == "-":
        raise WrongUsage("--sarif -", hint="standard output is the program's: name a file")
    check_sarif(given.sarif)
    check_recording(given.profile_to, given.trace)
    if given.record is not None:
        check_record(given.record)
    known = read(given.baseline)
    check_why(given.why, given.why_to, given.why_against, asserts=True)
    given.sanitize |= any(getattr(given, setting.name) for setting in taken("exec") if setting.includes)
    given.sanitize |= given.rules is not None and not os.environ.get("MMULATOR_SANITIZE")
    if given.capture is not None or given.capture_to is not None:
        given.capture, given.capture_to = given.capture or ":1", given.capture_to or "capture"
    environment = surroundings(vars(given))
    hint_behind(program)
    if not given.json and not gathers(environment):
        start(program, environment)
    from mmulator.cli.supervisor import ReportRequest, run

    code = run(program, environment, ReportRequest(given.sarif, known, given.json, given.strict))
    if code:
        sys.exit(code)
