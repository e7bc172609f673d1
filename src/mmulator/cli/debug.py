"""`mmulator debug`: a program, or the launch of a launch file, under the debugger."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.cli.output import WrongUsage
from mmulator.cli.parser import Given, Option, ProgramWords, RowsOf
from mmulator.settings.readers import whole

if TYPE_CHECKING:
    from mmulator.jobs.job import Job


def debug(
    given: Annotated[Given, RowsOf("debug")],
    program: Annotated[
        list[str] | None,
        ProgramWords("A launch file (.toml); or a Python script, -m MODULE, -c CODE, a program, or its .cu file.",
                     "PROGRAM [ARGS]..."),
    ] = None,
    ex: Annotated[list[str] | None, Option("Carry out a command first.", "COMMAND", names="--ex -ex")] = None,
    commands: Annotated[Path | None, Option("Carry out the commands of a file first.", "FILE", names="--commands -x")] = None,
    batch: Annotated[
        bool, Option("Ask nobody: where the commands end, the program goes on by itself.", names="--batch -batch")
    ] = False,
    kernel: Annotated[
        str | None, Option("Stop first in a kernel with such a name. Default: in the first launch.", "NAME")
    ] = None,
    dap: Annotated[bool, Option("Serve an editor by the Debug Adapter Protocol; it says which program.")] = False,
    port: Annotated[
        int | None, Option("With --dap: of this machine, where editors connect.", "PORT", read=whole(0, 65535))
    ] = None,
    vscode: Annotated[Path | None, Option("Write an extension for Visual Studio Code.", "FILE.vsix")] = None,
) -> None:
    """Debug kernels, forwards and backwards, in a terminal.

    A launch stops between two instructions of a warp, and the program waits meanwhile. Commands are gdb's and cuda-gdb's words;
    `help` at the prompt lists them.

    Examples:
        mmulator debug examples/hopper_pipeline/launch.toml
        mmulator debug train.py --epochs 1
        mmulator debug --batch -ex "break ptx:120 if tid.x == 3" -ex continue -ex "info registers" gemm.py
        mmulator debug -x commands.txt ./gemm --m=512
        mmulator debug --dap
    """
    if dap or port is not None or vscode is not None or not program:
        from mmulator.cli.adapter import for_editors

        for_editors(program, dap, port, vscode)
        return
    first = _commands(ex or [], commands)
    settings = {"front": "terminal", "commands": first, "batch": batch, "json": given.json, "kernel": kernel or ""}
    if program[0].endswith(".toml"):
        if len(program) > 1:
            raise WrongUsage(f"{program[1]} is a word too many: {program[0]} is a launch file, which takes no arguments")
        sys.exit(_launch_file(Path(program[0]), settings, given.device, given.seed, given.sanitize))
    from json import dumps

    from mmulator.cli.program import check_program, start, surroundings

    check_program(program)
    for name, number in (("input", 0), ("output", 1)):  # a program, or pytest, may put others in their places
        settings[name] = os.dup(number)
        os.set_inheritable(settings[name], True)
    start(program, surroundings({**vars(given), "debug": dumps(settings)}))


def _commands(ex: list[str], file: Path | None) -> list[str]:
    """The commands that are carried out first: those of a file, and then single ones."""
    lines: list[str] = []
    if file is not None:
        try:
            lines = file.read_text().splitlines()
        except (OSError, UnicodeError) as error:
            raise WrongUsage(f"cannot read {file}: {getattr(error, 'strerror', None) or 'no text'}") from None
    return [line for line in (*(line.strip() for line in lines), *ex) if line and not line.startswith("#")]


def _launch_file(file: Path, settings: dict[str, Any], device: str | None, seed: int | None, sanitize: bool) -> int:
    """Debug the launch of a launch file, and compare with what it expects. Returns the exit code."""
    from mmulator.debug.program import Debugger, current
    from mmulator.debug.terminal import front
    from mmulator.jobs.job import load_job, run_job

    if not file.is_file():
        raise WrongUsage(f"cannot read {file}: No such file or directory")
    job: Job = load_job(file)
    job.device = device or job.device
    job.seed = job.seed if seed is None else seed
    said = os.environ.get("MMULATOR_DEBUG")  # an adapter for editors has started this process
    debugger = current(said) if said else Debugger(lambda made: front(made, settings))
    result = run_job(job, debug=debugger, looked_at=sanitize)
    for c in result.comparisons:
        print(f"{c.name}: {'as expected' if c.ok else 'not as expected: `mmulator run` tells more'}")
    return 0 if result.ok else 1
