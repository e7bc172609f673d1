"""Matrix instructions: mma, wmma, wgmma, ldmatrix, stmatrix, movmatrix (PTX ISA 9.1, Warp Level and Asynchronous Warpgroup
Level Matrix Instructions). Fragments come from layouts/, arithmetic from the numerics twin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mmulator.codegen.ops import bitcast, cast_ptr, mask_bits, null, trailing_zeros
from mmulator.codegen.types import i32, i64, ptr_to, u8, u32, u64
from mmulator.codegen.values import Value, constant, extract
from mmulator.errors import UnsupportedError
from mmulator.isa.forms import MatrixForm
from mmulator.layouts.operands import fragment
from mmulator.machine.compile.block import LANES, storage_type
from mmulator.machine.meaning import lower
from mmulator.machine.meaning.memory import elements, write_result
from mmulator.machine.runtime import memory as mem
from mmulator.machine.runtime import pending, watch
from mmulator.machine.runtime import tensor as rt
from mmulator.machine.runtime import wgmma as wg
from mmulator.machine.state import WGMMA, Cta, WgmmaTable
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, VectorOperand
from mmulator.twin.forms import twin_of
from mmulator.twin.places import Site, index_table, operand_places, register_elements, scale_step, site_for
from mmulator.twin.product import MmaSite

if TYPE_CHECKING:
    from mmulator.machine.compile.control import Emitter

U32, U64 = u32.vec(LANES), u64.vec(LANES)


def _form(ins: Instruction) -> MatrixForm:
    assert isinstance(ins.form, MatrixForm)
    return ins.form


def _registers(e: Emitter, operand: Operand, bits: int = 32) -> Value:
    """A vector operand's registers, one after the other in memory (32 lanes each)."""
    ty = storage_type(f"b{bits}")
    return e.spill(*(ty(e.source(o, f"b{bits}")) for o in elements(operand)))


def _results(e: Emitter, operand: Operand, place: Value, ins: Instruction, bits: int = 32) -> None:
    ty = storage_type(f"b{bits}")
    for n, o in enumerate(elements(operand)):
        write_result(e, o, e.fetch(place, ty, n), ins)


def _space(form: MatrixForm) -> str:
    return form.space.partition("::")[0] or "generic"


def _address(e: Emitter, operand: Operand, ins: Instruction) -> Value:
    if not isinstance(operand, Address):
        raise UnsupportedError("an address is wanted", span=ins.span)
    return e.address(operand)


# tables -------------------------------------------------------------------------------------------------------------
def table(e: Emitter, key: Any, make: Any) -> int:
    """Number of a table of this kernel; made at its first use."""
    sites = e.jit.matrix
    if key not in sites.index:
        sites.index[key] = len(sites.tables)
        sites.tables.append(make(sites))
    return sites.index[key]


def site_pointer(e: Emitter, number: int, to: Any) -> Value:
    pointers = e.launch_field("tables")
    address = pointers[number]
    return e.b.emit(ptr_to(to), f"inttoptr i64 {address.text} to ptr")


def _keep(sites: Any, values: np.ndarray) -> int:
    array = np.ascontiguousarray(values, np.int32)
    sites.keep.append(array)
    return int(array.ctypes.data)


