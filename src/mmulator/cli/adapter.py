"""What a launch configuration of an editor starts: `mmulator debug --dap`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmulator.debug.dap.messages import LaunchRequestArguments


def command(launch: LaunchRequestArguments) -> tuple[list[str], Mapping[str, str]]:
    """The words and the environment with which a program starts, for an adapter. Raises MmulatorError where it cannot start.

    launch: the configuration.
    """
    from mmulator.cli.output import WrongUsage
    from mmulator.cli.program import check_program, surroundings
    from mmulator.cli.program import command as command_of
    from mmulator.isa.chips import as_device

    folder = Path(launch.get("cwd") or ".")
    if not folder.is_dir():
        raise WrongUsage(f"cwd {folder} is no folder")
    device, name = launch.get("device"), launch["program"]
    settings = {"device": as_device(device) if device else None, "seed": launch.get("seed")}
    settings["sanitize"] = 1 if launch.get("sanitize") else None
    program = str((folder / name).absolute()) if (folder / name).exists() else name
    environment = dict(surroundings(settings))
    for variable, value in (launch.get("env") or {}).items():
        if value is None:
            environment.pop(variable, None)
        else:
            environment[variable] = value
    if Path(program).suffix == ".toml":
        if not os.access(program, os.R_OK):
            raise WrongUsage(f"cannot read {name}")
        return [sys.executable, "-m", "mmulator", "debug", program, *(launch.get("args") or [])], environment
    words = [program, *(launch.get("args") or [])]
    check_program(words)
    return command_of(words, environment)


def serve(port: int | None) -> None:
    """Serve an editor: on standard streams, or on a port of this machine until Ctrl-C. Raises MmulatorError."""
    from mmulator.debug.dap import serve
    from mmulator.errors import MmulatorError

    if port is None:
        serve.on_streams(command)
        return
    try:
        serve.on_port(port, command, lambda host, number: print(f"{host}:{number}", flush=True))
    except OSError as error:
        raise MmulatorError(f"port {port} cannot be used: {error.strerror}", hint="--port 0 takes a free one") from None
