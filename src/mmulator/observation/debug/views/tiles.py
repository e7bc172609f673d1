"""Memory as tiles: through a matrix descriptor, a tensor map, a CuTe layout, or as a plain array.

matrix/layouts/ gives the addresses; here bytes become elements.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import OperandError
from mmulator.isa.types import MAP_BYTES, TYPES, ElementType
from mmulator.matrix.layouts.cute_layout import CuteLayout
from mmulator.matrix.layouts.descriptors import MatrixDescriptor, generation, operand_addresses
from mmulator.matrix.layouts.tensormap import TensorMap, places
from mmulator.matrix.numerics.formats import container
from mmulator.observation.debug.views.matrix import AXES, MatrixView, mask_outside
from mmulator.observation.debug.views.scene import Scene, named_shared
from mmulator.observation.record.addresses import space_of
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE, SLOT_SHARED, SLOT_SHIFT

Index = NDArray[np.int64]
_SHARED = SLOT_SHARED << SLOT_SHIFT
_TENSOR_ELEMENTS = {"f32.ftz": "f32", "tf32.ftz": "tf32", "b4x16": "e2m1", "b4x16_p64": "e2m1", "b6x16_p32": "e3m2"}


# bytes to elements -------------------------------------------------------------------------------------------------------
def elements_of(
    image: NDArray[np.uint8], at: Index, element: ElementType, low: Index | int = 0
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(raw elements, whether each lies in the image) from an image of memory.

    image: the bytes.
    at: byte of each element.
    element: their type.
    low: lowest bit of an element of less than 8 bits in its byte.
    """
    bits, dtype = element.bits, container(element)
    size = dtype.itemsize if bits >= 8 else 1 + (bits == 6)
    inside = (at >= 0) & (at + max(1, bits // 8) <= len(image))
    padded = np.concatenate([image, np.zeros(8, np.uint8)])
    where = np.where(inside, at, 0)
    raw = np.zeros(at.shape, np.uint64)
    for n in range(size):
        raw |= padded[where + n].astype(np.uint64) << np.uint64(8 * n)
    if bits < 8:
        raw = raw >> np.asarray(low, np.uint64) & np.uint64((1 << bits) - 1)
    return np.where(inside, raw, 0).astype(dtype), inside


def _view(name: str, what: str, element: ElementType, raw: Any, inside: Any, **more: Any) -> MatrixView:
    off = mask_outside(inside)
    notes = tuple(more.pop("notes", ()))
    if off is not None:
        notes += (f"?: {int(off.sum())} of {off.size} elements lie outside of memory",)
    return MatrixView(name, what, element.name, raw, unread=off, notes=notes, **more)


# matrix descriptors ------------------------------------------------------------------------------------------------------
def described(
    scene: Scene, descriptor: MatrixDescriptor, rows: int, k: int, element: ElementType, mn_major: bool = False,
    per_unit: int = 0, rank: int | None = None,
) -> tuple[NDArray[Any], NDArray[np.bool_]]:  # fmt: skip
    """(raw elements [rows, k], whether each lies in shared memory) of the matrix that a descriptor describes.

    descriptor: the matrix descriptor.
    rows, k: rows of A or columns of B, and elements along k.
    element: their type.
    mn_major: whether M or N is contiguous.
    per_unit: elements that lie in 16 bytes; 0: as many as fit.
    rank: of the CTA in the cluster; None: that of the warp whose turn it is.
    """
    at = operand_addresses(descriptor, rows, k, element.bits, mn_major, per_unit)
    low: Index | int = 0
    if element.bits < 8:
        per = per_unit or 128 // element.bits
        low = np.arange(k) % per * element.bits % 8 * np.ones((rows, 1), np.int64)
    return elements_of(scene.shared_image(rank), at - SHARED_BASE, element, low)


def by_descriptor(
    scene: Scene, word: int | str, rows: int, k: int, element: str, mn_major: bool = False, name: str = "tile",
    rank: int | None = None,
) -> MatrixView:  # fmt: skip
    """The matrix in shared memory that a matrix descriptor of wgmma or tcgen05 describes, [rows, k].

    word: its 64 bits, or the register that has them.
    rows, k: rows of A or columns of B, and elements along k.
    element: PTX type of an element.
    mn_major: whether M or N is contiguous instead of k.
    name: of the view.
    rank: of the CTA in the cluster; None: that of the warp whose turn it is.
    """
    bits = scene.number(word) & (1 << 64) - 1
    d, t = generation(bits).decode(bits), _element(element)
    raw, inside = described(scene, d, rows, k, t, mn_major, rank=rank)
    return _view(name, descriptor_text(scene, d), t, raw, inside, axes=("", "k"))


def of_descriptor(
    scene: Scene, side: str, rows: int, k: int, t: ElementType, across: bool, negative: bool, kind: type[Any] = MatrixDescriptor,
    per_unit: int = 0, rank: int | None = None, notes: tuple[str, ...] = (),
) -> MatrixView:  # fmt: skip
    """A [m, k] or B [k, n] of the next product, in shared memory through its descriptor.

    side: `a` or `b`.
    rows, k, t: rows of A or columns of B, elements along k, and their type.
    across: whether M or N is contiguous.
    negative: whether the product takes it with the opposite sign.
    kind: of the descriptor.
    per_unit, rank: as in `described`.
    notes: further ones.
    """
    word = scene.value(scene.operands[f"{side}-desc"])
    if word is None:
        raise OperandError(f"the descriptor of {side.upper()} is not known")
    d = kind.decode(word)
    raw, inside = described(scene, d, rows, k, t, across, per_unit, rank)
    major = f"{'M' if side == 'a' else 'N'}-major" if across else "K-major"
    if side == "b":
        raw, inside = raw.T, inside.T
    what = f"{descriptor_text(scene, d)}, {major}, as it is now"
    return MatrixView(side.upper(), what, t.name, raw, AXES[side], unread=mask_outside(inside), notes=notes + signs(negative))


def signs(negative: bool) -> tuple[str, ...]:
    """The note about an operand whose sign a product changes, if it does."""
    return ("the product takes it with the opposite sign",) if negative else ()


def descriptor_text(scene: Scene, d: MatrixDescriptor) -> str:
    """A matrix descriptor in words: where it begins, its strides and its swizzle."""
    base = f", base offset {d.base_offset}" * bool(d.base_offset)
    swizzle = f"swizzle {d.swizzle}" if d.swizzle != "none" else "no swizzle"
    return f"at {named_shared(scene, d.start_address)}, LBO {d.leading_byte_offset}, SBO {d.stride_byte_offset}, {swizzle}{base}"


def _element(name: str) -> ElementType:
    found = TYPES.get(name.removeprefix("."))
    if found is None or found.bits > 64 or not found.bits:
        raise OperandError(f"no element type {name!r}", hint=f"such as {', '.join(list(TYPES)[:8])}")
    return found


# tensor maps ---------------------------------------------------------------------------------------------------------------
def by_tensor_map(
    scene: Scene, map_at: int | str, coordinates: Sequence[int], shared: int | str | None = None, name: str = "box",
    mode: str | None = None, offsets: Sequence[int] = (), store: bool = False, element: str = "", rank: int | None = None,
) -> MatrixView:  # fmt: skip
    """A box of a tensor: as it lies in shared memory, or in global memory.

    map_at: generic address of the tensor map.
    coordinates: of the box, the innermost first, as the instruction has them.
    shared: address of the box in shared memory; None: show global memory.
    name: of the view.
    mode: `tile`, `im2col` and so on, as the instruction says; None: as the map says.
    offsets: of im2col.
    store: whether the copy writes the tensor.
    element: type to show in place of the map's.
    rank: of the CTA in the cluster; None: that of the warp whose turn it is.
    """
    m = TensorMap.decode(scene.read(scene.number(map_at), MAP_BYTES))
    at = None if shared is None else scene.number(shared) & (1 << RANK_SHIFT) - 1
    p = places(m.fields, coordinates, offsets, shared=at or 0, mode=mode, store=store)
    many, kind = m.fields.type.elements, m.fields.type
    t = _element(element or _TENSOR_ELEMENTS.get(kind.name, kind.name))
    across = p.shared.shape[-1]
    units = p.shared.reshape(-1, across)
    index = np.arange(across * many) % many
    low = index * t.bits % 8 * np.ones((len(units), 1), np.int64)
    notes: tuple[str, ...] = ()
    if at is not None:
        bytes = np.repeat(units, many, axis=1) + index * t.bits // 8
        raw, inside = elements_of(scene.shared_image(rank), bytes - SHARED_BASE, t, low)
        what = f"in {named_shared(scene, at)}"
    else:
        memory = p.memory.reshape(-1, across)
        raw, inside = _global_units(scene, m.fields.address, memory, kind.memory, many, t)
        outside = int((memory < 0).sum()) * many
        fill = "NaN" if m.oob_fill == "nan" else "0"
        what = f"at 0x{m.fields.address:x} in global memory"
        notes = (f"?: {outside} elements are outside of the tensor; a load fills in {fill}",) if outside else ()
    box = " x ".join(map(str, p.shared.shape))
    where = ", ".join(map(str, coordinates))
    swizzle = f", swizzle {m.swizzle}" if m.swizzle != "none" else ""
    text = f"box of {box} at ({where}) of {m.type} {list(m.shape)}{swizzle}, {what}"
    rows = _rows_of(p.coordinates, p.shared.shape)
    first = np.broadcast_to(p.coordinates[0], p.shared.shape).reshape(-1, across)[0]
    columns = tuple(str(int(c) + n) for c in first for n in range(many))
    if at is not None:
        return _view(name, text, t, raw, inside, row_names=rows, column_names=columns, notes=notes)
    return MatrixView(name, text, t.name, raw, unread=mask_outside(inside), row_names=rows, column_names=columns,
                      notes=notes)  # fmt: skip


def _rows_of(coordinates: Sequence[Index], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names of a box's rows: their coordinates but the innermost, the outermost first."""
    outer = [np.broadcast_to(c, shape).reshape(-1, shape[-1])[:, 0] for c in reversed(coordinates[1:])]
    if not outer:
        return ("",)
    return tuple(",".join(str(int(c[n])) for c in outer) for n in range(prod(shape[:-1])))


def _global_units(
    scene: Scene, base: int, offsets: Index, size: int, many: int, t: ElementType
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Elements of global memory. offsets: of units from the base, negative where there is none. size: bytes of a unit."""
    there = offsets[offsets >= 0]
    index = np.arange(offsets.shape[1] * many) % many
    low = index * t.bits % 8 * np.ones((len(offsets), 1), np.int64)
    if not len(there):
        shape = offsets.shape[0], offsets.shape[1] * many
        return np.zeros(shape, container(t)), np.zeros(shape, bool)
    first, end = int(there.min()), int(there.max()) + size
    image = np.frombuffer(scene.read(base + first, end - first), np.uint8)
    at = np.repeat(np.where(offsets >= 0, offsets - first, -1), many, axis=1)
    return elements_of(image, np.where(at >= 0, at + index * t.bits // 8, -1), t, low)


# CuTe layouts and plain arrays ---------------------------------------------------------------------------------------------
def by_layout(
    scene: Scene, layout: str | CuteLayout, at: int | str = 0, element: str = "", name: str = "tile", stage: int = 0,
    lane: int | None = None,
) -> MatrixView:  # fmt: skip
    """Memory through a CuTe layout: its first mode down, its second across.

    layout: as CuTe prints it: `Sw<3,4,3> o smem_ptr[16b](0x400) o ((8,8),64):((64,512),1)`; strides count elements.
    at: address of its first element, or what has it: `0x400`, `smem+1024`, `%rd4`; added to none that the layout names.
    element: PTX type of an element; default: bits as wide as the layout says.
    name: of the view.
    stage: index in the other modes, the first of them fastest.
    lane: whose registers and local memory are meant; None: the first lane of the next instruction.
    """
    found = CuteLayout.parse(layout) if isinstance(layout, str) else layout
    t = _element(element or (f"b{found.unit_bits}" if found.unit_bits >= 8 else "b8"))
    if found.unit_bits and found.unit_bits != t.bits:
        found = found.upcast(t.bits // found.unit_bits) if t.bits > found.unit_bits else found
    start = scene.number(at, lane) if at or found.pointer is None else found.pointer
    sizes = found.sizes
    if not 0 <= stage < prod(sizes[2:]):
        raise OperandError(f"stage {stage} is outside 0..{prod(sizes[2:]) - 1}", hint=f"{found} has the modes {sizes}")
    if len(sizes) == 1:  # a row
        offsets = found.offsets(np.arange(sizes[0])[None, :])
    else:
        others = [int(n) for n in np.unravel_index(stage, sizes[2:], order="F")] if sizes[2:] else []
        offsets = found.offsets(np.arange(sizes[0])[:, None], np.arange(sizes[1])[None, :], *others)
    swizzle = found.swizzle
    if swizzle is not None and not found.on_address:
        offsets = swizzle(offsets)
    bits = offsets * t.bits
    address = start + bits // 8
    if swizzle is not None and found.on_address:
        address = swizzle(address)
    raw, inside, where = memory_elements(scene, address, t, bits % 8, lane)
    return _view(name, f"{found} {where}", t, raw, inside)


def by_shape(
    scene: Scene, at: int | str, shape: Sequence[int], element: str, strides: Sequence[int] = (), name: str = "array",
    lane: int | None = None,
) -> MatrixView:  # fmt: skip
    """Memory as a plain array, the last dimension across, all others down.

    at: address of its first element, or what has it: `0x400`, `smem+1024`, `%rd4`.
    shape: extents.
    element: PTX type of an element.
    strides: elements from one index to the next of each extent; (): the array is contiguous.
    name: of the view.
    lane: whose registers and local memory are meant; None: the first lane of the next instruction.
    """
    t, extents = _element(element), tuple(shape) or (1,)
    steps = tuple(strides) or tuple(prod(extents[n + 1 :]) for n in range(len(extents)))
    if len(steps) != len(extents) or min(extents) < 1:
        raise OperandError(f"shape {extents} and strides {steps} do not fit")
    grid = np.indices(extents)
    bits = sum(grid[n] * step for n, step in enumerate(steps)) * t.bits
    bits = np.asarray(bits, np.int64).reshape(-1, extents[-1])
    raw, inside, where = memory_elements(scene, scene.number(at, lane) + bits // 8, t, bits % 8, lane)
    rows = tuple(",".join(map(str, np.unravel_index(n, extents[:-1]))) for n in range(len(bits))) if len(extents) > 1 else ("",)
    return _view(name, where, t, raw, inside, row_names=rows)


def memory_elements(
    scene: Scene, address: Index, t: ElementType, low: Index | int = 0, lane: int | None = None
) -> tuple[NDArray[Any], NDArray[np.bool_], str]:
    """(raw elements, whether each is in memory, where they are in words) at addresses, generic or of shared memory.

    address: of each element.
    t: their type.
    low: lowest bit of an element of less than 8 bits in its byte.
    lane: whose local memory is meant.
    """
    first, size = int(address.min()), max(1, t.bits // 8)
    shared = scene.shared_address(first)
    if shared is not None:
        rank, within = shared
        base = first - within
        raw, inside = elements_of(scene.shared_image(rank), address - base - SHARED_BASE, t, low)
        other = f" of rank {rank}" if rank != scene.place.cta else ""
        return raw, inside, f"at {named_shared(scene, within)}{other}"
    image = np.frombuffer(scene.read(first, int(address.max()) - first + size, lane), np.uint8)
    raw, inside = elements_of(image, address - first, t, low)
    return raw, inside, f"at 0x{first:x}, {space_of(first)} memory"
