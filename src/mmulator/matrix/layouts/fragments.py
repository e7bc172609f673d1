"""Register fragments: which lane, register and element of a register holds which element of a matrix.

Every fragment is additive over bits: each bit of the lane, of the register number and of the element's index within
its register adds a fixed step to the row and to the column. A `Fragment` is that list of steps, so one short line
describes it, and both directions are index arithmetic.

Matrix Fragments for mma / wgmma / WMMA (PTX ISA 9.1). The specification leaves fragments of wmma open; the ones here were
measured on an NVIDIA H200. Fragments of `.m16n16` and `.m16n8` matrix moves follow CUTLASS's layouts.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.classes import dataclass
from mmulator.base.errors import OperandError, shown
from mmulator.base.interop import as_array
from mmulator.base.lazy import cached_property

Array = NDArray[np.unsignedinteger]
Index = NDArray[np.int64]
Step = tuple[int, int]  # what a bit adds to (row, column)


def _place(value: Array) -> str:
    """An index as a message prints it: 99 instead of array(99)."""
    return shown(value.item() if value.ndim == 0 else value)


def _containers(bits: int) -> str:
    return f"<u{max(8, bits) // 8}"


def _check_broadcast(**places: NDArray[Any]) -> None:
    try:
        np.broadcast_shapes(*(x.shape for x in places.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {x.shape}" for name, x in places.items())
        raise OperandError(f"shapes do not broadcast: {shapes}") from None


@dataclass(frozen=True)
class Fragment:
    """A matrix that is spread over the registers of a warp or warpgroup.

    rows, columns: of the matrix (for sparse A, of the compressed matrix).
    registers: registers of a lane.
    bits: space for one element in a register.
    lane, register, index: a (row, column) step for each bit of the number, lowest bit first.
    register_bits: size of a register.
    copies: number of matrices in one operand, nearly always 1; with more, `to_matrix` has an axis for them before rows and
        columns.
    copy: a step of the copy number for each bit of the lane.
    shift, width: place of the element in its space (4- and 6-bit floats lie in bytes).
    register_copies: registers of one copy, if copies lie in different registers.
    """

    rows: int
    columns: int
    registers: int
    bits: int
    lane: tuple[Step, ...]
    register: tuple[Step, ...]
    index: tuple[Step, ...] = ()
    register_bits: int = 32
    copies: int = 1
    copy: tuple[int, ...] = ()
    shift: int = 0
    width: int = 0
    register_copies: int = 0

    def __post_init__(self) -> None:
        if not self.width:
            object.__setattr__(self, "width", self.bits)

    @property
    def lanes(self) -> int:
        return 1 << len(self.lane)

    @property
    def per_register(self) -> int:
        """Elements in one register."""
        return self.register_bits // self.bits

    @cached_property
    def maps(self) -> tuple[Index, Index, Index]:
        """copy, row and column of every place: three int64 arrays [lanes, registers, elements of a register]."""
        lane = np.arange(self.lanes)[:, None, None]
        register = np.arange(self.registers)[None, :, None]
        index = np.arange(self.per_register)[None, None, :]
        return self._copy(lane, register, index), *self._steps(lane, register, index)

    def _steps(self, lane: Index, register: Index, index: Index) -> tuple[Index, Index]:
        inner = register % self.register_copies if self.register_copies else register
        row = col = (lane + inner + index) * 0
        for number, steps in ((lane, self.lane), (inner, self.register), (index, self.index)):
            for bit, (down, right) in enumerate(steps):
                on = number >> bit & 1
                row = row + on * down
                col = col + on * right
        return row, col

    def _copy(self, lane: Index, register: Index, index: Index) -> Index:
        out = (lane + register + index) * 0
        if self.register_copies:
            out = out + register // self.register_copies
        for bit, step in enumerate(self.copy):
            out = out + (lane >> bit & 1) * step
        return out

    def element(self, lane: object, register: object, index: object = 0) -> tuple[Index, Index]:
        """(row, column) at lane, register and element index (integers, or arrays that broadcast).

        Raises OperandError for a place outside the operand.
        """
        place = []
        limits = (self.lanes, self.registers, self.per_register)
        for name, value, limit in zip(("lane", "register", "index"), (lane, register, index), limits):
            number = as_array(name, value)
            if number.dtype.kind not in "iu" or np.any((number < 0) | (number >= limit)):
                raise OperandError(f"{name} {shown(value)} is outside 0..{limit - 1}")
            place.append(number.astype(np.int64))
        _check_broadcast(lane=place[0], register=place[1], index=place[2])
        return self._steps(*place)

    def locate(self, row: object, column: object, copy: object = 0) -> tuple[Index, Index, Index]:
        """(lane, register, index) of the element at row, column (integers or arrays); the first place if several hold it.

        Raises OperandError outside the matrix.
        """
        r, c, k = (as_array(name, x) for name, x in (("row", row), ("column", column), ("copy", copy)))
        for name, value, limit in (("row", r, self.rows), ("column", c, self.columns), ("copy", k, self.copies)):
            if value.dtype.kind not in "iu" or np.any((value < 0) | (value >= limit)):
                raise OperandError(f"{name} {_place(value)} is outside 0..{limit - 1}")
        _check_broadcast(row=r, column=c, copy=k)
        place = self.first_places[(k * self.rows + r) * self.columns + c]
        rest, index = np.divmod(place, self.per_register)
        lane, register = np.divmod(rest, self.registers)
        return lane, register, index

    def holders(self, row: int, column: int, copy: int = 0) -> list[tuple[int, int, int]]:
        """Every (lane, register, index) that holds the element: more than one if lanes hold it redundantly."""
        copies, rows, columns = self.maps
        found = np.argwhere((copies == copy) & (rows == row) & (columns == column))
        return [(int(a), int(b), int(c)) for a, b, c in found]

    @cached_property
    def flat(self) -> Index:
        """Position in the row-major matrix (copies, rows, columns) of every place: [lanes * registers * elements]."""
        copy, row, col = self.maps
        return ((copy * self.rows + row) * self.columns + col).reshape(-1)

    @cached_property
    def first_places(self) -> Index:
        """Lowest place that holds each position of the matrix."""
        out = np.full(self.copies * self.rows * self.columns, -1, np.int64)
        out[self.flat[::-1]] = np.arange(self.flat.size)[::-1]
        return out

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        return (self.copies, self.rows, self.columns) if self.copies > 1 else (self.rows, self.columns)

    def to_registers(self, bits: Array) -> Array:
        """Raw elements [..., rows, columns] to registers [..., lanes, registers] (uint32, or uint64 for .f64).

        Raises OperandError for any other shape.
        """
        shape = self.matrix_shape
        raw = as_array("the matrix", bits)
        if raw.shape[raw.ndim - len(shape) :] != shape:
            raise OperandError(f"a matrix of shape {raw.shape} where {'x'.join(map(str, shape))} is needed")
        batch = raw.shape[: raw.ndim - len(shape)]
        values = np.take(raw.reshape(*batch, -1), self.flat, axis=-1).astype(_containers(self.bits), copy=False)
        words = f"<u{self.register_bits // 8}"
        if self.width < self.bits:
            values = (values & values.dtype.type((1 << self.width) - 1)) << values.dtype.type(self.shift)
        if self.bits >= 8:
            packed = np.ascontiguousarray(values).view(words)
        else:
            parts = values.reshape(*batch, -1, self.per_register).astype(np.uint32) & np.uint32((1 << self.bits) - 1)
            shifts = np.arange(self.per_register, dtype=np.uint32) * np.uint32(self.bits)
            packed = np.bitwise_or.reduce(parts << shifts, axis=-1)
        return packed.reshape(*batch, self.lanes, self.registers)

    def to_matrix(self, registers: Array) -> Array:
        """Registers [..., lanes, registers] to raw elements [..., rows, columns] (uint8 for narrower elements).

        If lanes hold an element redundantly, the lowest lane counts. Raises OperandError for any other shape.
        """
        words = np.ascontiguousarray(as_array("registers", registers))
        if words.shape[-2:] != (self.lanes, self.registers):
            need = f"[..., {self.lanes}, {self.registers}]"
            raise OperandError(f"registers of shape {words.shape} where {need} is needed")
        words = words.astype(f"<u{self.register_bits // 8}", copy=False)
        batch = words.shape[:-2]
        if self.bits >= 8:
            values = words.reshape(*batch, -1).view(_containers(self.bits))
        else:
            shifts = np.arange(self.per_register, dtype=np.uint32) * np.uint32(self.bits)
            parts = words[..., None] >> shifts & np.uint32((1 << self.bits) - 1)
            values = parts.astype(np.uint8).reshape(*batch, -1)
        if self.width < self.bits:
            values = values >> values.dtype.type(self.shift) & values.dtype.type((1 << self.width) - 1)
        out: Array = np.take(values, self.first_places, axis=-1)
        return out.reshape(*batch, *self.matrix_shape)
