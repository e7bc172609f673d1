"""The functions of libcublasLt: descriptors with attributes, the one algorithm that is offered, products with epilogues."""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmulator.doors.cublas.matrices import NORMAL, SUMS, DeviceMatrix, LibraryGemm, say, turned, vector
from mmulator.doors.cublas.products import check_sums
from mmulator.doors.cublas.rows import TYPES, Call, LibraryHandle, StreamWork, found, host, lost, made, routine, type_of
from mmulator.doors.libcuda.abi import Refused, get_bytes, needed, put, put_bytes, put_int, unsupported
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.state import state

# Attributes of descriptors by number: name and bytes. Those that are not here only steer speed, and are kept.
_MATMUL = {
    0: ("sums", 4), 1: ("scale", 4), 2: ("pointers", 4), 3: ("a_turned", 4), 4: ("b_turned", 4), 5: ("c_turned", 4),
    7: ("epilogue", 4), 8: ("bias", 8), 10: ("bias_next", 8), 11: ("aux", 8), 12: ("aux_step", 8), 13: ("aux_next", 8),
    17: ("a_scale", 8), 18: ("b_scale", 8), 19: ("c_scale", 8), 20: ("d_scale", 8), 21: ("largest", 8), 22: ("aux_type", 4),
    26: ("bias_type", 4), 31: ("a_mode", 4), 32: ("b_mode", 4), 33: ("c_mode", 4), 34: ("d_mode", 4), 37: ("d_out_mode", 4),
}  # fmt: skip
_LAYOUT = {0: ("type", 4), 1: ("order", 4), 2: ("rows", 8), 3: ("columns", 8), 4: ("step", 8), 5: ("batch", 4), 6: ("next", 8)}
_TRANSFORM = {0: ("scale", 4), 1: ("pointers", 4), 2: ("a_turned", 4), 3: ("b_turned", 4)}
_RELU, _BIAS, _GELU, _AUX = 2, 4, 32, 128  # bits of cublasLtEpilogue_t
_WRITTEN = _RELU | _BIAS | _GELU | _AUX | 1
_OF_BITS = _RELU | _AUX  # an epilogue that keeps one bit an element
_RESULT = 96  # bytes of cublasLtMatmulHeuristicResult_t
_BY_ROWS = 1  # cublasLtOrder_t
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}  # numbers of FP8


