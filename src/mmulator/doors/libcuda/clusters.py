"""Launches as configurations (CUlaunchConfig), clusters of blocks, and how many clusters a device holds."""

import ctypes
import struct
from dataclasses import dataclass
from math import prod

from mmulator.base.errors import LaunchError
from mmulator.doors.libcuda.abi import Refused, answers, get, unsupported
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.modules import (
    MUST_BE_SET,
    NON_PORTABLE,
    blocks_per_multiprocessor,
    cluster_attributes,
    required_cluster,
)
from mmulator.doors.libcuda.state import CudaKernel, state
from mmulator.runtime.launch.limits import MAX_CLUSTER, PORTABLE_CLUSTER, cluster_shape

Extent = tuple[int, int, int]
_COOPERATIVE, _CLUSTER, DEPENDENT = 2, 4, 6  # CUlaunchAttributeID; the last: programmatic stream serialisation
_EVENTS = (7, 12)  # programmatic event, launch completion event: recorded when the launch is over, which is soon enough
# Attributes that change when or where work is done, and no result: cache policies, priorities, memory domains,
# scheduling, preferred cluster, shared memory carve-out.
_HARMLESS = {0, 1, 3, 5, 8, 9, 10, 11, 14, 15, 16}
_SIZE = 72  # bytes of a CUlaunchAttribute; its value begins at byte 8


@dataclass(frozen=True)
class Configuration:
    """A CUlaunchConfig.

    events: handles of events that are recorded.
    dependent: it may begin before the launch in front of it is over.
    """


    grid: Extent
    block: Extent
    shared: int
    stream: int
    cooperative: bool
    cluster: Extent | None
    events: tuple[int, ...]
    dependent: bool = False


_CONFIG = struct.Struct("<7I4xQQI")


def configuration(config: int) -> Configuration:
    """The configuration at an address. Raises Refused for an unsupported attribute."""
    gx, gy, gz, bx, by, bz, shared, stream, attributes, number = _CONFIG.unpack(ctypes.string_at(config, _CONFIG.size))
    return configured((gx, gy, gz), (bx, by, bz), shared, stream, attributes, number)


def configured(grid: Extent, block: Extent, shared: int, stream: int, attributes: int, number: int) -> Configuration:
    """A configuration with its launch attributes read.

    grid, block: blocks, and threads of a block, (x, y, z) each.
    shared: bytes of dynamic shared memory.
    stream: a handle.
    attributes: address of the first CUlaunchAttribute.
    number: of the attributes.

    Raises Refused for an unsupported attribute.
    """
    cooperative, cluster, events, dependent = False, None, [], False
    for at in range(attributes, attributes + _SIZE * number, _SIZE):
        which = get(at, 4)
        if which == _COOPERATIVE:
            cooperative = get(at + 8, 4) != 0
        elif which == _CLUSTER:
            x, y, z = struct.unpack("<3I", ctypes.string_at(at + 8, 12))
            cluster = (x, y, z)
        elif which == DEPENDENT:
            dependent = get(at + 8, 4) != 0
        elif which in _EVENTS:
            events.append(get(at + 8))
        elif which not in _HARMLESS:
            raise unsupported("cuLaunchKernelEx", f"launch attribute {which}")
    return Configuration(grid, block, shared, stream, cooperative, cluster, tuple(events), dependent)


def checked(kernel: CudaKernel, grid: Extent, cluster: Extent | None) -> Extent | None:
    """The cluster of a launch: the one that it names, or else the one that the kernel requires. Raises Refused as CUDA's driver
    does.
    """
    attributes = cluster_attributes(kernel)
    try:
        _, shape = cluster_shape(
            cluster if cluster is not None else required_cluster(kernel), kernel.function.kernel.head, grid,
            state().driver.device.name,
        )  # fmt: skip
    except LaunchError as error:
        raise Refused(Code.INVALID_CLUSTER_SIZE, error) from None
    if shape is None and attributes[MUST_BE_SET]:
        why = LaunchError(f"{kernel.function.name} must be launched in clusters, and the launch names none")
        raise Refused(Code.INVALID_CLUSTER_SIZE, why)
    if shape is not None and prod(shape) > PORTABLE_CLUSTER and not attributes[NON_PORTABLE]:
        raise Refused(Code.INVALID_CLUSTER_SIZE, LaunchError(
            f"{kernel.function.name}: a cluster of {shape} has {prod(shape)} blocks, and {PORTABLE_CLUSTER} are portable",
            hint="set CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED first",
        ))  # fmt: skip
    return shape


def active(kernel: CudaKernel, size: int, block: Extent, shared: int) -> int:
    """Number of clusters that the device holds at once.

    kernel: what is launched.
    size: blocks of a cluster.
    block: threads of a block.
    shared: bytes of dynamic shared memory of a block.
    """
    # CUTLASS asks with a kernel of one thread and a block of 128, and counts on an answer: the kernel's own limit does not matter
    return state().driver.device.clusters(size, blocks_per_multiprocessor(kernel, prod(block), shared, prod(block)))


def active_clusters(handle: int, asked: Configuration) -> int:
    """How many clusters of a launch the device holds at once. Raises Refused for a launch without clusters."""
    kernel = state().find(handle, CudaKernel)
    cluster = checked(kernel, asked.grid, asked.cluster)
    if cluster is None:
        raise Refused(Code.INVALID_CLUSTER_SIZE, LaunchError("the launch names no cluster"))
    return active(kernel, prod(cluster), asked.block, asked.shared)


def cluster_size(handle: int, asked: Configuration) -> int:
    """The largest cluster size of which the device holds one. The cluster that the configuration names does not matter."""
    kernel = state().find(handle, CudaKernel)
    most = MAX_CLUSTER if cluster_attributes(kernel)[NON_PORTABLE] else PORTABLE_CLUSTER
    held = [n for n in range(1, most + 1) if active(kernel, n, asked.block, asked.shared)]
    return max(held, default=0)


answers("cuOccupancyMaxActiveClusters", "ppp", lambda handle, config: active_clusters(handle, configuration(config)))
answers("cuOccupancyMaxPotentialClusterSize", "ppp", lambda handle, config: cluster_size(handle, configuration(config)))
