"""Why one element of a matrix product is what it is, and where devices differ: the sums of several devices side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.distance import distances
from mmulator.base.errors import OperandError, short_traceback, shown
from mmulator.base.schemas import document
from mmulator.base.tables import html_table, text_table
from mmulator.isa.chips import as_device
from mmulator.isa.form import Form
from mmulator.matrix.instruction.execution import check_device, default_chip
from mmulator.matrix.instruction.instruction import Instruction
from mmulator.matrix.instruction.matmul import matmul, prepared
from mmulator.matrix.instruction.operands import check_signs, sparse_a
from mmulator.matrix.numerics import telling
from mmulator.matrix.numerics.element import ElementSum, explain_element, parted, ulps, ulps_off
from mmulator.matrix.numerics.formats import container, from_raw, to_raw

Array = NDArray[Any]
SUMS = ("device", "result", "bits", "ULP from exact", "ULP from NumPy")
DIFFERENCES = ("device", "differ", "first", "most ULP")


@dataclass(frozen=True)
class ElementOnDevices:
    """One element of a product on several devices. `print` shows it.

    instruction: the instruction.
    row, col: of the element.
    sums: device -> the steps of its sum (matrix/numerics/element.py).
    numpy: raw bits of what NumPy makes of it: products and their sum in f32 (f64 for f64, int64 for integers), converted to D's
        type; of scaled products the exact sum, rounded once.
    """

    instruction: str
    row: int
    col: int
    sums: dict[str, ElementSum]
    numpy: int

    @property
    def groups(self) -> list[list[str]]:
        """Devices that make equal steps."""
        found: dict[object, list[str]] = {}
        for device, e in self.sums.items():
            found.setdefault(tuple((s.bits, s.total, s.quantum) for s in e.steps), []).append(device)
        return list(found.values())

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for device, e in self.sums.items():
            off, near = ulps_off(e.dtype, e.bits, e.exact), ulps(e.dtype, e.bits, self.numpy)
            far = "-" if off is None else telling.far_off(off)
            rows.append((device, telling.decimal(e.value, 9), hex(e.bits), far, "-" if near is None else str(near)))
        return rows

    def _apart(self) -> list[str]:
        """Sentences about where devices part from the first one."""
        first, *others = self.groups
        out = []
        for group in others:
            n = parted(self.sums[first[0]], self.sums[group[0]])
            where = "no sum that both make differs" if n is None else f"sums differ from that of the first {n} products on"
            out.append(f"{', '.join(group)} beside {', '.join(first)}: other steps; {where}")
        return out

    def __str__(self) -> str:
        head = f"{self.instruction}: row {self.row}, column {self.col} of D"
        lines = [head, "", *text_table(SUMS, self._rows()), *self._apart()]
        for group in self.groups:
            alike = [f"the steps of {', '.join(group)}:"] if len(group) > 1 else []
            lines += ["", *alike, *telling.text(self.sums[group[0]]).splitlines()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table(SUMS, self._rows()) + "".join(telling.html(self.sums[group[0]]) for group in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """The element as JSON can hold it."""
        return document("why", {
            "instruction": self.instruction, "row": self.row, "col": self.col, "numpy": self.numpy, "groups": self.groups,
            "devices": {device: e.to_dict() for device, e in self.sums.items()}, "apart": self._apart(),
        })  # fmt: skip


@short_traceback
def why(
    instruction: Instruction | str, A: Any, B: Any, C: Any = None, row: int = 0, col: int = 0, *,
    devices: Sequence[str] | str | None = None, imm_scale_a: int = 1, imm_scale_b: int = 1, scale_a: Any = None,
    scale_b: Any = None, metadata: Any = None,
) -> ElementOnDevices:  # fmt: skip
    """One element of D = A B + C, step by step, on each device: chunks, products, what is cut, the rounding.

    instruction: an Instruction, or a name or words for `Instruction.parse`.
    A, B, C: matrices of two dimensions, as for `matmul`.
    row, col: of the element of D.
    devices: names of devices or chips; None: that of `matmul`.
    imm_scale_a, imm_scale_b: 1 or -1.
    scale_a, scale_b: scale factors, as for `matmul`.
    metadata: nibbles of a compressed A, as for `matmul`.

    Raises OperandError for wrong shapes or an element outside D, UnsupportedError where a device lacks the instruction.
    """
    i = instruction if isinstance(instruction, Instruction) else Instruction.parse(instruction)
    form = i.form
    if not form.atype or not form.btype or not form.dtype:
        raise OperandError(f"{form} multiplies no matrices", hint="use an mma, wgmma.mma_async or wmma.mma instruction")
    check_signs(form, imm_scale_a, imm_scale_b)
    o = prepared(form, sparse_a(form, A, metadata), B, C, scale_a, scale_b)
    m, n = o.a.shape[-2], o.b.shape[-1]
    if any(x is not None and x.ndim != 2 for x in (o.a, o.b, o.c)):
        raise OperandError(f"A {o.a.shape} and B {o.b.shape} are batches", hint="pass the matrices of one product")
    for name, value, limit in (("row", row, m), ("col", col, n)):
        if not isinstance(value, int | np.integer) or not 0 <= value < limit:
            raise OperandError(f"{name} is {shown(value)}: D has {m} x {n} elements")
    places: Any = np.arange(o.a.shape[1]) if o.indices is None else o.indices[row]
    c = 0 if o.c is None else int(o.c[row, col])
    scales: dict[str, Any] = {name: x[row] if name == "scale_a" else x[:, col] for name, x in o.scales.items()}
    sums = {
        device: explain_element(
            form, device, o.a[row], o.b[places, col], c, imm_scale_a=imm_scale_a, imm_scale_b=imm_scale_b, positions=places,
            **scales,
        )
        for device in _devices(form, devices, default_chip(form, i.target))
    }  # fmt: skip
    return ElementOnDevices(str(form), int(row), int(col), sums, _numpy(form, next(iter(sums.values()))))


def _devices(form: Form, devices: Sequence[str] | str | None, default: str) -> list[str]:
    names = [default] if devices is None else [devices] if isinstance(devices, str) else list(devices)
    if not names:
        raise OperandError("devices is empty", hint="name at least one, such as sm_90")
    return list(dict.fromkeys(check_device(form, as_device(name)) for name in names))


def _numpy(form: Form, e: ElementSum) -> int:
    """Raw bits of what NumPy makes of an element."""
    if not form.dtype.is_float:
        total = int(e.exact)
        bounded = max(-(1 << 31), min((1 << 31) - 1, total)) if form.satfinite else total
        return bounded & 0xFFFFFFFF
    ctype = form.ctype or form.dtype
    wide: Any = np.float64 if form.dtype.name == "f64" else np.float32
    with np.errstate(all="ignore"):
        if form.block_scale:
            total = wide(float(e.exact))
        else:
            left, right, c = (
                from_raw(t, np.array(x, np.uint64).astype(container(t))).astype(wide)
                for t, x in ((form.atype, e.a), (form.btype, e.b), (ctype, [e.c]))
            )
            total = (left * right).sum(dtype=wide) * wide(e.sign) + c[0]
        kind = from_raw(form.dtype, np.zeros(1, container(form.dtype))).dtype
        return int(to_raw(form.dtype, np.array([total], wide).astype(kind))[0])


@dataclass(frozen=True)
class DeviceComparison:
    """A product on several devices. `print` shows it.

    instruction: the instruction.
    results: device -> D.
    why: the first element in which a device differs from the first device; None if all agree.
    """

    instruction: str
    results: dict[str, Array]
    why: ElementOnDevices | None = None

    def _rows(self) -> list[tuple[str, ...]]:
        base = next(iter(self.results.values()))
        rows: list[tuple[str, ...]] = []
        for device, d in self.results.items():
            differ = np.argwhere(_bits(d) != _bits(base))
            at = str(differ[0].tolist()) if len(differ) else ""
            rows.append((device, f"{len(differ):,} of {d.size:,}", at, str(_most_ulps(d, base))))
        return rows

    def __str__(self) -> str:
        head = f"{self.instruction}: each device beside {next(iter(self.results))}"
        return "\n".join([head, "", *text_table(DIFFERENCES, self._rows()), *(["", str(self.why)] if self.why else [])])

    def _repr_html_(self) -> str:
        return html_table(DIFFERENCES, self._rows()) + (self.why._repr_html_() if self.why else "")

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON can hold them, and why the first element differs."""
        rows = [dict(zip(DIFFERENCES, row)) for row in self._rows()]
        told = self.why.to_dict() if self.why else None
        return document("compare", {"instruction": self.instruction, "devices": rows, "why": told})


