"""One launch of a program as files: PTX, memory, arguments and what it left, as `mmulator run` takes them.

`MMULATOR_CAPTURE=gemm:2` captures the second launch of a kernel with `gemm` in its name. Memory keeps the addresses that it had,
so that pointers in structs, tensor maps and other memory lead where they led. Of the memory the files have what the launch read;
other bytes are zeros.
"""

import json
import math
import re
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mmulator import __version__
from mmulator.base.demangle import demangle
from mmulator.base.errors import LaunchError, MmulatorError
from mmulator.base.files import replacing
from mmulator.base.files import write as write_file
from mmulator.host.driver.inquiries import ProcessRecord, ProgramLaunch, say
from mmulator.isa.effects import Queue
from mmulator.isa.types import TYPES
from mmulator.observation.record.launches.questions import stored_type
from mmulator.observation.record.launches.snapshot import LaunchSnapshot, MemorySnapshot, SnapshotInquiry, Take
from mmulator.observation.record.names import DeviceArray
from mmulator.observation.record.values import dtype_of
from mmulator.ptx.program.calls import reached
from mmulator.ptx.program.image import ModuleImage
from mmulator.ptx.symbols import Parameter

MEMORY, EXPECTED, LAUNCH = "memory.npz", "expected.npz", "launch.toml"


class Capturing(ProcessRecord):
    """A wish for one launch. kernel: a part of its name. number: of the launch among those, from 1. folder: for the files."""

    def __init__(self, text: str, folder: str) -> None:
        self.kernel, self.number, self.folder = *asked(text), Path(folder)
        self.count, self.done, self.others = 0, False, dict[str, int]()
        super().__init__()

    def wants(self, kernel: str) -> bool:
        """Whether a launch, of this kernel, is the one."""
        name = demangle(kernel)
        self.others[name] = self.others.get(name, 0) + 1
        self.count += self.kernel in name
        return self.kernel in name and self.count == self.number and not self.done

    def take(self, seen: LaunchSnapshot, error: BaseException | None) -> None:
        """Write the launch, and say so."""
        name, self.done = demangle(seen.kernel.name), True
        try:
            size = write(seen, self.folder, self.count, error)
        except (OSError, MmulatorError) as wrong:
            say(f"mmulator: launch {self.count} of {name} cannot be captured: {getattr(wrong, 'message', wrong)}")
        else:
            say(f"mmulator: launch {self.count} of {name} is in {self.folder.name}/{LAUNCH}, {size:,} bytes in all")

    def finish(self) -> None:
        """Say, as the process ends, why nothing was captured."""
        if not self.done and self.others:
            had = ", ".join(f"{name}: {count:,}" for name, count in self.others.items())
            say(f"mmulator: nothing was captured: no launch {self.number} of {self.kernel or 'any kernel'}; launches: {had}")


def asked(text: str) -> tuple[str, int]:
    """(part of a kernel's name, number of the launch) of `gemm:2`; without a number 1. Raises ValueError."""
    kernel, colon, number = text.rpartition(":")
    if not colon or kernel.endswith(":") or not number.isdigit():
        return text, 1
    if int(number) < 1:
        raise ValueError("KERNEL:N, where N is 1 for the first launch")
    return kernel, int(number)


@cache
def capturing(text: str, folder: str) -> Capturing:
    """The wish of this process."""
    return Capturing(text, folder)


class CaptureInquiry(SnapshotInquiry):
    """The wish for a launch as files: `Settings.capture`."""

    def sink(self, one: ProgramLaunch) -> Take | None:
        wish = capturing(one.settings.capture, one.settings.capture_to)
        return wish.take if wish.wants(one.launch.kernel.name) else None


CAPTURE = CaptureInquiry()


# files --------------------------------------------------------------------------------------------------------------
def write(seen: LaunchSnapshot, folder: Path, number: int, error: BaseException | None = None) -> int:
    """Write a launch that is over into a folder; the bytes of all files. error: what ended it.

    Raises LaunchError for what cannot be captured, and OSError.
    """
    capture = _Capture(seen, error is None)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (LAUNCH, EXPECTED, MEMORY):
        (folder / name).unlink(missing_ok=True)
    file = Path(seen.kernel.module.source.name).name
    ptx = file if re.fullmatch(r"[\w.+-]+\.ptx", file) else "kernel.ptx"
    write_file(folder / ptx, without_paths(seen.kernel.module.source.text))
    for name, arrays in ((MEMORY, capture.memory), (EXPECTED, capture.expected)):
        if arrays or name == MEMORY:
            with replacing(folder / name) as out:
                np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    ended = "" if error is None else f"It ended in: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    write_file(folder / LAUNCH, capture.text(ptx, number, ended))
    return sum((folder / name).stat().st_size for name in (ptx, LAUNCH, EXPECTED, MEMORY) if (folder / name).exists())