# mma and wmma.mma ---------------------------------------------------------------------------------------------------
def _selector(ins: Instruction, operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise UnsupportedError("the sparsity selector is a constant", span=ins.span)
    return operand.value


@lower("mma")
def mma(e: Emitter, ins: Instruction) -> None:
    _multiply(e, ins, _form(ins))


def _multiply(e: Emitter, ins: Instruction, form: MatrixForm) -> None:
    d, a, b, c, *rest = ins.operands
    selector, metadata = 0, null(u32)
    if form.sparse:
        selector, metadata = _selector(ins, rest[1]), _registers(e, rest[0])
        rest = rest[2:]
    factors, select = [null(u8)] * 2, [constant(e.b, u32, 0)] * 2
    if form.block_scale:
        scale_a, ids_a, scale_b, ids_b = rest
        select = [_scale_selector(e, form, "a", ids_a), _scale_selector(e, form, "b", ids_b)]
        factors = [cast_ptr(u8, _registers(e, o)) for o in (scale_a, scale_b)]
    site = site_for(form, e.device, selector)
    number = table(e, ("mma", form, selector), lambda sites: _keep_site(sites, site))
    width = {x: fragment(form, x).register_bits for x in "abcd"}
    out = e.room(storage_type(f"b{width['d']}"), len(elements(d)))
    places = [_registers(e, o, width[x]) for x, o in zip("abc", (a, b, c))]
    if site.transposed:
        places[:2] = places[1::-1]
    scratch = cast_ptr(Cta, e.warp("cta")).field("scratch")
    e.call(site.function, site_pointer(e, number, MmaSite), scratch, *places, metadata, *factors, *select, out)
    _results(e, d, out, ins, width["d"])


def _keep_site(sites: Any, site: Site) -> np.ndarray:
    sites.scratch_bytes = max(sites.scratch_bytes, site.scratch)
    sites.keep.append(site)
    return site.table


def _scale_selector(e: Emitter, form: MatrixForm, side: str, operand: Operand) -> Value:
    """{byte-id, thread-id}, those of the warp's first lane, as bytes from the place that both being 0 selects.

    Registers are taken modulo what the selector may be, so that the bytes are always those of the operand.
    """
    byte_id, thread_id = elements(operand)
    threads = 2 if side == "a" else 4
    at = constant(e.b, u32, 0)
    for o, limit, step in ((byte_id, 5 - form.scale_vec, 1), (thread_id, threads, scale_step(form, side))):
        if isinstance(o, Immediate):
            at = at + constant(e.b, u32, o.value * step)
        else:
            value = u32(extract(storage_type("b16")(e.source(o, "b16")), trailing_zeros(e.mask)))
            at = at + value % limit * step
    return at


# wmma ---------------------------------------------------------------------------------------------------------------
@lower("wmma")
def wmma(e: Emitter, ins: Instruction) -> None:
    form = _form(ins)
    if form.op == "mma":
        _multiply(e, ins, form)
    elif form.op.startswith("load"):
        _wmma_load(e, ins, form)
    else:
        _wmma_store(e, ins, form)


def _wmma_table(e: Emitter, form: MatrixForm) -> int:
    def make(sites: Any) -> np.ndarray:
        f = fragment(form, "r")
        elements_ = register_elements(form, "r")
        row, column = elements_ // f.columns, elements_ % f.columns
        major, minor = (row, column) if form.layout == "row" else (column, row)
        site = np.zeros(1, rt.WmmaSite.numpy_dtype())
        site["places"] = len(elements_)
        site["major"], site["minor"] = _keep(sites, major), _keep(sites, minor)
        return site

    return table(e, ("wmma", form), make)


def default_stride(form: MatrixForm) -> int:
    """Extent of the leading dimension."""
    f = fragment(form, "r")
    return f.columns if form.layout == "row" else f.rows


def _wmma_place(e: Emitter, ins: Instruction, form: MatrixForm, operand: Operand, rest: tuple[Operand, ...]) -> Any:
    """(address, stride in elements) of the warp: those of its first lane."""
    lane = trailing_zeros(e.mask)
    at = extract(_address(e, operand, ins), lane)
    stride = constant(e.b, i64, default_stride(form))
    if rest:
        stride = i64(bitcast(i32, extract(U32(e.source(rest[0], "b32")), lane)))
    return at, stride


def _wmma_load(e: Emitter, ins: Instruction, form: MatrixForm) -> None:
    r, p, *rest = ins.operands
    f = fragment(form, "r")
    at, stride = _wmma_place(e, ins, form, p, tuple(rest))
    out = e.room(storage_type(f"b{f.register_bits}"), f.registers)
    site = site_pointer(e, _wmma_table(e, form), rt.WmmaSite)
    e.call(rt.wmma_load_function(_space(form), f.bits), e.w, site, at, stride, out, e.site)
    _results(e, r, out, ins, f.register_bits)


def _wmma_store(e: Emitter, ins: Instruction, form: MatrixForm) -> None:
    p, r, *rest = ins.operands
    f = fragment(form, "r")
    at, stride = _wmma_place(e, ins, form, p, tuple(rest))
    source = _registers(e, r, f.register_bits)
    site = site_pointer(e, _wmma_table(e, form), rt.WmmaSite)
    e.call(rt.wmma_store_function(_space(form), f.bits), e.w, site, at, stride, source, e.site)
    if e.jit.watch and _space(form) in ("global", "generic"):
        e.call(watch.note_wmma_store, e.w, site, at, stride, f.bits // 8, f.per_register, e.site)


# matrix moves -------------------------------------------------------------------------------------------------------
_SOURCE_BITS = {"b4x16_p64": 4, "b6x16_p32": 6}


def _byte_move(e: Emitter, form: MatrixForm) -> Value:
    """The site of an 8-bit ldmatrix or stmatrix: the fragment's places, row after row as they lie in memory."""

    def make(sites: Any) -> np.ndarray:
        places = operand_places(form, "r", transposed=bool(form.trans))
        site = np.zeros(1, mem.ByteMoveSite.numpy_dtype())
        site["rows"] = places.size // 16
        site["element_bits"] = _SOURCE_BITS.get(form.src_fmt, 8)
        site["places"] = _keep(sites, places)
        return site

    return site_pointer(e, table(e, ("bytes", form), make), mem.ByteMoveSite)


def _has_bytes(form: MatrixForm) -> bool:
    return (form.m, form.n) != (8, 8)


@lower("ldmatrix")
def ldmatrix(e: Emitter, ins: Instruction) -> None:
    form = _form(ins)
    r, p = ins.operands
    at = e.spill(_address(e, p, ins))
    out = e.room(U32, len(elements(r)))
    if _has_bytes(form):
        e.call(mem.ldmatrix_bytes_function(_space(form)), e.w, _byte_move(e, form), at, cast_ptr(u8, out), e.site)
    else:
        e.call(mem.ldmatrix_function(_space(form), form.num, form.trans), e.w, at, out, e.site)
    _results(e, r, out, ins)


@lower("stmatrix")
def stmatrix(e: Emitter, ins: Instruction) -> None:
    form = _form(ins)
    p, r = ins.operands
    source = _registers(e, r)
    at = e.spill(_address(e, p, ins))
    if _has_bytes(form):
        e.call(mem.stmatrix_bytes_function(_space(form)), e.w, _byte_move(e, form), at, cast_ptr(u8, source), e.site)
    else:
        e.call(mem.stmatrix_function(_space(form), form.num, form.trans), e.w, at, source, e.site)


@lower("movmatrix")
def movmatrix(e: Emitter, ins: Instruction) -> None:
    d, a = ins.operands
    out = e.room(U32)
    e.call(mem.movmatrix, _registers(e, a), out)
    _results(e, d, out, ins)


# wgmma --------------------------------------------------------------------------------------------------------------
@lower("wgmma")
def wgmma(e: Emitter, ins: Instruction) -> None:
    form = _form(ins)
    match form.op:
        case "mma_async":
            _wgmma_issue(e, ins, form)
        case "commit_group":
            e.call(pending.commit, e.w, WGMMA.queue)
        case "fence":
            pass  # orders registers and shared memory, which the machine does anyway: operands are read no earlier
        case _:
            raise UnsupportedError(f"{ins.mnemonic} is not supported", span=ins.span)


def _names(operand: Operand, ins: Instruction) -> list[str]:
    found = []
    for o in elements(operand):
        if not isinstance(o, Reg):
            raise UnsupportedError("registers are wanted here", span=ins.span)
        found.append(o.name)
    return found


def _immediates(ins: Instruction, rest: tuple[Operand, ...]) -> list[int]:
    values = []
    for o in rest:
        if not isinstance(o, Immediate):
            raise UnsupportedError("a constant is wanted here", span=ins.span)
        bits = o.bits("b32")
        values.append(bits - (1 << 32) if bits >> 31 else bits)
    return values


def _wgmma_issue(e: Emitter, ins: Instruction, form: MatrixForm) -> None:
    d, a, b_desc, *rest = ins.operands
    metadata = null(u32)
    selector = 0
    if form.sparse:
        metadata = _registers(e, rest[0])
        selector = _selector(ins, rest[1])
        rest = rest[2:]
    scale_d, *rest = rest
    in_registers = isinstance(a, VectorOperand)
    d_names = _names(d, ins)
    a_names = _names(a, ins) if in_registers else []
    immediates = _immediates(ins, tuple(rest))
    scale = immediates[:2] if form.atype is not None and form.atype.is_float else [1, 1]
    trans = immediates[2:]
    trans_a, trans_b = ([0, *trans] if in_registers else [*trans, 0])[:2] if trans else (0, 0)
    if in_registers and trans:
        trans_a, trans_b = 0, trans[0]
    elif len(trans) == 2:
        trans_a, trans_b = trans
    unfenced = id(ins) in e.jit.unfenced
    key = ("wgmma", form, tuple(d_names), tuple(a_names), tuple(immediates), selector, e.function_name, unfenced)

    def make(sites: Any) -> np.ndarray:
        site = _wgmma_site(e, form, d_names, a_names, scale, trans_a, trans_b, sites)
        site["unfenced"] = unfenced
        if form.sparse:
            site["sparse"], site["places"] = 1, index_table(sites.keep, form, selector)
        return site

    number = table(e, key, make)
    e.store_registers([*d_names, *a_names])
    lane = trailing_zeros(e.mask)
    zero = constant(e.b, u64, 0)
    a_word = zero if in_registers else _descriptor(e, a, lane)
    b_word = _descriptor(e, b_desc, lane)
    keep = mask_bits(e.source(scale_d, "pred"))
    e.uses(WGMMA, wg.carry_out_wgmma)
    e.call(wg.wgmma_issue, e.w, site_pointer(e, number, WgmmaTable), a_word, b_word, keep, metadata, e.site)


def _descriptor(e: Emitter, operand: Operand, lane: Value) -> Value:
    if isinstance(operand, Immediate):
        return constant(e.b, u64, operand.bits("b64"))
    return extract(U64(e.source(operand, "b64")), lane)


def _wgmma_site(
    e: Emitter, form: MatrixForm, d: list[str], a: list[str], scale: list[int], trans_a: int, trans_b: int, sites: Any
) -> np.ndarray:
    twin = twin_of(form, e.device)
    assert form.dtype is not None and form.atype is not None
    site = np.zeros(1, WgmmaTable.numpy_dtype())
    site["pack_a"], site["pack_b"], site["pack_b_rows"], site["dot"] = twin.pack_a, twin.pack_b, twin.pack_b_rows, twin.dot
    site["n"], site["k"] = form.n, form.k
    site["element_bits"] = form.atype.bits
    site["a_in_registers"] = bool(a)
    site["d_words"], site["d_bits"] = len(d), form.dtype.bits
    site["mn_major_a"], site["mn_major_b"] = trans_a, trans_b
    site["flags"] = twin.flags(negate_a=scale[0] == -1, negate_b=scale[1] == -1)
    slots = tuple(e.frame.slots[n] for n in d)
    site["tile"] = sites.tiles.setdefault((e.function_name, form.n, form.dtype.bits, slots), len(sites.tiles))
    sites.tile_bytes = max(sites.tile_bytes, -(-64 * form.n * form.dtype.bits // 8 // 64) * 64)
    sites.wgmma.append(site)
    container = max(form.atype.bits, 8) // 8
    raw = -(-max(64, form.n, 128) * form.k * max(container, 2 if form.sparse else 1) // 64) * 64
    site["a_row"] = twin.a_bytes(1, form.k)
    if form.sparse:  # its metadata and indices
        raw += 512 + 128 * form.k
    a_bytes = -(-twin.a_bytes(64, form.k) // 64) * 64
    site["raw_bytes"], site["a_bytes"] = raw, a_bytes
    sites.scratch_bytes = max(sites.scratch_bytes, 2 * raw + a_bytes + twin.b_bytes(form.n, form.k) + 64)
    site["d_slots"][0, : len(d)] = slots
    site["a_slots"][0, : len(a)] = [e.frame.slots[n] for n in a]
    sites.keep.append(twin)
    return site


def find_rivals(sites: Any) -> None:
    """Once all wgmma are known: which other tiles hold registers that each accumulates on, and which hold some of its A."""
    tiles = [(name, frozenset(slots)) for name, _, _, slots in sites.tiles]
    for site in sites.wgmma:
        own = int(site["tile"][0])
        function, slots = tiles[own]
        a_slots = {int(slot) for slot in site["a_slots"][0]} if site["a_in_registers"][0] else set()
        for name, wanted, without in (("rival", slots, own), ("a_rival", a_slots, -1)):
            found = [n for n, (other, held) in enumerate(tiles) if n != without and other == function and held & wanted]
            site[f"{name}s"], site[f"{name}_count"] = _keep(sites, np.array(found, np.int32)), len(found)


def wgmma_wait(e: Emitter, ins: Instruction, following: int) -> Value:
    """The ending of a block at wgmma.wait_group."""
    groups = ins.operands[0]
    assert isinstance(groups, Immediate)
    return e.call(wg.wgmma_wait, e.w, e.mask, groups.value, e.block.index, following)
