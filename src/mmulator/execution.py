"""What matrix instructions do to registers and memory images: fragments in, arithmetic, fragments out.

One function a family; `execute` checks that the operands are the instruction's and hands them on.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import ExecutionFault, OperandError, UnsupportedError
from mmulator.isa.forms import MatrixForm
from mmulator.isa.types import ElementType
from mmulator.layouts import MatrixDescriptor, fragment, operand_addresses, scales, sparse
from mmulator.numerics.profiles import dot_key
from mmulator.numerics.twin import Twin, twin_for
from mmulator.numerics.twin import fast_matmul as raw_matmul
from mmulator.numerics.twin_registers import Metadata, Registers, Room

Array = NDArray[Any]
Operands = dict[str, Any]

__all__ = ["check_signs", "dot_key", "execute", "keywords", "raw_matmul", "words"]


# Operands ------------------------------------------------------------------------------------------------------------
_BLOCK_SCALE = ("scale_a_data", "byte_id_a", "thread_id_a", "scale_b_data", "byte_id_b", "thread_id_b")
_WGMMA_DEFAULTS: Operands = {
    "shared_base": 0, "scale_d": 1, "imm_scale_a": 1, "imm_scale_b": 1, "imm_trans_a": 0, "imm_trans_b": 0,
    "a": None, "a_desc": None, "d": None,
}  # fmt: skip
_DEFAULTS: dict[str, Operands] = {"wgmma": _WGMMA_DEFAULTS, "wmma": {"stride": None}}


@lru_cache(maxsize=1024)
def keywords(form: MatrixForm) -> tuple[str, ...]:
    """Keywords that `execute` takes for a form."""
    if form.family == "wgmma":
        sp = ("sp_meta", "sp_sel") if form.sparse else ()
        rest = {s.key: None for signature in form.signatures for s in signature}
        return tuple(dict.fromkeys(("d", "a", "a_desc", "b_desc", "shared", "shared_base", *sp, *rest)))
    if form.family == "mma":
        sp = ("e", "f") if form.sparse else ()
        return ("a", "b", "c", *sp, *(_BLOCK_SCALE if form.block_scale else ()))
    if form.family == "wmma":
        if form.op == "mma":
            return ("a", "b", "c")
        return ("memory", "p", "stride", *(("r",) if form.op == "store.d" else ()))
    return {"ldmatrix": ("memory", "p"), "stmatrix": ("memory", "p", "r"), "movmatrix": ("a",)}[form.family]


def execute(form: MatrixForm, device: str, operands: Operands) -> Array:
    """Run one instruction; see `Instruction.execute`."""
    run = _RUN.get((form.family, form.op))
    if run is None:
        raise UnsupportedError(f"{form} orders other instructions and has no result", hint="run a kernel that contains it")
    return run(form, device, checked(form, operands))


def checked(form: MatrixForm, operands: Operands) -> Operands:
    """The operands with those that may be left out. Raises OperandError for one that is unknown or missing."""
    known = keywords(form)
    defaults = _DEFAULTS.get(form.family, {})
    for name in operands:
        if name not in known:
            raise OperandError(f"{form} has no operand {name}", hint=f"operands: {', '.join(known)}")
    for name in known:
        if name not in operands and name not in defaults:
            raise OperandError(f"operand {name} is missing", hint=f"operands of {form}: {', '.join(known)}")
    return {name: operands.get(name, defaults.get(name)) for name in known}


def words(name: str, value: Any, bits: int = 32) -> Array:
    """An operand as unsigned words of 32 or 64 bits; signed and float arrays of that size are taken bit for bit."""
    array = np.asarray(value)
    want = np.dtype(f"<u{bits // 8}")
    if array.dtype.kind not in "uif" or array.dtype.itemsize != want.itemsize:
        raise OperandError(f"operand {name} is {array.dtype}: registers are {want.name}")
    return np.ascontiguousarray(array).view(want)


def _registers(form: MatrixForm, name: str, value: Any) -> Array:
    """A register operand, checked: unsigned words [..., lanes, registers]."""
    rule = fragment(form, name)
    array = words(name, value, rule.register_bits)
    if array.shape[-2:] != (rule.lanes, rule.registers):
        raise OperandError(
            f"operand {name} of shape {array.shape}: [..., {rule.lanes} lanes, {rule.registers} registers] is needed",
            rule=str(form.section),
        )
    return array


def _integer(name: str, value: Any, allowed: range | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise OperandError(f"operand {name} is {value!r}: an integer is needed") from None
    if allowed is not None and number not in allowed:
        raise OperandError(f"operand {name} is {number}: it must be one of {', '.join(map(str, allowed))}")
    return number


def check_signs(form: MatrixForm, imm_scale_a: Any, imm_scale_b: Any) -> None:
    """imm-scale-a and imm-scale-b are 1 or -1, and only wgmma on float types has them."""
    for name, value in (("imm_scale_a", imm_scale_a), ("imm_scale_b", imm_scale_b)):
        _integer(name, value, range(-1, 2, 2))
        if value != 1 and not (form.family == "wgmma" and form.atype is not None and form.atype.is_float):
            raise OperandError(f"{form} has no {name}")


# mma and wmma.mma ----------------------------------------------------------------------------------------------------
def _mma(form: MatrixForm, device: str, o: Operands) -> Array:
    a, b, c = (_registers(form, name, o[name]) for name in "abc")
    e = scale_a = scale_b = None
    selector = 0
    scale_ids: tuple[int, ...] = ()
    if form.sparse:
        e, selector = _column(form, "e", o["e"]), _integer("f", o["f"])
    if form.block_scale:
        scale_a, scale_b = (_column(form, name, o[name]) for name in ("scale_a_data", "scale_b_data"))
        scale_ids = tuple(_integer(x, o[x]) for x in ("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b"))
    path = _path(form, device, selector, scale_ids)
    given: Given = {
        "a": (a, 2), "b": (b, 2), "c": (c, 2), "e": (e, 1), "scale_a_data": (scale_a, 1), "scale_b_data": (scale_b, 1)
    }  # fmt: skip
    out = _run(path, form, given, 0)
    return by_matrices(form, device, o) if out is None else out


def _column(form: MatrixForm, name: str, value: Any) -> Array:
    """A one-register operand: [..., lanes], or [..., lanes, 1]."""
    array = words(name, value)
    if array.shape[-2:] == (form.lanes, 1):
        array = array[..., 0]
    if array.shape[-1:] != (form.lanes,):
        raise OperandError(f"operand {name} of shape {array.shape}: [..., {form.lanes} lanes] is needed")
    return np.ascontiguousarray(array)


@lru_cache(maxsize=512)
def _places(form: MatrixForm, name: str) -> tuple[Room, NDArray[np.int32]]:
    """Where the elements of a register operand lie."""
    rule = fragment(form, name)
    return Room(rule.bits, rule.shift, rule.width), rule.places.astype(np.int32)


@lru_cache(maxsize=128)
def _path(
    form: MatrixForm, device: str, selector: int = 0, scale_ids: tuple[int, ...] = (),
    shared_a: Where | None = None, shared_b: Where | None = None,
) -> Registers:  # fmt: skip
    """The way from registers to registers. shared_a, shared_b: where a wgmma finds A and B, if not in registers."""
    c, d = ("d", "d") if form.family == "wgmma" else ("c", "d")
    a_room, a_map = _shared_places(form, "a", shared_a)[:2] if shared_a else _places(form, "a")
    b_room, b_map = _shared_places(form, "b", shared_b)[:2] if shared_b else _places(form, "b")
    c_room, c_map = _places(form, c)
    result = fragment(form, d)
    scale_maps = None
    if scale_ids:
        lane_a, byte_a = scales.places(form, "a", *scale_ids[:2])
        lane_b, byte_b = scales.places(form, "b", *scale_ids[2:])
        scale_maps = (4 * lane_a[:, None] + byte_a, 4 * lane_b + byte_b[:, None])
    return Registers(
        twin_for(dot_key(form), device), (form.m, form.n, form.k), (a_room, b_room, c_room, result.bits),
        (a_map, b_map, c_map), result.flat, result.copies, _metadata(form, selector) if form.sparse else None, scale_maps,
    )  # fmt: skip


def _metadata(form: MatrixForm, selector: int) -> Metadata:
    """Which metadata bits say where each element of A stands."""
    g = sparse.granularity(form)
    halves = g.chunk == 2  # tf32: the two indices are those of the halves of one element
    kept = np.arange(g.kept)
    lane, bit = (x[..., None] + 0 * kept for x in sparse.places(form, selector))
    chunk = np.arange(lane.shape[1])[None, :, None] * g.chunk + 0 * lane
    if halves:
        return Metadata(lane, bit, chunk, drop=1, group=1)
    return Metadata(lane, bit + 2 * (kept // g.group), chunk + kept % g.group, drop=0, group=g.group)


CORES = os.cpu_count() or 1
Given = dict[str, tuple[Array | None, int]]  # operands in the order of Registers, and how many dimensions each has


def _run(path: Registers, form: MatrixForm, given: Given, flags: int) -> Array | None:
    """The result, over the operands' leading dimensions.

    None if the native path leaves the metadata to `by_matrices`.
    """
    rule = fragment(form, "d")
    batch = _batch({name: x.shape[: x.ndim - own] for name, (x, own) in given.items() if x is not None})
    out = np.empty((*batch, rule.lanes, rule.registers), f"<u{rule.register_bits // 8}")
    count = math.prod(batch)
    operands: list[Any] = []
    for x, own in given.values():
        if x is not None and batch:
            lead = x.shape[: x.ndim - own]
            shared = math.prod(lead) == 1
            if not shared and lead != batch:
                x = np.ascontiguousarray(np.broadcast_to(x, (*batch, *x.shape[x.ndim - own :])))
            operands.append((x, shared))
        else:
            operands.append(x if x is None else (x, True))
    if count and not path(operands, out, count, CORES, flags):
        return None
    return out


def _batch(leading: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that leading dimensions broadcast to."""
    if not any(leading.values()):
        return ()
    try:
        return np.broadcast_shapes(*leading.values())
    except ValueError:
        shapes = ", ".join(f"{name} {shape}" for name, shape in leading.items())
        raise OperandError(f"leading dimensions do not broadcast: {shapes}", rule="batches follow NumPy's broadcasting") from None


