"""The program behind `mmulator exec`: how it is recognised, its environment, and how it starts."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from mmulator.base.errors import MmulatorError, UnsupportedError
from mmulator.host.settings import Settings, check_variables, environment_of


def begin(arguments: list[str]) -> None:
    """Run `exec` without options of mmulator's at once. Returns where there is anything to print or to complete."""
    if not arguments or arguments[0].startswith("--") or arguments[0] == "-h" or "_MMULATOR_COMPLETE" in os.environ:
        return
    try:
        check_program(arguments)
        environment = surroundings({})
    except MmulatorError:
        return
    check_variables()
    if gathers(environment):
        return
    hint_behind(arguments)
    try:
        start(arguments, environment)
    except (MmulatorError, KeyboardInterrupt) as error:
        from mmulator.cli.app import ended

        raise SystemExit(ended(error, as_json=False)) from None


def gathers(environment: Mapping[str, str]) -> bool:
    """Whether something is looked at when the program is over: findings, profiles, traces, records."""
    settings = Settings.from_environment(environment)
    kept = settings.profile or settings.trace or settings.record or settings.replay
    return bool(settings.sanitize or settings.nan or kept)


def hint_behind(program: list[str]) -> None:
    """Print a hint where an option of mmulator's stands behind a script, which would get it: `exec prog.py --sanitize`."""
    words = [] if program[0] in ("-m", "-c") else program[1 : program.index("--") if "--" in program else None]
    ours = "--sanitize", "--sarif", "--profile", "--trace", "--autotune"
    mine = next((word for word in words if word.partition("=")[0] in ours), None)
    if mine is not None:
        told = f"note: {mine} goes to {program[0]}; options of mmulator stand before the program: mmulator exec {mine} ..."
        print(told, file=sys.stderr)


def check_program(program: list[str]) -> None:
    """Raise WrongUsage for a program that cannot be run."""
    from mmulator.cli.output import WrongUsage

    first = program[0]
    if first in ("-m", "-c"):
        if len(program) == 1:
            raise WrongUsage(f"{first} needs {'a module' if first == '-m' else 'code'} behind it")
    elif first.startswith("-") and first[:2] not in ("-m", "-c") and first != "-":
        raise WrongUsage(
            f"{first} is no option of exec", hint="options of Python are set by its environment variables, such as PYTHONOPTIMIZE"
        )
    elif first != "-" and first[:1] != "-":
        kind_of(first)


# NVIDIA's tools that ask a GPU, and what does the same here.
_NVIDIAS = {
    "compute-sanitizer": "mmulator exec --sanitize PROGRAM", "cuda-memcheck": "mmulator exec --sanitize PROGRAM",
    "ncu": "mmulator exec --profile PROGRAM", "nv-nsight-cu-cli": "mmulator exec --profile PROGRAM",
    "nsys": "mmulator exec --trace FILE.json PROGRAM", "nvprof": "mmulator exec --profile PROGRAM",
    "cuda-gdb": "mmulator debug PROGRAM",
}  # fmt: skip
PYTHON, NATIVE, SOURCE = "a script of Python", "a program", "CUDA C++"


def kind_of(name: str) -> str:
    """How a program is started: by Python, as it is, or compiled first. Raises WrongUsage for what is no program.

    name: a file, or a program on PATH where there is no such file.
    """
    from mmulator.cli.output import WrongUsage

    path = Path(name)
    if not path.exists():
        if name == "nvidia-smi":  # ours (libraries)
            return NATIVE
        if name in _NVIDIAS:
            raise WrongUsage(f"{name} needs a GPU", hint=f"in its place: {_NVIDIAS[name]}")
        found = shutil.which(name) if os.sep not in name else None
        if found:
            return kind_of(found)
        raise WrongUsage(
            f"cannot read {name}: No such file or directory", hint="exec takes what follows `python`, a program, or a .cu file"
        )
    if path.is_dir():  # with __main__.py, or Python says it
        return PYTHON
    if path.suffix == ".cu":
        return SOURCE
    try:
        with path.open("rb") as file:
            head = file.read(256)
            data = head + (file.read(1 << 26) if path.suffix in (".cuh", ".ptx", ".toml") else b"")
    except OSError as error:
        raise WrongUsage(f"cannot read {name}: {error.strerror}") from None
    if head[:4] == b"\x7fELF":
        if not os.access(path, os.X_OK):
            raise WrongUsage(f"{name} is not executable", hint=f"chmod +x {name}, if it is a program")
        return NATIVE
    if head[:2] == b"#!" and b"python" not in head.partition(b"\n")[0]:
        return NATIVE
    if path.suffix in (".cuh", ".ptx", ".toml"):
        from mmulator.ptx.text import foreign

        plain = "PTX" if path.suffix == ".ptx" else "a launch file", f"`mmulator run {name}` runs it"
        what, hint = foreign(data, name) or plain
        raise WrongUsage(f"{name} is {what}; exec runs programs", hint=hint)
    return PYTHON


