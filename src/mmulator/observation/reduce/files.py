"""A launch as files that `mmulator run` takes: PTX, a launch file, and arrays that are too long for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.errors import ExecutionFault, LaunchError
from mmulator.base.files import replacing, write
from mmulator.host.instead import instead
from mmulator.host.jobs.inputs import Argument, is_integer
from mmulator.host.jobs.job import Job, load_job, run_job
from mmulator.host.jobs.maps import resolve
from mmulator.observation.record.launches.capture import EXPECTED, LAUNCH, MEMORY, raw_array, type_name
from mmulator.observation.record.launches.capture import write as capture
from mmulator.observation.record.launches.snapshot import LaunchSnapshot
from mmulator.observation.record.names import DeviceNames
from mmulator.observation.reduce.failure import fresh
from mmulator.runtime.launch.values import Aggregate, is_map

if TYPE_CHECKING:
    from mmulator.host.report import Report
    from mmulator.runtime.launch.launch import How, Launch
    from mmulator.runtime.launch.observers import Observer

KERNEL = "kernel.ptx"
_INLINE = 64  # elements that stand in the launch file itself


def plain(job: Job, text: str) -> Job:
    """A launch that has bytes and arrays at addresses where another has structs that point, and tensor maps: what is captured of
    it. text: of the kernel."""
    own = fresh(job, text)
    found = [resolve(a.value, own.arrays()) for a in own.arguments]
    if not any(is_map(v) or (isinstance(v, Aggregate) and v.pointers) for v in found):
        return job
    with TemporaryDirectory(prefix="mmulator-") as folder:

        def captured(launch: Launch, how: How, observers: Sequence[Observer]) -> Report:
            seen = LaunchSnapshot(launch, how.seed, DeviceNames.of(launch, own.arrays()).arrays)
            try:
                return launch.kernel.run_itself(launch, how, [*observers, seen.touched])
            finally:
                seen.over()
                capture(seen, Path(folder), 1, LaunchError("it may have ended"))  # so that all memory is as it was before

        with instead(captured), suppress(ExecutionFault):
            run_job(own, threads=1)
        made = load_job(Path(folder, LAUNCH))
    kept = {name: getattr(job, name) for name in ("ptx", "device", "seed", "waits", "order", "nvcc", "expect")}
    return replace(made, **kept)


def write_launch(folder: Path, job: Job, text: str, said: Sequence[str]) -> None:
    """Write a launch into a folder. said: lines for people at its head."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    lines = [*(f"# {line}" for line in said), f'ptx = "{KERNEL}"', f"grid = {_list(job.grid)}", f"block = {_list(job.block)}"]
    for name in ("entry", "shared", "cluster", "cooperative", "waits", "device", "seed", "order"):
        value = getattr(job, name)
        if value not in (None, 0, False) or (name == "order" and value is not None):
            lines.append(f"{name} = {_list(value) if name == 'cluster' else json.dumps(value)}")
    for key, some in (("arg", job.arguments), ("memory", job.memory)):
        for a in some:
            lines += ["", f"[[{key}]]", *_table(a, arrays)]
    if job.variables:
        tables = (f"{json.dumps(v.name)} = {{ {', '.join([*_table(v, arrays)][1:])} }}" for v in job.variables)
        lines += ["", "[variables]", *tables]
    if job.expect is not None:
        lines += ["", "[expect]", f'file = "{EXPECTED}"', f"source = {json.dumps(job.expect.source)}"]
        with replacing(folder / EXPECTED) as out:
            np.savez(out, **{name: raw_array(a) for name, a in job.expect.arrays.items()})  # type: ignore[arg-type]
    write(folder / KERNEL, text)
    write(folder / LAUNCH, "\n".join([*lines, ""]))
    (folder / MEMORY).unlink(missing_ok=True)
    if arrays:
        with replacing(folder / MEMORY) as out:
            np.savez_compressed(out, **arrays)  # type: ignore[arg-type]


def _list(value: Any) -> str:
    return json.dumps(value if isinstance(value, int) else [*value])


def _table(a: Argument, arrays: dict[str, np.ndarray[Any, Any]]) -> Iterator[str]:
    """The lines of an argument. arrays: those for the file of arrays, to which it adds."""
    yield f"name = {json.dumps(a.name)}"
    if a.address is not None:
        yield f"address = 0x{a.address:x}"
    value = a.value
    if isinstance(value, bytes):
        yield f'hex = "{value.hex(" ", 4)}"'
    elif not isinstance(value, np.ndarray):
        yield f"value = {json.dumps(0 if value is None else value)}"
    else:
        kind = type_name(value.dtype) or f"{value.dtype.kind.replace('i', 's')}{8 * value.dtype.itemsize}"
        wide = value.astype(np.int64 if is_integer(value.dtype) else np.float64)
        yield f'type = "{kind}"'
        if not value.view(np.uint8).any() if value.size else True:
            yield from (f"shape = {[*value.shape]}", "zeros = true")
        elif value.size <= _INLINE and np.isfinite(wide.astype(np.float64)).all() and value.dtype != np.uint64:
            yield f"values = {json.dumps(wide.tolist() if value.ndim else [wide.item()])}"
        else:
            arrays[a.name] = raw_array(value)
            yield f'npz = "{MEMORY}:{a.name}"'

