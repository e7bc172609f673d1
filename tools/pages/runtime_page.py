"""The page of CUDA's runtime, docs/reference/cuda-runtime.md: what each exported function does, from the rows of doors/cudart."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mmulator.doors.cudart import binaries, rows, table

HEAD = "<!-- Made by tools/pages/spec_map.py from the rows of doors/cudart; do not edit. -->\n\n"
# Chapters of the page, and what names of functions in it match; the first that fits
CHAPTERS = (
    ("Graphs and captures", r"Graph(?!ics)|Captur|UserObject"),
    ("Textures, surfaces, arrays", r"Array|Texture|Surface|ChannelDesc"),
    ("Other interfaces and processes", r"Graphics|cudaGL|EGL|VDPAU|External|NvSci|Ipc|Import|Export"),
    ("Streams", r"Stream"),
    ("Events", r"Event"),
    ("Libraries of kernels", r"cudaLibrary"),
    ("Occupancy", r"Occupancy"),
    ("Launches and kernels", r"Launch|Func|Kernel|CallConfiguration|Symbol(?:Address|Size)|SetDouble|EntryPoint"),
    ("Pools of memory", r"Pool"),
    ("Copies and fills", r"Memcpy|Memset"),
    ("Memory", r"Malloc|Free|HostAlloc|HostRegister|HostUnregister|HostGet|Mem|Pointer"),
    ("Errors and logs", r"Error|Logs|Profiler"),
    ("Binaries", r"__cuda"),
    ("Devices", r""),
)


def chapter(name: str) -> str:
    return next(title for title, names in CHAPTERS if re.search(names, name))


def cell(names: Iterable[str]) -> str:
    """Names as one cell of a table. A star: only CUDA 12 exports it; two: only CUDA 13."""
    stars = {(12,): "\\*", (13,): "\\*\\*"}
    return ", ".join(f"`{name}`{stars.get(rows.exports()[name], '')}" for name in sorted(names))


def page() -> str:
    rows.complete()
    names = [n for n in rows.ROWS if n in rows.exports() and not n.endswith(("_ptsz", "_ptds")) and n not in binaries.LOGGED]
    kinds = {n: rows.ROWS[n].kind for n in names}
    total = {kind: sum(k == kind for k in kinds.values()) for kind in (rows.DOES, rows.ACCEPTS, rows.REFUSES)}
    lines = [
        HEAD + "# The functions of CUDA's runtime", "",
        "Which functions of CUDA's runtime run in a program of CUDA C++, and what the others answer. `libcudart.so` of this "
        "package exports every name of NVIDIA's library. Of",
        f"{len(names)} functions {total[rows.DOES]} do what they say, {total[rows.ACCEPTS]} succeed because there is nothing",
        f"to do, and {total[rows.REFUSES]} return `cudaErrorNotSupported` (801), with a line on standard error",
        "that says why. How to run a program is in [CUDA C++](../how-to/cuda.md). A star: only CUDA",
        "12 has the name; two stars: only CUDA 13. Functions with `_ptsz` or `_ptds` behind",
        "the name, for the default stream of each thread, are those without.",
        "", "## What runs", "", "| chapter | functions |", "| --- | --- |",
    ]  # fmt: skip
    for title, _ in CHAPTERS:
        does = [n for n in names if kinds[n] == rows.DOES and chapter(n) == title]
        if does:
            lines.append(f"| {title} | {cell(does)} |")
    for kind, heading in ((rows.ACCEPTS, "What succeeds without an effect"), (rows.REFUSES, "What is refused")):
        lines += ["", f"## {heading}", "", "| why | functions |", "| --- | --- |"]
        reasons: dict[str, list[str]] = {}
        for n in names:
            if kinds[n] == kind:
                reasons.setdefault(rows.ROWS[n].why, []).append(n)
        lines += [f"| {why} | {cell(which)} |" for why, which in sorted(reasons.items())]
    assert table.CHAPTERS
    return "\n".join(lines) + "\n"
