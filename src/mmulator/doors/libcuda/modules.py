"""Modules, libraries, functions and kernels. A library and a module are one thing here, and so are a kernel and a function."""

from ctypes import addressof, create_string_buffer
from math import prod
from pathlib import Path

from mmulator.doors.libcuda.abi import Refused, api, c_string, put, put_int, text
from mmulator.doors.libcuda.attributes import cluster_attributes, set_cluster_attribute
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.images import ptx_at
from mmulator.doors.libcuda.runtime import with_runtime
from mmulator.doors.libcuda.state import CudaKernel, CudaLibrary, state
from mmulator.driver.cubin import CubinResources, resources
from mmulator.errors import LaunchError
from mmulator.launch.limits import KIB, MAX_THREADS, MULTIPROCESSOR, held_by, reserved

STATIC_SHARED = 48 * KIB  # bytes of a block, unless its kernel opts in to more


def load(image: int) -> int:
    ptx, cubin = ptx_at(image)
    return state().add(CudaLibrary(state().driver.load(with_runtime(ptx)), resources(cubin)))


@api("cuModuleLoadData", "pp")
@api("cuModuleLoadDataEx", "ppupp")
@api("cuModuleLoadFatBinary", "pp")
@api("cuLibraryLoadData", "ppppuppu")
def module_load_data(out: int, image: int) -> None:
    put(out, load(image))


def file(name: int) -> bytes:
    path = Path(text(name))
    if not path.exists():
        raise Refused(Code.FILE_NOT_FOUND)
    return path.read_bytes() + b"\0"


def _load_bytes(data: bytes) -> int:
    held = create_string_buffer(data)
    return load(addressof(held))


@api("cuModuleLoad", "pp")
@api("cuLibraryLoadFromFile", "ppppuppu")
def module_load(out: int, name: int) -> None:
    put(out, _load_bytes(file(name)))


@api("cuModuleUnload", "p", back=True)
@api("cuLibraryUnload", "p", back=True)
def module_unload(handle: int) -> None:
    library = state().find(handle, CudaLibrary)
    for kernel in library.functions.values():
        state().objects.pop(kernel, None)
    del state().objects[handle]


@api("cuLibraryGetModule", "pp")
def library_module(out: int, handle: int) -> None:
    state().find(handle, CudaLibrary)
    put(out, handle)


# functions ----------------------------------------------------------------------------------------------------------
def function(handle: int, name: str) -> int:
    library = state().find(handle, CudaLibrary)
    known = library.functions.get(name)
    if known is None:
        if name not in library.loaded.module:
            raise Refused(Code.NOT_FOUND, LaunchError(f"the module has no kernel {name}"))
        kernel = CudaKernel(library.loaded.function(name), library, 0)
        kernel.dynamic = max(STATIC_SHARED - kernel.function.static_shared, 0)
        kernel.handle = known = library.functions[name] = state().add(kernel)
    return known


@api("cuModuleGetFunction cuLibraryGetKernel", "ppp")
def get_function(out: int, handle: int, name: int) -> None:
    put(out, function(handle, text(name)))


@api("cuKernelGetFunction", "pp")
def kernel_function(out: int, kernel: int) -> None:
    state().find(kernel, CudaKernel)
    put(out, kernel)


@api("cuKernelGetLibrary cuFuncGetModule", "pp")
def kernel_library(out: int, handle: int) -> None:
    kernel = state().find(handle, CudaKernel)
    put(out, next(h for h, thing in state().objects.items() if thing is kernel.library))


@api("cuLibraryGetKernelCount cuModuleGetFunctionCount", "pp")
def kernel_count(out: int, handle: int) -> None:
    put_int(out, len(state().find(handle, CudaLibrary).loaded.module))


@api("cuLibraryEnumerateKernels cuModuleEnumerateFunctions", "pup")
def kernels(out: int, number: int, handle: int) -> None:
    for n, name in zip(range(number), state().find(handle, CudaLibrary).loaded.module):
        put(out + 8 * n, function(handle, name))


@api("cuKernelGetName cuFuncGetName", "pp")
def kernel_name(out: int, kernel: int) -> None:
    put(out, c_string(state().find(kernel, CudaKernel).function.name))


