"""The adapter on standard streams, or on a port of this machine."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

from mmulator.observation.debug.dap.adapter import Adapter, Start

_HERE = "127.0.0.1"
_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_streams(start: Start) -> None:
    """Serve the client that started this process, and spoke to its standard input, until it disconnects.

    start: gives the words and the environment with which a program starts.
    """
    reads, writes = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nobody else reads the client's messages, or writes between ours
    os.dup2(2, 1)
    adapter = Adapter(reads, writes, start)
    try:
        if number := _until_asked(adapter.serve):
            raise SystemExit(128 + number)
    finally:
        adapter.end()


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

    def accept() -> None:
        told(*door.getsockname())
        while True:
            line, _ = door.accept()
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(line,), daemon=True).start()

    try:
        if (number := _until_asked(accept)) != signal.SIGINT:
            raise SystemExit(128 + number)
        print(file=sys.stderr)
    finally:
        for adapter in list(adapters):
            adapter.end()


def _until_asked(serve: Callable[[], None]) -> int:
    """Serve in a thread; give the number of the signal that asked to end, or 0 when nothing more is to be served.

    The signal itself wakes this thread: an exception of its handler could be lost, and a call that is just about to wait for a
    client would not hear of it.
    """
    wakes, wake = socket.socketpair()
    wake.setblocking(False)
    for asking in _END:
        signal.signal(asking, lambda number, frame: None)
    signal.set_wakeup_fd(wake.fileno())

    def run() -> None:
        try:
            serve()
        finally:
            wake.send(b"\0")

    threading.Thread(target=run, daemon=True).start()
    while (number := wakes.recv(1)[0]) not in (0, *_END):
        pass
    return number