def without_paths(ptx: str) -> str:
    """PTX without the folders of this machine: of `.file` the name stays, of tables for debuggers the lines, empty."""
    ptx = re.sub(r'(\.file\s+\d+\s+)"([^"]*[/\\])([^"/\\]*)"', r'\1"\3"', ptx)
    return re.sub(r'\.section\s+"?\.debug_(?!str\b)\w+"?\s*\{[^}]*\}', lambda m: "\n" * m[0].count("\n"), ptx)


class _Capture:
    """The contents of the files. memory, expected: arrays by name. exact: the launch came to its end, so that what it touched is
    known."""

    def __init__(self, seen: LaunchSnapshot, exact: bool) -> None:
        self.seen, self.exact = seen, exact
        self.memory: dict[str, np.ndarray] = {}
        self.expected: dict[str, np.ndarray] = {}
        self.names: dict[str, None] = dict.fromkeys(p.name for p in seen.pieces if p.is_variable)
        self.variables = [self._variable(p, memory) for p, memory in self._changed_variables()]
        led = {id(seen.at(word)) for word in seen.pointers} if not exact else set()
        self.pieces = [p for p in seen.pieces if not p.is_variable and (p.touched or id(p) in led)]
        self.left_out = [p for p in seen.pieces if not p.is_variable and not (p.touched or id(p) in led)]
        self._check()
        self.tables = {id(p): self._table(p) for p in self.pieces}

    def _check(self) -> None:
        """Raise LaunchError for a variable that the launch reaches at two addresses."""
        hosts = [p for p in self.seen.pieces if p.is_variable]
        for p in self.pieces:
            for v in hosts:
                if np.may_share_memory(p.live, v.live):
                    raise LaunchError(f"the kernel has the address of variable {v.name}, which its module has at another address")

    def _changed_variables(self) -> list[tuple[MemorySnapshot, np.ndarray]]:
        """Variables that are not as the PTX says, and what they were before the launch; and those that it changed."""
        module = self.seen.kernel.module
        fresh = ModuleImage(module.text.outline)
        fresh.initialise()
        found = []
        for p in self.seen.pieces:
            if p.is_variable and not np.array_equal(p.before, fresh.bytes_of(p.name)):
                found.append((p, p.before))
            if p.is_variable and self.exact and not np.array_equal(p.before, p.live):
                self.expected[p.name] = raw_array(module.variables[p.name])
        return found

    def _variable(self, p: MemorySnapshot, memory: np.ndarray) -> str:
        self.memory[p.name] = memory
        return f'{json.dumps(p.name)} = {{ npz = "{MEMORY}:{p.name}" }}'

    def _table(self, p: MemorySnapshot) -> list[str]:
        """The lines of memory in the launch file."""
        known = self._known(p)
        name = self._name(known.name)
        stored = p.before
        if self.exact:
            stored = np.where(p.read, p.before, np.uint8(0)) if p.read is not None else np.zeros_like(p.before)
            if p.written is not None:
                left = np.where(p.written, p.live, stored)
                if not np.array_equal(left, stored):
                    self.expected[name] = _shaped(left, known)
        self.memory[name] = _shaped(stored, known)
        lines = [f"name = {json.dumps(name)}", f"address = 0x{p.start:x}", f'npz = "{MEMORY}:{name}"']
        kind = type_name(known.dtype) if known.dtype is not None else ""
        return [*lines, f'type = "{kind}"'] if kind else lines

    def _known(self, p: MemorySnapshot) -> DeviceArray:
        """The array that is all of this memory; if nobody knows one, of elements as the kernel stores them."""
        found = [a for a in self.seen.arrays if a.start == p.start and a.size == len(p.live)]
        for a in found:
            if a.dtype is not None and a.shape and not a.strides and math.prod(a.shape) * a.itemsize == a.size:
                return a
        name = next((a.name for a in found if a.name != p.name), p.name)
        kind = stored_type(self.seen.kernel)
        dtype = dtype_of(kind) if kind in TYPES and TYPES[kind].numpy and TYPES[kind].kind != "pred" else np.dtype(np.uint8)
        dtype = np.dtype(np.uint8) if len(p.live) % dtype.itemsize else dtype
        return DeviceArray(name, p.start, len(p.live), (len(p.live) // dtype.itemsize,), dtype.itemsize, dtype)

    def _name(self, said: str) -> str:
        """A name of letters and digits that nothing else has."""
        plain = re.sub(r"\W+", "_", re.sub(r"^argument \d+ \((.*)\)$", r"\1", said)).strip("_") or "memory"
        name, n = plain, 2
        while name in self.names:
            name, n = f"{plain}_{n}", n + 1
        self.names[name] = None
        return name

    def text(self, ptx: str, number: int, ended: str) -> str:
        """The launch file."""
        seen, shape = self.seen, self.seen.launch.shape
        grid = [g // c for g, c in zip(shape.grid, shape.cluster)] if shape.counts_clusters else [*shape.grid]
        lines = [f"# Launch {number} of {demangle(seen.kernel.name)} in a program, captured by mmulator {__version__}."]
        lines += [f"# {ended}"] if ended else ["# Bytes of memory that it did not read are zeros here."]
        if self.left_out:
            count, size = len(self.left_out), sum(len(p.live) for p in self.left_out)
            lines.append(f"# Left out: {count:,} piece{'s' * (count > 1)} of memory that it did not touch, {size:,} bytes.")
        lines += [
            f'ptx = "{ptx}"', f'entry = "{seen.kernel.name}"', f"grid = {grid}", f"block = {[*shape.block]}",
            f"shared = {shape.shared}",
        ]  # fmt: skip
        lines += [f"cluster = {[*shape.cluster]}"] * shape.explicit + ["cooperative = true"] * shape.cooperative
        lines += ["waits = true"] * _has_wgmma(seen.kernel)
        lines += [f'device = "{seen.launch.device}"', f"seed = {seen.seed}"]
        tables = dict(self.tables)
        for p, at in zip(seen.kernel.signature.params, seen.kernel.signature.offsets):
            lines += ["", "[[arg]]", *self._argument(p, seen.launch.arguments.params[at : at + p.size].tobytes(), tables)]
        for table in tables.values():
            lines += ["", "[[memory]]", *table]
        if self.variables:
            lines += ["", "[variables]", *self.variables]
        if self.expected:
            lines += ["", "[expect]", f'file = "{EXPECTED}"', 'source = "captured"']
        return "\n".join([*lines, ""])

    def _argument(self, p: Parameter, data: bytes, tables: dict[int, list[str]]) -> list[str]:
        """The lines of an argument. tables: those of memory that has no place yet; one that is the argument's is taken out."""
        name = p.name.removeprefix(f"{self.seen.kernel.name}_")
        if p.shape:
            return [f"name = {json.dumps(name)}", f'hex = "{data.hex(" ", 4)}"']
        if p.type in ("f32", "f64"):
            form = "<f" if p.type == "f32" else "<d"
            (value,) = struct.unpack(form, data)
            if struct.pack(form, float(str(value))) != data:
                raise LaunchError(f"argument {name} is a NaN with bits of its own, 0x{data[::-1].hex()}")
            return [f"name = {json.dumps(name)}", f"value = {value}"]
        word = int.from_bytes(data, "little")
        piece = self.seen.at(word) if p.size == 8 else None
        if piece is not None and piece.start == word and id(piece) in tables:
            return tables.pop(id(piece))
        shown = f"0x{word:x}" if piece is not None else str(word)
        return [f"name = {json.dumps(self._name(name))}", f"value = {shown}"]


def _has_wgmma(kernel: Any) -> bool:
    """Whether a kernel has accumulators in flight, which launches of programs wait for as ptxas does."""
    functions = reached(kernel.module.tree, kernel.function).functions.values()
    return any(i.effects.queue is Queue.WGMMA for f in functions for i in f.instructions)


def _shaped(data: np.ndarray, known: DeviceArray) -> np.ndarray:
    """Bytes as files have them."""
    return raw_array(data.view(known.dtype or np.uint8).reshape(known.shape))


def raw_array(array: np.ndarray) -> np.ndarray:
    """A copy of an array as NumPy can store it: its own types as they are, others as bits."""
    return array.copy() if _is_own(array.dtype) else array.view(f"u{array.itemsize}").copy()


def _is_own(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is NumPy's own, which its files can say; one of ml_dtypes may be of the same kind."""
    return dtype.kind in "iuf" and dtype.isbuiltin == 1


@cache
def type_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in a launch file; "" for NumPy's own, which a file says itself."""
    if _is_own(dtype):
        return ""
    return next(name for name, t in TYPES.items() if t.numpy and t.bits >= 8 and dtype_of(name) == dtype)
