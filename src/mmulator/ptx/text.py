"""From a file's bytes to PTX text; a file of another kind gives an error that names the kind."""

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from mmulator.base.errors import MmulatorError, OperandError
from mmulator.base.source import Source

NAMELESS = "<ptx>"  # what a text is called that came from no file; of a program if it is called so on purpose
MAX_FILE = 1 << 30  # bytes
_PIECE = 1 << 20  # bytes that are read at a time where nobody knows how many there are
_EXTRACT = "PTX is in programs, libraries, objects, archives, fatbins and cubins that nvcc was told to keep it in"
_COMPILE = "give it the name FILE.cu, and nvcc compiles it; or `nvcc -ptx -lineinfo -arch=sm_90a FILE` (docs/how-to/cuda.md)"
_ELF, _KINDS = b"\x7fELF", {1: "an object file", 2: "a program", 3: "a program or a library"}
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
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
    """(kind, hint) of a file that has no PTX, such as a zip archive; None for PTX and for unknown text."""
    if data.startswith(_ELF):
        kind = _KINDS.get(int.from_bytes(data[16:18], "little"), "an ELF file")
        return f"{kind} without kernels of CUDA (ELF)", _EXTRACT
    for magic, what, hint in _MAGIC:
        if data.startswith(magic):
            return what, hint
    if b"\0" in data:
        return "binary", _EXTRACT
    if name.endswith((".py", ".md")):
        return ("a Python program", f"mmulator exec {name}") if name[-1] == "y" else ("a page", "`mmulator exec` runs programs")
    if name.endswith((".cu", ".cuh")) or (b"__global__" in data and b".version" not in data):
        return "CUDA C++", _COMPILE
    return None


def text_of(
    data: bytes, name: str, device: str | None = None, entry: str | None = None, flags: Sequence[str] = ()
) -> tuple[str, str]:
    """(what the PTX of a file is called, the PTX), without a byte order mark.

    data, name: the bytes of the file, its path.
    device: `sm_90`, for files with PTX for several, or None.
    entry: a kernel, for files with several modules, or None.
    flags: of nvcc, which compiles a file whose name ends in `.cu`.

    Raises MmulatorError that names the kind of the file if it has no PTX, or with nvcc's errors.
    """
    if name.endswith(".cu"):
        from mmulator.ptx.toolkit.building import HOPPER, compile_ptx
        from mmulator.ptx.toolkit.fatbin import own_target

        return f"PTX of {name}", compile_ptx(name, flags, own_target(device) if device else HOPPER)
    if b"\0" in data:
        from mmulator.ptx.toolkit.binaries import holds, ptx_in

        if holds(data):
            return f"PTX of {name}", without_mark(ptx_in(data, name, device, entry))
    _check(data, name)
    return name, without_mark(data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")


def _check(data: bytes, name: str) -> None:
    found = foreign(data, name)
    if found is not None:
        raise MmulatorError(f"{name} is not PTX text: it is {found[0]}", hint=found[1])


def check_text(path: str | Path) -> None:
    """Raise MmulatorError for a file that has no PTX, before any other check of it."""
    if Path(path).is_file() and not str(path).endswith(".cu"):  # a pipe is read once
        from mmulator.ptx.toolkit.binaries import holds

        data = read_bytes(path)
        if not holds(data):
            _check(data, str(path))


def without_mark(text: str) -> str:
    """The text without the byte order mark that some editors write at its start."""
    return text.removeprefix("\ufeff")


def read_source(
    ptx: str | Path, name: str | None = None, device: str | None = None, entry: str | None = None, flags: Sequence[str] = ()
) -> Source:
    """A path or a text as a Source. Raises MmulatorError if the file cannot be read or has no PTX, and OperandError for any other
    value.

    name: of the source, for messages.
    device, entry, flags: as for `text_of`.
    """
    if isinstance(ptx, str) and ("\n" in ptx or ".version" in ptx):
        return Source(name or NAMELESS, without_mark(ptx), keep=_kept if name == NAMELESS else None)
    if isinstance(ptx, bytes | bytearray | memoryview):
        raise OperandError(f"PTX is given as text, not {type(ptx).__name__}", hint="decode it: ptx.decode()")
    if not isinstance(ptx, str | PathLike):
        raise OperandError(f"PTX is a path or the text itself, not {type(ptx).__name__}")
    if isinstance(ptx, str) and not ptx.strip():
        raise OperandError("the text is empty: neither PTX nor a path", hint="PTX starts with .version")
    called, text = text_of(read_bytes(Path(ptx)), str(Path(ptx)), device, entry, flags)
    return Source(name or called, text)


def _kept(text: str) -> Path | None:
    """A file of the cache with a text; None where nothing can be kept."""
    from mmulator.base.codegen.store import store

    kept = store()
    return kept.text(text) if kept else None


def read_bytes(path: str | Path) -> bytes:
    """The content of a file that may be PTX. Raises MmulatorError if it cannot be read, or is longer than any module can be."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, MAX_FILE) + 1)  # which reserves as much
            rest = bytearray()  # of a pipe
            while len(data) + len(rest) <= MAX_FILE and (piece := file.read(_PIECE)):
                rest += piece
            data += rest
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MmulatorError(f"cannot read {path}: {reason}") from None
    except MemoryError:
        raise MmulatorError(f"{path} does not fit into the memory of this process") from None
    if len(data) > MAX_FILE:
        raise MmulatorError(f"{path} is longer than {MAX_FILE} bytes: no PTX module is")
    return data
