"""Limits of a launch on a chip (CUDA C++ Programming Guide, Technical Specifications per Compute Capability)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

from mmulator.base.errors import LaunchError, UnsupportedError
from mmulator.isa.chips import REGISTERS, as_device
from mmulator.isa.targets import DEVICES, Target
from mmulator.ptx.directives import clusters
from mmulator.ptx.symbols import Declared

if TYPE_CHECKING:
    from mmulator.ptx.tree import Function
    from mmulator.runtime.launch.shape import LaunchShape

KIB = 1024
# Shared memory of one CTA in KiB, opted in. sm_107: as ptxas 13.5 counts it; a larger size, of a driver to come, is not there.
SHARED_KIB: dict[str, int] = {
    "sm_70": 96, "sm_72": 96, "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_87": 163, "sm_89": 99, "sm_90": 227,
    "sm_100": 227, "sm_103": 227, "sm_107": 227, "sm_110": 227, "sm_120": 99, "sm_121": 99,
}  # fmt: skip
# Of a multiprocessor (CUDA C++ Programming Guide, Technical Specifications per Compute Capability): threads, blocks, KiB of
# shared memory; and how many a chip has.
MULTIPROCESSOR: dict[str, tuple[int, int, int]] = {
    "sm_70": (2048, 32, 96), "sm_72": (2048, 32, 96), "sm_75": (1024, 16, 64), "sm_80": (2048, 32, 164), "sm_86": (1536, 16, 100),
    "sm_87": (1536, 16, 164), "sm_89": (1536, 24, 100), "sm_90": (2048, 32, 228), "sm_100": (2048, 32, 228),
    "sm_103": (2048, 32, 228), "sm_107": (2048, 32, 228), "sm_110": (1536, 24, 228), "sm_120": (1536, 24, 100),
    "sm_121": (1536, 24, 100),
}  # fmt: skip
MULTIPROCESSORS: dict[str, int] = {
    "sm_70": 80, "sm_72": 8, "sm_75": 40, "sm_80": 108, "sm_86": 82, "sm_87": 16, "sm_89": 128, "sm_90": 132, "sm_100": 148,
    "sm_103": 148, "sm_107": 148, "sm_110": 20, "sm_120": 170, "sm_121": 48,
}  # fmt: skip
CLUSTERED_BLOCKS = 8  # of a multiprocessor, if they are launched in clusters (an H200 counts 1056)
# Multiprocessors of each group that may share a cluster of more than two blocks, as one H200 answers: the others of its 132
# are in none. Of a chip that nobody asked, all are in one.
GROUPS: dict[str, tuple[int, ...]] = {"sm_90": (18, 18, 16, 16, 16, 16, 16, 8)}
GRANULE = 256  # registers that a warp is given at a time, in each of a multiprocessor's four parts
MAX_LOCAL = 512 * KIB  # local memory of a thread
LARGE = 1 << 22  # bytes of a cluster from which on the memory of this machine is looked at
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)


def check_device(given: str, target: Target) -> str:
    """The device of a launch, as `sm_90`. Raises UnsupportedError if PTX for `target` cannot run on it."""
    device = as_device(given)
    if not target.runs_on(device):
        runs = [d for d in DEVICES if target.runs_on(d)]
        other = f"choose device {runs[0]}, or" if runs else f"no device that runs {target} is modelled:"
        raise UnsupportedError(
            f"PTX for {target} does not run on {device}",
            rule=".target (PTX ISA 9.1): code runs on its target and later ones; `a` targets on that chip alone",
            hint=f"{other} compile for an older target",
        )
    return device


def dimensions(value: object, what: str, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    """An int or up to three ints as (x, y, z). Raises LaunchError."""
    items = (value,) if not isinstance(value, tuple | list) else tuple(value)
    try:
        numbers = [int(i) for i in items]
        exact = all(n == i for n, i in zip(numbers, items))
    except (TypeError, ValueError, OverflowError):
        raise LaunchError(f"{what} is {value!r}, not one to three whole numbers") from None
    if not exact or not 1 <= len(numbers) <= 3:
        raise LaunchError(f"{what} is {value!r}, not one to three whole numbers")
    x, y, z = [*numbers, 1, 1][:3]
    for axis, n, limit in zip("xyz", (x, y, z), limits):
        if not 1 <= n <= limit:
            raise LaunchError(f"{what} has {axis} = {n}; it must be 1 to {limit}")
    return x, y, z


def check_block(block: tuple[int, int, int]) -> int:
    """Threads of a CTA. Raises LaunchError over 1024."""
    threads = block[0] * block[1] * block[2]
    if threads > MAX_THREADS:
        raise LaunchError(f"a block of {block} has {threads} threads; at most {MAX_THREADS} are allowed")
    return threads


def check_shared(static: int, dynamic: int, device: str) -> int:
    """Shared bytes of a CTA. Raises LaunchError over what the chip has."""
    limit = SHARED_KIB[device] * KIB
    if dynamic < 0:
        raise LaunchError(f"shared is {dynamic}; it must be 0 or more bytes")
    if static + dynamic > limit:
        raise LaunchError(
            f"{static} static and {dynamic} dynamic bytes of shared memory are more than the {limit} of {device}",
            hint="use fewer pipeline stages or a smaller tile",
        )
    return static + dynamic


def check_local(functions: Iterable[Function]) -> None:
    """Raises LaunchError if the local variables of a function are more than a thread has."""
    for function in functions:
        total = 0
        for v in function.variables:
            if v.space in ("local", "param"):
                total += v.size
                if total > MAX_LOCAL:
                    raise LaunchError(
                        f"with {v.name.partition('@')[0]} the local memory of {function.name} takes {total} bytes a thread; "
                        f"at most {MAX_LOCAL} are allowed", span=v.span,
                    )  # fmt: skip


def host_memory() -> int:
    """Bytes of memory that this machine has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 1 << 34


