"""Run mmulator with the versions of other software that users have: python -m tools.matrix [ROW ...] [--doors NAME,...]

A row is a virtual environment: `oldest`, `pinned`, `newest` of src/mmulator/versions.py, `torch-2.10` and so on for each torch
between, and `here` for the environment of this command as it is. Without rows all but `here` are run. In each, a small program
runs at each door (tools/matrix/doors.py). What could not be installed, or has no Python here, is printed as "not run" with the
reason, never as working. Ctrl-C ends, and keeps what is done. The exit code is 1 if a program failed.

--list: names of the rows and their versions, and nothing is run.
--pins: the pinned versions as constraints of pip, which .ci/run installs with.
--doors: only these doors, as `torch,Numba`.
--venvs FOLDER: keeps the environments there, and uses those that it has (default: a new folder, removed at the end).
--json FILE: the results as JSON. --seconds S: of the processor, for a program (60).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmulator.base.files import write
from mmulator.base.versions import TABLE, dotted, number
from tools.matrix.doors import DOORS, FAILS, NOT_RUN, ROOT, SECONDS, WORKS, run, try_door

PATIENCE = 3600.0  # seconds of an installation
CORE = ("numpy", "ml_dtypes", "llvmlite")
PINNED_MORE = {"nvcc": "nvidia-cuda-nvcc"}  # packages of a program that has another name
WITH = {  # what pip installs beside a library, so that its door can be tried
    "numba-cuda": ("numba-cuda[cu13]",), "cuda-core": ("cuda-core[cu13]",), "cupy-cuda13x": ("nvidia-cuda-nvrtc>=13,<14",),
    "nvcc": ("nvidia-nvvm=={0}", "nvidia-cuda-crt=={0}", "nvidia-cuda-cccl>=13,<14", "nvidia-cuda-runtime=={0}"),
}  # fmt: skip
SHOWN = "import json, sys; from importlib import metadata as m; print(json.dumps({'python': sys.version.split()[0], **{" + (
    "n: m.version(n) for n in sys.argv[1:] if any(m.distributions(name=n))}}))")  # fmt: skip


def rows() -> dict[str, dict[str, str]]:
    """Versions of each package in each row, as pip takes them behind `==`; no torch-row has another library than Triton."""
    found = {
        "oldest": {name: f"{dotted(row.floor)}.*" for name, row in TABLE.items()},
        "pinned": {name: row.pinned if name not in ("python", "nvcc") else f"{row.pinned}.*" for name, row in TABLE.items()},
        "newest": {name: f"{dotted(row.newest)}.*" for name, row in TABLE.items()},
    }
    torch = TABLE["torch"]
    for minor in range(torch.floor[1] + 1, torch.newest[1]):
        if f"{torch.floor[0]}.{minor}" != torch.pinned[:4]:
            found[f"torch-{torch.floor[0]}.{minor}"] = {"torch": f"{torch.floor[0]}.{minor}.*"}
    return found


def pins() -> Iterator[str]:
    for name, row in TABLE.items():
        if name != "python":
            yield f"{PINNED_MORE.get(name, name)}=={row.pinned}{'.*' if name in PINNED_MORE else ''}"


def find_python(minor: str) -> str | None:
    """A Python of this version, `3.12`, on this machine; None without."""
    if minor == dotted(sys.version_info[:2]):
        return sys.executable
    places = [*sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin/python3")), shutil.which(f"python{minor}")]
    works = (str(p) for p in places if p and run([str(p), "-c", "import venv"], None, dict(os.environ), SECONDS)[0] == 0)
    return next(works, None)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(text: str) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # where `head` has read enough, it ends as `cat` does
    print(text)


class Row:
    """One environment: where it is, what was installed, and what its doors said."""

    def __init__(self, name: str, folder: Path | None) -> None:
        self.name, self.versions = name, dict[str, str]()
        self.missing: dict[str, str] = {}  # why a library was not installed
        self.doors: dict[str, tuple[str, str]] = {}
        self.bin = Path(sys.executable).parent if folder is None else folder / "bin"
        self.python = Path(sys.executable) if folder is None else self.bin / "python"
        cache = folder.parent if folder else Path(tempfile.gettempdir()) / "mmulator-matrix"
        self.environment = {
            **os.environ, "PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}", "COLUMNS": "200",
            "MMULATOR_CACHE": str(cache / "mmulator-cache"), "TRITON_CACHE_DIR": str(cache / "triton-cache"),
        }  # fmt: skip

    def pip(self, library: str, *wanted: str) -> None:
        say(f"{self.name}: pip install {' '.join(wanted)}")
        words = [str(self.python), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *wanted]
        code, said = run(words, None, {**self.environment, "MMULATOR_SHIP": "0"}, PATIENCE)
        if code:
            errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines() or ["pip failed"]
            self.missing[library] = f"pip: {errors[0].removeprefix('ERROR: ')[:160]}"

    def make(self, wanted: dict[str, str]) -> None:
        """Make the environment where there is none: mmulator, then each library by itself, so that one may fail."""
        if not self.python.exists():
            minor, found = number(wanted.get("python", "")) or sys.version_info[:2], None
            while minor >= TABLE["python"].floor and (found := find_python(dotted(minor))) is None:
                self.missing[f"Python {dotted(minor)}"] = "not on this machine; the next older one is taken"
                minor = minor[0], minor[1] - 1
            if found is None:
                self.missing["python"] = "no Python that mmulator works with is on this machine"
                return
            run([found, "-m", "venv", str(self.bin.parent)], None, self.environment, PATIENCE)
        core = [f"{n}=={wanted[n]}" for n in CORE if n in wanted]  # said each time: Numba's pip would take another llvmlite
        if run([str(self.python), "-c", "import mmulator.cli, pytest"], "/", self.environment, SECONDS)[0]:
            self.pip("mmulator", "-e", str(ROOT), "pytest", *core)
        here = self.installed()
        for name, version in wanted.items():
            if name not in (*CORE, "python") and name not in here and "mmulator" not in self.missing:
                package = PINNED_MORE.get(name, name)
                self.pip(name, f"{package}=={version}", *(more.format(version) for more in WITH.get(name, ())), *core)

    def installed(self) -> dict[str, str]:
        names = [PINNED_MORE.get(name, name) for name in TABLE if name != "python"]
        code, said = run([str(self.python), "-c", SHOWN, *names], None, self.environment, SECONDS)
        found: dict[str, str] = {} if code else json.loads(said.splitlines()[-1])
        return {next((n for n, p in PINNED_MORE.items() if p == name), name): version for name, version in found.items()}

    def go(self, wanted: dict[str, str], doors: list[str], seconds: int) -> None:
        """Make the environment and try its doors."""
        if wanted:
            self.make(wanted)
        self.versions = self.installed() if self.python.exists() else {}
        if wanted and (nvcc := sorted(self.bin.parent.glob("lib/*/site-packages/nvidia/cu*/bin/nvcc"))):
            self.environment["MMULATOR_NVCC"] = str(nvcc[-1])
        for name in doors:
            if lost := self.missing.get("python") or self.missing.get("mmulator"):
                self.doors[name] = NOT_RUN, lost
                continue
            self.doors[name] = try_door(DOORS[name], self.python, self.environment, seconds)
            say(f"{self.name}: {name}: {': '.join(filter(None, self.doors[name]))}")

    def as_dict(self) -> dict[str, Any]:
        return {"row": self.name, "versions": self.versions, "not_installed": self.missing,
                "doors": {name: {"outcome": how, "why": why} for name, (how, why) in self.doors.items()}}  # fmt: skip


def table(done: list[Row], doors: list[str]) -> str:
    """The results as a table of Markdown, and below it why a door failed or was not run."""
    columns = ["python", "numpy", "llvmlite", "torch", "triton", "numba-cuda", "cupy-cuda13x", "cuda-core"]
    names = ["row", *(TABLE[c].name for c in columns), *doors]
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    notes = []
    for row in done:
        cells = [row.versions.get(c, "") for c in columns] + [row.doors.get(d, (NOT_RUN, ""))[0] for d in doors]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
        notes += [f"- {row.name}, {name} is not installed: {why}" for name, why in row.missing.items()]
        notes += [f"- {row.name}, {name}: {how}: {why}" for name, (how, why) in row.doors.items() if how != WORKS]
    return "\n".join([*lines, "", *notes])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m tools.matrix", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = rows()
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--pins", action="store_true")
    parser.add_argument("--doors", default=",".join(DOORS))
    parser.add_argument("--venvs", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    given = parser.parse_args(arguments)
    if given.list or given.pins:
        show("\n".join(pins() if given.pins else (f"{name}: {wanted}" for name, wanted in known.items())))
        return 0
    doors = given.doors.split(",")
    for what, asked, there in (("row", given.rows, [*known, "here"]), ("door", doors, DOORS)):
        if strange := {*asked} - {*there}:
            parser.error(f"no {what} {', '.join(sorted(strange))}: {'; '.join(there)}")
    folder = given.venvs or Path(tempfile.mkdtemp(prefix="matrix-"))
    done: list[Row] = []
    try:
        for name in given.rows or known:
            done.append(row := Row(name, None if name == "here" else folder / name))
            row.go(known.get(name, {}), doors, given.seconds)
    except KeyboardInterrupt:
        say("ended by Ctrl-C: what is not done is not run")
    finally:
        if given.venvs is None:
            shutil.rmtree(folder)
    if given.json:
        write(given.json, json.dumps([row.as_dict() for row in done], indent=1) + "\n")
    show(table(done, doors))
    return int(any(how == FAILS for row in done for how, _ in row.doors.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
