"""What matrix instructions do to registers and memory images: fragments in, arithmetic, fragments out.

One function a family; `execute` checks that the operands are the instruction's and hands them on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.errors import ExecutionFault, OperandError, UnsupportedError, shown
from mmulator.interop import as_array, writable
from mmulator.isa.form import Form
from mmulator.isa.targets import DEVICES
from mmulator.isa.types import ElementType
from mmulator.layouts import MatrixDescriptor, fragment, operand_addresses, scales, sparse
from mmulator.numerics.arrays import batch_shape
from mmulator.numerics.profiles import dot_key
from mmulator.syntax.atoms import device_of
from mmulator.twin.places import BY_LANE, scale_step, site_for
from mmulator.twin.registers import run
from mmulator.twin.twin import Twin
from mmulator.twin.twin import fast_matmul as raw_matmul

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
def keywords(form: Form) -> tuple[str, ...]:
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


def execute(form: Form, device: str, operands: Operands, *, strict: bool = True) -> Array:
    """Run one instruction; see `Instruction.execute`."""
    run = _RUN.get((form.family, form.op))
    if run is None:
        raise UnsupportedError(
            f"{form} orders other instructions and has no result", hint="run a kernel that contains it"
        )
    known = keywords(form)
    defaults = _DEFAULTS.get(form.family, {})
    for name in operands:
        if name not in known:
            raise OperandError(f"{form} has no operand {name}", hint=f"operands: {', '.join(known)}")
    for name in known:
        if name not in operands and name not in defaults:
            raise OperandError(f"operand {name} is missing", hint=f"operands of {form}: {', '.join(known)}")
    check_device(form, device)
    given = {name: operands.get(name, defaults.get(name)) for name in known}
    return run(form, device, given | {"strict": strict})


def check_known(device: Any) -> None:
    """Raises UnsupportedError for a device that is not known."""
    if isinstance(device, str) and device in DEVICES:
        return
    hint = f"known devices: {', '.join(DEVICES)}"
    if isinstance(device, str) and device[-1:] in ("a", "f") and device[:-1] in DEVICES:
        hint = f"devices have no suffix: {device[:-1]} ({device} is a .target)"
    elif isinstance(device, str) and (named := device_of(device)):
        hint = f"{device} is {named}"
    raise UnsupportedError(f"unknown device {shown(device)}", hint=hint)


def check_device(form: Form, device: str) -> None:
    """Raises UnsupportedError for a device that is not known, or for which no target has the instruction."""
    if not isinstance(device, str):
        check_known(device)
    _check_device(form, device)


@lru_cache(maxsize=1024)
def _check_device(form: Form, device: str) -> None:
    check_known(device)
    requires = form.row.requires
    having = [d for d in DEVICES if any(target.runs_on(d) for target in requires.targets())]
    if device not in having:
        raise UnsupportedError(
            f"{device} has no {form}",
            rule=f"{form.section}, Target ISA Notes: requires {requires.describe_targets()}",
            hint=f"devices that have it: {', '.join(having)}" if having else None,
        )


def words(name: str, value: Any, bits: int = 32) -> Array:
    """An operand as unsigned words of 32 or 64 bits; signed and float arrays of that size are taken bit for bit."""
    array = as_array(f"operand {name}", value)
    want = np.dtype(f"<u{bits // 8}")
    if array.dtype.kind not in "uif" or array.dtype.itemsize != want.itemsize:
        raise OperandError(f"operand {name} is {array.dtype}: registers are {want.name}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array).view(want)


def _registers(form: Form, name: str, value: Any) -> Array:
    """A register operand [..., lanes, registers]."""
    rule = fragment(form, name)
    array = words(name, value, rule.register_bits)
    if array.shape[-2:] != (rule.lanes, rule.registers):
        raise OperandError(
            f"operand {name} of shape {array.shape}: [..., {rule.lanes} lanes, {rule.registers} registers] is needed",
            rule=str(form.section),
        )
    return array


def _batch(**operands: tuple[Array | None, int]) -> tuple[int, ...]:
    """Common leading dimensions of (array, number of its own dimensions)."""
    return batch_shape({name: x.shape[: x.ndim - own] for name, (x, own) in operands.items() if x is not None})


_OFFSETS = range(-(1 << 40), 1 << 40)  # bytes or elements; what memory there is, says who reads it


def _integer(name: str, value: Any, allowed: range | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise OperandError(f"operand {name} is {shown(value)}: an integer is needed") from None
    if allowed is not None and number not in allowed:
        which = f"one of {', '.join(map(str, allowed))}" if len(allowed) < 9 else f"from {allowed[0]} to {allowed[-1]}"
        raise OperandError(f"operand {name} is {shown(number)}: it must be {which}")
    return number


def check_signs(form: Form, imm_scale_a: Any, imm_scale_b: Any) -> None:
    """imm-scale-a and imm-scale-b are 1 or -1, and only wgmma on float types has them."""
    for name, value in (("imm_scale_a", imm_scale_a), ("imm_scale_b", imm_scale_b)):
        _integer(name, value, range(-1, 2, 2))
        if value != 1 and not (form.family == "wgmma" and form.atype.is_float):
            raise OperandError(f"{form} has no {name}")


# mma and wmma.mma ----------------------------------------------------------------------------------------------------
def _mma(form: Form, device: str, o: Operands) -> Array:
    a, b, c = (_registers(form, name, o[name]) for name in "abc")
    e = scale_a = scale_b = None
    selector, select = 0, (0, 0)
    if form.sparse:
        selector, e = _integer("f", o["f"]), _column(form, "e", o["e"])
        _check_metadata(form, e, selector, o["strict"])
    if form.block_scale:
        scale_a, scale_b = (_column(form, f"scale_{side}_data", o[f"scale_{side}_data"]) for side in "ab")
        select = (_scale_selector(form, "a", o), _scale_selector(form, "b", o))
    site = site_for(form, device, selector, BY_LANE)
    batch = _batch(a=(a, 2), b=(b, 2), c=(c, 2), e=(e, 1), scale_a_data=(scale_a, 1), scale_b_data=(scale_b, 1))
    return run(site, a, b, c, e, scale_a, scale_b, batch=batch, select=select)


def _scale_selector(form: Form, side: str, o: Operands) -> int:
    """Bytes from the scale factors that selectors of 0 name."""
    byte_id, thread_id = (_integer(f"{name}_id_{side}", o[f"{name}_id_{side}"]) for name in ("byte", "thread"))
    scales.places(form, side, byte_id, thread_id)  # raises for a selector that is not defined
    return byte_id + thread_id * scale_step(form, side)


def _column(form: Form, name: str, value: Any) -> Array:
    """A one-register operand: [..., lanes], or [..., lanes, 1]."""
    array = words(name, value)
    if array.shape[-2:] == (form.lanes, 1):
        array = array[..., 0]
    if array.shape[-1:] != (form.lanes,):
        raise OperandError(f"operand {name} of shape {array.shape}: [..., {form.lanes} lanes] is needed")
    return array


def _check_metadata(form: Form, words: Array, selector: int, strict: bool) -> None:
    """Raises OperandError for a selector out of range and, if strict, for nibbles that the specification leaves undefined."""
    lanes, refused = _undefined_halves(form, selector)
    if strict and refused[np.ascontiguousarray(words[..., lanes]).view("<u2")].any():
        sparse.check(sparse.from_registers(words, form, selector), form)


@lru_cache(maxsize=256)
def _undefined_halves(form: Form, selector: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The lanes that contribute metadata, whole words of it; for every 16 bits whether a nibble of them is undefined."""
    nibbles = np.arange(1 << 16)[:, None] >> np.arange(0, 16, 4) & 15
    refused = np.asarray(sparse.undefined(nibbles.astype(np.uint8), form).any(axis=-1))
    return np.unique(sparse.places(form, selector)[0]), refused


