"""Differences between the versions of Triton that the plug-in knows, in one table, and the errors for other versions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

from mmulator.errors import UnsupportedError


@dataclass(frozen=True)
class Interface:
    """The interface of a version.

    scratch: pointers that the compiler adds behind a kernel's parameters (global memory, profile).
    flags: parameters behind the shape and strides of a tensor descriptor that is taken apart.
    doubled: the shape that a kernel gets of a padded 4-bit tensor counts elements, not bytes.
    cluster_dims: metadata has the three extents of a cluster; later versions have num_ctas, along x.
    fills: names of the driver's utilities that make tensor maps, each with its function of descriptors.py.
    """

    scratch: int
    flags: tuple[str, ...]
    doubled: bool = False
    cluster_dims: bool = False
    fills: Mapping[str, str] = field(
        default_factory=lambda: {"fill_tma_descriptor_tiled": "fill_tiled", "fill_tma_descriptor_im2col": "fill_im2col"}
    )


_FLAGS = ("padding", "round_f32_to_tf32")
TABLE = {
    (3, 4): Interface(1, (), cluster_dims=True, fills={"fill_tma_descriptor": "fill_memory"}),
    (3, 5): Interface(2, ("padding",), doubled=True, cluster_dims=True, fills={"fill_tma_descriptor": "fill_tiled"}),
    (3, 6): Interface(2, ("padding",), doubled=True, fills={"fill_tma_descriptor": "fill_tiled"}),
    (3, 7): Interface(2, _FLAGS),
    (3, 8): Interface(2, _FLAGS),
    (3, 9): Interface(2, _FLAGS),
}
OLDEST, NEWEST = min(TABLE), max(TABLE)
# Names of Triton that the plug-in uses besides the driver's interface. A newer version with all of them counts as the newest.
USED = (
    ("triton.runtime.jit", "create_function_from_signature"), ("triton.runtime.jit", "JITFunction"),
    ("triton.runtime._allocation", "_allocator"), ("triton.runtime.cache", "get_cache_manager"),
    ("triton.runtime.autotuner", "Autotuner"), ("triton.compiler.compiler", "ASTSource"),
    ("triton.testing", "do_bench"), ("triton._utils", "find_paths_if"),
)  # fmt: skip


def interface() -> Interface:
    """The interface of the installed Triton. Raises UnsupportedError for a version that is too old or too different."""
    import triton

    found = str(getattr(triton, "__version__", "of no version"))
    return known(found, [f"{m}.{name}" for m, name in USED if not _has(m, name)])


def known(version: str, missing: list[str]) -> Interface:
    """The interface of a version. missing: names of `USED` that it lacks."""
    match = re.match(r"(\d+)\.(\d+)", version)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    range_ = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    hint = f'pip install "triton>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"'
    if number < OLDEST:
        raise UnsupportedError(f"Triton {version} is too old: the plug-in works with {range_}", hint=hint)
    if missing:
        raise UnsupportedError(f"Triton {version} has no {missing[0]}, which the plug-in uses: it works with {range_}", hint=hint)
    return TABLE[min(number, NEWEST)]


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False
