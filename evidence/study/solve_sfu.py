"""Solve the tables of the special-function unit from captures, and keep a sample of the captures as a test.

    python -m evidence.study.solve_sfu solve CAPTURES --device sm_90 --product "NVIDIA H200" --out sm_90.json
    python -m evidence.study.solve_sfu sample CAPTURES --out tests/data/approx_sm_90.npz

CAPTURES is a folder that `evidence/capture/sfu.py capture` wrote, or one of the same format
(`tests.support.sfu`). An output says in which interval the datapath's sum must lie for its row and x.
The coefficients of a row are the integers that meet all intervals: a least-squares fit lands within a unit of them, the
neighbourhood is then searched exactly. The widths and shifts of the datapath are taken from the tables of sm_90; a row
that no integers meet means that the chip's datapath has another form, and is reported.
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.matrix.numerics.sfu.arithmetic import INVERSE_TWO_PI
from mmulator.matrix.numerics.sfu.tables import UNITS, Quadratic, Tables, TanhTable, load_tables
from tests.support.sfu import encode, read_captures, write_tables

Int = NDArray[np.int64]
FRACTION, HIDDEN = (1 << 23) - 1, 1 << 23
FULL = 1 << 62


def squares(x: Int) -> Int:
    """`sfu_unit.square`, of arrays."""
    total = np.zeros_like(x)
    for i in range(18):
        total += np.where(x >> i & 1, x << i >> 18, 0)
    return total >> 1


@dataclass
class Intervals:
    """low <= sum <= high for every (row, x) of a table; where no capture says anything, -FULL and FULL."""

    low: Int
    high: Int

    @classmethod
    def empty(cls, rows: int, x_bits: int) -> Intervals:
        shape = (rows << x_bits,)
        return cls(np.full(shape, -FULL), np.full(shape, FULL))

    def meet(self, at: Int, low: Int, high: Int) -> None:
        np.maximum.at(self.low, at, low)
        np.minimum.at(self.high, at, high)


# what an output says about the sum -----------------------------------------------------------------------------------
def truncation(outputs: Int, scale: int) -> tuple[Int, Int]:
    """The integers in units of 2**-scale that truncate to these magnitudes (normal numbers, or zero)."""
    e, m = outputs >> 23 & 0xFF, outputs & FRACTION | HIDDEN
    shift = e - 150 + scale
    low = np.where(shift >= 0, m << np.maximum(shift, 0), m >> np.maximum(-shift, 0))
    high = np.where(shift > 0, low + (1 << np.maximum(shift, 0)) - 1, low)
    zero = e == 0
    return np.where(zero, 0, low), np.where(zero, 0, high)


Statements = tuple[Int, Int, Int, NDArray[np.bool_]]


def statements(name: str, q: Quadratic, inputs: Int, outputs: Int) -> Statements:
    """(row << x_bits | x, low, high) of the sum, for the inputs that reach the table; which inputs these are."""
    sign, e, f = inputs >> 31, inputs >> 23 & 0xFF, inputs & FRACTION
    finite = (e > 0) & (e < 255)
    parity = (e - 127) & 1
    half = e - 127 >> 1
    at = f
    shift = np.full(len(f), q.out_shift[0])
    match name:
        case "rcp":
            use = finite & (outputs >> 23 & 0xFF > 0)
            low = high = (outputs & 0x7FFFFFFF) - (252 - e << 23)
        case "rsqrt" | "sqrt":
            exact = (f == 0) & (parity == 0) & (name == "rsqrt")
            use = finite & (sign == 0) & ~exact
            at = parity << 23 | f
            low = high = outputs - ((125 - half if name == "rsqrt" else 126 + half) << 23)
            shift = np.array(q.out_shift)[parity % len(q.out_shift)]
        case "ex2":
            n, at = ex2_argument(inputs)
            use = (n >= -126) & (n <= 127) & (e < 135)
            low = high = outputs - (126 + n << 23)
        case "lg2":
            use = finite & (sign == 0) & (inputs != 127 << 23)
            low, high = truncation(outputs & 0x7FFFFFFF, 36)
            negative = outputs >> 31 == 1
            low, high = np.where(negative, ~high, low), np.where(negative, ~low, high)
            low, high = low - (e - 127 << 36), high - (e - 127 << 36)
        case "sin" | "cos":
            use = e < 255
            turns = sine_argument(inputs, name == "cos")
            at = np.where(turns & HIDDEN, ~turns, turns) & FRACTION
            low, high = truncation(outputs & 0x7FFFFFFF, 37)
        case _:
            raise ValueError(name)
    return at[use], (low << shift)[use], ((high + 1 << shift) - 1)[use], use


def ex2_argument(inputs: Int) -> tuple[Int, Int]:
    """Integer part and fraction as the unit forms them; only for |x| < 256."""
    e = inputs >> 23 & 0xFF
    m = np.where(e > 0, inputs & FRACTION | HIDDEN, 0)
    fixed = np.where(e >= 127, m << np.clip(e - 127, 0, 8), m >> np.clip(127 - e, 0, 31))
    fixed = np.where(inputs >> 31 == 0, fixed, np.where(fixed & FRACTION, ~fixed, -fixed))
    return fixed >> 23, fixed & FRACTION


def sine_argument(inputs: Int, ahead: bool) -> Int:
    """Quarter turns: quadrant << 23 | fraction."""
    e = inputs >> 23 & 0xFF
    m = np.where(e > 0, inputs & FRACTION | HIDDEN, 0)
    fixed: Int = np.where(e >= 125, m << np.clip(e - 125, 0, 30), m >> np.clip(125 - e, 0, 31)) & 0x1FFFFFF
    return fixed + (ahead << 23)


def reduced(inputs: Int) -> Int:
    """The argument the unit sees for an operand of sin or cos: times 1/2pi, toward zero. Normal numbers only."""
    with np.errstate(all="ignore"):
        product = inputs.astype(np.uint32).view(np.float32).astype(np.float64)
        product *= np.array([INVERSE_TWO_PI], np.uint32).view(np.float32).astype(np.float64)
        cut = (product.view(np.uint64) & ~np.uint64(0x1FFFFFFF)).view(np.float64).astype(np.float32)
    bits: Int = cut.view(np.uint32).astype(np.int64)
    return bits


def inflate(coded: NDArray[np.uint8], dtype: type) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(coded.tobytes()), dtype)


def observations(folder: Path, name: str) -> Iterator[tuple[Int, Int]]:
    """(inputs, outputs) of one function of the unit: the captured binades, and the sweep over all exponents."""
    for capture in read_captures(folder, name):
        inputs = capture.inputs().astype(np.int64)
        yield reduced(inputs) if capture.kind.endswith(".ptx") else inputs, capture.outputs().astype(np.int64)
    path = folder / "exponents.npz"
    if path.exists():
        with np.load(path) as file:
            ftz = "" if name == "tanh" else ".ftz"
            for key in (f"xs_{name}.approx{ftz}.f32", f"xs_rev_{name}.approx{ftz}.f32"):
                if key in file.files and (name not in ("sin", "cos") or "rev" in key):
                    inputs = np.arange(512)[:, None] << 23 | file["xs_man"].astype(np.int64)
                    yield inputs.ravel(), inflate(file[key], np.uint32).astype(np.int64)


# solving -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Candidate:
    """Coefficients of a row: the sum's constant may be anything in low..high."""

    c1: int
    c2: int
    low: int
    high: int
    distance: float


