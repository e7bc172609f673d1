"""Functions that run when a program imports a library: so its door opens. Nothing is imported for a program that does not.

    before_import("numba.cuda", f)   f() runs when the program imports it, before the first line of it does
    after_import("torch", f)         f(module) runs when it is imported, before the program goes on

Each function runs once, in the thread that imports; functions of one module run in the order in which they were given. An
exception of a function comes out of the program's `import`, and the next import of the module begins anew. `after_import` of a
module that is imported already runs at once. A door is a module with a function `install()`; `DOORS` says which library opens
which. `open_doors()` prepares all of them: `mmulator exec` calls it in each process, and a program without exec may call it,
too. The rest of the program does not see the hooks: loaders, `__spec__` and `__file__` are what they would be.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

Before = Callable[[], object]
After = Callable[[ModuleType], object]

# Library, and the module whose `install()` opens its door after the library's import.
DOORS = {
    "torch": "mmulator.doors.torch",
    "triton.testing": "mmulator.doors.triton.adapt",
    "numba.cuda": "mmulator.doors.numba",
    "cupy": "mmulator.doors.cupy",
    "cuda.core": "mmulator.doors.cuda_core",
    "cuda.bindings.nvrtc": "mmulator.doors.nvrtc",
}
# Library, and modules whose `prepare()` runs before its import: for what a library reads only once.
PREPARED = {"torch.cuda": "mmulator.doors.torch.cuda", "cutlass": "mmulator.doors.cute"}

_GPUS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")  # there where there is a GPU


def environment() -> dict[str, str]:
    """The environment of a program with doors: Triton launches here, and a GPU of this machine is hidden."""
    return {"TRITON_DEFAULT_BACKEND": "mmulator"} | ({"CUDA_VISIBLE_DEVICES": ""} if any(Path(p).exists() for p in _GPUS) else {})


def open_doors() -> None:
    """Open the door of each library of the tables when it is imported, and at once if it is imported already.

    Raises what opening a door raises.
    """
    for name, door in PREPARED.items():
        if door not in _ready and name not in sys.modules:
            _ready.add(door)
            before_import(name, partial(_prepare, door))
    for name, door in DOORS.items():
        if door not in _ready:
            _ready.add(door)
            after_import(name, partial(_open, door))
    if "auto" in os.environ.get("MMULATOR_WHY", "").split(";"):
        _call("mmulator.doors.asserts", "install")


def _open(door: str, _: ModuleType) -> None:
    _call(door, "install")


def _prepare(door: str) -> None:
    _call(door, "prepare")


def _call(door: str, name: str) -> None:
    """Open a door. An error is about the program's installation, so the lines of mmulator are not shown."""
    from mmulator.base.errors import short_traceback
    from mmulator.base.versions import check_imported, warn

    def opened() -> None:
        try:
            untried = check_imported()
        except Exception as error:
            _shorten(error)
            raise
        try:
            getattr(import_module(door), name)()
        except Exception as error:
            if not untried:
                raise
            why = str(error).partition("\n")[0]
            warn(f"{', '.join(untried)}: the door of {door.removeprefix('mmulator.doors.')} stays closed: {why}")

    short_traceback(opened)()


def _shorten(error: Exception) -> None:
    """If the error ends the program, Python prints it without the lines of the imports, of which none is at fault."""
    others = sys.excepthook

    def hook(kind: Any, value: Any, trace: Any) -> None:
        if value is error and not os.environ.get("MMULATOR_TRACEBACK"):
            print(f"mmulator: {error}", file=sys.stderr)
        else:
            others(kind, value, trace)

    sys.excepthook = hook


_ready: set[str] = set()


def before_import(name: str, run: Before) -> None:
    """Run a function before a module is imported. Raises LaunchError if it is imported already."""
    if name in sys.modules:
        from mmulator.base.errors import LaunchError

        raise LaunchError(f"{name} is imported already", hint="open the door before the program imports it")
    _ModuleFinder.register()
    _before[name].append(run)


def after_import(name: str, run: After) -> None:
    """Run a function after a module is imported. Raises what the function raises, if the module is imported already."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        run(module)
        return
    _ModuleFinder.register()
    _after[name].append(run)


_before: defaultdict[str, list[Before]] = defaultdict(list)
_after: defaultdict[str, list[After]] = defaultdict(list)


class _ModuleFinder:
    """The first finder on sys.meta_path: the others find a module, and this one runs the functions around its execution."""

    @classmethod
    def register(cls) -> None:
        if cls not in sys.meta_path:
            sys.meta_path.insert(0, cls)

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _before and name not in _after:
            return None
        for finder in sys.meta_path:
            if finder is not cls and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:  # None: a folder without a file, which is another package than the door's
                        _surround(spec.loader, name)
                    return spec
        return None


def _surround(loader: Any, name: str) -> None:
    """Make the loader execute the module with its functions before and after it; then the loader is as it was."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        with suppress(AttributeError):
            del loader.exec_module
        for before in _before.get(name, ()):
            before()
        execute(module)
        for after in _after.get(name, ()):
            after(module)
        _before.pop(name, None)
        _after.pop(name, None)

    if "exec_module" not in vars(loader):  # a module that was found twice is surrounded already
        loader.exec_module = exec_module
