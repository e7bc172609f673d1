"""Tables of the special-function unit: one row of three coefficients per segment, as data, one file per chip.

A file `sm_NN.json` beside this module holds the tables that were solved from captures of that chip. A device without a
file computes with those of sm_90, and `tables_for` says so.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mmulator.base.classes import dataclass
from mmulator.base.errors import UnsupportedError
from mmulator.isa.targets import DEVICES

Row = tuple[int, int, int]
DEFAULT_DEVICE = "sm_90"
UNITS: tuple[str, ...] = ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin")
TANH_BINADES = 11  # exponents -8 .. 2


@dataclass(frozen=True)
class Quadratic:
    """A table and the widths of its datapath: ((C0 << c0_shift) + C1 * x + C2 * square(x) + constant) >> out_shift.

    rows: (C0, C1, C2) of each segment.
    x_bits: bits of the argument below the table index.
    square_shift: the squarer gets x << square_shift.
    c0_shift, out_shift: one number, or one for each exponent parity (even, odd).
    constant: the added constant.
    """

    rows: tuple[Row, ...]
    x_bits: int
    square_shift: int
    c0_shift: tuple[int, ...]
    constant: int
    out_shift: tuple[int, ...]


@dataclass(frozen=True)
class TanhTable:
    """Segments of tanh. For exponent -8 + i: 2**split[i] rows from first_row[i] on.

    rows: (D, C1, C2, fraction bits); the value is D + C1 * x + C2 * square(x) with that number of fraction bits.
    """

    first_row: tuple[int, ...]
    split: tuple[int, ...]
    rows: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Tables:
    """All tables of one chip.

    device: a name of `mmulator.isa.targets.DEVICES`.
    measured_on: the product on which they were measured.
    rcp, rsqrt, sqrt, ex2, lg2, sin, tanh: the table of each function.
    """

    device: str
    measured_on: str
    rcp: Quadratic
    rsqrt: Quadratic
    sqrt: Quadratic
    ex2: Quadratic
    lg2: Quadratic
    sin: Quadratic
    tanh: TanhTable


def parse_tables(text: str) -> Tables:
    """Tables from the text of a data file. Raises ValueError if a table cannot belong to this unit."""
    data: Mapping[str, Any] = json.loads(text)
    units = {name: _quadratic(name, data["units"][name]) for name in UNITS}
    tanh = data["tanh"]
    table = TanhTable(tuple(tanh["first_row"]), tuple(tanh["split"]), tuple(tuple(r) for r in tanh["rows"]))
    ends = [first + (1 << split) for first, split in zip(table.first_row, table.split)]
    if len(table.split) != TANH_BINADES or [0, *ends] != [*table.first_row, len(table.rows)]:
        raise ValueError("tanh: the segments do not tile the rows")
    return Tables(data["device"], data["measured_on"], **units, tanh=table)


def _quadratic(name: str, unit: Mapping[str, Any]) -> Quadratic:
    rows = tuple(tuple(row) for row in unit["rows"])
    if any(len(row) != 3 for row in rows) or len(rows) not in (64, 128):
        raise ValueError(f"{name}: 64 or 128 rows of three coefficients are wanted")
    return Quadratic(
        rows, unit["x_bits"], unit["square_shift"], tuple(unit["c0_shift"]), unit["constant"], tuple(unit["out_shift"])
    )


@cache
def load_tables(device: str) -> Tables:
    """The measured tables of a device that has a data file."""
    return parse_tables(_file(device).read_text())


def _file(device: str) -> Path:
    return Path(__file__).with_name(f"{device}.json")


@cache
def tables_for(device: str) -> tuple[Tables, bool]:
    """(the tables with which a device computes, whether they were measured on that device).

    Devices without captures use the tables of sm_90 (False). Raises UnsupportedError for an unknown device.
    """
    if device not in DEVICES:
        raise UnsupportedError(
            f"{device!r} is not a device with a numerics profile",
            hint=f"known devices: {', '.join(DEVICES)}",
        )
    measured = _file(device).is_file()
    return load_tables(device if measured else DEFAULT_DEVICE), measured