# wgmma ---------------------------------------------------------------------------------------------------------------
def _wgmma(form: Form, device: str, o: Operands) -> Array:
    if (o["a"] is None) == (o["a_desc"] is None):
        raise OperandError("operands a and a_desc: exactly one of them is needed")
    scale_d = bool(_integer("scale_d", o["scale_d"], range(2)))
    if scale_d and o["d"] is None:
        raise OperandError("operand d is missing", hint="with scale_d=0 it is not read")
    signs = {}
    for name in ("imm_scale_a", "imm_scale_b"):
        if name in o:
            signs[name] = _integer(name, o[name], range(-1, 2, 2))
    trans_a = bool(_integer("imm_trans_a", o.get("imm_trans_a", 0), range(2)))
    trans_b = bool(_integer("imm_trans_b", o.get("imm_trans_b", 0), range(2)))
    if trans_a and o["a"] is not None:
        raise OperandError("imm_trans_a belongs to a_desc; A is in registers here")
    image = _memory("shared", o["shared"])
    base = _integer("shared_base", o["shared_base"], _OFFSETS)
    columns = form.k // 2 if form.sparse else form.k
    plain = {"b"}
    if o["a"] is not None:
        a = _registers(form, "a", o["a"])
    else:
        a = shared_matrix(image, base, _descriptor("a_desc", o["a_desc"]), form.m, columns, form.atype, trans_a)
        plain.add("a")
    b = shared_matrix(image, base, _descriptor("b_desc", o["b_desc"]), form.n, form.k, form.btype, trans_b)
    c = _registers(form, "d", o["d"]) if scale_d else None
    selector, e = 0, None
    if form.sparse:
        selector, e = _integer("sp_sel", o["sp_sel"]), _column(form, "sp_meta", o["sp_meta"])
        _check_metadata(form, e, selector, o["strict"])
    flags = Twin.flags(zero_c=not scale_d, negate_a=signs.get("imm_scale_a") == -1, negate_b=signs.get("imm_scale_b") == -1)
    site = site_for(form, device, selector, BY_LANE, frozenset(plain), flags)
    return run(site, a, b, c, e, batch=_batch(a=(a, 2), b=(b, 2), d=(c, 2), sp_meta=(e, 1)))


