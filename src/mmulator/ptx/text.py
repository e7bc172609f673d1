"""PTX text out of a file's bytes, or what the file is instead."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from mmulator.errors import MmulatorError, OperandError
from mmulator.source import Source

MAX_FILE = 1 << 30  # bytes
_EXTRACT = "`cuobjdump -ptx FILE` prints the PTX that a fatbin, object or program holds; a cubin holds none"
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x7fELF", "an ELF file (a cubin, an object or a program)", _EXTRACT),
    (b"\x50\xed\x55\xba", "a fatbin", _EXTRACT),
    (b"\x1f\x8b", "compressed by gzip", "unpack it first: gunzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it first: unzstd"),
    (b"\xfd7zXZ", "compressed by xz", "unpack it first: unxz"),
    (b"BZh", "compressed by bzip2", "unpack it first: bunzip2"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"BC\xc0\xde", "LLVM bitcode", "llc makes PTX of it"),
    (b"\xff\xfe", "text in UTF-16", "PTX text is ASCII: iconv -f utf-16 -t utf-8"),
    (b"\xfe\xff", "text in UTF-16", "PTX text is ASCII: iconv -f utf-16 -t utf-8"),
)


def text_of(data: bytes, name: str) -> str:
    """The text of a file, without a byte order mark. Raises MmulatorError, saying what it is, if it is not text."""
    for magic, what, hint in _MAGIC:
        if data.startswith(magic):
            raise MmulatorError(f"{name} is not PTX text: it is {what}", hint=hint)
    if b"\0" in data:
        raise MmulatorError(f"{name} is not PTX text: it is binary", hint=_EXTRACT)
    return without_mark(data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")


def without_mark(text: str) -> str:
    """A text without the byte order mark that some editors put in front."""
    return text.removeprefix("\ufeff")


def read_source(ptx: str | Path, name: str | None = None) -> Source:
    """A path or a text as a Source. Raises MmulatorError if it cannot be read, or is not text; OperandError for neither."""
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
    """What is in a file that may be PTX. Raises MmulatorError if it cannot be read, or is longer than any module."""
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