def solve_row(x: Int, sq: Int, low: Int, high: Int) -> list[Candidate]:
    """All integer (C1, C2) near the fit, with the range of the constant that meets every interval."""
    told = (low > -FULL) & (high < FULL)
    x, sq, low, high = x[told], sq[told], low[told], high[told]
    if len(x) < 3 or (low > high).any():
        return []
    weight = 1.0 / (high - low + 1)
    columns = np.stack([np.ones(len(x)), x, sq], axis=1)
    middle = low + (high - low) / 2
    fit, *_ = np.linalg.lstsq(columns * weight[:, None], middle * weight, rcond=None)
    c1, c2 = round(fit[1]), round(fit[2])
    found = []
    for d2, d1 in itertools.product(range(-6, 7), range(-3, 4)):
        t = (c1 + d1) * x + (c2 + d2) * sq
        least, most = int((low - t).max()), int((high - t).min())
        if least <= most:
            distance = abs(c1 + d1 - fit[1]) + abs(c2 + d2 - fit[2])
            found.append(Candidate(c1 + d1, c2 + d2, least, most, float(distance)))
    return sorted(found, key=lambda c: c.distance)


def common_constant(rows: list[list[Candidate]], shifts: list[int], reference: int) -> tuple[int, tuple[int, int]]:
    """The constant K such that every row has (C0 << shift) + K in range; the range of K around the chosen one.

    K is known modulo 2**shift only; of the possible ones that nearest to the reference is taken.
    """
    window = 1 << max(shifts)
    possible = np.ones(2 * window, bool)
    ks = reference - window + np.arange(2 * window)
    for candidates, shift in zip(rows, shifts):
        size = 1 << shift
        fits = np.zeros(size, bool)
        for c in candidates:
            fits[np.arange(c.low, min(c.high, c.low + size - 1) + 1) % size] = True
        possible &= fits[ks % size]
    if not possible.any():
        raise SystemExit("no constant K serves all rows: the datapath has another form")
    k = int(ks[possible][np.abs(ks[possible] - reference).argmin()])
    at = k - int(ks[0])
    first, last = at, at
    while first > 0 and possible[first - 1]:
        first -= 1
    while last < len(possible) - 1 and possible[last + 1]:
        last += 1
    return k, (int(ks[first]), int(ks[last]))


