"""The program under the debugger, as a process of its own: its output, its end, and the line to the debugger inside it."""

import codecs
import ctypes
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PATIENCE = 2.0  # seconds that a program has to end by itself, and that its last output may take
_PR_SET_PDEATHSIG = 1  # prctl(2)


class ProgramProcess:
    """A started program.

    words, environment, folder: of the process.
    heard: is called with a text and `stdout` or `stderr`.
    joined: is called with a connected socket for each process of the program that launches kernels.
    over: is called with the exit code when the process has ended and its output was told; not after `kill`.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: str | None, heard: Callable[[str, str], None],
        joined: Callable[[socket.socket], None], over: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._heard, self._joined, self._over, self.killed = heard, joined, over, False
        self._folder = tempfile.TemporaryDirectory(prefix="mmulator-debug-")
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            address = str(Path(self._folder.name) / "door")
            self._door.bind(address)
            self._door.listen()
            debug = {"MMULATOR_DEBUG": json.dumps({"front": "dap", "address": address})}  # debug/program.py
            self.process = subprocess.Popen(
                list(words), env={**environment, **debug}, cwd=folder, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=_dies_with_us,
            )  # fmt: skip
        except BaseException:
            self._close()
            raise
        self._listeners = [
            self._thread(self._listen, getattr(self.process, name), name) for name in ("stdout", "stderr")
        ]  # fmt: skip
        self._thread(self._welcome)
        self._thread(self._wait)

    def kill(self) -> None:
        """End the program and all processes of its group, softly at first; returns when it has ended."""
        self.killed = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_PATIENCE)
        self._close()

    def terminate(self) -> None:
        """Ask the program to end. `over` is told."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGTERM)

    def _thread(self, run: Callable[..., None], *given: Any) -> threading.Thread:
        thread = threading.Thread(target=run, args=given, daemon=True)
        thread.start()
        return thread

    def _listen(self, stream: Any, name: str) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        with stream:
            while data := os.read(stream.fileno(), 1 << 16):
                if text := decode(data):
                    self._heard(text, name)

    def _welcome(self) -> None:
        with suppress(OSError):
            while True:
                self._joined(self._door.accept()[0])

    def _wait(self) -> None:
        code = self.process.wait()
        for listener in self._listeners:  # a process that was left behind may hold the pipes open
            listener.join(_PATIENCE)
        if not self.killed:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._close()
            self._over(code if code >= 0 else 128 - code)  # as a shell has it

    def _close(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._folder.cleanup()


def _dies_with_us() -> None:
    """Between fork and exec: let the kernel end the program when the adapter dies, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
