"""`mmulator doctor`: what this machine has of what mmulator can use, and what to install for the rest."""

import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from mmulator import __version__
from mmulator.base.errors import MmulatorError
from mmulator.base.versions import KNOWN, OLD, TABLE, place, untried
from mmulator.cli.output import print_json, print_line
from mmulator.cli.parser import Json
from mmulator.host.settings import INTERNAL, PREFIX, variables

HERE, MISSING, WRONG = "here", "missing", "wrong"
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")


class Part(NamedTuple):
    """One line of the answer.

    name: of the part.
    state: HERE, MISSING, or WRONG: it is there, and cannot be used as it is.
    said: its version and place; of a part that is not there what it would be for.
    todo: a command or a sentence; "" where nothing is to be done.
    """

    name: str
    state: str
    said: str
    todo: str = ""


# Libraries of programs: the package, what is possible with it, the extra of mmulator that brings it ("": pip install NAME).
_LIBRARIES = (
    *((row.package, row.purpose, row.extra) for row in TABLE.values() if row.module),
    ("distributed", "launches on a Dask cluster", "cluster"),
    ("resvg-py", "drawings as PNG", "draw"),
    ("pytest", "pytest --mmulator", ""),
)


def _install(extra: str) -> str:
    """The pip command for an extra, from the metadata of the installation."""
    try:
        wanted = [text.partition(";") for text in metadata.requires("mmulator") or ()]
    except metadata.PackageNotFoundError:  # a copy of the sources on PYTHONPATH
        return f"pip install '.[{extra}]' in a clone"
    names = [name.strip() for name, _, when in wanted if (found := _EXTRA.search(when)) and found[1] == extra]
    return "pip install " + " ".join(f"'{name}'" if re.search(r"[<>=\[]", name) else name for name in names)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python() -> Iterator[Part]:
    from mmulator.base.codegen.cpus import ARM, X86, own_architecture

    version = ".".join(map(str, sys.version_info[:3]))
    yield _of_version("Python", "python", version, f"{version}, {sys.executable}")
    here = platform.system(), platform.machine()
    todo = "" if (fits := here[0] == "Linux" and own_architecture() in (X86, ARM)) else (
        "kernels run on Linux (on Windows in WSL 2); instructions and layouts are explained anywhere")  # fmt: skip
    yield Part("system", HERE if fits else WRONG, f"{here[0]} {platform.release()} on {here[1]}", todo)


def _compiler() -> Iterator[Part]:
    version = _version("llvmlite")
    if version is None:
        yield Part("LLVM", MISSING, "runs kernels", "pip install llvmlite")
        return
    try:
        from llvmlite.binding import llvm_version_info
    except ImportError as error:
        yield Part("LLVM", WRONG, f"llvmlite {version}: {error}", "pip install --force-reinstall llvmlite")
        return
    from mmulator.base.codegen.cpus import LEVELS_OF, level_of, own_architecture
    from mmulator.base.codegen.engine import target_cpu
    from mmulator.base.codegen.shipped import shipped

    yield _of_version("LLVM", "llvmlite", version, f"{'.'.join(map(str, llvm_version_info))} (llvmlite {version})")
    try:
        name, features = target_cpu()
    except MmulatorError as error:
        yield Part("processor", WRONG, error.message, error.hint or "")
        return
    level, levels = level_of(name, features), [*LEVELS_OF.get(own_architecture(), ())]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    todo = "" if [level] == levels[:1] or not levels else "products of matrices take half as long with AVX-512" if level else (
        f"kernels run without what {levels[-1]} has, and more slowly")  # fmt: skip
    below = f"below {levels[-1]}" if levels else "of no level"
    yield Part("processor", HERE, f"{name}, {level or below}, {cores} {'core' if cores == 1 else 'cores'}", todo)
    made = shipped()
    if made is not None:
        yield Part("object code", HERE, f"{len(made):,} functions came with the package, or with a build of the same sources")
    else:
        todo = "an installation that is not editable brings it: `pip install .` in a clone"
        yield Part("object code", MISSING, "first launches compile what does not depend on a kernel (3 to 4 s)", todo)


def _cache() -> Iterator[Part]:
    from mmulator.base.codegen.store import open_store

    store, place = open_store()
    if store is None:
        yield Part("code cache", WRONG, f"{place.path or ''}: {place.reason}", "set MMULATOR_CACHE to a folder of your own")
        return
    entries, size = store.size()
    yield Part("code cache", HERE, f"{place.path}, {entries:,} entries, {size / (1 << 20):.1f} MiB")


