"""The build of a wheel: object code of native functions goes with it (tools/ship.py), so that nobody compiles it again.

It takes a minute. An editable installation has none, and compiles what it uses when it uses it; so has a wheel that is built
with MMULATOR_SHIP=0, or for a machine that is no x86-64.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Ship(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("MMULATOR_SHIP", "1") != "0" and (sys.platform, platform.machine()) == ("linux", "x86_64")
        if version == "editable" or not wanted:
            return
        folder = Path(self.root, "build", "objects")  # a build comes here twice, the first time for the names of dependencies
        subprocess.run([sys.executable, str(Path(self.root, "tools", "ship.py")), str(folder)], check=True)
        build_data["force_include"] |= {str(path): f"mmulator/objects/{path.name}" for path in sorted(folder.glob("*.bin"))}
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-manylinux_2_17_x86_64"  # the code calls nothing but memcpy and the like
