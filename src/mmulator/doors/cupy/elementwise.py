"""cupy.ElementwiseKernel: an operation over broadcast arrays, one element a thread. Each element's result depends on its own
inputs, so the bits are the operation's, however the loop around it is written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmulator.doors.cupy.arrays import ndarray, refuse
from mmulator.doors.cupy.kernels import RawKernel, RawModule, compiled

BLOCK = 128
_PARAMETER = re.compile(r"\s*(raw\s+)?(const\s+)?(\w+)\s+(\w+)\s*$")
# Types of CuPy's parameters by dtype, as C++ has them.
C_TYPES = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long", "uint8": "unsigned char",
    "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long", "float32": "float", "float64": "double",
}  # fmt: skip


@dataclass(frozen=True)
class ElementwiseParameter:
    """A parameter. raw: the operation indexes it itself. type: of NumPy, or a letter that stands for one."""

    raw: bool
    type: str
    name: str


def parameters(text: str) -> tuple[ElementwiseParameter, ...]:
    """The parameters of a text. Raises UnsupportedError for a text that cannot be read."""
    found = []
    for piece in filter(str.strip, text.split(",")):
        m = _PARAMETER.match(piece)
        if not m:
            raise refuse(f"ElementwiseKernel parameter {piece.strip()!r}", "of the form `T x` or `raw T x`")
        found.append(ElementwiseParameter(bool(m[1]), m[3], m[4]))
    return tuple(found)


class ElementwiseKernel:
    """CuPy's class, for types of NumPy that C++ has, and raw parameters that are indexed by numbers."""

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", reduce_dims: bool = True, preamble: str = "",
        no_return: bool = False, return_tuple: bool = False, options: tuple[str, ...] = (), loop_prep: str = "",
        after_loop: str = "", **more: Any,
    ) -> None:  # fmt: skip
        if more:
            raise refuse(f"ElementwiseKernel({next(iter(more))}=...)")
        self.in_params, self.out_params = parameters(in_params), parameters(out_params)
        self.params = self.in_params + self.out_params
        self.nin, self.nout = len(self.in_params), len(self.out_params)
        self.nargs = self.nin + self.nout
        self.operation, self.name, self.preamble, self.options = operation, name, preamble, options
        self.loop_prep, self.after_loop = loop_prep, after_loop
        self.no_return, self.return_tuple = no_return, return_tuple
        self._made: dict[tuple[str, ...], RawKernel] = {}

    def __call__(self, *args: Any, size: int | None = None, stream: Any = None, block_size: int = BLOCK) -> Any:
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(f"Wrong number of arguments for {self.name}: {len(args)}, it takes {self.nin} or {self.nargs}")
        given = [a if isinstance(a, ndarray) else np.asarray(a) for a in args]
        types = self._types(given, args)
        shape = self._shape(given[: self.nin] + given[self.nin :], size)
        outs: list[Any] = list(given[self.nin :]) or [ndarray(shape, types[p.type]) for p in self.out_params]
        values: list[Any] = []
        every: list[Any] = [*given[: self.nin], *outs]
        for p, a in zip(self.params, every):
            host = a._host if isinstance(a, ndarray) else a
            values.append(self._argument(p, host, types[p.type], shape, p in self.out_params))
        count = int(np.prod(shape, dtype=np.int64))
        if count:
            kernel = self._kernel(tuple(str(types[p.type]) for p in self.params))
            blocks = min(-(-count // block_size), 65535)
            kernel((blocks,), (block_size,), [*(ndarray._of(v) for v in values), np.int64(count)], stream=stream)
        for p, a, v in zip(self.out_params, outs, values[self.nin :]):
            if not p.raw and v is not a._host:
                a._host[...] = v.reshape(shape)
        if self.no_return:
            return None
        return tuple(outs) if self.nout != 1 or self.return_tuple else outs[0]

    def _types(self, given: Sequence[Any], args: Sequence[Any]) -> dict[str, np.dtype[Any]]:
        """The dtype of each type of the parameters. A letter stands for the dtype of the arrays."""
        found: dict[str, np.dtype[Any]] = {}
        for p, a, value in sorted(zip(self.params, given, args), key=lambda x: not isinstance(x[1], ndarray)):
            if len(p.type) > 1:
                found[p.type] = np.dtype(p.type)
            elif isinstance(value, ndarray):
                if found.setdefault(p.type, value.dtype) != value.dtype:  # type: ignore[attr-defined]
                    raise TypeError(f"Type is mismatched. {p.name} {value.dtype} {found[p.type]}")  # type: ignore[attr-defined]
            else:
                found.setdefault(p.type, a.dtype)
        for p in self.params:
            if p.type not in found and len(p.type) > 1:
                found[p.type] = np.dtype(p.type)
            if p.type not in found:
                raise TypeError(f"the type {p.type} of {p.name} is not known from the inputs")
            if str(found[p.type]) not in C_TYPES:
                raise refuse(f"ElementwiseKernel of {found[p.type]}", f"the types are {', '.join(C_TYPES)}")
        return found

    def _shape(self, given: Sequence[Any], size: int | None) -> tuple[int, ...]:
        shapes = [a.shape for p, a in zip(self.params, given) if not p.raw]
        if size is not None:
            if any(shapes):
                raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
            return (size,)
        if not shapes:
            raise ValueError("Loop size is undecided.")
        return np.broadcast_shapes(*shapes)

    def _argument(self, p: ElementwiseParameter, host: np.ndarray, dtype: Any, shape: tuple[int, ...], out: bool) -> np.ndarray:
        """The array that the kernel sees: in order, one element a thread; a raw one is the program's own.

        p: the parameter.
        host: the program's array.
        dtype: of the kernel's elements.
        shape: of all elements.
        out: the kernel writes it.
        """
        if p.raw:
            if not host.flags.c_contiguous or host.dtype != dtype:
                raise refuse(f"ElementwiseKernel: raw {p.name}", "raw arrays are contiguous here")
            return host.reshape(-1)
        if out:
            if host.shape != shape:
                raise ValueError(f"Out shape is mismatched: {host.shape}, not {shape}")
            return host if host.flags.c_contiguous and host.dtype == dtype else np.empty(shape, dtype)
        return np.ascontiguousarray(np.broadcast_to(host.astype(dtype, copy=False), shape))

    def _kernel(self, types: tuple[str, ...]) -> RawKernel:
        if types not in self._made:
            code = self.source(types)
            module = RawModule(code, options=self.options)
            module.__dict__["_made"] = compiled(code, self.options, ())
            self._made[types] = module.get_function(self.name)
        return self._made[types]

    def source(self, types: Sequence[str]) -> str:
        """The CUDA C++ of one choice of types."""
        names = {p.type: C_TYPES[t] for p, t in zip(self.params, types)}
        aliases = "\n".join(f"typedef {c} {t};" for t, c in names.items() if t != c)
        heads, locals_ = [], []
        for p, t in zip(self.params, types):
            const = "const " if p in self.in_params else ""
            heads.append(f"{const}{C_TYPES[t]}* {'' if p.raw else '_raw_'}{p.name}")
            if not p.raw:
                locals_.append(f"{const}{C_TYPES[t]}& {p.name} = _raw_{p.name}[i];")
        return (
            f'{aliases}\n{self.preamble}\nextern "C" __global__ void {self.name}({", ".join(heads)}, long long n) {{\n'
            f"{self.loop_prep};\nfor (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; "
            f"i += (long long)gridDim.x * blockDim.x) {{\n{' '.join(locals_)}\n{self.operation};\n}}\n{self.after_loop};\n}}\n"
        )
