"""A release, but the upload: python -m tools.release [--check] [--draft] [--only WHEEL,...] [FOLDER]

--check says what stands in the way and builds nothing. --draft builds whatever stands in the way, and says so in the notes.
Files go to FOLDER (dist): the sdist, a wheel for each of WHEELS, the release notes, sums of the files. The exit code is 0 only if
nothing stood in the way, no file is too large, and both README's commands ran in a fresh environment, from the sdist and from
the wheel of this machine.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.release.facts import Facts, notes, obstacles

ROOT = Path(__file__).parents[2]
# wheel: MMULATOR_SHIP of its build (hatch_build.py)
WHEELS = {"x86_64": "release-x86_64", "aarch64": "release-aarch64", "any": "0"}
LIMITS = {".gz": 3_000_000, ".whl": 25_000_000}  # bytes
UNWANTED = ("vectors/", "build/", "dist/", "tests/laws/", "tests/data/", "tests/chapters/")  # in an sdist
SHIPPED = "from mmulator.base.codegen.shipped import shipped; assert shipped(), 'no object code'"
GOOD = "bit-identical to the H200 reference: yes"


def run(words: list[str | Path], **environment: str) -> str:
    """Standard output of a command; its errors end the release."""
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode} of {' '.join(map(str, words))}\n{done.stdout}")
    return done.stdout


def faults(path: Path) -> Iterator[str]:
    """What is wrong with a file that was built: its size, its contents."""
    limit, size = LIMITS[path.suffix], path.stat().st_size
    if size > limit:
        yield f"{path.name} has {size:,} bytes, of at most {limit:,}"
    if path.suffix == ".gz":
        with tarfile.open(path) as packed:
            names = [name.partition("/")[2] for name in packed.getnames()]
        yield from (f"{path.name} has {name}" for name in names if name.startswith(UNWANTED))


def first_commands(readme: str) -> list[str]:
    """The commands that README.md begins with, without the tests: pip's, and the first run."""
    found = re.search(r"\n\n((?:    .+\n)+)", readme)
    lines = [line.partition("  #")[0].strip() for line in found[1].splitlines()] if found else []
    wanted = [line for line in lines if "pytest" not in line]
    if [line.split()[0] for line in wanted] != ["pip", "mmulator"]:
        raise ValueError(f"README.md begins with other commands than pip and mmulator: {wanted}")
    return wanted


def trial(path: Path) -> None:
    """README's first commands in a fresh environment, with a built file in place of the clone."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        run([sys.executable, "-m", "venv", folder / "venv"])
        install, launch = (command.split() for command in first_commands((ROOT / "README.md").read_text()))
        programs = folder / "venv" / "bin"
        run([programs / install[0], *(str(path) if word == "." else word for word in install[1:]), "--quiet"])
        own = {"MMULATOR_CACHE": str(folder / "cache"), "PYTHONPATH": ""}
        said = run([programs / launch[0], *launch[1:]], **own)
        if GOOD not in said:
            raise SystemExit(f"{path.name}: `{' '.join(launch)}` did not say {GOOD!r}\n{said}")
        if path.suffix == ".gz" or platform.machine() in path.name:
            run([programs / "python", "-c", SHIPPED], **own)


def build(folder: Path, wheels: list[str]) -> list[Path]:
    """The sdist, and wheels by their names in WHEELS."""
    before = set(folder.glob("*"))
    print("sdist", flush=True)
    run([sys.executable, "-m", "build", "--sdist", "--outdir", folder])
    for name in wheels:
        print(f"wheel {name}", flush=True)
        run([sys.executable, "-m", "build", "--wheel", "--outdir", folder], MMULATOR_SHIP=WHEELS[name])
    return sorted(set(folder.glob("*")) - before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--draft", action="store_true")
    parser.add_argument("--only", default=",".join(WHEELS), metavar="WHEEL,...")
    options = parser.parse_args()
    wheels = options.only.split(",")
    if unknown := set(wheels) - set(WHEELS):
        parser.error(f"--only {','.join(sorted(unknown))}: there are {', '.join(WHEELS)}")
    found = obstacles(ROOT)
    for line in found:
        print(f"in the way: {line}")
    if options.check or (found and not options.draft):
        return bool(found)
    if options.folder.exists():
        shutil.rmtree(options.folder)  # what an earlier release left would be uploaded with this one
    options.folder.mkdir(parents=True)
    files = build(options.folder, wheels)
    run([sys.executable, "-m", "twine", "check", "--strict", *files])
    wrong = [line for path in files for line in faults(path)]
    for path in files:
        print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)
        if path.suffix == ".gz" or path.stem.endswith((platform.machine(), "any")):
            trial(path)
            print("  README's commands run in a fresh environment", flush=True)
    text = notes(ROOT) + "".join(f"\nNot fit for release: {line}.\n" for line in (*found, *wrong))
    (options.folder / "NOTES.md").write_text(text)
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (options.folder / "SHA256SUMS").write_text(sums)
    for line in wrong:
        print(f"wrong: {line}")
    if found or wrong:
        return 1
    version = Facts.of(ROOT).version
    print(f"ready: twine upload {options.folder}/mmulator-{version}* and the tag v{version} with NOTES.md as its text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
