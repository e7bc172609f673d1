"""The folder of shared libraries: libcudart.so.12 and .13, libcuda.so.1, and libcuda.so to link against; and of nvidia-smi.

The libraries know the Python that made them: where its shared library, its standard library and its packages lie. So a program
needs no more than to find the folder. It lies in the code cache, one for each installation and version of the package. A wheel
has the libraries with marks in place of these facts (tools/ship.py); otherwise they are made here.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from mmulator.base.codegen.sources import PACKAGE, fingerprint
from mmulator.base.codegen.store import store
from mmulator.base.errors import UnsupportedError
from mmulator.base.files import write
from mmulator.doors.library.libraries import BLAS, RUNTIMES
from mmulator.doors.library.machines import HERE, MARKS, ROOM

if TYPE_CHECKING:  # what makes libraries knows all of the compiler: it is imported when one is made
    from mmulator.doors.library.elf import Exports
    from mmulator.doors.library.machines import MachineCode

DRIVER = "libcuda.so.1"
LIBRARIES = (*RUNTIMES.values(), DRIVER, *BLAS)
LINKS = {
    "libcuda.so": DRIVER, "libcudart.so": RUNTIMES[13], "libcublas.so": "libcublas.so.13", "libcublasLt.so": "libcublasLt.so.13",
}  # fmt: skip
# Their files say what the libraries export.
_FOLDERS = ("doors/library", "doors/cudart", "doors/graphs", "doors/libcuda", "doors/cublas")
# What the first call runs. In a program of C++ Ctrl-C stays the program's: Python has put a handler there as it began. Another
# version of Python than the one that made the library cannot have its packages. mmulator is the one that made the library, also
# where the program's PYTHONPATH names another one before it.
_SCRIPT = """exec('''
import _signal, sys
if not sys.orig_argv and _signal.getsignal(2) is _signal.default_int_handler:
    _signal.signal(2, _signal.SIG_DFL)
if sys.version_info[:2] != {version}:
    raise SystemExit("mmulator: this library is for Python {version[0]}.{version[1]}, and the process has another")
sys.path.insert(0, {path}[0])
import mmulator
del sys.path[0]
sys.path[:0] = [p for p in {path} if p not in sys.path]
from mmulator.doors.library.start import begin
begin({soname!r})
''', dict(__name__='mmulator'))"""


@cache
def libpython() -> Path:
    """The shared library of this Python; where there is none, the name that it would have."""
    import sysconfig

    own = f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so.1.0"
    name, folders = sysconfig.get_config_var("INSTSONAME") or "", [sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"]
    names = [n for n in (name, own) if ".so" in n]
    places = [Path(folder, n) for folder in folders if folder for n in names]
    multi = sysconfig.get_config_var("MULTIARCH")
    places += [Path("/usr/lib", multi, n) for n in names if multi]
    return next((p for p in places if p.exists()), Path(own))


def check_libpython() -> None:
    """Raise UnsupportedError where this Python has no shared library, which programs of C++ need."""
    if not libpython().is_absolute():
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise UnsupportedError(
            f"programs of C++ need a shared library of Python, and {sys.executable} has none (libpython{version}.so)",
            hint=f"apt install libpython{version}, or a Python of conda, uv or pyenv --enable-shared",
        )


def strings(soname: str) -> dict[str, str]:
    """Facts of this Python that a library knows (boot.UNSAID)."""
    home = sys.base_prefix if sys.base_prefix == sys.base_exec_prefix else f"{sys.base_prefix}:{sys.base_exec_prefix}"
    script = _SCRIPT.format(version=tuple(sys.version_info[:2]), path=packages(), soname=soname)
    return {"libpython": str(libpython()), "home": home, "script": script}


def packages() -> list[str]:
    """The folders of this Python's packages, that of mmulator first."""
    installed = [p for p in sys.path if "site-packages" in p or "dist-packages" in p]
    return list(dict.fromkeys([str(Path(__file__).resolve().parents[3]), *installed]))


def made(soname: str, said: Mapping[str, str]) -> Exports:
    """Names that a library exports. said: facts of a Python, as `strings` has them."""
    from mmulator.doors.library.elf import Exports

    if soname == DRIVER:
        from mmulator.doors.libcuda.loading import names

        plain, noted = names()
        return Exports(soname, plain, noted, strings=said)
    if soname in BLAS:
        from mmulator.doors.cublas.names import slots as functions

        return Exports(soname, functions(soname), version=soname, strings=said)
    from mmulator.doors.cudart.table import OF_NVRTC, slots

    plain, logged, texts = slots(next(v for v, name in RUNTIMES.items() if name == soname))
    return Exports(soname, plain, (), logged, texts, soname, OF_NVRTC, said)


def shipped(soname: str) -> str:
    """The name of a library among a wheel's objects, with these files' fingerprint."""
    return f"{soname}.{fingerprint(_FOLDERS)[:16]}"


def _library(soname: str, host: MachineCode) -> bytes:
    """The bytes of a library: those of the wheel with the facts of this Python, or new ones."""
    said = strings(soname)
    try:
        data = (PACKAGE / "objects" / shipped(soname)).read_bytes()
    except OSError:
        data = b""
    words = {mark: said[name].encode() for name, mark in MARKS.items()}
    if data and max(map(len, words.values())) < ROOM:
        for mark, word in words.items():
            data = data.replace(mark.encode().ljust(ROOM, b"\0"), word.ljust(ROOM, b"\0"))
        return data
    from mmulator.doors.library.elf import library

    return library(made(soname, said), host)


def folder() -> Path:
    """The folder of the libraries, which are made where they are not there yet. Raises UnsupportedError on other systems."""
    place = _folder()
    if not (place / "complete").exists():  # the cache was cleared since
        _folder.cache_clear()
        place = _folder()
    return place


@cache
def _folder() -> Path:
    if HERE is None:
        system = f"{platform.system()} {platform.machine()}"
        raise UnsupportedError(f"programs of C++ do not run on {system}", hint="Linux on x86-64 or aarch64")
    about = "\0".join([fingerprint(_FOLDERS), sys.prefix, *packages(), sys.version])
    name = f"libraries-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    kept = store()
    base = kept.path if kept else Path(tempfile.mkdtemp(prefix="mmulator-"))
    place = base / name
    if not (place / "complete").exists():
        place.mkdir(mode=0o700, exist_ok=True)
        for soname in LIBRARIES:
            write(place / soname, _library(soname, HERE), mode=0o700)
        for link, target in LINKS.items():
            with suppress(FileExistsError):
                (place / link).symlink_to(target)
        (place / "bin").mkdir(mode=0o700, exist_ok=True)
        write(place / "bin" / "nvidia-smi", f'#!/bin/sh\nexec {quote(sys.executable)} -m mmulator.cli.smi "$@"\n', mode=0o700)
        write(place / "complete", b"", mode=0o700)
    return place