@dataclass
class Descriptor:
    """A descriptor of the library.

    attributes: known ones, by number: name and bytes.
    values: by number.
    """

    attributes: dict[int, tuple[str, int]]
    values: dict[int, bytes] = field(default_factory=dict)

    def __getattr__(self, name: str) -> int:
        number = next((n for n, (known, _) in self.attributes.items() if known == name), None)
        if number is None:
            raise AttributeError(name)
        return int.from_bytes(self.values.get(number, b""), "little", signed=True)

    def set(self, **values: int) -> None:
        for number, (name, size) in self.attributes.items():
            if name in values:
                self.values[number] = (values[name] & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _descriptors(name: str, attributes: dict[int, tuple[str, int]], first: Callable[..., dict[str, int]]) -> None:
    """Functions of a kind of descriptors. first: the attributes that its making sets."""

    def create(out: int, *values: int) -> None:
        needed(out)
        of = Descriptor(attributes)
        of.set(**first(*values))
        put(out, made(of))

    def begin(at: int, size: int, *values: int) -> None:
        of = Descriptor(attributes)
        of.set(**first(*values))
        made(of, at)

    def set_one(of: int, number: int, source: int, size: int) -> None:
        if size < attributes.get(number, ("", 1))[1]:
            raise Refused(Code.INVALID_VALUE)
        found(of).values[number] = get_bytes(source, size)

    def get_one(of: int, number: int, out: int, size: int, written: int) -> None:
        value = found(of).values.get(number, bytes(attributes.get(number, ("", size))[1]))
        put(written, len(value))
        if size:
            put_bytes(out, value[:size])

    routine(f"cublasLt{name}Create")(create)
    routine(f"cublasLt{name}Init_internal")(begin)
    routine(f"cublasLt{name}SetAttribute")(set_one)
    routine(f"cublasLt{name}GetAttribute")(get_one)
    routine(f"cublasLt{name}Destroy")(lambda of: lost(of))


_descriptors("MatmulDesc", _MATMUL, lambda sums=68, scale=0: {"sums": sums, "scale": scale, "epilogue": 1})
_descriptors("MatrixLayout", _LAYOUT, lambda type=0, rows=0, columns=0, step=0: {
    "type": type, "rows": rows, "columns": columns, "step": step, "batch": 1,
})  # fmt: skip
_descriptors("MatmulPreference", {}, dict)
_descriptors("MatrixTransformDesc", _TRANSFORM, lambda scale=0: {"scale": scale})

for _name in ("LoggerSetCallback", "LoggerSetFile", "LoggerOpenFile", "LoggerSetLevel", "LoggerSetMask"):
    routine(f"cublasLt{_name}")(lambda value: None)
routine("cublasLtLoggerForceDisable")(lambda: None)


# algorithms: one, which a program may keep, check and hand back ---------------------------------------------------------------
@routine("cublasLtMatmulAlgoGetHeuristic", "", "description a b c d preference wanted results count")
def algorithms(p: Call) -> None:
    """The algorithms for a product: one."""
    _check(found(p.description), (found(p.a), found(p.b), found(p.c), found(p.d)))
    if p.wanted < 1:
        raise Refused(Code.INVALID_VALUE)
    put_bytes(p.results, struct.pack("<8QQif4i", 1, *bytes(7), 0, 0, 1.0, *bytes(4)))
    put_int(p.count, 1)


@routine("cublasLtMatmulAlgoInit", "", "sums scale a_type b_type c_type d_type number out")
def algorithm(p: Call) -> None:
    """The algorithm, for types that the arguments name."""
    put_bytes(p.out, struct.pack("<8Q", 1, *bytes(7)))


@routine("cublasLtMatmulAlgoGetIds", "", "sums scale a_type b_type c_type d_type wanted out count")
def identities(p: Call) -> None:
    """The algorithms' numbers: 1."""
    if p.wanted > 0:
        put_int(p.out, 1)
    put_int(p.count, 1)


@routine("cublasLtMatmulAlgoCheck", "", "description a b c d chosen result")
def check_algorithm(p: Call) -> None:
    """Whether the algorithm fits: it does where the product is written."""
    _check(found(p.description), (found(p.a), found(p.b), found(p.c), found(p.d)))
    put_bytes(p.result, get_bytes(p.chosen, 64) + struct.pack("<Qif4i", 0, 0, 1.0, *bytes(4)))


@routine("cublasLtMatmulAlgoConfigSetAttribute")
def configure(chosen: int, number: int, value: int, size: int) -> None:
    """Accept what steers an algorithm's speed."""


def _check(of: Any, layouts: tuple[Any, ...]) -> None:
    """Raise Refused for what is not written."""
    check_sums(of.sums)
    modes = [of.a_mode, of.b_mode, of.c_mode, of.d_mode, of.d_out_mode]
    if any(modes):
        raise unsupported("cublasLtMatmul", f"scales of mode {max(modes)} (cublasLtMatmulMatrixScale_t) are not written")
    if of.pointers > 1 or of.c_turned:
        raise unsupported("cublasLtMatmul", "vectors of alpha, and op(C), are not written")
    if of.epilogue & ~_WRITTEN or of.epilogue & _OF_BITS == _OF_BITS:
        raise unsupported("cublasLtMatmul", f"the epilogue {of.epilogue} is not written")
    for layout in layouts:
        type_of(layout.type)
        if layout.order not in (0, _BY_ROWS):
            raise unsupported("cublasLtMatmul", f"the order {layout.order} of a matrix (cublasLtOrder_t) is not written")


def _matrix(layout: Any, address: int, number: int) -> DeviceMatrix:
    dtype = type_of(layout.type)
    place = address + number * layout.next * np.dtype(dtype).itemsize
    return DeviceMatrix(place, dtype, layout.rows, layout.columns, layout.step, layout.order == _BY_ROWS)


@routine("cublasLtMatmul", "", "description alpha a a_layout b b_layout beta c c_layout d d_layout chosen workspace size stream")
def matmul(p: Call) -> StreamWork:
    """D = epilogue(alpha A B + beta C), with scales and a bias that the description names."""
    of = Descriptor(_MATMUL, dict(found(p.description).values))  # the program may change them once this call is over
    layouts = [Descriptor(_LAYOUT, dict(found(x).values)) for x in (p.a_layout, p.b_layout, p.c_layout, p.d_layout)]
    _check(of, tuple(layouts))
    m, n = layouts[3].rows, layouts[3].columns
    sides = [(x.columns, x.rows) if t != NORMAL else (x.rows, x.columns) for x, t in zip(layouts, (of.a_turned, of.b_turned))]
    if (sides[0][0], sides[1][1]) != (m, n) or sides[0][1] != sides[1][0]:
        raise Refused(Code.INVALID_VALUE)
    kind, p.of = TYPES.get(of.scale, SUMS[of.sums]), LibraryHandle(p.stream, bool(of.pointers))
    by, plus = p.number("alpha", kind), p.number("beta", kind)

    def factor(address: int) -> float:
        return float(np.frombuffer(get_bytes(host(address, 4), 4), np.float32)[0]) if address else 1.0

    def do() -> None:
        every, kind = True, ""
        for number in range(layouts[3].batch):
            a, b, c, d = (_matrix(layout, at, number) for layout, at in zip(layouts, (p.a, p.b, p.c, p.d)))
            gemm = LibraryGemm(a, b, c, d, of.a_turned, of.b_turned, of.sums, layouts[3].batch)
            scale = by() if (by_scales := factor(of.a_scale) * factor(of.b_scale)) == 1 else by() * np.float32(by_scales)
            values, known = gemm.result(scale, plus(), _bias(of, d, number), bool(of.epilogue & _RELU))
            known = known and not of.epilogue & (_GELU | _AUX)
            if of.epilogue & _GELU:
                values = _gelu(of, values, d, number)
            if of.largest:
                put_bytes(host(of.largest, 4), np.float32(np.abs(values).max(initial=0)).tobytes())
                state().driver.memory.wrote(of.largest, 4)
            if limit := _LARGEST.get(np.dtype(d.dtype).name):  # conversions to FP8 saturate
                values = np.clip(values * factor(of.d_scale), -limit, limit)
            d.put(values)
            every, kind = every and known, gemm.of.kind
        if kind:
            say(every, kind)

    return p.work(do, layouts[3].batch * m * n * sides[0][1] * np.dtype(type_of(layouts[0].type)).itemsize / 2)


def _bias(of: Any, to: DeviceMatrix, number: int) -> Any:
    """The bias of a product's rows, f32 [m, 1]; None where it has none. number: of the product in the batch."""
    if not of.epilogue & _BIAS:
        return None
    wide = to.dtype if np.dtype(to.dtype).itemsize > 1 else np.float16
    dtype = type_of(of.bias_type) if 26 in of.values and of.bias_type >= 0 else wide
    at = of.bias + number * of.bias_next * np.dtype(dtype).itemsize
    return vector(at, dtype, to.rows, 1)[1].astype(np.float32)[:, None]


def _gelu(of: Any, values: Any, to: DeviceMatrix, number: int) -> Any:
    """GELU in its form with tanh; its argument is kept for a gradient where the program wants that."""
    if of.epilogue & _AUX:
        dtype = type_of(of.aux_type) if 22 in of.values and of.aux_type >= 0 else to.dtype
        place = of.aux + number * of.aux_next * np.dtype(dtype).itemsize
        DeviceMatrix(place, dtype, to.rows, to.columns, of.aux_step, to.by_rows).put(values)
    inner = math.sqrt(2 / math.pi) * (values + 0.044715 * values**3)
    return (0.5 * values * (1 + np.tanh(inner))).astype(values.dtype)


@routine("cublasLtMatrixTransform", "", "description alpha a a_layout beta b b_layout c c_layout stream")
def transform(p: Call) -> StreamWork:
    """C = alpha op(A) + beta op(B), from one layout to another."""
    of, layouts = found(p.description), [found(x) if x else None for x in (p.a_layout, p.b_layout, p.c_layout)]
    batch = found(p.c_layout).batch
    for layout in layouts:
        if layout and layout.order not in (0, _BY_ROWS):
            raise unsupported("cublasLtMatrixTransform", f"the order {layout.order} of a matrix (cublasLtOrder_t) is not written")
    kind, p.of = type_of(of.scale), LibraryHandle(p.stream, bool(of.pointers))
    by, plus = p.number("alpha", kind), p.number("beta", kind) if p.b else lambda: 0

    def term(factor: Any, layout: Any, address: int, operation: int, number: int) -> Any:
        return factor * turned(_matrix(layout, address, number).array().astype(kind), operation)

    def do() -> None:
        for number in range(batch):
            values = term(by(), layouts[0], p.a, of.a_turned, number)
            if plus() != 0:
                values = values + term(plus(), layouts[1], p.b, of.b_turned, number)
            _matrix(layouts[2], p.c, number).put(values)

    return p.work(do)
