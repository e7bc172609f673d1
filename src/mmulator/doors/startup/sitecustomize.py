"""Start of each Python process under `mmulator exec`, also of those that the program starts: the doors are prepared.

The program does not see it: `sys.path` is what it would be, and another sitecustomize, of the user or of the distribution, is
read as if it were the only one.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

FLAG = "MMULATOR_EXEC"  # the installation of Python that mmulator belongs to; another one has no doors
SUPERVISOR = "MMULATOR_SUPERVISOR"  # variable set by cli/supervisor.py
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """End this process when exec, which waits for it, is killed."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def begin() -> None:
    here = Path(__file__).resolve().parent
    sys.path[:] = [p for p in sys.path if Path(p).resolve() != here]
    if os.environ.get(FLAG) == sys.prefix:
        if PathFinder.find_spec("mmulator", sys.path) is None:  # exec was called where it is not installed
            sys.path.append(str(here.parents[2]))
        if os.environ.get(SUPERVISOR) == str(os.getppid()):
            end_with_parent()
        from mmulator.doors.imports import open_doors

        open_doors()
    other = PathFinder.find_spec("sitecustomize", sys.path)
    if other is not None and other.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(other)
        other.loader.exec_module(module)


if __name__ == "sitecustomize":
    begin()
