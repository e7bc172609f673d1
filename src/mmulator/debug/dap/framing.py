"""Messages of the Debug Adapter Protocol on a stream of bytes: a header with the length, and JSON.

Debug Adapter Protocol 1.71, "Base Protocol".
"""

import json
import re
from typing import Any, Protocol

Message = dict[str, Any]
LONGEST_LINE, LONGEST = 4096, 1 << 26  # bytes of a line of a header, of a message
_FIELD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:.*\r?\n")


class ByteStream(Protocol):
    """A stream that messages are read from."""

    def readline(self, size: int, /) -> bytes: ...
    def read(self, size: int, /) -> bytes: ...


class Garbled(Exception):
    """Bytes that are no message. over: the place of the next message is unknown, so that nothing further can be read."""

    def __init__(self, message: str, over: bool) -> None:
        super().__init__(message)
        self.over = over


def read(stream: ByteStream) -> Message | None:
    """The next message; None at the end of the stream. Raises Garbled."""
    length: int | None = None
    first = True
    while (line := stream.readline(LONGEST_LINE)) not in (b"\r\n", b"\n"):
        if not line and first:
            return None
        if not _FIELD.fullmatch(line):
            raise Garbled(f"a header `Content-Length: N` is needed, not {line[:40]!r}", over=True)
        first = False
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            text = value.strip()
            if not re.fullmatch(rb"\d{1,9}", text) or int(text) > LONGEST:
                raise Garbled(f"Content-Length: a number of at most {LONGEST} is needed, not {text[:40]!r}", over=True)
            length = int(text)
    if length is None:
        raise Garbled("a header without Content-Length", over=True)
    data = stream.read(length)
    if len(data) < length:
        raise Garbled(f"the stream ended {length - len(data)} bytes before the message did", over=True)
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Garbled(f"the content is no JSON: {error}", over=False) from None
    if not isinstance(message, dict):
        raise Garbled(f"a message is a JSON object, not {type(message).__name__}", over=False)
    return message


def encode(message: Message) -> bytes:
    """A message as bytes, with its header."""
    data = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
    return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)
