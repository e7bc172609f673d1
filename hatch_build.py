"""The build of a wheel: object code of native functions goes with it (tools/ship.py), so that nobody compiles it again.

The wheel has what a first run needs on this machine; with MMULATOR_SHIP=release all that does not depend on a kernel, for every
machine of this one's architecture, or of the one that MMULATOR_SHIP=release-aarch64 names (docs/developers/release.md). An editable
installation has none but what such a build has kept in the code cache, and compiles what it uses when it uses it; so does a wheel
that is built with MMULATOR_SHIP=0, or on a machine that is no Linux on x86-64 or aarch64: it is pure Python, for every system.
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
    ship, _, named = os.environ.get("MMULATOR_SHIP", "").partition("-")
    architecture = named or platform.machine()
    wanted = ship != "0" and sys.platform == "linux" and architecture in ("x86_64", "aarch64")

    def dependencies(self) -> list[str]:
        """What tools/ship.py imports: some of the package's own dependencies."""
        needed = ("numpy", "ml_dtypes", "llvmlite")
        return [d for d in self.metadata.core.dependencies if d.startswith(needed)] if self.wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.named and not self.wanted:
            raise SystemExit(f"MMULATOR_SHIP names {self.architecture}; object code is for Linux on x86_64 and aarch64")
        if version == "editable" or not self.wanted:
            return
        which = [self.architecture] if self.ship == "release" else []
        folder = Path(self.root, "build", *(which or ["first"]))  # a build comes here twice, at first for the metadata
        subprocess.run([sys.executable, str(Path(self.root, "tools", "ship.py")), str(folder), *which], check=True)
        build_data["force_include"] |= {str(path): f"mmulator/objects/{path.name}" for path in sorted(folder.iterdir())}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{self.architecture}"  # the code calls nothing but memcpy and the like
