"""From a file's bytes to PTX text; a file of another kind gives an error that names the kind."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from mmulator.errors import MmulatorError, OperandError
from mmulator.source import Source

MAX_FILE = 1 << 30  # bytes
_EXTRACT = "`cuobjdump -ptx FILE` (of the CUDA toolkit) prints the PTX that a fatbin, object or program holds; a cubin holds none"
# NVIDIA's compiler comes in these packages, and calls g++.
NVCC = "pip install nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-cccl nvidia-cuda-runtime"
_COMPILE = f"`nvcc -ptx -lineinfo -arch=sm_90a FILE` makes PTX; nvcc needs g++ and no GPU: `{NVCC}` (docs/cuda.md)"
_ELF, _OF_CUDA, _KINDS = b"\x7fELF", 190, {1: "an object file", 2: "a program", 3: "a program or a library"}
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x50\xed\x55\xba", "a fatbin, which has PTX where it was compiled with it", _EXTRACT),
    (b"\x1f\x8b", "compressed by gzip", "unpack it first: gunzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it first: unzstd"),
    (b"\xfd7zXZ", "compressed by xz", "unpack it first: unxz"),
    (b"BZh", "compressed by bzip2", "unpack it first: bunzip2"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"BC\xc0\xde", "LLVM bitcode", "llc makes PTX of it"),
    (b"\xff\xfe", "text in UTF-16", "PTX text is ASCII: iconv -f utf-16 -t utf-8"),
    (b"\xfe\xff", "text in UTF-16", "PTX text is ASCII: iconv -f utf-16 -t utf-8"),
)


def foreign(data: bytes, name: str) -> tuple[str, str] | None:
    """(kind, hint) of a file that is not PTX text, such as a cubin; None for PTX and for unknown text."""
    if data.startswith(_ELF):
        kind = int.from_bytes(data[16:18], "little"), int.from_bytes(data[18:20], "little")
        if kind[1] == _OF_CUDA:
            return "a cubin: machine code of a GPU, without PTX", f"compile to PTX: {_COMPILE}"
        what = _KINDS.get(kind[0], "an ELF file")
        if b".nv_fatbin" in data:
            return f"{what} with kernels of CUDA in it", f"{_EXTRACT}; programs of C++ are not run yet"
        return f"{what} without kernels of CUDA (ELF)", _EXTRACT
    for magic, what, hint in _MAGIC:
        if data.startswith(magic):
            return what, hint
    if b"\0" in data:
        return "binary", _EXTRACT
    if name.endswith((".cu", ".cuh")) or (b"__global__" in data and b".version" not in data):
        return "CUDA C++", _COMPILE
    return None


def text_of(data: bytes, name: str) -> str:
    """The text of a file, without a byte order mark. Raises MmulatorError that names the kind of the file if it is not text."""
    found = foreign(data, name)
    if found is not None:
        raise MmulatorError(f"{name} is not PTX text: it is {found[0]}", hint=found[1])
    return without_mark(data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")


def check_text(path: str | Path) -> None:
    """Raise MmulatorError for a file that is not PTX text, before any other check of it."""
    if Path(path).is_file():  # a pipe is read once
        text_of(read_bytes(path), str(path))


def without_mark(text: str) -> str:
    """The text without the byte order mark that some editors write at its start."""
    return text.removeprefix("\ufeff")


def read_source(ptx: str | Path, name: str | None = None) -> Source:
    """A path or a text as a Source. Raises MmulatorError if the file cannot be read or is not text, and OperandError for any
    other value.
    """
    if isinstance(ptx, str) and ("\n" in ptx or ".version" in ptx):
        return Source(name or "<ptx>", without_mark(ptx))
    if isinstance(ptx, bytes | bytearray | memoryview):
        raise OperandError(f"PTX is given as text, not {type(ptx).__name__}", hint="decode it: ptx.decode()")
    if not isinstance(ptx, str | PathLike):
        raise OperandError(f"PTX is a path or the text itself, not {type(ptx).__name__}")
    if isinstance(ptx, str) and not ptx.strip():
        raise OperandError("the text is empty: neither PTX nor a path", hint="PTX starts with .version")
    return Source(name or str(Path(ptx)), text_of(read_bytes(Path(ptx)), str(Path(ptx))))


def read_bytes(path: str | Path) -> bytes:
    """The content of a file that may be PTX. Raises MmulatorError if it cannot be read, or is longer than any module can be."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MmulatorError(f"cannot read {path}: {reason}") from None
    except MemoryError:
        data = bytes(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise MmulatorError(f"{path} is longer than {MAX_FILE} bytes: no PTX module is")
    return data
