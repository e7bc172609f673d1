"""A process between the judge and what it judges: processes that this one starts stay below it, and end with it.

A bare Python runs it, without the libraries that others may have installed. It starts the first process of a namespace, which
builds the fence, says what of it is missing, waits for the judge's word, and starts the command. With that process ends all that
the command started. Where there are no namespaces, processes whose parent has ended belong to the nearest of the two
(PR_SET_CHILD_SUBREAPER of Linux), and are ended one by one.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmulator.evaluation.judging import fence

# what holds inside a whole fence, in words of the verdict
FILES = "it changes no files of the user"
HIDDEN = "it does not read the files that the launch names"
PROCESSES = "no process that it started goes on"
SUPERVISOR = "it neither ends nor traces processes outside"
NETWORK = "it reaches no network"


def below(pid: int) -> list[int]:
    """All processes below a process, the nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if sys.platform == "linux" else ():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        more = children.get(waiting.pop(0), [])
        found += more
        waiting += more
    return found


def end_all_below(pid: int) -> None:
    """End all processes below a process, those too that are started meanwhile."""
    while processes := below(pid):
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)


def _waited(child: int) -> int:
    """The exit code of a child as shells have it, 128 and more for a signal; what it leaves running is ended."""
    while True:
        ended, status = os.wait()
        if ended == child:
            break
    if os.getpid() != 1:  # with the first process of a namespace its others end
        end_all_below(os.getpid())
        with suppress(ChildProcessError):  # so that none of them is left to the next ancestor
            while True:
                os.wait()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _forked(work: Callable[[], int]) -> int:
    """The number of a new process that does a piece of work and ends with the code that it returns."""
    child = os.fork()
    if not child:
        code = 127
        try:
            code = work()
        except OSError as error:
            print(f"the fence: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return child


def main(plan: dict[str, Any], words: list[str]) -> int:
    """Run a command inside a fence, end what it leaves running, and return its exit code.

    plan: as `Fence` of child.py has it.
    words: the command.
    """
    fence.control(fence.DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != plan["judge"]:
        return 1
    has = 0
    with suppress(OSError):
        has = fence.separate()
    fence.control(fence.SUBREAPER, 1)
    child = _forked(lambda: _first(plan, words, has))
    os.close(plan["door"])
    return _waited(child)


def _first(plan: dict[str, Any], words: list[str], has: int) -> int:
    """The first process of the namespaces. has: which there are, as bits of fence.ALL."""
    for option, value in ((fence.DEATH_SIGNAL, signal.SIGKILL), (fence.SUBREAPER, 1)):
        fence.control(option, value)
    own, version = plan["own"], fence.landlock_version()
    folders, walled = [own], False
    with suppress(OSError):
        if has & fence.MOUNTS:
            fence.wall(own, plan["bytes"], plan["hidden"], [words[0], sys.prefix, sys.base_prefix, str(Path.cwd())])
            walled = True
            folders.append("/dev/shm")
    with suppress(OSError):
        if walled and plan["layer"]:
            fence.layer(plan["layer"], own)
            folders.append(plan["layer"])
    for name in plan["folders"]:
        Path(own, name).mkdir()
    os.chdir(Path.cwd())  # below the new mounts
    scoped = bool(has & fence.PROCESSES) or version >= fence.SCOPED
    holds = {FILES: walled or version, HIDDEN: walled or not plan["hidden"], PROCESSES: scoped, SUPERVISOR: scoped,
             NETWORK: has & fence.NETWORK}  # fmt: skip
    missing = [what for what, there in holds.items() if not there]
    with suppress(OSError):
        if has & fence.NETWORK:
            fence.loopback()
    fence.control(fence.DUMPABLE, 0)
    door = socket.socket(fileno=plan["door"])
    places = [os.open(own, os.O_RDONLY | os.O_DIRECTORY)] if walled else []
    socket.send_fds(door, [json.dumps(missing).encode()], places)
    if not door.recv(1):  # the judge has ended
        return 1
    door.close()
    environment = {**os.environ, **({} if holds[FILES] else {"MMULATOR_CACHE": f"{own}/cache"})}

    def command() -> int:
        fence.bare(plan["file_size"])
        if version:
            fence.landlock(folders, [1, 2, *plan["files"]])
        with suppress(OSError):
            fence.refuse_calls()
        os.execvpe(words[0], words, environment)

    return _waited(_forked(command))


def start() -> None:
    """Run what the words of this process say: a plan as JSON, and a command."""
    os._exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