def _descriptor(name: str, value: Any) -> MatrixDescriptor:
    if isinstance(value, MatrixDescriptor):
        return value
    word = _integer(name, value)
    if isinstance(value, np.int64):  # a register, bit for bit
        word &= (1 << 64) - 1
    if not 0 <= word < 1 << 64:
        rule = "Matrix Descriptor Format (PTX ISA 9.1)"
        raise OperandError(f"operand {name} is {word:#x}: a descriptor has 64 bits, 0 to 2**64 - 1", rule=rule)
    return MatrixDescriptor.decode(word)


def _memory(name: str, value: Any) -> NDArray[np.uint8]:
    image = as_array(f"operand {name}", value)
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
    address, chunks = _addresses(descriptor, rows, k, element.bits, mn_major)
    size = max(1, element.bits // 8)
    _inside("shared", address - base, size, image.shape[-1], base)
    if chunks is not None and not (base % 16 or image.shape[-1] % 16 or image.strides[-1] != 1):
        wide = np.ascontiguousarray(image).view("V16")
        found = np.take(wide, chunks - base // 16, axis=-1)
        return found.view(f"<u{size}")
    address = address - base
    if element.bits < 8:
        shift = (np.arange(k) * element.bits % 8).astype(np.uint8)
        return image[..., address] >> shift & np.uint8((1 << element.bits) - 1)
    found = image[..., address[..., None] + np.arange(size)]
    return np.ascontiguousarray(found).view(f"<u{size}")[..., 0]


@lru_cache(maxsize=512)
def _addresses(
    descriptor: MatrixDescriptor, rows: int, k: int, bits: int, mn_major: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Byte address of every element [rows, k]; and the numbers of the 16-byte units of every row, if it is made of them."""
    address = operand_addresses(descriptor, rows, k, bits, mn_major)
    per = 128 // bits
    if bits < 8 or k % per:
        return address, None
    units = address.reshape(rows, -1, per)
    first = units[..., 0]
    whole = (units == first[..., None] + np.arange(per) * (bits // 8)).all() and not (first % 16).any()
    return address, first // 16 if whole else None


def _inside(name: str, address: NDArray[np.int64], size: int, limit: int, base: int = 0) -> None:
    outside = (address < 0) | (address + size > limit)
    if outside.any():
        first = int(address[outside].flat[0]) + base
        raise ExecutionFault(
            f"address {first:#x} is outside {name}: it "
            + (f"has bytes {base:#x} to {base + limit - 1:#x}" if limit else "is empty"),
            hint="check start address, byte offsets and strides",
        )


# wmma.load and wmma.store ---------------------------------------------------------------------------------------------
_ALIGNMENT = "Matrix Storage for WMMA, Address Alignment (PTX ISA 9.1)"


def _wmma_offsets(form: Form, o: Operands, memory: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Bit offset of every element [rows, columns], all inside memory."""
    rule = fragment(form, "r")
    row = np.arange(rule.rows, dtype=np.int64)[:, None]
    col = np.arange(rule.columns, dtype=np.int64)[None, :]
    default = rule.columns if form.layout == "row" else rule.rows
    stride = default if o["stride"] is None else _integer("stride", o["stride"], _OFFSETS)
    if stride < default:
        raise OperandError(
            f"stride is {stride}: it must be at least {default}, the size of the leading dimension",
            rule=str(form.section),
        )
    element = row * stride + col if form.layout == "row" else col * stride + row
    p = _integer("p", o["p"], _OFFSETS)
    aligned = min(4 * rule.registers * (rule.register_bits // 32), 32)
    if p % aligned:
        raise OperandError(f"p is {p}: it must be a multiple of {aligned}, the size of the fragment", rule=_ALIGNMENT)
    # The PTX ISA asks for lines at multiples of the fragment's size, CUDA's wmma for multiples of 16 bytes, which is
    # what hardware needs: kernels count on it.
    line = min(aligned, 16)
    if stride != default and stride * form.type.bits % (8 * line):
        raise OperandError(
            f"stride is {stride}: {stride} .{form.type} elements are {stride * form.type.bits / 8:g} bytes, "
            f"and every line must start at a multiple of {line}",
            rule=_ALIGNMENT,
            hint=f"use a multiple of {8 * line // form.type.bits} elements",
        )
    bits = 8 * p + element * form.type.bits
    _inside("memory", bits // 8, max(1, form.type.bits // 8), memory.shape[-1])
    return bits


def _wmma_load(form: Form, device: str, o: Operands) -> Array:
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
    if writable(original, "operand memory") is None or not memory.flags.writeable:
        raise OperandError("operand memory must be a writable array: the store changes it")


def _stored(form: Form, value: Any, memory: NDArray[np.uint8]) -> Array:
    """The matrix of registers r, whose leading dimensions have to fit those of memory."""
    registers = _registers(form, "r", value)
    if _batch(r=(registers, 2), memory=(memory, 1)) != memory.shape[:-1]:
        raise OperandError(
            f"operand r of shape {registers.shape} for memory of shape {memory.shape}: one image for each is needed"
        )
    return fragment(form, "r").to_matrix(registers)


def _wmma_store(form: Form, device: str, o: Operands) -> Array:
    memory = _memory("memory", o["memory"])
    _writable(memory, o["memory"])
    bits = _wmma_offsets(form, o, memory)
    _write(memory, bits, _stored(form, o["r"], memory), form.type.bits)
    return memory


# ldmatrix, stmatrix, movmatrix ----------------------------------------------------------------------------------------
def _rows(form: Form, o: Operands, memory: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Byte offset of every row of 16 bytes [num, rows], all inside memory."""
    rows = 16 if (form.m, form.n) == (16, 16) else 8
    p = as_array("operand p", o["p"])
    if p.shape != (32,) or p.dtype.kind not in "iu":
        raise OperandError(f"operand p is {p.dtype} of shape {p.shape}: 32 integer byte offsets are needed, one a lane")
    starts = p.astype(np.int64)[: form.num * rows].reshape(form.num, rows)
    if (starts % 16).any():
        lane = int(np.argmax(starts.reshape(-1) % 16 != 0))
        raise OperandError(
            f"operand p of lane {lane} is {starts.flat[lane]}: rows start at multiples of 16 bytes", rule=str(form.section)
        )
    _inside("memory", starts, 16, memory.shape[-1])
    return starts


def _ldmatrix(form: Form, device: str, o: Operands) -> Array:
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


def _uncopied(form: Form, raw: Array) -> Array:
    """Matrices [..., num, rows, columns] as the fragment wants them: without the axis where there is one matrix."""
    return raw if form.num > 1 else raw[..., 0, :, :]


def _stmatrix(form: Form, device: str, o: Operands) -> Array:
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


def _movmatrix(form: Form, device: str, o: Operands) -> Array:
    column = _column(form, "a", o["a"])
    raw = fragment(form, "a").to_matrix(column[..., None])
    return fragment(form, "d").to_registers(np.swapaxes(raw, -1, -2))


_RUN: dict[tuple[str, str], Callable[[Form, str, Operands], Array]] = {
    ("mma", "mma"): _mma,
    ("wmma", "mma"): _mma,
    ("wgmma", "mma_async"): _wgmma,
    **{("wmma", f"load.{x}"): _wmma_load for x in "abc"},
    ("wmma", "store.d"): _wmma_store,
    ("ldmatrix", "ldmatrix"): _ldmatrix,
    ("stmatrix", "stmatrix"): _stmatrix,
    ("movmatrix", "movmatrix"): _movmatrix,
}
