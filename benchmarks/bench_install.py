"""`pip install` of a clone in a fresh virtual environment, and the sizes of what a release has.

    python benchmarks/bench_install.py [--empty] [--release FOLDER]

Processor seconds of all processes that pip starts, and seconds of the clock, from a clone of this checkout's last commit: with
the packages that mmulator needs in place, and without (then pip installs them, from its cache). --empty: pip's cache is empty,
too. Goal: 20 s of two idle cores. --release: the folder `dist` of a build with MMULATOR_SHIP=release; the wheel may have 25
MB, the sdist 3.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from processes import spent

ROOT = Path(__file__).parents[1]
MB = 1e6
MOST = {".whl": 25, ".gz": 3}  # MB


def run(words: list[str], **environment: str) -> tuple[float, float]:
    """(seconds of the processor, seconds of the clock) of a command."""
    with spent() as cost:
        subprocess.run(words, check=True, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    return cost[0], cost[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--release", metavar="FOLDER", type=Path)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = {"PIP_CACHE_DIR": f"{scratch}/pip"} if o.empty else {}
        for name, needed in (("packages in place", True), ("packages too", False)):
            clone, fresh = f"{scratch}/{needed}", f"{scratch}/venv-{needed}"
            subprocess.run(["git", "clone", "-q", str(ROOT), clone], check=True)
            subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
            pip = [f"{fresh}/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            without = {"MMULATOR_SHIP": "0"}
            if needed:  # with mmulator, which goes again
                run([*pip, clone], **cache, **without)
                run([fresh + "/bin/python", "-m", "pip", "uninstall", "-q", "-y", "mmulator"])
            cpu, wall = run([*pip, clone], **cache)
            print(f"pip install, {name:18}{cpu:8.1f} processor seconds {wall:8.1f} s", flush=True)
            if needed:
                cpu, wall = run([*pip, "--force-reinstall", "--no-deps", clone], **cache, **without)
                print(f"{'  of it without object code':31}{cpu:8.1f} processor seconds {wall:8.1f} s", flush=True)
    for path in sorted(o.release.iterdir()) if o.release else ():
        size, most = path.stat().st_size / MB, MOST.get(path.suffix)
        print(f"{path.name}: {size:.2f} MB" + (f" of {most}" if most else ""))


if __name__ == "__main__":
    main()
