"""The adapter on standard streams, or on a port of this machine."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from mmulator.debug.dap.adapter import Adapter, Start

_HERE = "127.0.0.1"


def on_streams(start: Start) -> None:
    """Serve the client that started this process, and spoke to its standard input, until it disconnects.

    start: gives the words and the environment with which a program starts.
    """
    reads, writes = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nobody else reads the client's messages, or writes between ours
    os.dup2(2, 1)
    adapter = Adapter(reads, writes, start)
    _on_end_signals()
    adapter.serve()


def on_port(number: int, start: Start, told: Callable[[str, int], None]) -> None:
    """Serve clients that connect to a port, each with a program of its own, until Ctrl-C.

    number: of the port; 0: a free one.
    start: gives the words and the environment with which a program starts.
    told: is called with the address and the number of the port, when clients can connect.

    Raises OSError if the port cannot be used.
    """
    door = socket.create_server((_HERE, number))
    adapters: set[Adapter] = set()

    def serve(line: socket.socket) -> None:
        with line, line.makefile("rb") as reads, line.makefile("wb") as writes:
            adapter = Adapter(reads, writes, start)
            adapters.add(adapter)
            adapter.serve()
            adapters.discard(adapter)

    _on_end_signals()
    try:
        with door:
            told(*door.getsockname())
            while True:
                line, _ = door.accept()
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=serve, args=(line,), daemon=True).start()
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        for adapter in list(adapters):
            adapter.end()


def _on_end_signals() -> None:
    """End as usual when asked to: what a program left is cleaned up on the way."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