# The same by way of whole matrices ------------------------------------------------------------------------------------
def by_matrices(form: MatrixForm, device: str, o: Operands) -> Array:
    """A multiply by layouts and `raw_matmul`: for metadata that the native path leaves, and for comparison with it."""
    more: dict[str, Any] = {}
    if form.family == "wgmma":
        a, b, c, more = _wgmma_matrices(form, o)
    else:
        a, b, c = (fragment(form, name).to_matrix(_registers(form, name, o[name])) for name in "abc")
    nibbles = None
    if form.sparse:
        e, f = ("sp_meta", "sp_sel") if form.family == "wgmma" else ("e", "f")
        nibbles = sparse.from_registers(_column(form, e, o[e]), form, _integer(f, o[f]))
    if form.block_scale:
        for side in "ab":
            data = _column(form, f"scale_{side}_data", o[f"scale_{side}_data"])
            byte_id = _integer(f"byte_id_{side}", o[f"byte_id_{side}"])
            thread_id = _integer(f"thread_id_{side}", o[f"thread_id_{side}"])
            more[f"scale_{side}"] = scales.from_registers(data, form, side, byte_id, thread_id)
    return fragment(form, "d").to_registers(_product(form, device, a, b, c, nibbles, **more))


def _product(
    form: MatrixForm, device: str, a: Array, b: Array, c: Array | None, nibbles: NDArray[np.uint8] | None, **more: Any
) -> Array:
    """The arithmetic, with B gathered as hardware does for a sparse A, whatever its metadata says."""
    if nibbles is None:
        return raw_matmul(dot_key(form), device, a, b, c, **more)
    batch = _batch({"a": a.shape[:-2], "metadata": nibbles.shape[:-2]})
    a = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    nibbles = np.broadcast_to(nibbles, (*batch, *nibbles.shape[-2:]))
    index = sparse.indices(nibbles, form)
    if sparse.mixed(nibbles, form).any():
        return _mixed_halves(form, device, a, b, c, nibbles, **more)
    return raw_matmul(dot_key(form), device, a, b, c, indices=index, **more)


