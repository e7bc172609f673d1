"""The .global and .const variables of a loaded module, as NumPy arrays on the memory that kernels see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.base.codegen.locks import no_fork
from mmulator.base.errors import LaunchError
from mmulator.base.interop import readable
from mmulator.base.tables import html_table
from mmulator.isa.types import TYPES, type_bits
from mmulator.ptx.program.image import ModuleImage
from mmulator.ptx.symbols import Variable
from mmulator.runtime.launch.values import MAP_BYTES, map_memory, tensor_maps

if TYPE_CHECKING:
    from mmulator.matrix.layouts.tensormap import TensorMap


class Variables(Mapping[str, np.ndarray]):
    """Variables by name: `module.variables["coef"]` is an array on the variable's memory, of its PTX type and shape.

    What is written to it holds from the next launch on; what a kernel stores to a .global variable is seen in it.
    `variables["coef"] = values` writes all of it. Names are found as kernels are: the C++ name, or a part that only one has.
    A tensor map, or a list of them for an array of maps, is written at each launch, with the address of its array.
    Arrays and structs of C++ are bytes in PTX (.b8): read them with `.view(np.float32)`, or assign an array of their size.
    `bytes` of a variable's size are its bits, whatever its type.
    """

    def __init__(self, file: str, declared: Iterable[Variable], image: ModuleImage) -> None:
        """file: how messages call the module. declared: its variables."""
        self._file = file
        self._arrays: dict[str, np.ndarray] = {}
        self._declared: dict[str, Variable] = {}
        self.maps: dict[str, Sequence[TensorMap]] = {}  # tensor maps, whose arrays get their addresses at each launch
        for v in declared:
            if v.linkage != "extern" and v.name in image.addresses and v.size:
                self._arrays[v.name] = _typed(image.bytes_of(v.name), v)
                self._declared[v.name] = v

    def _name(self, name: object) -> str:
        if not isinstance(name, str):
            raise LaunchError(f"a variable is found by its name, not by {type(name).__name__}")
        from mmulator.base.names import choose

        return choose(self._arrays, name, f"{self._file} has no .const or .global variable")

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[self._name(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        from mmulator.base.demangle import demangle

        name = self._name(name)
        cell = self._arrays[name]
        said = f"variable {demangle(name)} is {cell.dtype}{list(cell.shape) if cell.shape else ''}, {cell.nbytes} bytes"
        self.maps.pop(name, None)
        if maps := tensor_maps(value):
            if cell.nbytes != MAP_BYTES * len(maps):
                raise LaunchError(f"{said}: tensor maps have {MAP_BYTES} bytes each, and these are {len(maps)}")
            for one in maps:
                map_memory(one, f"variable {name}")
            self.maps[name] = maps
            return
        if isinstance(value, bytes | bytearray):
            if len(value) != cell.nbytes:
                raise LaunchError(f"{said}: the value given has {len(value)} bytes")
            cell.reshape(-1).view(np.uint8)[:] = np.frombuffer(value, np.uint8)
            return
        given = readable(value, f"variable {name}", LaunchError)
        try:
            values = np.asarray(value) if given is None else given
        except (ValueError, TypeError, OverflowError) as error:
            raise LaunchError(f"{said}: {error}") from None
        bits = self._declared[name].type[0] == "b" and (given is not None or isinstance(value, np.generic))
        if not (bits and values.nbytes == cell.nbytes):
            values = _converted(values, cell, said)
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        cell.reshape(-1).view(np.uint8)[:] = raw

    def placed(self) -> Iterator[tuple[str, np.ndarray, Sequence[TensorMap]]]:
        """Variables that are tensor maps: name, memory, maps."""
        for name, maps in self.maps.items():
            from mmulator.base.demangle import demangle

            yield demangle(name), self._arrays[name], maps

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def _lines(self) -> list[tuple[str, str, str]]:
        from mmulator.base.demangle import demangle

        return [(demangle(n), f".{self._declared[n].space}", f"{a.dtype}{list(a.shape) or ''}") for n, a in self._arrays.items()]

    def __repr__(self) -> str:
        return "<Variables " + ("; ".join(" ".join(line) for line in self._lines()) or "none") + ">"

    def _repr_html_(self) -> str:
        return html_table(("variable", "space", "type"), self._lines())


def _typed(raw: np.ndarray, v: Variable) -> np.ndarray:
    """The bytes of a variable as an array of its type and shape."""
    with no_fork:
        from mmulator.matrix.numerics.formats import numpy_dtype
    t = TYPES.get(v.type)
    if t is not None and t.numpy and t.bits >= 8:
        dtype = numpy_dtype(t)
    else:
        bits = type_bits(v.type)
        dtype = np.dtype(f"u{bits // 8}") if bits in (8, 16, 32, 64) else np.dtype(np.uint8)
    shape = v.shape + ((v.vector,) if v.vector > 1 else ())
    if int(np.prod(shape, dtype=np.int64)) * dtype.itemsize != v.size:
        return raw
    return raw.view(dtype).reshape(shape)


def _converted(values: np.ndarray, cell: np.ndarray, said: str) -> np.ndarray:
    """Values in the type of a variable, each as it is or rounded once."""
    if values.shape not in ((), cell.shape) and not (values.size == cell.size and values.ndim == 1):
        raise LaunchError(f"{said}: it does not take {values.dtype}{list(values.shape)}", hint="give all of it, or one number")
    try:
        with np.errstate(all="ignore"):
            out = values.astype(cell.dtype)
            kept = cell.dtype.kind not in "iu" or bool((out == values).all())
    except (ValueError, TypeError, OverflowError):
        kept = False
    if not kept or values.dtype.kind not in "biufV":
        raise LaunchError(f"{said}: {values.dtype} values do not fit it", hint="give numbers of its type, or as many bytes")
    return np.ascontiguousarray(np.broadcast_to(out.reshape(cell.shape) if out.size == cell.size else out, cell.shape))
