"""CUDA's linker (cuLink): images are gathered, their PTX becomes one module, and that is what a program loads."""

import ctypes
from dataclasses import dataclass, field
from typing import Any

from mmulator.doors.libcuda.abi import api, get, put
from mmulator.doors.libcuda.images import ptx_at
from mmulator.doors.libcuda.modules import file
from mmulator.doors.libcuda.state import state
from mmulator.toolkit.joining import join

_LOGS = {3, 5}  # CU_JIT_INFO_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER


@dataclass(eq=False)
class CudaLink:
    """A linker. texts: the PTX of each image. image: what was linked, once it is."""

    texts: list[str] = field(default_factory=list)
    image: Any = None


@api("cuLinkCreate cuLinkCreate_v2", "uppp", 6050)
def create(number: int, options: int, values: int, out: int) -> None:
    for n in range(number):
        if get(options + 4 * n, 4) in _LOGS:
            put(get(values + 8 * n), 0, 1)  # nothing to tell
    put(out, state().add(CudaLink()))


@api("cuLinkAddData cuLinkAddData_v2", "pipqpupp", 6050)
def add_data(handle: int, kind: int, image: int) -> None:
    state().find(handle, CudaLink).texts.append(ptx_at(image)[0])


@api("cuLinkAddFile cuLinkAddFile_v2", "pipupp", 6050)
def add_file(handle: int, kind: int, name: int) -> None:
    held = ctypes.create_string_buffer(file(name))
    add_data(handle, kind, ctypes.addressof(held))


@api("cuLinkComplete", "ppp")
def complete(handle: int, out: int, size: int) -> None:
    found = state().find(handle, CudaLink)
    found.image = ctypes.create_string_buffer(join(found.texts).encode())
    put(out, ctypes.addressof(found.image))
    put(size, len(found.image))


@api("cuLinkDestroy", "p", back=True)
def destroy(handle: int) -> None:
    state().find(handle, CudaLink)
    del state().objects[handle]
