"""The model's results of a batch, and the first difference from a GPU explained down to its operands."""

from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import MmulatorError
from mmulator.evaluation.conformance.cases import CaseBatch, Segment
from mmulator.host.jobs.comparison import where_in_registers
from mmulator.isa.types import ElementType
from mmulator.matrix.instruction import execution
from mmulator.matrix.instruction.wgmma import shared_matrix
from mmulator.matrix.layouts import fragment, sparse
from mmulator.matrix.numerics.element import explain_element, ulps
from mmulator.matrix.numerics.element import number as value
from mmulator.matrix.numerics.formats import element_type
from mmulator.matrix.numerics.telling import decimal, head

Array = NDArray[Any]


def operands_of(batch: CaseBatch, segment: Segment, part: slice | None = None) -> dict[str, Any]:
    """Operands of a segment, or of some of its executions, as `execute` takes them."""
    part = segment.part if part is None else part
    given = {name: words[part] for name, words in batch.registers.items() if name != "p"} | segment.scalars
    if batch.image is not None:
        name = "shared" if batch.subject.form.lanes > 32 else "memory"
        given[name] = batch.image[part].copy() if batch.subject.specs[0].kind == "address" else batch.image[part]
    return given


def model(batch: CaseBatch, device: str) -> Array:
    """Results of every execution: registers [count, lanes, registers], or memory images [count, bytes]."""
    form = batch.subject.form
    parts = []
    for s in batch.segments:
        d = execution.execute(form, device, operands_of(batch, s), strict=False)
        parts.append(d[..., None] if d.ndim == 2 and form.is_move and batch.image is None else d)
    return np.concatenate(parts)


# What differs --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Difference:
    """The first word that differs, and what it was computed from. Bits are hexadecimal texts.

    execution, lane, register: where the word lies.
    kind: of the operands.
    row, column: the element, for a multiplication.
    products: the element's factors that are not zero.
    exact: the sum without rounding.
    operands: scalars of the execution.
    where: lanes and registers of all words that differ, if they form a pattern.
    """

    execution: int
    kind: str
    lane: int
    register: int
    model: str
    gpu: str
    row: int | None = None
    column: int | None = None
    products: tuple[str, ...] = ()
    c: str = ""
    exact: str = ""
    arithmetic: str = ""
    operands: str = ""
    where: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """The difference as lines for people."""
        out = [f"execution {self.execution} ({self.kind}), lane {self.lane}, register {self.register}"]
        if self.row is not None:
            out[0] += f", element [{self.row}, {self.column}]"
        out += [f"  model {self.model}", f"  GPU   {self.gpu}"]
        out += [f"  {name} {text}" for name, text in (("exact", self.exact), ("C    ", self.c)) if text]
        out += [f"  product {p}" for p in self.products[:16]]
        if len(self.products) > 16:
            out.append(f"  and {len(self.products) - 16} more products")
        out += [f"  {text}" for text in (self.arithmetic, self.operands) if text]
        out += [f"  all that differ: {self.where}"] * bool(self.where)
        return out


def compare(batch: CaseBatch, got: Array, want: Array, device: str) -> tuple[int, Difference | None]:
    """Words of `got` (a GPU's) that differ from `want` (the model's), and the first of them explained."""
    wrong = got != want
    count = int(np.count_nonzero(wrong))
    if not count:
        return 0, None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return count, replace(explain(batch, at, want, got, device), where=where_in_registers(wrong))


def explain(batch: CaseBatch, at: tuple[int, ...], want: Array, got: Array, device: str) -> Difference:
    """Everything about the word at an index of the results."""
    form, n = batch.subject.form, at[0]
    segment = batch.segment_of(n)
    scalars = ", ".join(f"{k}={v}" for k, v in segment.scalars.items())
    place = (at[1], at[2]) if len(at) == 3 else (0, at[-1])
    words = f"{int(want[at]):#x}", f"{int(got[at]):#x}"
    if not form.atype or not form.dtype:
        return Difference(n, segment.kind, *place, *words, operands=scalars)
    rule = fragment(form, "d")
    index, bits = 0, rule.bits
    changed = int(want[at]) ^ int(got[at])
    while not changed >> (bits * index) & ((1 << bits) - 1):
        index += 1
    copies, rows, columns = (int(x[place[0], place[1], index]) for x in rule.maps)
    mask = (1 << bits) - 1
    raw = [int(x[at]) >> (bits * index) & mask for x in (want, got)]
    words = number(form.dtype, raw[0]), f"{number(form.dtype, raw[1])} {apart(form.dtype, *raw)}".rstrip()
    found = Difference(n, segment.kind, *place, *words, rows, columns, operands=scalars)
    try:
        return replace(found, **_sum(form, device, *element_operands(batch, n, rows, columns, copies)))
    except MmulatorError as error:
        return replace(found, arithmetic=error.message)


