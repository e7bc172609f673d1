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
Lower = Callable[[], Any]  # what lowers the kernel again: a kernel.Jit


def key(text: str, entry: str, device: str, options: CompileOptions) -> str | None:
    """The store's key of a kernel. None without a store, and of an instrument that is not the package's own."""
    events = options.events
    hooks = events.hooks.values() if events is not None else ()
    if not store() or not fingerprint() or not all(f.function.__module__.startswith(OWN) for f in hooks):
        return None
    flags: list[object] = [options.contract, options.step, options.waits, options.clusters]
    if events is not None:
        flags += [events.name, options.keep_going, options.watched, options.turns]
    return key_of("kernel", fingerprint(), entry, device, json.dumps(flags), text)


# to keep --------------------------------------------------------------------------------------------------------------
def keep(key: str, kernel: CompiledKernel) -> None:
    """Store a kernel for later processes, unless it contains an address without a name."""
    kept = store()
    if kept and kernel.blocks.keys:
        with suppress(references.Unknown):
            kept.write(key, _entry(kernel))
            kernel.stored = StoredAnswers(key)


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


class StoredAnswers:
    """Answers about a kernel that take its source (CompiledKernel.once_stored), in one entry of the store beside its code."""

    def __init__(self, key: str) -> None:
        self._key, self._lock = key_of("answers", key), Lock()

    @cached_property
    def _known(self) -> dict[str, Any]:
        kept = store()
        data = kept.read(self._key) if kept else None
        try:
            known = json.loads(data) if data else {}
            return known if isinstance(known, dict) else {}
        except ValueError:
            return {}

    def __call__(self, name: str, computed: Callable[[], Any]) -> Any:
        """The stored answer of a name, or the computed one, which is then stored."""
        with self._lock:
            if name in self._known:
                return _answer(self._known[name])
        found = computed()
        with self._lock:
            self._known[name] = _as_data(found)
            if kept := store():
                kept.write(self._key, json.dumps(self._known, separators=(",", ":")).encode())
        return found


def _as_data(answer: Any) -> Any:
    """An answer as JSON. An array is an object with its type and its bytes in hexadecimal digits."""
    return {"type": answer.dtype.str, "bytes": answer.tobytes().hex()} if isinstance(answer, np.ndarray) else answer


def _answer(data: Any) -> Any:
    if isinstance(data, dict):
        return np.frombuffer(bytearray.fromhex(data["bytes"]), data["type"])
    return tuple(map(_answer, data)) if isinstance(data, list) else data


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
    """The source of a kernel, lowered again on demand for faults and reports, and with its texts for better code."""

    def __init__(self, lower: Lower, places: list[int]) -> None:
        self._lower, self._places, self._lock = lower, places, Lock()

    @cached_property
    def _jit(self) -> Any:
        return self._lower()

    @cached_property
    def _written(self) -> Any:
        return self._jit.written()

    def __call__(self) -> Lowered:
        with self._lock:
            made: Lowered = self._jit.located(self._places) if self._places else self._written
            return made

    def texts(self) -> tuple[list[str], list[Any]]:
        with self._lock:
            return self._written.texts, self._written.natives


def find(key: str, image: ModuleImage, lower: Lower) -> CompiledKernel | None:
    """A stored kernel, with memory of this process's module; None if there is none. lower: called if its source is needed."""
    start, kept = time.perf_counter(), store()
    data = kept.read(key) if kept else None
    if data is None:
        return None
    try:
        kernel = _kernel(data, image, lower)
    except (MmulatorError, LookupError, ValueError, TypeError, AttributeError, RuntimeError):  # whatever else may stand there
        return None
    kernel.stored = StoredAnswers(key)
    kernel.seconds = time.perf_counter() - start
    return kernel


def _kernel(data: bytes, image: ModuleImage, lower: Lower) -> CompiledKernel:
    first, _, tables = data.partition(b"\n")
    head = json.loads(first)
    again = _Again(lower, head["facts"]["places"])
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