@api("cuKernelGetParamInfo cuFuncGetParamInfo", "pqpp")
def parameter(kernel: int, number: int, offset: int, size: int) -> None:
    found = state().find(kernel, CudaKernel).function
    if number >= len(found.params):
        raise Refused(Code.INVALID_VALUE)
    put(offset, found.offsets[number])
    put(size, found.params[number].size)


@api("cuKernelGetParamCount cuFuncGetParamCount", "pp")
def parameters(kernel: int, out: int) -> None:
    put(out, len(state().find(kernel, CudaKernel).function.params))


# attributes ---------------------------------------------------------------------------------------------------------
_PLAIN = range(16)
REGISTERS = 32  # for a kernel without a cubin: a plausible number for programs that ask


def kernel_attribute(kernel: CudaKernel, number: int) -> int:
    """An attribute of a kernel by its number in CUfunction_attribute."""
    f = kernel.function
    target = f.loaded.module.target
    chip = state().driver.device
    body = f.kernel.function
    known = kernel.library.resources.get(f.name) or CubinResources(
        REGISTERS, sum(v.size for v in body.variables if v.space == "local")
    )
    return {
        0: _most_threads(kernel), 1: f.static_shared,
        2: sum(v.size for v in f.loaded.module.tree.variables if v.space == "const" and v.linkage != "extern"),
        3: known.frame, 4: known.registers, 5: target.number,
        6: int(chip.name[3:]), 8: kernel.dynamic, 9: kernel.carveout,
        **cluster_attributes(kernel),
    }.get(number, 0)  # fmt: skip


@api("cuFuncGetAttribute", "pip")
@api("cuKernelGetAttribute", "pipi")
def get_attribute(out: int, number: int, kernel: int) -> None:
    if number not in _PLAIN:
        raise Refused(Code.INVALID_VALUE)
    put_int(out, kernel_attribute(state().find(kernel, CudaKernel), number))


@api("cuFuncSetAttribute", "pii")
def set_attribute(handle: int, number: int, value: int) -> None:
    kernel = state().find(handle, CudaKernel)
    if number == 8:
        limit = state().driver.device.shared
        if not 0 <= value <= limit - kernel.function.static_shared:
            raise Refused(Code.INVALID_VALUE, LaunchError(f"{value} bytes of dynamic shared memory: a block has {limit}"))
        kernel.dynamic = value
        kernel.shapes.clear()
    elif number == 9:
        if not -1 <= value <= 100:
            raise Refused(Code.INVALID_VALUE)
        kernel.carveout = value
    else:
        set_cluster_attribute(kernel, number, value)


@api("cuKernelSetAttribute", "iipi")
def set_kernel_attribute(number: int, value: int, kernel: int, device: int) -> None:
    set_attribute(kernel, number, value)


@api("cuFuncSetCacheConfig cuFuncSetSharedMemConfig", "pi")
@api("cuKernelSetCacheConfig", "pii")
@api("cuFuncLoad", "p")
@api("cuFuncSetBlockShape", "piii")  # of a launch by cuLaunchGrid, which is refused; others name their own
@api("cuFuncSetSharedSize", "pu")
def set_cache(kernel: int) -> None:
    state().find(kernel, CudaKernel)


@api("cuFuncIsLoaded", "pp")
@api("cuModuleGetLoadingMode", "p")
def is_loaded(out: int) -> None:
    put_int(out, 1)


# variables ----------------------------------------------------------------------------------------------------------
def variable(library: CudaLibrary, name: str) -> tuple[int, int]:
    """(address, bytes) of a .global or .const variable, whose address other kernels may be given."""
    if name not in library.variables:
        image = library.loaded.module.image
        if name not in image.addresses:
            raise Refused(Code.NOT_FOUND, LaunchError(f"the module has no variable {name}"))
        memory = image.bytes_of(name)
        address = int(memory.ctypes.data)
        owner = _Kept(memory)
        library.variables[name] = (address, memory.nbytes)
        library.loaded.__dict__.setdefault("exposed", []).append(owner)
        state().driver.memory.expose(address, memory.nbytes, owner, f"variable {name}")
    return library.variables[name]


class _Kept:
    def __init__(self, memory: object) -> None:
        self.memory = memory