def check_host(cluster_bytes: int, workers: int) -> int:
    """How many clusters of so many bytes may be held at once. Raises LaunchError if this machine cannot hold one a worker."""
    if cluster_bytes < LARGE:
        return 1 << 20
    room = host_memory() // 2
    if cluster_bytes * workers > room:
        raise LaunchError(
            f"{workers} thread block{'s' * (workers > 1)} of {cluster_bytes} bytes{' each' * (workers > 1)} (registers, "
            f"local and shared memory) do{'es' * (workers == 1)} not fit into the memory of this machine",
            hint="fewer threads a block" + ", or --threads 1 (threads=1)" * (workers > 1),
        )  # fmt: skip
    return max(workers, room // 2 // max(cluster_bytes, 1))


MAX_CLUSTER, PORTABLE_CLUSTER = 16, 8  # blocks of a cluster: at all, and on every chip that has clusters
_DIRECTIVE = "Cluster Dimension Directives: .{} (PTX ISA 9.1)"


def cluster_shape(
    value: Any, function: Declared, grid: tuple[int, int, int], device: str
) -> tuple[tuple[int, int, int], tuple[int, int, int] | None]:
    """The grid in blocks, and the blocks of a cluster: what the launch says, or else the kernel, or else None. Raises
    LaunchError; an H200's driver answers the same with CUDA_ERROR_INVALID_CLUSTER_SIZE."""
    said, name = clusters(function), function.name
    cluster = said.shape
    if value is not None:
        cluster = dimensions(value, "cluster", (MAX_CLUSTER, MAX_CLUSTER, MAX_CLUSTER))
    if cluster is None:
        if said.explicit:
            raise LaunchError(
                f"{name} asks for a cluster (.explicitcluster), and the launch names none",
                rule=_DIRECTIVE.format("explicitcluster"), hint="launch it with cluster=(x, y, z), or --cluster x,y,z",
            )  # fmt: skip
        return grid, None
    if said.shape not in (None, cluster):
        raise LaunchError(
            f"{name} is compiled for clusters of {said.shape} (.reqnctapercluster), not {cluster}",
            rule=_DIRECTIVE.format("reqnctapercluster"), hint="leave cluster out: the kernel says it",
        )  # fmt: skip
    _check_cluster(cluster, said.most, function, device)
    if said.blocks:
        grid = dimensions([n * c for n, c in zip(grid, cluster)], "the grid, in blocks,", MAX_GRID)
    for axis, n, c in zip("xyz", grid, cluster):
        if n % c:
            raise LaunchError(
                f"the grid has {axis} = {n}, which is no multiple of the {c} blocks of a cluster",
                rule="a grid consists of whole clusters: Cluster of Cooperative Thread Arrays (PTX ISA 9.1)",
                hint=f"round the grid up to {axis} = {-(-n // c) * c}, and let the blocks too many do nothing",
            )  # fmt: skip
    return grid, cluster


def _check_cluster(cluster: tuple[int, int, int], most: int | None, function: Declared, device: str) -> None:
    """Raises LaunchError for a cluster that the device or the kernel does not take."""
    size = prod(cluster)
    if most is not None and size > most:
        raise LaunchError(
            f"{function.name} is compiled for clusters of at most {most} blocks (.maxclusterrank), not {size}",
            rule=_DIRECTIVE.format("maxclusterrank"),
        )
    if size > 1 and int(device[3:]) < 90:
        raise LaunchError(f"{device} has no clusters; cluster is {cluster}", hint="leave cluster out, or choose sm_90 or later")
    if size > MAX_CLUSTER:
        raise LaunchError(
            f"a cluster of {cluster} has {size} blocks; at most {MAX_CLUSTER} are allowed",
            hint=f"{PORTABLE_CLUSTER} run on every chip that has clusters, {MAX_CLUSTER} where the kernel allows itself a size "
            "that is not portable",
        )  # fmt: skip


def reserved(device: str) -> int:
    """Bytes of shared memory that the system takes of each block."""
    return KIB if int(device[3:]) >= 80 else 0


def held_by(device: str, threads: int, shared: int, registers: int = 0, room: int | None = None) -> dict[str, int]:
    """How many blocks a multiprocessor holds at once by each of its limits: an H200's answers are the least of these.

    device: as `sm_90`.
    threads: of a block.
    shared: its bytes of shared memory.
    registers: of a thread; 0 if that is not known.
    room: bytes of shared memory of the multiprocessor, if not all of it.
    """
    most_threads, most_blocks, kib = MULTIPROCESSOR[device]
    warps, taken = max(-(-threads // 32), 1), -(-(shared + reserved(device)) // 128) * 128
    room = kib * KIB if room is None else room
    held = {"threads": most_threads // 32 // warps, "blocks": most_blocks}
    held["shared memory"] = room // taken if taken else most_blocks
    if registers:
        held["registers"] = REGISTERS // 4 // (-(-registers * 32 // GRANULE) * GRANULE) * 4 // warps
    return held


def check_cooperative(shape: LaunchShape, static_shared: int, device: str) -> None:
    """Raises LaunchError for a cooperative grid that the chip does not hold at once, by threads, blocks and shared memory (how
    many registers a kernel takes only ptxas knows). static_shared: bytes of shared memory that the kernel declares."""
    threads, shared = shape.threads, static_shared + shape.shared
    held = min(held_by(device, threads, shared).values())
    most = (min(held, CLUSTERED_BLOCKS) if shape.explicit else held) * MULTIPROCESSORS[device]
    if shape.ctas > most:
        raise LaunchError(
            f"a cooperative grid of {shape.ctas} blocks: {device} holds {most} of {threads} threads and {shared} bytes of shared "
            "memory at once", rule="CUDA Driver API: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
            hint="fewer blocks, each of which does the work of several",
        )  # fmt: skip


# kinds of what a launch is given ------------------------------------------------------------------------------------
def whole(value: Any, what: str, least: int | None = None) -> int:
    """An integer of any kind but bool. Raises LaunchError."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise LaunchError(f"{what} is {_shown(value)}, not a whole number") from None
    if least is not None and number < least:
        raise LaunchError(f"{what} is {number}; it must be {least} or more")
    return number


def as_order(value: Any) -> int | tuple[int, ...] | None:
    """The seed of the order in which blocks begin, threads in the order of their turns, or None. Raises LaunchError."""
    if value is None or hasattr(value, "__index__"):
        return None if value is None else whole(value, "order", 0)
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise LaunchError(f"order is {_shown(value)}, neither a whole number nor a list of threads")
    return tuple(whole(thread, "a thread of order", 0) for thread in value)


def seconds(value: Any) -> float | None:
    """A time limit, or None. Raises LaunchError."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if isinstance(value, str | bool) or not number >= 0:
        raise LaunchError(f"timeout is {_shown(value)}, not a number of seconds")
    return number


def sequence(value: Any, what: str) -> list[Any]:
    """The items of a list, a tuple or the like. Raises LaunchError."""
    if type(value) in (list, tuple):
        return list(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping) and not hasattr(value, "dtype"):
        return list(value)
    raise LaunchError(f"{what} is {_shown(value)}, not a list or tuple")


def watched(value: Any) -> list[tuple[Any, Any]]:
    """(number of the argument, index) of each watched element. Raises LaunchError."""
    found = [sequence(item, "an element of watch") for item in sequence(value, "watch")]
    if any(len(item) != 2 for item in found):
        raise LaunchError("watch lists elements as (number of the argument, index)")
    return [(argument, place) for argument, place in found]


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bytes | None) else f"of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
