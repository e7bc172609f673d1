"""The line of the program that launched a kernel."""

from __future__ import annotations

import linecache
import sys
from importlib.util import find_spec
from pathlib import Path, PurePath

from mmulator.errors import MmulatorError
from mmulator.lazy import cached_property

_LIBRARIES = ("mmulator", "triton", "torch", "helion")  # whose lines are not the program's


class _Folders:
    @cached_property
    def found(self) -> tuple[str, ...]:
        folders = [f for name in _LIBRARIES if name in sys.modules and (spec := find_spec(name)) for f in _places(spec)]
        return tuple(f"{Path(f)}/" for f in folders)


def _places(spec: object) -> list[str]:
    return list(getattr(spec, "submodule_search_locations", None) or ())


_folders = _Folders()


def line_of_launch() -> str | None:
    """`run.py:17: add[grid](x, y)`: the innermost line of the running code that is no library's; None if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<string>", "<frozen", *_folders.found)):
            text = linecache.getline(file, frame.f_lineno, frame.f_globals).strip()
            return f"{PurePath(file).name}:{frame.f_lineno}" + (f": {text[:100]}" if text else "")
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def located(error: MmulatorError) -> MmulatorError:
    """The error, which says now which line of the program launched the kernel."""
    error.launch = error.launch or line_of_launch()
    return error