def _mixed_halves(
    form: MatrixForm, device: str, a: Array, b: Array, c: Array | None, nibbles: NDArray[np.uint8], **more: Any
) -> Array:
    """tf32 metadata that takes halves of two elements: every row of A gets a B of its own."""
    halves = np.ascontiguousarray(np.swapaxes(b, -1, -2)).view("<u2")  # [..., N, 2 K], low half first
    chunk = 4 * np.arange(nibbles.shape[-1], dtype=np.int64)
    low, high = chunk + (nibbles & 3), chunk + (nibbles >> 2)
    batch = _batch({"b": halves.shape[:-2], "metadata": nibbles.shape[:-2]})
    source = np.broadcast_to(halves[..., None, :, :], (*batch, form.m, *halves.shape[-2:]))

    def gathered(which: NDArray[np.int64]) -> Array:  # [..., M, N, chunks]
        at = np.broadcast_to(which[..., None, :], (*batch, form.m, halves.shape[-2], which.shape[-1]))
        return np.take_along_axis(source, at, axis=-1).astype(np.uint32)

    own = np.zeros((*batch, form.m, form.k, halves.shape[-2]), np.uint32)
    own[..., ::2, :] = np.swapaxes(gathered(low) | gathered(high) << np.uint32(16), -1, -2)
    first = np.broadcast_to(np.arange(0, form.k, 2), (*batch, form.m, 1, form.k // 2))
    rows = None if c is None else c[..., :, None, :]
    d = raw_matmul(dot_key(form), device, a[..., :, None, :], own, rows, indices=first, **more)
    return d[..., 0, :]


# wgmma ---------------------------------------------------------------------------------------------------------------
def _wgmma(form: MatrixForm, device: str, o: Operands) -> Array:
    assert form.atype and form.btype
    signs, trans_a, trans_b, image, base = _wgmma_checked(form, o)
    image = np.ascontiguousarray(image)
    a = None if o["a"] is None else _registers(form, "a", o["a"])
    d = _registers(form, "d", o["d"]) if o["scale_d"] else None
    e, selector = (_column(form, "sp_meta", o["sp_meta"]), _integer("sp_sel", o["sp_sel"])) if form.sparse else (None, 0)
    where: dict[str, Where] = {"b": (_descriptor("b_desc", o["b_desc"]), base, trans_b)}
    if a is None:
        where["a"] = (_descriptor("a_desc", o["a_desc"]), base, trans_a)
    spans = [_shared_places(form, side, place)[2:] for side, place in where.items()]
    inside = all(low >= 0 and high <= image.shape[-1] for low, high in spans)
    if not inside or base % 16:  # elements that straddle words, or the error
        return by_matrices(form, device, o)
    flags = Twin.flags(zero_c=d is None, negate_a=signs["imm_scale_a"] < 0, negate_b=signs["imm_scale_b"] < 0)
    given: Given = {
        "a": (image, 1) if a is None else (a, 2), "shared": (image, 1), "d": (d, 2), "sp_meta": (e, 1)
    }  # fmt: skip
    out = _run(_path(form, device, selector, (), where.get("a"), where["b"]), form, given, flags)
    return by_matrices(form, device, o) if out is None else out


def _wgmma_checked(form: MatrixForm, o: Operands) -> tuple[dict[str, int], bool, bool, NDArray[np.uint8], int]:
    """imm-scale, imm-trans-a, imm-trans-b, the image of shared memory and its address."""
    if (o["a"] is None) == (o["a_desc"] is None):
        raise OperandError("operands a and a_desc: exactly one of them is needed")
    if _integer("scale_d", o["scale_d"], range(2)) and o["d"] is None:
        raise OperandError("operand d is missing", hint="with scale_d=0 it is not read")
    signs = {name: _integer(name, o.get(name, 1), range(-1, 2, 2)) for name in ("imm_scale_a", "imm_scale_b")}
    trans_a = bool(_integer("imm_trans_a", o.get("imm_trans_a", 0), range(2)))
    trans_b = bool(_integer("imm_trans_b", o.get("imm_trans_b", 0), range(2)))
    if trans_a and o["a"] is not None:
        raise OperandError("imm_trans_a belongs to a_desc; A is in registers here")
    return signs, trans_a, trans_b, _memory("shared", o["shared"]), _integer("shared_base", o["shared_base"])


def _wgmma_matrices(form: MatrixForm, o: Operands) -> tuple[Array, Array, Array | None, dict[str, Any]]:
    assert form.atype and form.btype
    signs, trans_a, trans_b, image, base = _wgmma_checked(form, o)
    columns = form.k // 2 if form.sparse else form.k
    if o["a"] is not None:
        a = fragment(form, "a").to_matrix(_registers(form, "a", o["a"]))
    else:
        a = shared_matrix(image, base, _descriptor("a_desc", o["a_desc"]), form.m, columns, form.atype, trans_a)
    b = shared_matrix(image, base, _descriptor("b_desc", o["b_desc"]), form.n, form.k, form.btype, trans_b)
    c = fragment(form, "d").to_matrix(_registers(form, "d", o["d"])) if o["scale_d"] else None
    return a, np.swapaxes(b, -1, -2), c, signs


def _descriptor(name: str, value: Any) -> MatrixDescriptor:
    return value if isinstance(value, MatrixDescriptor) else MatrixDescriptor.decode(_integer(name, value))


def _memory(name: str, value: Any) -> NDArray[np.uint8]:
    image = np.asarray(value)
    if image.dtype != np.uint8 or image.ndim < 1:
        raise OperandError(f"operand {name} is {image.dtype} of shape {image.shape}: uint8 [..., bytes] is needed")
    return image


def shared_matrix(
    image: NDArray[np.uint8],
    base: int,
    descriptor: MatrixDescriptor,
    rows: int,
    k: int,
    element: ElementType,
    mn_major: bool = False,
) -> Array:
    """Raw elements [..., rows, k] that a matrix descriptor finds in an image of shared memory [..., bytes].

    base: shared address of the image's first byte. Raises ExecutionFault for an address outside the image.
    """
    address = operand_addresses(descriptor, rows, k, element.bits, mn_major) - base
    size = max(1, element.bits // 8)
    _inside("shared", address, size, image.shape[-1], base)
    if element.bits < 8:
        shift = (np.arange(k) * element.bits % 8).astype(np.uint8)
        return image[..., address] >> shift & np.uint8((1 << element.bits) - 1)
    found = image[..., address[..., None] + np.arange(size)]
    return np.ascontiguousarray(found).view(f"<u{size}")[..., 0]


Where = tuple[MatrixDescriptor, int, bool]  # of a matrix in shared memory: descriptor, address of the image, MN-major


@lru_cache(maxsize=128)
def _shared_places(form: MatrixForm, side: str, where: Where) -> tuple[Room, NDArray[np.int32], int, int]:
    """Where A [M, K] or B [K, N] lies in the image, in elements; its lowest byte, and the one behind its highest."""
    descriptor, base, mn_major = where
    rows, k, element = (form.m, form.k // (1 + form.sparse), form.atype) if side == "a" else (form.n, form.k, form.btype)
    assert element is not None
    address = operand_addresses(descriptor, rows, k, element.bits, mn_major) - base
    size = max(1, element.bits // 8)
    places = 8 * address // element.bits
    if element.bits < 8:
        places = places + np.arange(k) % (8 // element.bits)
    table = (places if side == "a" else places.T).astype(np.int32)
    return Room(element.bits, 0, element.bits), table, int(address.min()), int(address.max()) + size


def _inside(name: str, address: NDArray[np.int64], size: int, limit: int, base: int = 0) -> None:
    outside = (address < 0) | (address + size > limit)
    if outside.any():
        first = int(address[outside].flat[0]) + base
        raise ExecutionFault(
            f"address {first:#x} is outside {name}: it has bytes {base:#x} to {base + limit - 1:#x}",
            hint="check start address, byte offsets and strides",
        )


# wmma.load and wmma.store ---------------------------------------------------------------------------------------------
def _wmma_offsets(form: MatrixForm, o: Operands, memory: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Bit offset of every element [rows, columns], all inside memory."""
    assert form.type is not None
    rule = fragment(form, "r")
    row = np.arange(rule.rows, dtype=np.int64)[:, None]
    col = np.arange(rule.columns, dtype=np.int64)[None, :]
    default = rule.columns if form.layout == "row" else rule.rows
    stride = default if o["stride"] is None else _integer("stride", o["stride"])
    if stride < default:
        raise OperandError(
            f"stride is {stride}: it must be at least {default}, the size of the leading dimension",
            rule=str(form.section),
        )
    element = row * stride + col if form.layout == "row" else col * stride + row
    p = _integer("p", o["p"])
    aligned = 4 * rule.registers * (rule.register_bits // 32)
    if p % min(aligned, 32):
        raise OperandError(
            f"p is {p}: it must be a multiple of {min(aligned, 32)}, the size of the fragment",
            rule="Matrix Storage for WMMA, Address Alignment (PTX ISA 9.1)",
        )
    bits = 8 * p + element * form.type.bits
    _inside("memory", bits // 8, max(1, form.type.bits // 8), memory.shape[-1])
    return bits


def _wmma_load(form: MatrixForm, device: str, o: Operands) -> Array:
    assert form.type is not None
    memory = _memory("memory", o["memory"])
    return fragment(form, "r").to_registers(_read(memory, _wmma_offsets(form, o, memory), form.type.bits))


def _read(memory: NDArray[np.uint8], bits: NDArray[np.int64], width: int) -> Array:
    """Raw elements at bit offsets."""
    if width < 8:
        shift = (bits % 8).astype(np.uint8)
        return memory[..., bits // 8] >> shift & np.uint8((1 << width) - 1)
    found = memory[..., bits[..., None] // 8 + np.arange(width // 8)]
    return np.ascontiguousarray(found).view(f"<u{width // 8}")[..., 0]


def _write(memory: NDArray[np.uint8], bits: NDArray[np.int64], raw: Array, width: int) -> None:
    """Store raw elements of at least a byte at bit offsets."""
    parts = np.ascontiguousarray(raw.astype(f"<u{width // 8}", copy=False))[..., None].view(np.uint8)
    memory[..., bits[..., None] // 8 + np.arange(width // 8)] = parts


def _writable(memory: NDArray[np.uint8], original: Any) -> None:
    if not isinstance(original, np.ndarray) or not memory.flags.writeable:
        raise OperandError("operand memory must be a writable NumPy array: the store changes it")


def _stored(form: MatrixForm, value: Any, memory: NDArray[np.uint8]) -> Array:
    """The matrix of registers r, whose leading dimensions have to fit those of memory."""
    registers = _registers(form, "r", value)
    if _batch({"r": registers.shape[:-2], "memory": memory.shape[:-1]}) != memory.shape[:-1]:
        raise OperandError(
            f"operand r of shape {registers.shape} for memory of shape {memory.shape}: one image for each is needed"
        )
    return fragment(form, "r").to_matrix(registers)


def _wmma_store(form: MatrixForm, device: str, o: Operands) -> Array:
    assert form.type is not None
    memory = _memory("memory", o["memory"])
    _writable(memory, o["memory"])
    bits = _wmma_offsets(form, o, memory)
    _write(memory, bits, _stored(form, o["r"], memory), form.type.bits)
    return memory


# ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------------------------------
def _rows(form: MatrixForm, o: Operands, memory: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Byte offset of every row of 16 bytes [num, rows], all inside memory."""
    rows = 16 if (form.m, form.n) == (16, 16) else 8
    p = np.asarray(o["p"])
    if p.shape != (32,) or p.dtype.kind not in "iu":
        raise OperandError(f"operand p is {p.dtype} of shape {p.shape}: 32 integer byte offsets are needed, one a lane")
    starts = p.astype(np.int64)[: form.num * rows].reshape(form.num, rows)
    if (starts % 16).any():
        raise OperandError("operand p: rows start at multiples of 16 bytes", rule=str(form.section))
    _inside("memory", starts, 16, memory.shape[-1])
    return starts


def _ldmatrix(form: MatrixForm, device: str, o: Operands) -> Array:
    memory = _memory("memory", o["memory"])
    starts = _rows(form, o, memory)
    if form.src_fmt:
        packed = 6 if form.src_fmt == "b6x16_p32" else 4
        bits = 8 * starts[..., None] + packed * np.arange(16)
        low, high = memory[..., bits // 8], memory[..., np.minimum(bits // 8 + 1, memory.shape[-1] - 1)]
        pair = low.astype(np.uint16) | high.astype(np.uint16) << np.uint16(8)
        raw = (pair >> (bits % 8).astype(np.uint16) & np.uint16((1 << packed) - 1)).astype(np.uint8)
    else:
        width = 16 if (form.m, form.n) == (8, 8) else 8
        raw = _read(memory, 8 * starts[..., None] + width * np.arange(128 // width), width)
    if form.trans:
        raw = np.swapaxes(raw, -1, -2)
    return fragment(form, "r").to_registers(_uncopied(form, raw))


def _uncopied(form: MatrixForm, raw: Array) -> Array:
    """Matrices [..., num, rows, columns] as the fragment wants them: without the axis where there is one matrix."""
    return raw if form.num > 1 else raw[..., 0, :, :]


def _stmatrix(form: MatrixForm, device: str, o: Operands) -> Array:
    memory = _memory("memory", o["memory"])
    _writable(memory, o["memory"])
    starts = _rows(form, o, memory)
    raw = _stored(form, o["r"], memory)
    if form.num == 1:
        raw = raw[..., None, :, :]
    if form.trans:
        raw = np.swapaxes(raw, -1, -2)
    width = 8 * raw.dtype.itemsize
    _write(memory, 8 * starts[..., None] + width * np.arange(128 // width), raw, width)
    return memory


def _movmatrix(form: MatrixForm, device: str, o: Operands) -> Array:
    column = _column(form, "a", o["a"])
    raw = fragment(form, "a").to_matrix(column[..., None])
    return fragment(form, "d").to_registers(np.swapaxes(raw, -1, -2))


_RUN: dict[tuple[str, str], Callable[[MatrixForm, str, Operands], Array]] = {
    ("mma", "mma"): _mma,
    ("wmma", "mma"): _mma,
    ("wgmma", "mma_async"): _wgmma,
    **{("wmma", f"load.{x}"): _wmma_load for x in "abc"},
    ("wmma", "store.d"): _wmma_store,
    ("ldmatrix", "ldmatrix"): _ldmatrix,
    ("stmatrix", "stmatrix"): _stmatrix,
    ("movmatrix", "movmatrix"): _movmatrix,
}