@api("cuModuleGetGlobal cuModuleGetGlobal_v2", "pppp", 3020)
@api("cuLibraryGetGlobal cuLibraryGetManaged", "pppp")
def module_global(out: int, size: int, handle: int, name: int) -> None:
    address, number = variable(state().find(handle, CudaLibrary), text(name))
    put(out, address)
    put(size, number)


# occupancy ----------------------------------------------------------------------------------------------------------
def blocks_per_multiprocessor(kernel: CudaKernel, threads: int, dynamic: int, most: int | None = None) -> int:
    """Blocks that a multiprocessor holds, by threads, blocks, shared memory, and, where the kernel came with a cubin, registers.
    most: threads of a block, in place of the kernel's own limit.
    """
    chip, own = state().driver.device.name, kernel.function.static_shared
    if not 1 <= threads <= min(_most_threads(kernel) if most is None else most, MAX_THREADS) or dynamic > kernel.dynamic:
        return 0
    return min(held_by(chip, threads, own + dynamic, _registers(kernel), _room(kernel, own + dynamic)).values())


def _registers(kernel: CudaKernel) -> int:
    """Registers of a thread; 0 where the kernel came without a cubin."""
    return kernel.library.resources.get(kernel.function.name, CubinResources()).registers


def _most_threads(kernel: CudaKernel) -> int:
    """Threads of a block that .maxntid and its registers allow; an H200 does not count .reqntid here."""
    said = kernel.function.kernel.head.directives.get("maxntid") or (MAX_THREADS,)
    by_registers = held_by(state().driver.device.name, 32, 0, _registers(kernel)).get("registers", MAX_THREADS)
    return min(prod(int(n) for n in said), by_registers * 32, MAX_THREADS)


# KiB of a multiprocessor that may be shared memory; also all that a chip has (tuning guides of Volta to Blackwell).
_CARVED = (8, 16, 32, 64, 100, 132, 164, 196, 228)


def _room(kernel: CudaKernel, used: int) -> int | None:
    """Bytes of shared memory of a multiprocessor where the kernel prefers a part of it: the next size that holds a block."""
    if kernel.carveout < 0:
        return None
    chip = state().driver.device.name
    whole = MULTIPROCESSOR[chip][2]
    wanted = max(kernel.carveout * whole * KIB // 100, used + reserved(chip))
    return next((kib * KIB for kib in _CARVED if wanted <= kib * KIB <= whole * KIB), whole * KIB)


@api("cuOccupancyMaxActiveBlocksPerMultiprocessor", "ppiq")
@api("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "ppiqu")
def occupancy(out: int, kernel: int, threads: int, dynamic: int) -> None:
    put_int(out, blocks_per_multiprocessor(state().find(kernel, CudaKernel), threads, dynamic))


@api("cuOccupancyMaxPotentialBlockSize", "ppppqi")
@api("cuOccupancyMaxPotentialBlockSizeWithFlags", "ppppqiu")
def potential_block(grid: int, block: int, handle: int, size_of: int, dynamic: int, limit: int) -> None:
    """Write the largest block, where its shared memory does not depend on its size."""
    if size_of:
        from mmulator.doors.libcuda.abi import unsupported

        raise unsupported("cuOccupancyMaxPotentialBlockSize", "shared memory by a function of the block size")
    kernel = state().find(handle, CudaKernel)
    most = min(limit or MAX_THREADS, _most_threads(kernel))
    best = max((*range(32, most + 1, 32), most), key=lambda n: (blocks_per_multiprocessor(kernel, n, dynamic) * n, n))
    put_int(block, best)
    put_int(grid, blocks_per_multiprocessor(kernel, best, dynamic) * state().driver.device.multiprocessors)


@api("cuOccupancyAvailableDynamicSMemPerBlock", "ppii")
def available_shared(out: int, handle: int, blocks: int, threads: int) -> None:
    """Write the share of a block, as an H200 answers: what the system takes of each block is not left out."""
    kernel, chip = state().find(handle, CudaKernel), state().driver.device
    if not 1 <= blocks <= min(held_by(chip.name, threads, kernel.function.static_shared, _registers(kernel)).values()):
        raise Refused(Code.INVALID_VALUE)
    each = min(MULTIPROCESSOR[chip.name][2] * KIB // blocks // 128 * 128, chip.shared)
    put(out, max(each - kernel.function.static_shared, 0))
