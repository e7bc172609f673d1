"""Libraries that a program loads by itself, from memory or from a file, and their kernels and variables by name."""

from __future__ import annotations

from mmulator.doors.cudart.rows import api, refuses
from mmulator.doors.libcuda import modules


@api("cudaLibraryLoadData", "ppppuppu")
def load_data(out: int, image: int) -> None:
    modules.module_load_data(out, image)


@api("cudaLibraryLoadFromFile", "ppppuppu")
def load_file(out: int, name: int) -> None:
    modules.module_load(out, name)


@api("cudaLibraryUnload", "p")
def unload(library: int) -> None:
    modules.module_unload(library)


@api("cudaLibraryGetKernel", "ppp")
def get_kernel(out: int, library: int, name: int) -> None:
    modules.get_function(out, library, name)


@api("cudaLibraryGetKernelCount", "pp")
def kernel_count(out: int, library: int) -> None:
    modules.kernel_count(out, library)


@api("cudaLibraryEnumerateKernels", "pup")
def kernels(out: int, number: int, library: int) -> None:
    modules.kernels(out, number, library)


@api("cudaLibraryGetGlobal cudaLibraryGetManaged", "pppp")
def get_variable(out: int, size: int, library: int, name: int) -> None:
    modules.module_global(out, size, library, name)


refuses("functions that the host and the device have in common are not modelled", "cudaLibraryGetUnifiedFunction")
