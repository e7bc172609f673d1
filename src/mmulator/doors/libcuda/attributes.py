"""Attributes of kernels about the clusters in which they are launched (CUfunction_attribute)."""

from mmulator.doors.libcuda.abi import Refused
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import CudaKernel
from mmulator.errors import LaunchError
from mmulator.ptx.directives import clusters

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