def _bits(d: Array) -> Array:
    return np.ascontiguousarray(d).view(f"<u{d.itemsize}")


def _most_ulps(d: Array, base: Array) -> int:
    """The greatest distance of two elements in steps of their type, NaNs left out."""
    known = ~(np.isnan(d.astype(np.float64)) | np.isnan(base.astype(np.float64)))
    return int(distances(d, base)[known].max(initial=0))


@short_traceback
def compare(
    A: Any, B: Any, instruction: Instruction | str, devices: Sequence[str], C: Any = None, **more: Any
) -> DeviceComparison:
    """D = A B + C on each device: how many elements differ from the first device's, where first, by how much, and why.

    A, B, C: matrices of two dimensions, as for `matmul`.
    instruction: an Instruction, or a name or words for `Instruction.parse`.
    devices: names of devices or chips; the others are compared with the first.
    more: further arguments of `matmul`.

    Raises what `matmul` and `why` raise.
    """
    i = instruction if isinstance(instruction, Instruction) else Instruction.parse(instruction)
    names = _devices(i.form, devices, default_chip(i.form, i.target))
    results = {device: matmul(A, B, C, instruction=i, device=device, **more) for device in names}
    base = results[names[0]]
    if base.ndim != 2:
        raise OperandError(f"D has {base.ndim} dimensions", hint="pass the matrices of one product")
    for device in names[1:]:
        differ = np.argwhere(_bits(results[device]) != _bits(base))
        if len(differ):
            row, col = differ[0].tolist()
            told = why(i, A, B, C, row, col, devices=[names[0], device], **more)
            return DeviceComparison(str(i.form), results, told)
    return DeviceComparison(str(i.form), results)
