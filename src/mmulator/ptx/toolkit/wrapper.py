"""`mmulator nvcc`: nvcc with flags by which its programs run here: CUDA's runtime as a shared library, PTX with lines."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mmulator.base.errors import MmulatorError
from mmulator.base.files import write
from mmulator.isa.chips import as_device
from mmulator.isa.targets import Target
from mmulator.ptx.toolkit.cubin import with_ptx
from mmulator.ptx.toolkit.fatbin import own_target
from mmulator.ptx.toolkit.nvcc import FLAGS, find_nvcc, start_of

_SINGLE = {"-cubin", "-ptx", "-optix-ir", "-ltoir"}  # one file for one target is made
_GENERATE, _CODE, _RUNTIME = {"-gencode", "-generate-code"}, {"-code", "-gpu-code"}, {"-cudart"}
_ARCH = {"-arch", "-gpu-architecture"}
_LINES = {"-lineinfo", "-generate-line-info", "-G", "-device-debug"}  # more than lines
# Lines of the host's code, which say where a launch was called; g++ takes nothing else from -g1.
_HOST_LINES, _HOST, _HOST_OPTIONS = ["-Xcompiler", "-g1"], {"-g", "-debug"}, {"-Xcompiler", "-compiler-options"}
_OUT, _FOLDER = {"-o", "-output-file"}, {"-odir", "-output-directory"}
_DEPENDENCIES = {"-MD", "-MMD", "-MP", "-generate-dependencies-with-compile", "-generate-nonsystem-dependencies-with-compile",
                 "-generate-dependency-targets"}  # fmt: skip
_DEPENDENCY_OF = {"-MF", "-MT", "-MQ", "-dependency-output", "-dependency-target-name"}
_FILES = {"-options-file", "-optf"}
# Flags whose next word is a value that matters here, or looks like a flag or an input.
_VALUED = {
    *_GENERATE, *_CODE, *_ARCH, *_RUNTIME, *_OUT, *_FOLDER, *_DEPENDENCY_OF, "-include", "-pre-include", "-Xcompiler", "-Xlinker",
    "-Xptxas", "-Xnvlink", "-compiler-options", "-linker-options", "-ptxas-options", "-nvlink-options",
}  # fmt: skip
# CUDA's static runtime, in any spelling.
_STATIC = re.compile(r"-l(?::lib)?cudart_static(?:\.a)?(?=,|$)|[^,]*/libcudart_static\.a(?=,|$)")
_SOURCES = (".cu", ".c", ".cc", ".cpp", ".cxx", ".ptx")

Words = list[tuple[str, str | None, list[str]]]  # flag with one dash, or ""; value, or None; the words as they were


def split(arguments: Sequence[str]) -> Words:
    """The words of a command line as flags with their values, and inputs; those of files of options in place of the file."""
    found: Words = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            found.append(("", word, [word]))
            continue
        name, equals, value = word.partition("=")
        name = "-" + name.lstrip("-")
        if name in _FILES and (value or rest):
            files = (value or rest.pop(0)).split(",")
            if all(Path(file).is_file() for file in files):
                rest[:0] = [w for file in files for w in shlex.split(Path(file).read_text(errors="surrogateescape"))]
            else:
                found.append((name, None, [word] if equals else [word, *files]))  # nvcc says what is wrong
        elif equals:
            found.append((name, value, [word]))
        elif name in _VALUED and rest:
            value = rest.pop(0)
            found.append((name, value, [word, value]))
        else:
            found.append((name, None, [word]))
    return found


def rewritten(words: Words) -> list[str]:
    """The command line of nvcc: `-cudart shared`, `-lineinfo`, lines of the host's code, PTX beside machine code,
    `-arch=native` as our device.
    """
    single = any(name in _SINGLE for name, _, _ in words)
    known = {code for name, value, _ in words if name in _GENERATE for code in _codes(value or "") if code.startswith("compute_")}
    virtual = next((v for name, value, _ in words if name in _ARCH for v in [value or ""]), "").replace("sm_", "compute_")
    named = any(name in _CODE for name, _, _ in words)
    out: list[str] = []
    said = any("cudart" in os.environ.get(name, "") for name in FLAGS)
    for name, value, given in words:
        wanted = value
        if name in _RUNTIME:
            said, wanted = True, "shared" if value == "static" else value
        elif name in _ARCH and value == "native":
            wanted = str(_own())
        elif name in _ARCH and not single and not named and (own := re.fullmatch(r"(?:sm|compute)_(\d+[af])", value or "")):
            out += ["-gencode", f"arch=compute_{own[1]},code=[compute_{own[1]},sm_{own[1]}]"]
            continue
        elif name in _ARCH and value in ("all", "all-major") and not single:  # has PTX of the last alone
            number = str(_own()).removeprefix("sm_")
            out += ["-gencode", f"arch=compute_{number},code=compute_{number}"]
        elif name in _GENERATE and not single:
            wanted = _keeping(value or "", known)
        elif name in _CODE and not single and "compute_" not in (value or "") and virtual.startswith("compute_"):
            wanted = f"{virtual},{value}"
        if wanted is None or wanted == value:
            out += [_STATIC.sub("-lcudart", word) for word in given]
        else:
            out += [given[0], wanted] if len(given) == 2 else [f"{given[0].partition('=')[0]}={wanted}"]
    names = {name for name, _, _ in words}
    lines = [] if _LINES & names else ["-lineinfo"]
    if not _HOST & names and not any(name in _HOST_OPTIONS and re.search(r"\B-g", value or "") for name, value, _ in words):
        lines += _HOST_LINES
    return [*([] if said else ["-cudart", "shared"]), *lines, *out]


def _own() -> Target:
    """The target of the device that programs find."""
    return own_target(as_device(os.environ.get("MMULATOR_DEVICE") or "sm_90"))


def _keeping(value: str, known: set[str]) -> str:
    """The value of -gencode with the PTX of its `arch=` in its `code=`. known: what has its PTX."""
    arch = re.search(r"arch=(compute_\w+)", value)
    codes = _codes(value)
    if arch is None or arch[1] in known or not any(code.startswith("sm_") for code in codes):
        return value
    known.add(arch[1])
    return f"arch={arch[1]},code=[{','.join([arch[1], *codes])}]"


def _codes(value: str) -> list[str]:
    """The text behind `code=` in a value of -gencode."""
    return re.findall(r"\b(?:sm|compute|lto)_\w+", re.sub(r"arch=\w+", "", value))


def main(arguments: Sequence[str], replace: bool = False) -> int:
    """Run nvcc; returns the exit code. Raises UnsupportedError where there is no nvcc.

    replace: nvcc takes the place of this process, unless PTX goes behind a cubin.
    """
    words = split(arguments)
    start = start_of(find_nvcc())
    for n, (name, value, _) in enumerate(words):
        if name in _OUT and value and value.startswith("/dev/"):  # ptxas would wait for ever for what it reads back from there
            with tempfile.TemporaryDirectory(prefix="mmulator-") as folder:
                out = str(Path(folder) / "out")
                code = main([*(w for _, _, given in words[:n] for w in given), "-o", out,
                             *(w for _, _, given in words[n + 1 :] for w in given)])  # fmt: skip
                if not code:
                    Path(value).write_bytes(Path(out).read_bytes())
                return code
    command = [start[1], *rewritten(words)]
    cubins = any(name == "-cubin" for name, _, _ in words)
    try:
        if replace and not cubins:
            os.execv(start[0], command)
        code = subprocess.call(command, executable=start[0])
    except OSError as error:
        raise MmulatorError(f"cannot start {start[0]}: {error.strerror}") from None
    if cubins and not code and not any(name in ("-dryrun", "-dlink", "-help", "-version") for name, _, _ in words):
        for source in (value for name, value, _ in words if value and _is_source(name, value)):
            _complete(start, words, source)
    return code


def _is_source(name: str, value: str | None) -> bool:
    return not name and (value or "").endswith(_SOURCES)


def _complete(start: tuple[str, str], words: Words, source: str) -> None:
    """Put the PTX of a source behind its cubin."""
    values = {("out" if name in _OUT else "folder"): value or "" for name, value, _ in words if name in (*_OUT, *_FOLDER)}
    cubin = Path(values.get("folder", "")) / values.get("out", f"{Path(source).stem}.cubin")
    if not cubin.is_file():
        return
    if source.endswith(".ptx"):
        write(cubin, with_ptx(cubin.read_bytes(), Path(source).read_bytes()))
        return
    dropped = {*_OUT, *_FOLDER, *_DEPENDENCIES, *_DEPENDENCY_OF, "-cubin"}
    with tempfile.TemporaryDirectory(prefix="mmulator-") as folder:
        out = Path(folder) / "k.ptx"
        flags = [w for name, value, given in words if name not in dropped and not _is_source(name, value) for w in given]
        lines = [] if _LINES & {name for name, _, _ in words} else ["-lineinfo"]
        done = subprocess.run(
            [start[1], *flags, *lines, "-ptx", source, "-o", out], executable=start[0], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace",
        )  # fmt: skip
        if done.returncode:
            print(f"mmulator: there is no PTX behind {cubin}: {done.stderr.strip()}", file=sys.stderr)
        else:
            write(cubin, with_ptx(cubin.read_bytes(), out.read_bytes()))
