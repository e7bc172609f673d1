"""The build of a wheel: object code of native functions goes with it (tools/ship.py), so that nobody compiles it again.

The wheel has what a first run needs on this machine; with MMULATOR_SHIP=release all that does not depend on a kernel, for every
machine (docs/release.md). An editable installation has none, and compiles what it uses when it uses it; so has a wheel that is
built with MMULATOR_SHIP=0, or on a machine that is no x86-64. An sdist gets the kernels that such a wheel is made with.
"""

from __future__ import annotations

import os
import platform
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Ship(BuildHookInterface):  # type: ignore[type-arg]
    ship = os.environ.get("MMULATOR_SHIP", "")
    wanted = ship != "0" and (sys.platform, platform.machine()) == ("linux", "x86_64")

    def dependencies(self) -> list[str]:
        """What tools/ship.py imports: some of the package's own dependencies."""
        needed = ("numpy", "ml_dtypes", "llvmlite")
        wanted = self.wanted and self.target_name == "wheel"
        return [d for d in self.metadata.core.dependencies if d.startswith(needed)] if wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        tool = Path(self.root, "tools", "ship.py")
        if self.target_name == "sdist":
            kernels = runpy.run_path(str(tool))["chosen"]()
            build_data["force_include"] |= {str(path): str(path.relative_to(self.root)) for path in kernels}
            return
        if version == "editable" or not self.wanted:
            return
        which = ["release"] if self.ship == "release" else []
        folder = Path(self.root, "build", *(which or ["first"]))  # a build comes here twice, at first for the metadata
        subprocess.run([sys.executable, str(tool), str(folder), *which], check=True)
        build_data["force_include"] |= {str(path): f"mmulator/objects/{path.name}" for path in sorted(folder.glob("*.bin"))}
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-manylinux_2_17_x86_64"  # the code calls nothing but memcpy and the like
