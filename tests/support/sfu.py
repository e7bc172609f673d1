"""Captures: files with the outputs of a GPU for whole ranges of inputs.

A folder of .npz files. An array FUNCTION_SIGNEXPONENT (`rcp_p0`: positive, exponent 0; `ex2_n-1`: negative, exponent
-1) holds the outputs of `FUNCTION.approx.ftz.f32` (tanh: `.approx.f32`) for all 2**23 significands of that sign and
exponent, in order; the functions are rcp, rsq, sqrt, lg2, ex2, sin, cos, tanh. For sin and cos the input is the argument of the
unit, in turns; for sin.ptx and cos.ptx it is the operand of the instruction. rcp64_EXPONENT and
rsq64_EXPONENT hold the high words of the `.approx.ftz.f64` results for the upper 20 bits of the significand (`rcp64`
alone: exponent 0).
Coding of an array: second differences modulo 2**32, zigzag, the four bytes of each word as four planes, zlib.
"""

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.types import u32
from mmulator.matrix.numerics.sfu.tables import UNITS, Quadratic, Tables
from mmulator.matrix.twin.sfu import vector
from mmulator.matrix.twin.sfu.native import over_array

Words = NDArray[np.uint32]
# Names in a capture, and the function of the unit.
FUNCTIONS = {
    "rcp": "rcp", "rsq": "rsqrt", "sqrt": "sqrt", "lg2": "lg2", "ex2": "ex2", "sin": "sin", "cos": "cos",
    "tanh": "tanh", "sin.ptx": "sin", "cos.ptx": "cos", "rcp64": "rcp64h", "rsq64": "rsqrt64h",
}  # fmt: skip


def encode(words: Words) -> NDArray[np.uint8]:
    """uint32[n] -> coded uint8[...]."""
    second = np.diff(np.diff(words, prepend=np.uint32(0)), prepend=np.uint32(0)).view(np.int32)
    zigzag = (second << 1 ^ second >> 31).view(np.uint32)
    planes = zigzag.view(np.uint8).reshape(-1, 4).T
    return np.frombuffer(zlib.compress(planes.tobytes(), 9), np.uint8)


def decode(coded: NDArray[np.uint8]) -> Words:
    """The inverse of `encode`."""
    planes = np.frombuffer(zlib.decompress(coded.tobytes()), np.uint8).reshape(4, -1)
    zigzag = np.ascontiguousarray(planes.T).view(np.uint32).ravel()
    second = zigzag >> 1 ^ -(zigzag & 1).astype(np.uint32)
    return np.cumsum(np.cumsum(second, dtype=np.uint32), dtype=np.uint32)


@dataclass(frozen=True)
class Capture:
    """One array of a capture folder.

    name: its name in the file.
    function: function of the unit.
    sign, exponent: of the inputs.
    """

    name: str
    kind: str
    sign: int
    exponent: int
    coded: NDArray[np.uint8]

    @property
    def function(self) -> str:
        return FUNCTIONS[self.kind]

    def outputs(self) -> Words:
        """The results: uint32[2**23], or [2**20] high words for the f64 seeds."""
        return decode(self.coded)

    def inputs(self) -> Words:
        """The bits of the inputs, in the order of `outputs`."""
        width, bias = (20, 1023) if self.function.endswith("64h") else (23, 127)
        first = self.sign << 31 | self.exponent + bias << width
        return np.arange(first, first + (1 << width), dtype=np.uint32)


def read_captures(folder: Path, only: str = "") -> Iterator[Capture]:
    """The arrays of a folder, in order. only: name of a function of the unit to restrict them to; "" for all."""
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            for name in file.files:
                capture = _named(name, file)
                if capture is not None and only in ("", capture.function):
                    yield capture


def _named(name: str, file: Any) -> Capture | None:
    match = re.fullmatch(r"(rcp64|rsq64|[a-z]+2?(?:\.ptx)?)(?:_([pn])?(-?\d+))?", name)
    if match is None or match[1] not in FUNCTIONS:
        return None
    return Capture(name, match[1], int(match[2] == "n"), int(match[3] or 0), file[name])


def write_tables(tables: Tables) -> str:
    """The text of a data file: the inverse of `parse_tables`."""

    def lines(rows: tuple[tuple[int, ...], ...]) -> str:
        parts = [json.dumps(list(row), separators=(",", ":")) for row in rows]
        return "[\n" + ",\n".join(",".join(parts[i : i + 8]) for i in range(0, len(parts), 8)) + "\n]"

    def unit(name: str) -> str:
        q: Quadratic = getattr(tables, name)
        head = {"x_bits": q.x_bits, "square_shift": q.square_shift, "c0_shift": list(q.c0_shift)}
        head |= {"constant": q.constant, "out_shift": list(q.out_shift)}
        return f'"{name}": {json.dumps(head)[:-1]}, "rows": {lines(q.rows)}}}'

    t = tables.tanh
    tanh = f'{{"first_row": {list(t.first_row)}, "split": {list(t.split)}, "rows": {lines(t.rows)}}}'
    units = ",\n".join(unit(name) for name in UNITS)
    head = f'"device": {json.dumps(tables.device)}, "measured_on": {json.dumps(tables.measured_on)}'
    return f'{{{head},\n"units": {{\n{units}\n}},\n"tanh": {tanh}}}\n'


def unit_array(name: str, tables: Tables) -> Native:
    """`f(src, dst, count)` of a function of the unit alone, on u32 words.

    name: rcp, rsqrt, sqrt, lg2, ex2, sin, cos, tanh, rcp64h, rsqrt64h. sin and cos take turns; the last two take and
    give high words.
    """
    return over_array(f"unit_{name}_{tables.device}", u32, 1, lambda x: getattr(vector, name)(x, tables))
