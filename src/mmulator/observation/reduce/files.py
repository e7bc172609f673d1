"""A launch as files that `mmulator run` takes: PTX, a launch file, and arrays that are too long for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.base.files import replacing, write
from mmulator.host.jobs.inputs import Argument, is_integer
from mmulator.host.jobs.job import Job
from mmulator.host.jobs.maps import resolve
from mmulator.isa.types import MAP_BYTES
from mmulator.observation.record.launches.capture import EXPECTED, LAUNCH, MEMORY, raw_array, type_name
from mmulator.ptx.symbols import Parameter
from mmulator.runtime.launch.regions import pointer
from mmulator.runtime.launch.values import Aggregate, is_map, map_bytes

KERNEL = "kernel.ptx"
_INLINE = 64  # elements that stand in the launch file itself
_FIRST, _APART = 0x7E0000000000, 1 << 32  # addresses of arrays to which structs and tensor maps point


def plain(job: Job, params: Sequence[Parameter]) -> Job:
    """A launch that has bytes and arrays at addresses where another has structs that point, and tensor maps.

    params: of the kernel.
    """
    found = [resolve(a.value, job.arrays()) for a in job.arguments]
    if not any(is_map(v) or (isinstance(v, Aggregate) and v.pointers) for v in found):
        return job
    named = {pointer(a.value): a for a in job.named() if isinstance(a.value, np.ndarray)}
    taken: dict[int, int] = {}

    def address(array: np.ndarray[Any, Any]) -> int:
        where = pointer(array)
        given = named[where].address if where in named else None
        return taken.setdefault(where, given or _FIRST + _APART * len(taken))

    arguments, memory = [], [*job.memory]
    for n, (a, value) in enumerate(zip(job.arguments, found)):
        if is_map(value):
            value = map_bytes(value, a.name)
        if isinstance(value, Aggregate):
            data = bytearray(value.data)
            for offset, array in value.pointers.items():
                word = int.from_bytes(data[offset : offset + 8], "little") + address(array)
                data[offset : offset + 8] = word.to_bytes(8, "little")
            value = bytes(data)
            if len(value) == MAP_BYTES and n < len(params) and not params[n].shape:  # a pointer to the map
                place = _FIRST + _APART * (64 + n)
                memory.append(Argument(f"{a.name}_map", np.frombuffer(value, np.uint8).copy(), address=place))
                value = place
        arguments.append(replace(a, value=value, pointed=()))
    known = {pointer(a.value) for a in arguments if isinstance(a.value, np.ndarray)}
    memory += [replace(named[at], address=place, pointed=()) for at, place in taken.items() if at in named and at not in known]
    arguments = [
        replace(a, address=taken.get(pointer(a.value), a.address)) if isinstance(a.value, np.ndarray) else a for a in arguments
    ]  # fmt: skip
    return replace(job, arguments=arguments, memory=memory)


def write_launch(folder: Path, job: Job, text: str, said: Sequence[str]) -> int:
    """Write a launch into a folder; the bytes of its files. said: lines for people at its head."""
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
    return sum((folder / name).stat().st_size for name in (KERNEL, LAUNCH, EXPECTED, MEMORY) if (folder / name).exists())


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

