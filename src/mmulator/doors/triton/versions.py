"""Differences between the versions of Triton that the plug-in knows, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from mmulator.base.versions import check, number
from mmulator.doors import internals


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
    (3, 5): Interface(2, ("padding",), doubled=True, cluster_dims=True, fills={"fill_tma_descriptor": "fill_tiled"}),
    (3, 6): Interface(2, ("padding",), doubled=True, fills={"fill_tma_descriptor": "fill_tiled"}),
    (3, 7): Interface(2, _FLAGS),
    (3, 8): Interface(2, _FLAGS),
    (3, 9): Interface(2, _FLAGS),
}


@cache
def interface() -> Interface:
    """The interface of the installed Triton. A newer version counts as the newest, with what it lacks by name.

    Raises UnsupportedError for a version that is too old, and for one that lacks what every launch needs.
    """
    import triton

    version = str(getattr(triton, "__version__", "of no version"))
    check("triton", version)
    internals.stand_in("triton", internals.TRITON, needed=internals.LAUNCHES)
    return known(version)


def known(version: str) -> Interface:
    """The interface of a version."""
    newest = max(TABLE)
    return TABLE[min(number(version) or newest, newest)]


def assembler() -> dict[str, str]:
    """The version of the ptxas that Triton would call, as {"ptxas": version}; {} where Triton was not imported or has none."""
    import os
    import re
    import subprocess
    import sys
    from pathlib import Path

    if "triton" not in sys.modules:
        return {}
    own = Path(str(sys.modules["triton"].__file__)).parent / "backends" / "nvidia" / "bin" / "ptxas"
    try:
        said = subprocess.run([os.environ.get("TRITON_PTXAS_PATH") or own, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return {}
    return {"ptxas": found[1]} if (found := re.search(r"V([\d.]+)", said)) else {}
