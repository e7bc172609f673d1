"""A process between the judge and what it judges: processes that this one starts stay below it, and end with it.

It is run as a file by a bare Python, so it imports nothing of the package. A process whose parent has ended belongs to the
nearest ancestor that asked for such (PR_SET_CHILD_SUBREAPER of Linux): here to the warden.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def below(pid: int) -> list[int]:
    """All processes below a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        more = children.get(waiting.pop(), [])
        found += more
        waiting += more
    return found


def end_all_below(pid: int) -> None:
    """End all processes below a process, those too that are started meanwhile."""
    while processes := below(pid):
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)


def main(words: list[str]) -> int:
    """Run a command, end what it leaves running, and return its exit code as shells do: 128 and more for a signal."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.spawnvp(os.P_NOWAIT, words[0], words)
    while True:
        ended, status = os.wait()
        if ended == child:
            break
    end_all_below(os.getpid())
    with suppress(ChildProcessError):  # so that none of them is left to the next ancestor
        while True:
            os.wait()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