def _libraries() -> Iterator[Part]:
    for package, purpose, extra in _LIBRARIES:
        version = _version(package)
        if version is None:
            yield Part(package, MISSING, purpose, _install(extra) if extra else f"pip install {package}")
        elif package == "triton" and "mmulator" not in {point.name for point in metadata.entry_points(group="triton.backends")}:
            todo = "install mmulator with pip, not by PYTHONPATH"
            yield Part("triton", WRONG, f"{version} does not find mmulator's plug-in", todo)
        else:
            yield _of_version(package, package, version, f"{version}: {purpose}")


def _of_version(name: str, package: str, version: str, said: str, todo: str = "") -> Part:
    """A part whose version is in the table of versions, or too old, or untried.

    name: of the part.
    package: its row of the table.
    said: what is said of a version that is known.
    todo: what is to be done then.
    """
    where = place(package, version) if package in TABLE else KNOWN
    if where == OLD:
        return Part(name, WRONG, f"{version} is too old: mmulator works with {TABLE[package].range}", TABLE[package].mend)
    return Part(name, HERE, said, todo if where == KNOWN else untried(package, version))


def _nvcc() -> Iterator[Part]:
    from mmulator.ptx.toolkit.nvcc import find_nvcc, version_of

    gcc = shutil.which("g++")
    try:
        path = find_nvcc()
    except MmulatorError:
        yield Part("nvcc", MISSING, TABLE["nvcc"].purpose, _install("nvcc"))
    else:
        release = re.search(r"release ([\d.]+)", version_of(path))
        if release is None:
            yield Part("nvcc", WRONG, f"{path} does not say its version", f"run `{path} --version`")
        else:
            yield _of_version("nvcc", "nvcc", release[1], f"{release[1]}, {path}")
    if gcc is None:
        yield Part("g++", MISSING, "nvcc needs it", "apt install g++")


def _gpu() -> Iterator[Part]:
    cards = sorted(p for p in Path("/dev").glob("nvidia*") if p.name[6:].isdigit()) or list(Path("/dev").glob("dxg"))
    if not cards:
        yield Part("GPU", MISSING, "nothing needs one; with one, bits are compared: --compare-gpu")
    elif _version("cuda-bindings") is None:
        yield Part("GPU", WRONG, f"{len(cards)}, and no cuda-bindings to compare bits with", _install("gpu"))
    else:
        said = f"{len(cards)}, which plain `python` keeps; under `mmulator exec` a program has a model of one (--device)"
        todo = "compare the model's bits with it: `mmulator run FILE --compare-gpu`, `mmulator conformance --gpu`"
        yield Part("GPU", HERE, said, todo)


def _variables() -> Iterator[Part]:
    names = variables()
    for name, value in sorted(os.environ.items()):
        word = name.removeprefix(PREFIX)
        if word != name and word not in INTERNAL:
            known = word in names
            mend = "" if known else "no variable of mmulator's: docs/reference/settings.md"
            yield Part(name, HERE if known else WRONG, value, mend)


CHECKS: tuple[Callable[[], Iterator[Part]], ...] = (_python, _compiler, _cache, _libraries, _nvcc, _gpu, _variables)


def parts() -> list[Part]:
    """All lines of the answer."""
    return [part for check in CHECKS for part in check()]


def doctor(json: Json = False) -> None:
    """A report on this machine: the libraries and devices that mmulator can use.

    A part that is missing has a line with what it would be for, and what to install. Nothing is installed or changed.

    The exit code is 1 if something that is there cannot be used as it is.
    """
    found = parts()
    wrong = any(part.state == WRONG for part in found)
    if json:
        print_json("doctor", {"ok": not wrong, "version": __version__, "parts": [part._asdict() for part in found]})
    else:
        _tell(found)
    if wrong:
        raise SystemExit(1)


def _tell(found: list[Part]) -> None:
    print(f"mmulator {__version__}, {Path(__file__).parents[1]}")
    widest = max(len(part.name) for part in found)
    left = " " * (widest + 11)
    for part in found:
        print_line(f"{part.state:7}  {part.name:{widest}}  {part.said}", len(left))
        if part.todo:
            print_line(f"{left}{part.todo}", len(left))