def surroundings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a program: Python starts with the doors, Triton launches here, and no GPU is visible.

    settings: by name; None for those of the environment. Raises LaunchError for a wrong one there.
    """
    from mmulator.doors import imports

    environment = {**os.environ, **environment_of(settings)}
    Settings.from_environment(environment)
    folder = str(Path(__file__).parents[1] / "doors" / "startup")
    paths = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and p != folder]
    own = {"PYTHONPATH": os.pathsep.join([folder, *paths]), "MMULATOR_EXEC": sys.prefix}
    return {**environment, **own, **imports.environment()}


def start(program: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by the program. Raises UnsupportedError where a program of C++ cannot run."""
    words, environment = command(program, environment)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(words[0], words, environment)
    except OSError as error:
        from mmulator.cli.output import WrongUsage

        raise WrongUsage(f"cannot start {words[0]}: {error.strerror}") from None


def command(program: list[str], environment: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The words and the environment with which a program starts."""
    from mmulator.doors.library.files import check_libpython

    first = program[0]
    kind = PYTHON if first[:1] == "-" else kind_of(first)
    if kind == PYTHON:
        with suppress(UnsupportedError):  # another system: then there are no libraries to load
            environment = {**environment, **libraries(environment)}
            environment = {**environment, **compilers(environment)}
        script = first if first[:1] == "-" or Path(first).exists() else shutil.which(first)  # pytest, torchrun
        return [sys.executable, str(script), *program[1:]], environment
    environment = {**environment, **libraries(environment)}
    check_libpython()
    if kind == SOURCE:
        from mmulator.ptx.toolkit.building import compile_program
        from mmulator.ptx.toolkit.fatbin import own_target

        os.environ["LIBRARY_PATH"] = environment["LIBRARY_PATH"]
        settings = Settings.from_environment(environment)
        made = compile_program(first, ["-lcuda", *shlex.split(settings.nvcc_flags)], own_target(settings.device))
        return [str(made), *program[1:]], environment
    if not _calls_cuda(first):
        environment |= compilers(environment)
    here = os.sep not in first and Path(first).exists()  # not the program of that name on PATH
    return [f"./{first}" if here else first, *program[1:]], environment


def _calls_cuda(name: str) -> bool:
    """Whether a file is a program that is linked with a CUDA library: then it is no build tool."""
    path = Path(name)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        data = file.read(_LONGEST)
    return data[:4] == b"\x7fELF" and any(word in data for word in (b"libcudart.so", b"libcuda.so"))


_LONGEST = 1 << 24  # bytes of a program that are looked through


def compilers(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which build tools find `mmulator nvcc` as nvcc; none where there is no nvcc."""
    from mmulator.base.errors import UnsupportedError
    from mmulator.ptx.toolkit.nvcc import wrapper_folder

    try:
        place = wrapper_folder()
    except UnsupportedError:
        return {}
    paths = [str(place), *(p for p in environment.get("PATH", "").split(os.pathsep) if p != str(place))]
    return {"PATH": os.pathsep.join(paths), "CUDA_HOME": str(place.parent), "CUDA_PATH": str(place.parent)}


def libraries(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a program, its libraries, and programs that it starts find the CUDA libraries of this package.

    LD_PRELOAD is for programs and libraries that have the folder of NVIDIA's in them (RPATH), as torch's have.
    """
    from mmulator.doors.library.files import folder
    from mmulator.doors.library.libraries import RUNTIMES

    place = folder()

    def first(name: str, *words: str, parted: str = os.pathsep) -> str:
        return parted.join([*words, *(w for w in environment.get(name, "").split(parted) if w and w not in words)])

    return {
        "LD_LIBRARY_PATH": first("LD_LIBRARY_PATH", str(place)),
        "LIBRARY_PATH": first("LIBRARY_PATH", str(place)),
        "PATH": first("PATH", str(place / "bin")),
        "LD_PRELOAD": first("LD_PRELOAD", *(str(place / name) for name in RUNTIMES.values()), parted=" "),
        "NVCC_APPEND_FLAGS": first("NVCC_APPEND_FLAGS", "-cudart", "shared", parted=" "),
    }