def solve_unit(folder: Path, name: str, q: Quadratic) -> Quadratic:
    count = len(q.rows)
    intervals = Intervals.empty(count, q.x_bits)
    for function in ("sin", "cos") if name == "sin" else (name,):
        for inputs, outputs in observations(folder, function):
            intervals.meet(*statements(function, q, inputs, outputs)[:3])
    x = np.arange(1 << q.x_bits)
    sq = squares(x << q.square_shift)
    parities = [i >> 6 if len(q.c0_shift) > 1 else 0 for i in range(count)]
    shifts = [q.c0_shift[p] for p in parities]
    parts = zip(intervals.low.reshape(count, -1), intervals.high.reshape(count, -1))
    rows = [solve_row(x, sq, low, high) for low, high in parts]
    report(name, rows)
    k, (first, last) = common_constant(rows, shifts, q.constant) if q.constant else (0, (0, 0))
    solved, ambiguous = [], 0
    for candidates, shift in zip(rows, shifts):
        fits = [(c, c0) for c in candidates for c0 in multiples(c, shift, k)]
        if not fits:
            raise SystemExit(f"{name}: a row has no solution with K = {k:#x}")
        ambiguous += len(fits) > 1
        c, c0 = fits[0]
        solved.append((c0, c.c1, c.c2))
    print(f"{name}: K = {k:#x} (possible {first:#x}..{last:#x}), {ambiguous} of {count} rows not unique")
    return replace(q, rows=tuple(solved), constant=k)


def multiples(c: Candidate, shift: int, k: int) -> Iterable[int]:
    """C0 such that (C0 << shift) + k lies in range, from the middle outwards."""
    first, last = -(-(c.low - k) >> shift), c.high - k >> shift
    return sorted(range(first, last + 1), key=lambda c0: abs(2 * c0 - first - last))


def report(name: str, rows: list[list[Candidate]]) -> None:
    unsolved = [i for i, candidates in enumerate(rows) if not candidates]
    if unsolved:
        raise SystemExit(f"{name}: no integers meet the captures in rows {unsolved}")


def tanh_statements(table: TanhTable, inputs: Int, outputs: Int) -> Statements:
    """`statements` of tanh, the sum in units of the row's scale."""
    binade = (inputs >> 23 & 0xFF) - (127 - 8)
    use = (binade >= 0) & (binade < len(table.split))
    outputs, binade, f = outputs[use], binade[use], inputs[use] & FRACTION
    split, first = np.array(table.split)[binade], np.array(table.first_row)[binade]
    row = first + (f >> 23 - split)
    scales = np.array([row[3] for row in table.rows])[row]
    low, high = np.empty_like(f), np.empty_like(f)
    for scale in set(scales.tolist()):
        at = scales == scale
        low[at], high[at] = truncation(outputs[at] & 0x7FFFFFFF, scale)
    return row << 17 | (f << split & FRACTION) >> 6, low, high, use


def solve_tanh(folder: Path, table: TanhTable) -> TanhTable:
    """Rows of tanh; D is a multiple of 2**-24 and there is no constant."""
    count = len(table.rows)
    intervals = Intervals.empty(count, 17)
    for inputs, outputs in observations(folder, "tanh"):
        intervals.meet(*tanh_statements(table, inputs, outputs)[:3])
    x = np.arange(1 << 17)
    sq = squares(x)
    parts = zip(intervals.low.reshape(count, -1), intervals.high.reshape(count, -1))
    rows = [solve_row(x, sq, low, high) for low, high in parts]
    report("tanh", rows)
    solved: list[tuple[int, int, int, int]] = []
    ambiguous = 0
    for candidates, (*_, scale) in zip(rows, table.rows):
        fits = [(c, d) for c in candidates for d in multiples(c, scale - 24, 0)]
        if not fits:
            raise SystemExit(f"tanh: row {len(solved)} has no solution with D a multiple of 2**-24")
        ambiguous += len(fits) > 1
        c, d = fits[0]
        solved.append((d << scale - 24, c.c1, c.c2, scale))
    print(f"tanh: {ambiguous} of {count} rows not unique")
    return replace(table, rows=tuple(solved))


