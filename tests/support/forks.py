"""Python processes that begin with torch and Triton imported: forks of one server, in place of seconds of imports each.

The server is a program of `mmulator exec`: its doors opened as it imported the libraries. A fork gets words, folder, environment
and streams of its own, and is what `python WORDS` would be from its first line on: `-m mmulator exec`, too, becomes the program
there. What is tried while a door opens, or before a library is imported, wants a real process.
"""

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from site import getsitepackages
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any, NoReturn

from tests.support.places import PACKAGE, ROOT
from tests.support.waiting import PATIENCE

THERE = find_spec("torch") is not None and find_spec("triton") is not None
LONGEST = 1 << 17  # bytes of a request
COSTS = [0.0]  # processor seconds of forks


def run(
    words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, together: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `python WORDS`: what it prints, and its exit code.

    words: options of Python, a program, and its words.
    cwd: the folder in which it begins.
    env: all of its environment; None: this process's.
    together: whether its errors are a part of its output, in their order.
    """
    with TemporaryFile() as out, TemporaryFile() as errors:
        line = _server()
        asked = json.dumps([[*words], str(cwd), dict(os.environ if env is None else env)]).encode()
        socket.send_fds(line, [asked], [out.fileno(), (out if together else errors).fileno()])
        code, seconds = json.loads(line.recv(LONGEST))
        COSTS[0] += seconds
        said = []
        for file in (out, errors):
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess([*words], code, *said)


@cache
def _server() -> socket.socket:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.settimeout(PATIENCE)
    environment = {n: v for n, v in os.environ.items() if not n.startswith("MMULATOR_") or n == "MMULATOR_CACHE"}
    environment["PYTHONPATH"] = os.pathsep.join((str(PACKAGE), str(ROOT)))
    words = [sys.executable, "-m", "mmulator", "exec", "-m", "tests.support.forks", str(theirs.fileno())]
    process = subprocess.Popen(words, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    atexit.register(lambda: (mine.close(), process.wait()))
    return mine


# the server -----------------------------------------------------------------------------------------------------------
def serve(line: socket.socket) -> None:
    """Fork for each request, and answer with the exit code and the processor seconds. The end of the line is the server's end."""
    if THERE:
        import torch
        from triton.experimental import gluon
        from triton.runtime import cache

        assert torch and gluon and cache.triton_key()  # which is kept, of all files of Triton
    while True:
        asked, streams, *_ = socket.recv_fds(line, LONGEST, 2)
        if not asked:
            return
        child = os.fork()
        if not child:
            line.close()
            begin(*json.loads(asked), streams)
        for stream in streams:
            os.close(stream)
        _, status, used = os.wait4(child, 0)
        line.send(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]).encode())


def begin(words: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> NoReturn:
    """Be a process that has just been started."""
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.execvpe = replace  # type: ignore[assignment]
    os.posix_spawnp = spawn  # type: ignore[assignment]
    become(words, environment)


def replace(file: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """`os.execvpe`."""
    if file != sys.executable:
        execvpe(file, words, environment)
    become([*words[1:]], environment)


def spawn(file: str, words: Sequence[str], environment: Mapping[str, str], **how: Any) -> int:
    """`os.posix_spawnp`."""
    if file != sys.executable:
        return posix_spawnp(file, words, environment, **how)
    child = os.fork()
    if not child:
        for _, old, new in how.get("file_actions", ()):
            os.dup2(old, new)
        signal.pthread_sigmask(signal.SIG_SETMASK, how["setsigmask"])
        become([*words[1:]], environment)
    return child


def become(words: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Run a program as Python's main does, and end."""
    from mmulator.doors import startup
    from mmulator.doors.imports import open_doors
    from mmulator.host.driver import driver

    atexit._clear()
    driver._current.clear()  # torch's import asked it for a chip; the next one has the settings of this environment
    os.environ.clear()
    os.environ.update(environment)
    kind, rest = (words[0], words[2:]) if words[0] in ("-m", "-c") else ("", words[1:])
    doors = Path(startup.__file__).parent
    given = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and Path(p) != doors]
    first = {"-m": str(Path.cwd()), "-c": ""}.get(kind, str(Path(words[0]).resolve().parent))
    sys.path[:] = [first, *given, *PATHS]
    sys.argv[:] = [kind or words[0], *rest]
    sys.modules["__main__"] = main = ModuleType("__main__")
    if environment.get("PYTHONWARNINGS") == "ignore":
        warnings.simplefilter("ignore")
    code = 0
    try:
        if environment.get("MMULATOR_EXEC") == sys.prefix:
            open_doors()
            if environment.get("MMULATOR_SANITIZE"):
                driver.current()  # as torch's import does
        if kind == "-m":
            runpy._run_module_as_main(words[1])
        main.__file__ = words[0]
        text = words[1].encode() if kind else Path(words[0]).read_bytes()
        exec(compile(text, "<string>" if kind else words[0], "exec"), main.__dict__)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException as error:
        code = 1
        frames = error.__traceback__
        sys.excepthook(type(error), error, frames and frames.tb_next)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 255)


if __name__ == "__main__":
    execvpe, posix_spawnp = os.execvpe, os.posix_spawnp
    own = {str(PACKAGE), str(ROOT), str(Path.cwd()), ""} - {*getsitepackages()}
    PATHS = [p for p in sys.path if p not in own]
    serve(socket.socket(fileno=int(sys.argv[1])))
