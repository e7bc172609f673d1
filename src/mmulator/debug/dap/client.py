"""The client of the Debug Adapter Protocol: messages to it, and how its own are taken in."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from mmulator.debug.dap.framing import ByteStream, Garbled, Message, encode, read

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
