"""`mmulator debug`: a program, or the launch of a launch file, under the debugger."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.base.errors import MmulatorError
from mmulator.cli.output import WrongUsage
from mmulator.cli.parser import Given, Option, ProgramWords, RowsOf
from mmulator.host.settings.readers import whole

if TYPE_CHECKING:
    from mmulator.host.jobs.job import Job
    from mmulator.observation.debug.dap.messages import Object


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
        _for_editors(program, dap, port, vscode)
        return
    first = _commands(ex or [], commands)
    settings = {"front": "terminal", "commands": first, "batch": batch, "json": given.json, "kernel": kernel or ""}
    if program[0].endswith(".toml"):
        if len(program) > 1:
            raise WrongUsage(f"{program[1]} is a word too many: {program[0]} is a launch file, which takes no arguments")
        sys.exit(_launch_file(Path(program[0]), settings, given.device, _schedule(vars(given)), given.sanitize))
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


def _schedule(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a schedule, such as that of a counterexample, that options or an editor say."""
    from mmulator.host.certificate import Schedule

    return {f.name: said[f.name] for f in fields(Schedule) if said.get(f.name) is not None}


def _launch_file(file: Path, settings: dict[str, Any], device: str | None, schedule: dict[str, Any], sanitize: bool) -> int:
    """Debug the launch of a launch file, and compare with what it expects. Returns the exit code."""
    from mmulator.host.jobs.job import load_job, run_job
    from mmulator.observation.debug.program import Debugger, current
    from mmulator.observation.debug.terminal import front

    if not file.is_file():
        raise WrongUsage(f"cannot read {file}: No such file or directory")
    job: Job = load_job(file)
    job.device = device or job.device
    for name, value in schedule.items():
        setattr(job, name, value)
    said = os.environ.get("MMULATOR_DEBUG")  # an adapter for editors has started this process
    debugger = current(said) if said else Debugger(lambda made: front(made, settings))
    result = run_job(job, debug=debugger, looked_at=sanitize)
    for c in result.comparisons:
        print(f"{c.name}: {'as expected' if c.ok else 'not as expected: `mmulator run` tells more'}")
    return 0 if result.ok else 1


# editors --------------------------------------------------------------------------------------------------------------
def _command(launch: Object) -> tuple[list[str], Mapping[str, str]]:
    """The words and the environment with which a program starts, for an adapter. Raises MmulatorError where it cannot start.

    launch: the configuration.
    """
    from mmulator.cli.program import check_program, surroundings
    from mmulator.cli.program import command as command_of
    from mmulator.isa.chips import as_device

    folder = Path(launch.get("cwd") or ".")
    if not folder.is_dir():
        raise WrongUsage(f"cwd {folder} is no folder")
    device, name = launch.get("device"), launch["program"]
    chip, schedule, sanitize = as_device(device) if device else None, _schedule(launch), bool(launch.get("sanitize"))
    program = str((folder / name).absolute()) if (folder / name).exists() else name
    environment = dict(surroundings({"device": chip, **schedule, "sanitize": 1 if sanitize else None}))
    for variable, value in (launch.get("env") or {}).items():
        if value is None:
            environment.pop(variable, None)
        else:
            environment[variable] = value
    if Path(program).suffix == ".toml":
        if not os.access(program, os.R_OK):
            raise WrongUsage(f"cannot read {name}")
        said = [f"--{name}={value}" for name, value in schedule.items()]
        options = [f"--device={chip}"] * bool(chip) + said + ["--sanitize"] * sanitize
        return [sys.executable, "-m", "mmulator", "debug", *options, program, *(launch.get("args") or [])], environment
    words = [program, *(launch.get("args") or [])]
    check_program(words)
    return command_of(words, environment)


def _for_editors(program: list[str] | None, dap: bool, port: int | None, extension: Path | None) -> None:
    """Serve an editor, for `mmulator debug --dap`. Raises MmulatorError.

    program: words of a program, which the editor has to say.
    dap: serve the Debug Adapter Protocol.
    port: of this machine, to which editors connect until Ctrl-C; None: standard input and output are the editor's.
    extension: a file for an extension of Visual Studio Code.
    """
    if not dap and extension is None:
        hint = "mmulator debug PROGRAM, or --dap for an editor" if port is None else "--dap --port PORT"
        raise WrongUsage("--port is for --dap" if port is not None else "which program?", hint=hint)
    if program or (dap and extension is not None):
        raise WrongUsage("--dap and --vscode take no program, and not each other", hint="an editor says which program it is")
    if extension is not None:
        from mmulator.observation.debug.dap import vscode

        vscode.write(extension)
        print(f"{extension}: code --install-extension {extension}")
        return
    from mmulator.observation.debug.dap import serve

    if port is None:
        serve.on_streams(_command)
        return
    try:
        serve.on_port(port, _command, lambda host, number: print(f"{host}:{number}", flush=True))
    except OSError as error:
        raise MmulatorError(f"port {port} cannot be used: {error.strerror}", hint="--port 0 takes a free one") from None