def solve(folder: Path, device: str, product: str, out: Path) -> None:
    reference = load_tables("sm_90")
    units = {name: solve_unit(folder, name, getattr(reference, name)) for name in UNITS}
    tables = Tables(device, product, **units, tanh=solve_tanh(folder, reference.tanh))
    out.write_text(write_tables(tables))
    for name in (*UNITS, "tanh"):
        a, b = getattr(tables, name).rows, getattr(reference, name).rows
        print(f"{name}: {sum(x != y for x, y in zip(a, b))} of {len(a)} rows differ from sm_90")


# a sample of the captures, as a test ---------------------------------------------------------------------------------
def telling_points(name: str, tables: Tables, inputs: Int, outputs: Int) -> Int:
    """Positions of the inputs that show best, row by row, that a coefficient is one too large or too small."""
    if name == "tanh":
        at, low, high, use = tanh_statements(tables.tanh, inputs, outputs)
        rows = np.array([row[:3] for row in tables.tanh.rows])
        x_bits, square_shift, constant, shift = 17, 0, 0, np.zeros(len(rows), np.int64)
    else:
        q: Quadratic = getattr(tables, "sin" if name == "cos" else name)
        at, low, high, use = statements(name, q, inputs, outputs)
        rows, x_bits, square_shift, constant = np.array(q.rows), q.x_bits, q.square_shift, q.constant
        shift = np.array(q.c0_shift)[np.arange(len(rows)) >> 6 if len(q.c0_shift) > 1 else np.zeros(len(rows), int)]
    row, x = at >> x_bits, at & (1 << x_bits) - 1
    sq = squares(x << square_shift)
    total = (rows[row, 0] << shift[row]) + rows[row, 1] * x + rows[row, 2] * sq + constant
    if ((total < low) | (total > high)).any():
        raise SystemExit(f"{name}: the tables do not belong to these captures")
    places = np.flatnonzero(use)
    chosen = []
    for step in (1 << shift[row], x, sq):
        for slack in (high - total, total - low):
            score = slack - step
            least = np.full(len(rows), FULL)
            np.minimum.at(least, row, score)
            best = np.flatnonzero((score == least[row]) & (score < 0))
            chosen.append(places[best[np.unique(row[best], return_index=True)[1]]])
    return np.concatenate(chosen)


def sample(folder: Path, out: Path) -> None:
    """A compact part of the captures: telling points, random points, every exponent, the half types whole."""
    tables, rng = load_tables("sm_90"), np.random.default_rng(0)
    kept: dict[str, NDArray[Any]] = {}
    for name in ("rcp", "rsqrt", "sqrt", "lg2", "ex2", "sin", "cos", "tanh"):
        parts = []
        for inputs, outputs in observations(folder, name):
            at = np.concatenate([telling_points(name, tables, inputs, outputs), rng.integers(0, len(inputs), 64)])
            parts.append(np.stack([inputs[at], outputs[at]]).astype(np.uint32))
        kept[f"unit_{name}"] = np.unique(np.concatenate(parts, axis=1), axis=1)
    for name in ("rcp64h", "rsqrt64h"):
        parts = []
        for capture in read_captures(folder, name):
            at = np.unique(np.concatenate([rng.integers(0, 1 << 20, 1000), np.arange(0, 1 << 20, 1 << 13)]))
            parts.append(np.stack([capture.inputs()[at], capture.outputs()[at]]))
        kept[f"unit_{name}"] = np.concatenate(parts, axis=1)
    with np.load(folder / "exponents.npz") as file:
        some = np.sort(np.concatenate([[0, 1, len(file["xs_man"]) - 1], rng.choice(len(file["xs_man"]), 9, False)]))
        kept["significands"] = file["xs_man"][some]
        for key in file.files:
            if "approx" not in key:
                continue
            whole = inflate(file[key], np.uint32 if key.startswith("xs_") else np.uint16)
            if key.startswith("xs_"):
                whole = whole.reshape(512, -1)[:, some].ravel(order="F")
            kept[key] = encode(whole.astype(np.uint32))
    np.savez_compressed(out, allow_pickle=False, **kept)
    counts = ", ".join(f"{k} {v.shape[-1]}" for k, v in kept.items() if k.startswith("unit"))
    print(f"{out}: {out.stat().st_size} bytes, {counts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    solving = commands.add_parser("solve", help="tables from captures")
    solving.add_argument("captures", type=Path)
    solving.add_argument("--device", required=True, help="sm_NN")
    solving.add_argument("--product", required=True, help="name of the GPU that was measured")
    solving.add_argument("--out", type=Path, required=True)
    sampling = commands.add_parser("sample", help="a test vector from captures of sm_90")
    sampling.add_argument("captures", type=Path)
    sampling.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.command == "solve":
        solve(args.captures, args.device, args.product, args.out)
    else:
        sample(args.captures, args.out)


if __name__ == "__main__":
    main()
