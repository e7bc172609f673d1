"""The other side of `shadow.py`: a process without CUDA that runs launches on copies of memory, as it is told.

A request is a pickled dictionary behind its length in four bytes, on standard input; an answer likewise, on standard output.
Memory is in a file that both sides have mapped. A request has: ptx, kernel, device, grid, block, cluster, shared, params
(bytes), regions (a kernel's address, offset in the file, bytes, label), timeout in seconds. An answer has: verdict (`ran`,
`not supported`, `fault`, `failed`), reason, seconds, notes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import struct
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

LENGTH = struct.Struct("<I")


def send(pipe: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """The next message. Raises EOFError when the other side is gone."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    size = LENGTH.unpack(head)[0]
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


@lru_cache(16)
def _loaded(ptx: str, device: str) -> Any:
    from mmulator.host.driver import LoadedModule

    return LoadedModule(ptx, "kernel.ptx", device)


def run(request: dict[str, Any], base: int) -> dict[str, Any]:
    """One launch on the memory at `base`."""
    from mmulator.errors import ExecutionFault, MmulatorError, UnsupportedError
    from mmulator.host.driver import Driver, Region, Settings

    started = time.perf_counter()
    notes: list[str] = []
    try:
        driver = Driver(Settings(device=request["device"], threads=1, timeout=request["timeout"]))
        function = _loaded(request["ptx"], request["device"]).function(request["kernel"])
        params = bytearray(function.parameter_bytes)
        given = request["params"]
        for at, data in zip(function.offsets, given):
            params[at : at + len(data)] = data
        regions = []
        for start, offset, size, label in request["regions"]:
            regions.append(region := Region(start, size, label))
            region.host = base + offset
        report = driver.launch(
            function, request["grid"], request["block"], params, regions, request["shared"], cluster=request["cluster"]
        )
        verdict, reason, notes = "ran", "", [str(note) for note in report.notes]
    except UnsupportedError as error:
        verdict, reason = "not supported", error.message
    except ExecutionFault as error:
        verdict, reason = "fault", f"{error.kind}: {error}"
    except MmulatorError as error:
        verdict, reason = "failed", f"{error.kind}: {error}"
    except Exception as error:  # what the other side must hear of, whatever it is
        verdict, reason = "failed", f"{type(error).__name__}: {error}"
    return {"verdict": verdict, "reason": reason[:600], "seconds": time.perf_counter() - started, "notes": notes}


def main(path: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what kernels print does not belong between answers
    with Path(path).open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    while True:
        try:
            request = receive(sys.stdin.buffer)
        except EOFError:
            return
        send(answers, run(request, base))


if __name__ == "__main__":
    main(sys.argv[1])