def element_operands(batch: CaseBatch, n: int, row: int, column: int, copy: int = 0) -> tuple[list[int], list[int], int]:
    """(raw factors of A, raw factors of B, raw C) of one result; of B the ones that a sparse A selects."""
    form = batch.subject.form
    segment = batch.segment_of(n)
    given = operands_of(batch, segment, slice(n, n + 1))

    def matrix(name: str) -> Array:
        m = fragment(form, name).to_matrix(given[name])[0]
        return m[copy] if m.ndim == 3 else m

    if "b_desc" in given:
        fixed, image = batch.subject.fixed, given["shared"]
        columns = form.k // 2 if form.sparse else form.k
        trans = [bool(fixed.get(f"imm_trans_{x}")) for x in "ab"]
        if "a" in given:
            a = matrix("a")
        else:
            a = shared_matrix(image, 0, given["a_desc"].encode(), form.m, columns, form.atype, trans[0])[0]
        b = shared_matrix(image, 0, given["b_desc"].encode(), form.n, form.k, form.btype, trans[1])[0].T
        c = int(matrix("d")[row, column]) if given["scale_d"] else 0
    else:
        a, b, c = matrix("a"), matrix("b"), int(matrix("c")[row, column])
    chosen = np.arange(form.k)
    if form.sparse:
        name, selector = ("e", "f") if "e" in given else ("sp_meta", "sp_sel")
        nibbles = sparse.from_registers(given[name][0], form, given[selector])
        if sparse.mixed(nibbles, form).any():
            return [int(x) for x in a[row]], _mixed(nibbles[row], b[:, column]), c
        chosen = sparse.indices(nibbles, form)[row]
    return [int(x) for x in a[row]], [int(b[k, column]) for k in chosen], c


def _mixed(nibbles: Array, column: Array) -> list[int]:
    """Words of two 16-bit halves each, as tf32 metadata chooses them from pairs of elements."""
    halves = np.ascontiguousarray(column.astype("<u4")).view("<u2")
    low, high = (4 * np.arange(len(nibbles)) + x for x in (nibbles & 3, nibbles >> 2))
    return [int(halves[i]) | int(halves[j]) << 16 for i, j in zip(low, high)]


def apart(t: ElementType, a: int, b: int) -> str:
    """Distance of two values of a float type in ULPs, as text; empty for other types, NaN and infinity."""
    if not t.is_float or not t.has_sign or any(isinstance(value(t, x), float) for x in (a, b)):
        return ""
    return f"{ulps(t, a, b):,} ULP apart"


def number(t: ElementType, raw: int) -> str:
    """Bits and value: `0x3c00 (1.0)`."""
    digits = max(1, t.bits // 4)
    exact = value(t, raw)
    if exact == 0 and t.has_sign and t.is_float:
        return f"0x{raw:0{digits}x} ({'-' if raw >> (t.bits - 1) else '+'}0)"
    return f"0x{raw:0{digits}x} ({exact if not t.is_float else decimal(exact, 9)})"


def _sum(form: Any, device: str, a: list[int], b: list[int], c: int) -> dict[str, Any]:
    """Products, C, the exact sum and the device's arithmetic as texts: fields of a Difference."""
    e = explain_element(form, device, a, b, c)
    texts = [
        f"{k:3}: {number(form.atype, x)} * {number(form.btype, y)}" for k, (x, y, p) in enumerate(zip(a, b, e.products())) if p
    ]
    exact, total = decimal(e.read, 9), e.read
    if isinstance(total, Fraction) and total:
        scale = abs(total).numerator.bit_length() - abs(total).denominator.bit_length()
        exact = f"{exact} = {total.numerator} / 2**{total.denominator.bit_length() - 1}, about 2**{scale}"
    added = number(element_type(str(form.ctype or form.dtype)), c)
    return {"products": tuple(texts), "c": added, "exact": exact, "arithmetic": head(e).replace("\n", ", ")}
