"""The adapter that a launch configuration of an editor starts: `mmulator debug --dap`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mmulator.cli.output import WrongUsage
from mmulator.errors import MmulatorError

if TYPE_CHECKING:
    from mmulator.debug.dap.messages import Object


def command(launch: Object) -> tuple[list[str], Mapping[str, str]]:
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
    chip, seed, sanitize = as_device(device) if device else None, launch.get("seed"), bool(launch.get("sanitize"))
    program = str((folder / name).absolute()) if (folder / name).exists() else name
    environment = dict(surroundings({"device": chip, "seed": seed, "sanitize": 1 if sanitize else None}))
    for variable, value in (launch.get("env") or {}).items():
        if value is None:
            environment.pop(variable, None)
        else:
            environment[variable] = value
    if Path(program).suffix == ".toml":
        if not os.access(program, os.R_OK):
            raise WrongUsage(f"cannot read {name}")
        options = [f"--device={chip}"] * bool(chip) + [f"--seed={seed}"] * (seed is not None) + ["--sanitize"] * sanitize
        return [sys.executable, "-m", "mmulator", "debug", *options, program, *(launch.get("args") or [])], environment
    words = [program, *(launch.get("args") or [])]
    check_program(words)
    return command_of(words, environment)


def for_editors(program: list[str] | None, dap: bool, port: int | None, extension: Path | None) -> None:
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
        from mmulator.debug.dap import vscode

        vscode.write(extension)
        print(f"{extension}: code --install-extension {extension}")
        return
    from mmulator.debug.dap import serve

    if port is None:
        serve.on_streams(command)
        return
    try:
        serve.on_port(port, command, lambda host, number: print(f"{host}:{number}", flush=True))
    except OSError as error:
        raise MmulatorError(f"port {port} cannot be used: {error.strerror}", hint="--port 0 takes a free one") from None
