"""The door of Numba-CUDA, besides the driver and cuda.core, with which it compiles, links and launches."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import wraps
from inspect import signature
from typing import Any

from mmulator.base import location
from mmulator.base.errors import MmulatorError, UnsupportedError
from mmulator.base.versions import TABLE
from mmulator.doors.cuda_core import install as install_core
from mmulator.doors.cuda_core import with_reason
from mmulator.doors.launch_site import located
from mmulator.doors.libcuda.abi import taken
from mmulator.doors.libcuda.state import state
from mmulator.host.driver.memory import lenders, namers
from mmulator.observation.record.names import DeviceArray
from mmulator.runtime.launch.regions import Region

# Of the words that Numba passes for an array: the bytes of an element, its address, where its extents and then its strides begin.
_ITEM, _POINTER, _SHAPE = 3, 4, 5


def install() -> None:
    """Make Numba-CUDA find the device of this process. Call it before the first use of CUDA; a second call does nothing.

    Raises UnsupportedError where CUDA's own driver is loaded already, and for a Numba-CUDA that is too old.
    """
    install_core()
    from numba.cuda.cudadrv import driver

    if not hasattr(driver, "_Linker") or not hasattr(driver, "ObjectCode"):
        what = "this Numba-CUDA is not known" if "numba_cuda" in sys.modules else "numba.cuda is Numba's own, not numba-cuda's"
        raise UnsupportedError(what, hint=TABLE["numba-cuda"].mend)
    if getattr(driver.Driver, "mmulator", False):
        return
    driver.Driver.mmulator = True
    driver.Driver._check_cuda_python_error = _telling(driver, driver.Driver._check_cuda_python_error)
    _name_what_is_launched()
    if driver.driver.initialization_error is not None:  # Numba looked for a driver before this one was there
        driver.driver.__init__()


def _telling(driver: Any, check: Any) -> Any:
    """Numba's CudaAPIError with the reason that the driver had."""

    @wraps(check)
    def checked(self: Any, fname: str, returned: Any) -> Any:
        try:
            return check(self, fname, returned)
        except driver.CudaAPIError as error:
            raise with_reason(error, taken()) from None

    return checked


class _Given(threading.local):
    """The launch that a thread has under way: labels of the arrays among its arguments, their types and the words passed."""

    labels: Sequence[str] = ()
    words: Sequence[tuple[Any, list[int]]] = ()

    def regions(self) -> Sequence[Region]:
        """The arrays, each up to the end of its allocation: part of what the kernel may use anyway, with names."""
        memory, found = state().driver.memory, []
        for label, (_, words) in zip(self.labels, self.words):
            if (address := int(words[_POINTER])) and (a := memory.known(address)) is not None:
                found.append(Region(address, a.end - address, label, True, a.room, None, a.host + address - a.start))
        return found

    def arrays(self) -> list[DeviceArray]:
        """The arrays as data, by the names of the parameters."""
        from numba.cuda.np.numpy_support import as_dtype

        found = []
        for label, (kind, words) in zip(self.labels, self.words):
            shape, strides = (tuple(map(int, words[n : n + kind.ndim])) for n in (_SHAPE, _SHAPE + kind.ndim))
            name = label.partition("(")[2].replace("), item ", ".").rstrip(")")
            if name and all(shape) and all(n >= 0 for n in strides):
                size, packed = words[_ITEM] + sum((n - 1) * s for n, s in zip(shape, strides)), kind.layout == "C"
                start, dtype = int(words[_POINTER]), as_dtype(kind.dtype)
                found.append(DeviceArray(name, start, size, shape, words[_ITEM], dtype, () if packed else strides))
        return found


def _name_what_is_launched() -> None:
    """Compile with lines, as nvcc does for programs of C++, and name arguments and the launch's line in messages."""
    from numba.cuda import cgutils, debuginfo, dispatcher, types
    from numba.cuda.core import config, errors

    compiled, launch, prepare = dispatcher.compile_cuda, dispatcher._Kernel.launch, dispatcher._Kernel._prepare_args
    given = _Given()

    def labels(kinds: Sequence[Any], names: Sequence[str]) -> Iterator[str]:
        for kind, name in zip(kinds, names):
            if isinstance(kind, types.Array):
                yield name
            elif isinstance(kind, types.BaseTuple):
                yield from labels(tuple(kind), [f"{name}, item {n}" for n in range(len(kind))])

    def mark(self: Any) -> None:
        """Mark debugging information as NVRTC does; a module with Numba's own marks cannot be linked with NVRTC's."""
        flags = cgutils.get_or_insert_named_metadata(self.module, "llvm.module.flags")
        for name, version in ("Dwarf Version", self.DWARF_VERSION), ("Debug Info Version", self.DEBUG_INFO_VERSION):
            flag = self.module.add_metadata([self._const_int(1), name, self._const_int(version)]) if version else None
            if flag is not None and flag not in flags.operands:
                flags.add(flag)

    @wraps(compiled)
    def with_lines(py_func: Any, *args: Any, debug: bool = False, lineinfo: bool = False, **named: Any) -> Any:
        location.PROGRAM.add(os.path.realpath(py_func.__code__.co_filename))  # the program's own: errors may quote it
        try:
            counted = getattr(config, "CUDA_ENABLE_NRT", False)  # with code without lines, which cannot be linked with others
            return compiled(py_func, *args, debug=debug, lineinfo=lineinfo or not (debug or counted), **named)
        except Exception as error:
            if debug or lineinfo or isinstance(error, errors.TypingError):
                raise
        return compiled(py_func, *args, **named)  # Numba does not know how to describe every type

    @wraps(launch)
    def named_launch(self: Any, *args: Any, **named: Any) -> None:
        if not hasattr(self, "mmulator_labels"):
            function = getattr(self, "py_func", None)  # of one from a cache on disk nothing is known
            names = [f" ({name})" for name in signature(function).parameters] if function else [""] * len(self.argument_types)
            numbers = [f"argument {n}{name}" for n, name in enumerate(names)]
            self.mmulator_labels = () if self.extensions else tuple(labels(self.argument_types, numbers))
        given.labels, given.words = self.mmulator_labels, []
        try:
            launch(self, *args, **named)
        except MmulatorError as error:
            located(error)
            raise
        finally:
            given.labels = given.words = ()

    @wraps(prepare)
    def prepared(self: Any, ty: Any, val: Any, stream: Any, retr: Any, kernelargs: list[Any]) -> None:
        first = len(kernelargs)
        prepare(self, ty, val, stream, retr, kernelargs)
        if isinstance(ty, types.Array) and not self.extensions:
            given.words = [*given.words, (ty, kernelargs[first:])]

    dispatcher.compile_cuda = with_lines
    dispatcher._Kernel.launch, dispatcher._Kernel._prepare_args = named_launch, prepared
    debuginfo.DIBuilder._set_module_flags = mark
    lenders.append(given.regions)
    namers.append(given.arrays)
