"""The client of the Debug Adapter Protocol: messages to it, and how its own are taken in; on the stream a header with the length,
and JSON (Debug Adapter Protocol 1.71, "Base Protocol").
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, Protocol

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


Body = Mapping[str, Any] | None


class RefusedRequest(Exception):
    """A request that cannot be done. The text says why, for people. word: the protocol's short word for it, or ""."""

    def __init__(self, message: str, word: str = "") -> None:
        super().__init__(message)
        self.word = word


class Client:
    """Responses and events, each with a number, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self._lock, self._count = stream, threading.Lock(), 0

    def event(self, name: str, body: Body = None) -> None:
        """Tell of something that happened."""
        self.say({"type": "event", "event": name, **({} if body is None else {"body": body})})

    def respond(self, request: Message, body: Body = None) -> None:
        """Answer a request that was done."""
        self.say({**_answer(request, True), **({} if body is None else {"body": body})})

    def refuse(self, request: Message, error: RefusedRequest) -> None:
        """Answer a request that was not done."""
        text = str(error)
        shown = {"id": 1, "format": text.replace("{", "(").replace("}", ")"), "showUser": False}  # braces name variables there
        self.say({**_answer(request, False), "message": error.word or text, "body": {"error": shown}})

    def output(self, text: str, category: str = "console") -> None:
        """Show people a text: of the `console`, or of the program's `stdout` or `stderr`."""
        self.event("output", {"category": category, "output": text})

    def say(self, message: Message) -> None:
        """Send a message, with the next number."""
        with self._lock:
            self._count += 1
            self._write({**message, "seq": self._count})

    def ask(self, request: Message) -> None:
        """Pass a request on, with the number that it has."""
        with self._lock:
            self._write(request)

    def _write(self, message: Message) -> None:
        data = encode(message)
        with suppress(OSError, ValueError):  # who listened is gone, or the stream is closed
            self.stream.write(data)
            self.stream.flush()


def _answer(request: Message, success: bool) -> Message:
    number, command = request.get("seq"), request.get("command")
    return {
        "type": "response", "request_seq": number if _whole(number) else 0, "success": success,
        "command": command if isinstance(command, str) else "",
    }  # fmt: skip


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def listen(stream: ByteStream, client: Client, take: Callable[[Message], None]) -> None:
    """Read messages until the stream ends, and give each request to a function; answer what is no request."""
    while True:
        try:
            message = read(stream)
        except Garbled as error:
            client.output(f"mmulator: a message of the client cannot be read: {error}\n")
            if error.over:
                return
            continue
        except (OSError, ValueError):
            return
        if message is None:
            return
        if message.get("type") in ("response", "event"):
            continue  # the adapter asks clients nothing
        wrong = (
            f"type: request is needed, not {message.get('type')!r}" if message.get("type") != "request"
            else f"seq: a whole number is needed, not {message.get('seq')!r}" if not _whole(message.get("seq"))
            else f"command: a text is needed, not {message.get('command')!r}" if not isinstance(message.get("command"), str)
            else ""
        )  # fmt: skip
        if wrong:
            client.refuse(message, RefusedRequest(wrong))
        else:
            take(message)
