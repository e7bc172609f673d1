"""CUDA C++ compiled by nvcc, and kept: the PTX of a source, or a program.

Whatever a result depends on is in its key: the source and every header by its bytes, the flags, the folder, nvcc's version. Which
headers a source has is known from the last time that it was compiled.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mmulator.base.codegen.store import store
from mmulator.base.errors import MmulatorError
from mmulator.base.versions import check
from mmulator.isa.targets import Target
from mmulator.ptx.toolkit.fatbin import keeping
from mmulator.ptx.toolkit.nvcc import FLAGS, find_nvcc, names_target, run_nvcc, start_of, version_of

HOPPER = Target(90, "a")
# What nvcc and g++ read, too.
_READ = (*FLAGS, "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "NVCC_CCBIN", "PATH")


def compile_ptx(path: str | Path, flags: Sequence[str] = (), target: Target = HOPPER) -> str:
    """The PTX of a source, with the lines of the source in it.

    flags: of nvcc, beside ours. target: what it is compiled for, unless the flags say.

    Raises MmulatorError with nvcc's own errors, UnsupportedError where there is no nvcc.
    """
    lines = () if {"-G", "--device-debug"} & {*flags} else ("-lineinfo",)
    out = _built(path, ["-ptx", *lines, *(() if names_target(flags) else (f"-arch={target}",)), *flags])
    text = out.read_text(errors="replace")
    if store() is None:
        shutil.rmtree(out.parent)
    return text


def compile_program(path: str | Path, flags: Sequence[str] = (), target: Target = HOPPER) -> Path:
    """The path of the program that nvcc makes of a source, linked with CUDA's runtime as a shared library.

    flags: of nvcc, beside ours. target: what it is compiled for, unless the flags say.

    Raises MmulatorError with nvcc's own errors, UnsupportedError where there is no nvcc.
    """
    lines = ("-lineinfo", "-g")
    return _built(path, ["-cudart", "shared", *lines, *(() if names_target(flags) else keeping(target).split()), *flags])


def _built(path: str | Path, flags: Sequence[str]) -> Path:
    """Files that nvcc makes of a source: kept, or, where nothing can be kept, in a new folder of its own."""
    name = str(path) if not str(path).startswith("-") else f"./{path}"
    if not Path(name).is_file():
        raise MmulatorError(f"cannot read {path}: {'Is a directory' if Path(name).is_dir() else 'No such file or directory'}")
    nvcc, kept = find_nvcc(), store()
    version = version_of(nvcc)
    if release := version.partition("release ")[2]:
        check("nvcc", release.partition(",")[0])
    given = [str(nvcc), version, str(Path.cwd()), name, *flags, *(f"{n}={os.environ.get(n)}" for n in _READ)]
    own = _digest("\0".join(["nvcc", *given]).encode())
    if kept and (files := kept.read(own)) is not None and (key := _key(own, json.loads(files))) and (found := kept.file(key)):
        return found
    folder = Path(tempfile.mkdtemp(prefix="mmulator-"))
    out, depends = folder / Path(name).stem, folder / "depends"
    try:
        run_nvcc(start_of(nvcc), [*flags, name, "-o", str(out), "-MD", "-MF", str(depends)], str(path))
        if kept:
            files = json.dumps(_files(depends.read_text(errors="surrogateescape"), name)).encode()
            kept.write(own, files)
            if (key := _key(own, json.loads(files))) and (found := kept.keep(key, out)):
                out = found
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if out.parent != folder:
        shutil.rmtree(folder, ignore_errors=True)
    return out


def _files(rule: str, name: str) -> list[str]:
    """The files behind the colon of a rule of make."""
    behind = rule.partition(" : ")[2].replace("\\\n", " ")
    return [name, *(w.replace("\0", " ") for w in behind.replace("\\ ", "\0").split() if w != name)]


def _key(own: str, files: Sequence[str]) -> str | None:
    """The key of a result, by the bytes of its files; None if a file is no longer there."""
    try:
        return _digest("\0".join([own, *(_digest(Path(file).read_bytes()) for file in files)]).encode())
    except OSError:
        return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
