"""Fat binaries of a program, and the kernels and variables in them, by their addresses in the program.

nvcc writes a call for each into the program, before `main`: __cudaRegisterFatBinary with the place of the binary, whose result
goes with each __cudaRegisterFunction and __cudaRegisterVar. A binary is loaded when one of its kernels is used first.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from mmulator.base.errors import MmulatorError
from mmulator.doors.cudart.rows import thread
from mmulator.doors.libcuda import modules
from mmulator.doors.libcuda.abi import Refused, code_of, put, text
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import CudaKernel, CudaLibrary, state

INVALID_FUNCTION, INVALID_SYMBOL = 98, 13  # codes that the runtime has and the driver has not
UNKNOWN_FUNCTION = 400  # of CUDA 13, for which it might be a handle


class RuntimeRefused(Refused):
    """A call that fails with a code that only the runtime has."""

    def __init__(self, code: int, why: MmulatorError | None = None) -> None:
        super().__init__(Code.UNKNOWN, why)
        self.code = code  # type: ignore[assignment]


@dataclass
class Binary:
    """A fat binary at an address of the program. library: its handle, once it is loaded."""

    address: int
    library: int = 0
    wrong: Refused | None = None

    def load(self) -> int:
        """Handle of the library. Raises what the first attempt raised."""
        if self.wrong is not None:
            raise self.wrong
        if not self.library:
            try:
                self.library = modules.load(self.address)
            except Refused as wrong:
                self.wrong = RuntimeRefused(wrong.code, wrong.why)
                raise
            except MmulatorError as error:
                self.wrong = RuntimeRefused(code_of(error) or int(Code.UNKNOWN), error)
                raise
        return self.library


@dataclass
class Registered:
    """A kernel or a variable of a binary. name_at: address of its name. handle: of the kernel; place: (address, size) of the
    variable, once known."""

    binary: Binary
    name_at: int
    size: int = 0
    managed: bool = False
    handle: int = 0
    place: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        return text(self.name_at)


binaries: dict[int, Binary] = {}
kernels: dict[int, Registered] = {}  # by the address of the function on the host
variables: dict[int, Registered] = {}  # by the address of the shadow variable on the host
_loading = threading.Lock()  # threads that launch at once load a binary once
late: list[Callable[[], None]] = []  # reads the log of registrations, where a thread may have written since (start.py)


def _binary(handle: int) -> Binary:
    found = binaries.get(handle)
    if found is None:
        found = binaries[handle] = Binary(handle)
    return found


# registrations: the arguments as the log has them, six of each call -------------------------------------------------
def register_binary(address: int, *_: int) -> None:
    binaries[address] = Binary(address)


def register_function(binary: int, host: int, stub: int, name: int, limit: int, *_: int) -> None:
    kernels[host] = Registered(_binary(binary), name)


def register_variable(binary: int, host: int, stub: int, name: int, external: int, size: int) -> None:
    variables[host] = Registered(_binary(binary), name, size)


def register_managed(binary: int, pointer: int, stub: int, name: int, external: int, size: int) -> None:
    """A managed variable: the program reads its address from `pointer`, also before its first call of the runtime."""
    variables[pointer] = Registered(_binary(binary), name, size, True)


def unregister_binary(handle: int, *_: int) -> None:
    """Nothing: the program ends, or unloads a library, whose kernels another library may still run."""


def nothing(*_: int) -> None:
    """Nothing: a call that says that registrations are complete."""


LOGGED: dict[str, Callable[..., None]] = {
    "__cudaRegisterFatBinary": register_binary, "__cudaRegisterFatBinaryEnd": nothing,
    "__cudaUnregisterFatBinary": unregister_binary, "__cudaRegisterFunction": register_function,
    "__cudaRegisterVar": register_variable, "__cudaRegisterManagedVar": register_managed,
    "__cudaRegisterHostVar": nothing, "__cudaRegisterUnifiedTable": nothing,
}  # fmt: skip


# use ------------------------------------------------------------------------------------------------------------------
def _found(table: dict[int, Registered], host: int) -> Registered | None:
    if host not in table:
        for read in late:
            read()
    return table.get(host)


def kernel(host: int) -> int:
    """Handle of the kernel whose function on the host is at an address. A handle of a kernel is one already."""
    found = _found(kernels, host)
    if found is None:
        if isinstance(state().objects.get(host), CudaKernel):
            return host
        raise RuntimeRefused(UNKNOWN_FUNCTION if host and thread.version >= 13 else INVALID_FUNCTION)
    if not found.handle:
        with _loading:
            found.handle = modules.function(found.binary.load(), found.name)
    return found.handle


def variable(host: int) -> tuple[int, int]:
    """(address, size) of the variable whose shadow on the host is at an address."""
    found = _found(variables, host)
    if found is None:
        raise RuntimeRefused(INVALID_SYMBOL)
    if not found.place[0]:
        with _loading:
            found.place = modules.variable(state().find(found.binary.load(), CudaLibrary), found.name)
    return found.place


def place_managed(binary: int) -> None:
    """Write the address of each managed variable of a binary where the program reads it."""
    for pointer, found in variables.items():
        if found.managed and found.binary.address == binary:
            put(pointer, variable(pointer)[0])
