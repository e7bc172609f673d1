"""`mmulator exec`: a program that says it has a GPU runs here. Python is started anew, with doors that open as it imports."""

from __future__ import annotations

import os
from inspect import cleandoc
from pathlib import Path
from typing import Annotated

import typer

from mmulator.cli.output import WrongUsage
from mmulator.cli.program import check_program, start, surroundings

_setting = typer.Option


def exec(
    program: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT|-m MODULE|-c CODE [ARGS]...", help="As behind `python`.", show_default=False),
    ],
    device: Annotated[str | None, _setting(metavar="sm_NN", help="The chip that stands there. Default: sm_90.")] = None,
    seed: Annotated[int | None, _setting(metavar="N", help="Of the scheduler's choices. Default: 0.", min=0)] = None,
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
    autotune: Annotated[
        str | None, _setting(metavar="measure|first", help="How Triton's autotuner chooses. Default: measure counted work.")
    ] = None,
) -> None:
    """Run a Python program that uses a GPU on a machine without one.

    Libraries find a GPU when the program imports them: torch with device="cuda", Triton, Numba, CuPy, cuda.core. All else is
    as with `python`: arguments, exit code, tracebacks. Options of mmulator come before the program; what is behind it is
    the program's own. Every Python that the program starts is led here, too.
    """
    if device is not None:
        from mmulator.isa.targets import check_known

        check_known(device)
    check_program(program)
    if report is not None and report != "-" and Path(report).suffix != ".jsonl":
        raise WrongUsage(f"--report {report}", hint="a file that ends in .jsonl, or - for text on standard error")
    if report is not None:
        report = "1" if report == "-" else str(Path(report).absolute())
    given = {"seed": seed, "seeds": seeds, "timeout": timeout, "threads": threads, "report": report, "autotune": autotune}
    wanted = sanitize or (rules is not None and not os.environ.get("MMULATOR_SANITIZE"))
    given |= {"sanitize": 1 if wanted else None, "rules": rules}
    start(program, surroundings({"device": device, **given}))


EXAMPLES = r"""
mmulator exec train.py --epochs 1

mmulator exec --device sm_80 -m pytest tests -x

mmulator exec --report - -c "import torch; torch.ones(2, device='cuda')"
"""
exec.__doc__ = "\n\n".join((cleandoc(exec.__doc__ or ""), r"[bold]Examples[/bold]", EXAMPLES.strip()))
