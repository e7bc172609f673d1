"""A box of a tensor as it lies in shared memory."""

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError, shown
from mmulator.base.lazy import cached_property
from mmulator.matrix.inspect.answer import Answer
from mmulator.matrix.layouts.tensormap import OUTSIDE, Places, TensorMap, places
from mmulator.matrix.layouts.tensormap.places import MODES
from mmulator.matrix.layouts.tensormap.rules import check

CHUNK = 16  # bytes


@dataclass(frozen=True)
class Chunk:
    """Sixteen bytes of shared memory that a copy writes or reads.

    address: of the first byte.
    at: coordinates, in the array's order, of the element at the lowest address.
    inside: number of elements (or sixteens of small types) that are within the tensor.
    units: number of all elements (or sixteens) of the chunk.
    row, number: the place in the box before swizzling: row, and chunk of the row.
    """

    address: int
    at: tuple[int, ...]
    inside: int
    units: int
    row: int
    number: int

    @property
    def line(self) -> int:
        """Number of the chunk's line of 128 bytes of shared memory."""
        return self.address // 128

    @property
    def filled(self) -> bool:
        """Whether all of the chunk is out of bounds."""
        return not self.inside

    @property
    def name(self) -> str:
        """Coordinates, with a star where part of the chunk is out of bounds."""
        return ",".join(map(str, self.at)) + "*" * (0 < self.inside < self.units)


@dataclass(frozen=True)
class TensorBox(Answer):
    """Where the elements of one box land.

    coordinates, offsets: in the array's order; of gather4 and scatter4 four rows and a column.
    shared: address in shared memory.
    mode: PTX's name.
    store: from shared to global memory.
    """

    map: TensorMap
    coordinates: tuple[int, ...]
    offsets: tuple[int, ...]
    shared: int
    mode: str
    store: bool

    @cached_property
    def placed(self) -> Places:
        return places(
            self.map.fields, self.coordinates[::-1], self._hardware_offsets, shared=self.shared, mode=self.mode, store=self.store
        )

    @property
    def _hardware_offsets(self) -> tuple[int, ...]:
        return self.offsets if "::" in self.mode else self.offsets[::-1]

    @property
    def row_bytes(self) -> int:
        """Bytes of shared memory that a row of the box takes."""
        return self.placed.shared.shape[-1] * self.map.fields.type.shared

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks that the copy touches, by address."""
        p, per = self.placed, self.map.fields.type.shared
        address = p.shared.reshape(-1)
        order = np.argsort(address, kind="stable")
        starts = np.flatnonzero(np.diff(address[order] // CHUNK, prepend=-1))
        where = [np.broadcast_to(c, p.memory.shape).reshape(-1) for c in reversed(p.coordinates)]
        inside = p.inside.reshape(-1)[order]
        counts = np.diff(starts, append=len(order))
        within = np.add.reduceat(inside.astype(np.int64), starts) if len(starts) else starts
        out = []
        for start, count, held in zip(starts.tolist(), counts.tolist(), within.tolist()):
            unit = int(order[start])
            row, along = divmod(unit * per, self.row_bytes)
            at = tuple(int(c[unit]) for c in where)
            out.append(Chunk(int(address[unit]) // CHUNK * CHUNK, at, held, count, row, along // CHUNK))
        return tuple(out)

    def address(self, *element: int) -> tuple[int, ...]:
        """Addresses in shared memory of an element of the tensor, in the array's order; none if the box does not have it."""
        if len(element) != len(self.map.shape):
            raise OperandError(f"an element has {len(self.map.shape)} coordinates, and these are {len(element)}")
        p, many = self.placed, self.map.fields.type.elements
        wanted = (*element[:-1], element[-1] // many * many)
        same: NDArray[np.bool_] = np.ones((), bool)
        for coordinate, value in zip(reversed(p.coordinates), wanted):
            same = same & (coordinate == value)
        return tuple(np.sort(p.shared[np.broadcast_to(same, p.shared.shape) & p.inside]).tolist())

    def element(self, address: int) -> tuple[tuple[int, ...], ...]:
        """The element in the byte at an address, in the array's order; none where nothing lands, or where the byte is filled
        in.
        """
        p = self.placed
        holds = (p.shared <= address) & (address < p.shared + p.size) & (p.memory != OUTSIDE)
        where = [np.broadcast_to(c, p.memory.shape)[holds] for c in reversed(p.coordinates)]
        return tuple(tuple(int(v) for v in one) for one in zip(*where))

    @property
    def filled(self) -> int:
        """Number of elements (or sixteens of small types) that are out of bounds."""
        return int((~self.placed.inside).sum())

    def to_dict(self) -> dict[str, Any]:
        p = self.placed
        return {
            "mode": self.mode,
            "coordinates": list(self.coordinates),
            "offsets": list(self.offsets),
            "shared": self.shared,
            "store": self.store,
            "box_shape": list(p.shared.shape),
            "unit_bytes": p.size,
            "units_outside": self.filled,
            "chunks": [
                {"address": c.address, "element": list(c.at), "units": c.units, "inside": c.inside} for c in self.chunks
            ],
        }

    def svg(self, theme: str = "auto") -> str:
        """The box in shared memory as a picture, in the manner of the specification's figures."""
        return self.show("svg", theme)

    def _repr_svg_(self) -> str:
        return self.svg()


def tensor_box(
    map: TensorMap, coordinates: tuple[int, ...] | None = None, offsets: tuple[int, ...] = (), *, shared: int = 0,
    mode: str | None = None, store: bool = False,
) -> TensorBox:  # fmt: skip
    """Where the elements of a box land.

    map: the tensor map.
    coordinates: of the box, in the array's order; None: at the tensor's first element.
    offsets: of im2col D, H, W as far as there are; of im2col::w wHalo and wOffset.
    shared: address in shared memory.
    mode: PTX's name; None: the map's.
    store: from shared to global memory.

    Raises OperandError for another number of coordinates or offsets, for a mode that is not the map's, and for a map that the
    driver
    refuses.
    """
    if not isinstance(map, TensorMap):
        raise OperandError(f"map is {shown(map)}: a tensor map is needed", hint="mm.TensorMap.tiled(array, box)")
    check(map.fields)
    images = map.fields.im2col
    if mode is not None and mode not in MODES:
        raise OperandError(f"mode is {shown(mode)}: no such mode", hint=f"known: {', '.join(MODES)}")
    if mode is not None and mode.startswith("im2col") != images:
        rule = "Tensor Access Modes (PTX ISA 9.1)"
        raise OperandError(f"mode is {mode}, and the map is {map.mode}", rule=rule, hint="leave mode away: it is the map's")
    mode = mode or (("im2col" if offsets else "im2col_no_offs") if images else "tile")
    if coordinates is None:
        first = (0, 0, *map.lower) if map.fields.slice else (0, *map.lower, 0)
        coordinates = first if images else (0,) * (5 if mode.endswith("4") else len(map.shape))
    at, further = _integers("coordinates", coordinates), _integers("offsets", offsets)
    (address,) = _integers("shared", [shared])
    if address < 0:
        raise OperandError(f"shared is {address}: addresses of shared memory are not negative")
    found = TensorBox(map, at, further, address, mode, store)
    _ = found.placed
    return found


def _integers(name: str, values: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(value) for value in values)
    except TypeError:
        raise OperandError(f"{name} is {shown(values)}: integers are needed") from None
