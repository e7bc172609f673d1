"""Modules, libraries, functions and kernels. A library and a module are one thing here, and so are a kernel and a function."""

from ctypes import addressof, create_string_buffer
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from mmulator.base.errors import LaunchError
from mmulator.doors.libcuda.abi import Refused, accepts, answers, api, c_string, get, put, put_int, text, unsupported
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.images import ptx_at
from mmulator.doors.libcuda.runtime import with_runtime
from mmulator.doors.libcuda.state import CudaKernel, CudaLibrary, state
from mmulator.host.driver.cubin import CubinResources, resources
from mmulator.ptx.directives import clusters
from mmulator.ptx.toolkit.joining import join
from mmulator.runtime.launch.limits import KIB, MAX_THREADS, MULTIPROCESSOR, held_by, reserved

STATIC_SHARED = 48 * KIB  # bytes of a block, unless its kernel opts in to more


def load(image: int) -> int:
    ptx, cubin = ptx_at(image)
    return state().add(CudaLibrary(state().driver.load(with_runtime(ptx)), resources(cubin)))


@api("cuModuleLoadData", "pp")
@api("cuModuleLoadDataEx", "ppupp")
@api("cuModuleLoadFatBinary", "pp")
@api("cuLibraryLoadData", "ppppuppu", runtime=True)
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
@api("cuLibraryLoadFromFile", "ppppuppu", runtime=True)
def module_load(out: int, name: int) -> None:
    put(out, _load_bytes(file(name)))


@api("cuModuleUnload", "p", back=True)
@api("cuLibraryUnload", "p", back=True, runtime=True)
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


def _library_of(kernel: int) -> int:
    library = state().find(kernel, CudaKernel).library
    return next(h for h, thing in state().objects.items() if thing is library)


answers(
    "cuModuleGetFunction cuLibraryGetKernel", "ppp", lambda handle, name: function(handle, text(name)), 0, 8,
    runtime="LibraryGetKernel",
)  # fmt: skip
answers("cuKernelGetFunction", "pp", lambda kernel: state().find(kernel, CudaKernel).handle, 0, 8)
answers("cuKernelGetLibrary cuFuncGetModule", "pp", _library_of, 0, 8)
answers(
    "cuLibraryGetKernelCount cuModuleGetFunctionCount", "pp",
    lambda handle: len(state().find(handle, CudaLibrary).loaded.module), runtime="LibraryGetKernelCount",
)  # fmt: skip


@api("cuLibraryEnumerateKernels cuModuleEnumerateFunctions", "pup", runtime="LibraryEnumerateKernels")
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


answers(
    "cuKernelGetParamCount cuFuncGetParamCount", "pp", lambda kernel: len(state().find(kernel, CudaKernel).function.params), 1, 8
)


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


api("cuKernelSetAttribute", "iipi")(lambda number, value, kernel, device: set_attribute(kernel, number, value))
for _name, _signature in (
    ("cuFuncSetCacheConfig cuFuncSetSharedMemConfig", "pi"), ("cuKernelSetCacheConfig", "pii"), ("cuFuncLoad", "p"),
    ("cuFuncSetBlockShape", "piii"), ("cuFuncSetSharedSize", "pu"),  # of cuLaunchGrid, which is refused; others name their own
):  # fmt: skip
    accepts(_name, _signature, lambda kernel: state().find(kernel, CudaKernel))
answers("cuFuncIsLoaded", "pp", lambda: 1)
answers("cuModuleGetLoadingMode", "p", lambda: 1)


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
@api("cuLibraryGetGlobal cuLibraryGetManaged", "pppp", runtime=True)
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


# clusters in which kernels are launched (CUfunction_attribute) ----------------------------------------------------------------
Extent = tuple[int, int, int]
MUST_BE_SET, WIDTH, HEIGHT, DEPTH, NON_PORTABLE, POLICY = range(10, 16)
_EXTENT = (WIDTH, HEIGHT, DEPTH)
_MOST = {NON_PORTABLE: 2**31 - 1, POLICY: 2}  # a value of the first is true or false


def compiled_cluster(kernel: CudaKernel) -> Extent | None:
    """The cluster of the kernel's .reqnctapercluster; None without one."""
    return clusters(kernel.function.kernel.head).shape


def required_cluster(kernel: CudaKernel) -> Extent | None:
    """The cluster that the kernel's text requires, or that was set on it."""
    x, y, z = (kernel.clusters.get(n, 0) for n in _EXTENT)
    return compiled_cluster(kernel) or ((x, y, z) if x else None)


def cluster_attributes(kernel: CudaKernel) -> dict[int, int]:
    """Attributes of a kernel by their numbers. A cluster that nothing requires has extents of 0."""
    extent = required_cluster(kernel) or (0, 0, 0)
    explicit = clusters(kernel.function.kernel.head).explicit
    return {MUST_BE_SET: int(explicit), NON_PORTABLE: 0, POLICY: 0, **kernel.clusters, **dict(zip(_EXTENT, extent))}


def set_cluster_attribute(kernel: CudaKernel, number: int, value: int) -> None:
    """Set an attribute. Raises Refused for an attribute or a value that cannot be set."""
    if number in _EXTENT:
        if compiled_cluster(kernel) is not None:
            why = LaunchError(f"{kernel.function.name} is compiled for clusters of one size: no other can be set")
            raise Refused(Code.NOT_PERMITTED, why)
        if value < 0:
            raise Refused(Code.INVALID_VALUE)
    else:
        if not 0 <= value <= _MOST.get(number, -1):
            raise Refused(Code.INVALID_VALUE)
        value = min(value, 1) if number == NON_PORTABLE else value
    kernel.clusters[number] = value
    kernel.shapes.clear()


# CUDA's linker: images are gathered, their PTX becomes one module, and that is what a program loads --------------------
_LOGS = {3, 5}  # CU_JIT_INFO_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER


@dataclass(eq=False)
class CudaLink:
    """A linker. texts: the PTX of each image. image: what was linked, once it is."""

    texts: list[str] = field(default_factory=list)
    image: Any = None


@api("cuLinkCreate cuLinkCreate_v2", "uppp", 6050)
def link_create(number: int, options: int, values: int, out: int) -> None:
    for n in range(number):
        if get(options + 4 * n, 4) in _LOGS:
            put(get(values + 8 * n), 0, 1)  # nothing to tell
    put(out, state().add(CudaLink()))


@api("cuLinkAddData cuLinkAddData_v2", "pipqpupp", 6050)
def link_add(handle: int, kind: int, image: int) -> None:
    state().find(handle, CudaLink).texts.append(ptx_at(image)[0])


@api("cuLinkAddFile cuLinkAddFile_v2", "pipupp", 6050)
def link_add_file(handle: int, kind: int, name: int) -> None:
    held = create_string_buffer(file(name))
    link_add(handle, kind, addressof(held))


@api("cuLinkComplete", "ppp")
def link_complete(handle: int, out: int, size: int) -> None:
    found = state().find(handle, CudaLink)
    found.image = create_string_buffer(join(found.texts).encode())
    put(out, addressof(found.image))
    put(size, len(found.image))


@api("cuLinkDestroy", "p", back=True)
def link_destroy(handle: int) -> None:
    state().find(handle, CudaLink)
    del state().objects[handle]
