"""Compiled kernels from earlier processes: found by the key of their source, without lowering it again.

The key covers the text, the kernel's name, the device, the options and the package's files. An entry of the store
(base/codegen/store.py) has one line of JSON and the tables of the kernel (base/codegen/references.py). Its code is stored
separately, by the keys of its texts, so that better code is found if there is some. An entry that does not fit, or whose code is
gone, is ignored.
"""

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from mmulator.base.codegen import loading, references
from mmulator.base.codegen.engine import key_of
from mmulator.base.codegen.locks import Lock
from mmulator.base.codegen.sources import fingerprint
from mmulator.base.codegen.store import store
from mmulator.base.errors import MmulatorError
from mmulator.base.lazy import cached_property
from mmulator.ptx.program.image import ModuleImage
from mmulator.runtime.code import BlockCode
from mmulator.runtime.compiled import CompiledKernel, KernelFacts, Lowered, MatrixTables
from mmulator.runtime.native.state import KINDS
from mmulator.runtime.options import CompileOptions

OWN = __name__.partition(".")[0] + "."
Writer = Callable[[], Any]  # what writes the texts again: kernel.Source


def key(text: str, entry: str, device: str, options: CompileOptions) -> str | None:
    """The store's key of a kernel. None without a store, and of an instrument that is not the package's own."""
    events = options.events
    hooks = events.hooks.values() if events is not None else ()
    if not store() or not fingerprint() or not all(f.function.__module__.startswith(OWN) for f in hooks):
        return None
    flags: list[object] = [options.contract, options.step, options.waits, options.clusters]
    if events is not None:
        flags += [events.name, options.keep_going, options.watched]
    return key_of("kernel", fingerprint(), entry, device, json.dumps(flags), text)


# to keep --------------------------------------------------------------------------------------------------------------
def keep(key: str, kernel: CompiledKernel) -> None:
    """Store a kernel for later processes, unless it contains an address without a name."""
    kept = store()
    if kept and kernel.blocks.keys:
        with suppress(references.Unknown):
            kept.write(key, _entry(kernel))


def _entry(kernel: CompiledKernel) -> bytes:
    matrix = kernel.matrix
    written = memory_of(matrix)
    known = {t.ctypes.data for t in matrix.wgmma}
    head = {
        "facts": vars(kernel.facts),
        "blocks": len(kernel.code),
        "code": kernel.blocks.keys,
        "natives": kernel.blocks.natives,
        "queues": {kind.name: written.place(at) for kind, at in kernel.queues.items()},
        "movers": [(number, written.place(at)) for number, at in kernel.movers.items()],
        "tables": [(written.add(t), t.nbytes, t.ctypes.data in known) for t in matrix.tables],
        "tiles": [(*key, number) for key, number in matrix.tiles.items()],
        "matrix": (matrix.tile_bytes, matrix.a_pack, matrix.b_pack, matrix.scratch_bytes, matrix.tensor),
        "references": written.references,
    }
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + written.data


def memory_of(matrix: MatrixTables) -> references.LinkedArrays:
    """The places of tables, and of everything to which they refer, for storing."""
    return references.LinkedArrays([*matrix.tables, *_arrays(matrix.keep)], loading.name_of_own)


def _arrays(items: Iterable[Any]) -> list[np.ndarray]:
    """All arrays in `items`, and in the objects that these keep alive."""
    found = []
    for item in items:
        if isinstance(item, np.ndarray):
            found.append(item)
        else:
            found += _arrays([*getattr(item, "keep", ()), *([item.table] if hasattr(item, "table") else ())])
    return found


# to find --------------------------------------------------------------------------------------------------------------
class _Again:
    """The source of a kernel, lowered again on demand for faults, reports and better code."""

    def __init__(self, write: Writer) -> None:
        self._write, self._lock = write, Lock()

    @cached_property
    def _made(self) -> Any:
        return self._write()

    def __call__(self) -> Lowered:
        with self._lock:
            made: Lowered = self._made
            return made

    def texts(self) -> tuple[list[str], list[Any]]:
        with self._lock:
            return self._made.texts, self._made.natives


def find(key: str, image: ModuleImage, write: Writer) -> CompiledKernel | None:
    """A stored kernel, with memory of this process's module; None if there is none. write: called if its source is needed."""
    start, kept = time.perf_counter(), store()
    data = kept.read(key) if kept else None
    if data is None:
        return None
    try:
        kernel = _kernel(data, image, write)
    except (MmulatorError, LookupError, ValueError, TypeError, AttributeError, RuntimeError):  # whatever else may stand there
        return None
    kernel.seconds = time.perf_counter() - start
    return kernel


def _kernel(data: bytes, image: ModuleImage, write: Writer) -> CompiledKernel:
    first, _, tables = data.partition(b"\n")
    head = json.loads(first)
    again = _Again(write)
    blocks = BlockCode.kept(head["blocks"], head["code"], head["natives"], again.texts)
    places = [*head["queues"].values(), *(place for _, place in head["movers"]), *(place for _, place in head["references"])]
    names = {place[1] for place in places if place[0] == "function"}
    if not loading.ensure_named(names):
        raise LookupError(names)
    functions = loading.symbols(names)
    memory = references.memory_of(tables, head["references"], functions)
    matrix = MatrixTables([memory[at : at + size] for at, size, _ in head["tables"]], keep=[memory])
    matrix.wgmma = [table for table, (_, _, is_one) in zip(matrix.tables, head["tables"], strict=True) if is_one]
    matrix.tiles = {(name, n, bits, tuple(slots)): number for name, n, bits, slots, number in head["tiles"]}
    matrix.tile_bytes, a_pack, b_pack, matrix.scratch_bytes, matrix.tensor = head["matrix"]
    matrix.a_pack, matrix.b_pack = tuple(a_pack), tuple(b_pack)
    return CompiledKernel(
        KernelFacts(**head["facts"]), image, matrix,
        {kind: references.address_of(head["queues"][kind.name], functions) for kind in KINDS if kind.name in head["queues"]},
        {number: references.address_of(place, functions) for number, place in head["movers"]},
        blocks, again, 0.0, True,
    )  # fmt: skip
