"""From a CuTe shared-memory layout to the matrix descriptors of a wgmma operand, or why there are none.

The decision is by evaluation: a descriptor is given only if its address map equals the layout's, element for element.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import MmulatorError, OperandError
from mmulator.matrix.inspect.answer import Answer
from mmulator.matrix.inspect.descriptors.tile import Tile, canonical, cute_swizzle, free_tile
from mmulator.matrix.layouts.cute_layout import CuteLayout, CuteSwizzle, show
from mmulator.matrix.layouts.descriptors import MatrixDescriptor
from mmulator.matrix.layouts.swizzle import SWIZZLES, Swizzle

UNITS = {"bytes": 8, "bits": 1}
Map = NDArray[np.int64]


@dataclass(frozen=True)
class CuteTile:
    """The part of the layout that one instruction reads: elements from (mn, k) on, in a stage, and their descriptor."""

    mn: int
    k: int
    stage: int
    descriptor: MatrixDescriptor

    @property
    def word(self) -> int:
        return self.descriptor.encode()


@dataclass(frozen=True)
class CuteAnswer(Answer):
    """The descriptors of a layout.

    layout: in elements.
    tile: the part that one instruction reads.
    tiles: one for each instruction over the layout, k fastest, then mn, then stages.
    compared: number of elements whose address was compared.
    remark: how the text was read.
    """

    layout: CuteLayout
    tile: Tile
    tiles: tuple[CuteTile, ...]
    compared: int
    remark: str

    @property
    def descriptor(self) -> MatrixDescriptor:
        """The descriptor of the first tile."""
        return self.tiles[0].descriptor

    def to_dict(self) -> dict[str, Any]:
        return {
            "layout": str(self.layout),
            "canonical": str(canonical(self.tile, self.descriptor)) if self.descriptor.base_offset == 0 else None,
            "operand": self.tile.operand,
            "major": "mn" if self.tile.mn_major else "k",
            "elements_compared": self.compared,
            "remark": self.remark,
            "tiles": [
                {
                    "mn": t.mn,
                    "k": t.k,
                    "stage": t.stage,
                    "word": f"{t.word:#018x}",
                    **vars(t.descriptor),
                }
                for t in self.tiles
            ],
        }


def descriptor_from_cute(text: str, tile: Tile, *, base: int | None = None, units: str = "elements") -> CuteAnswer:
    """The descriptors with which `tile`'s instruction reads a matrix in a CuTe layout.

    text: see `CuteLayout`; first mode M or N, second K, others stages.
    tile: the operand; whether it is K- or MN-major is found from the layout.
    base: shared address of the layout's first element; default: that of the text (`smem_ptr[16b](0x400)`), or 0.
    units: `elements`, `bytes` or `bits`, what the strides count, unless the text says it (`smem_ptr[16b]`).

    Raises OperandError if no descriptor describes the layout; it names the mode that is in the way, and the rule.
    """
    if tile.per_chunk * tile.element.bits != 128:
        raise _none(f"16 bytes hold {tile.per_chunk} elements of {tile.element} and padding", "encode its fields instead")
    layout, remark = _in_elements(CuteLayout.parse(text), tile.element.bits, units)
    base, said = _base(layout, base)
    remark += said
    sizes = layout.sizes
    if len(sizes) < 2:
        raise _none(f"it has {len(sizes)} mode", "the first mode is M or N, the second K, further ones are stages")
    if base % 16:
        raise _none(f"its base {base:#x} is no multiple of 16 bytes", "align the buffer", "Matrix Descriptor Format")
    for name, have, need in ((tile.letter, sizes[0], tile.mn), ("k", sizes[1], tile.k)):
        if have < need:
            raise _none(
                f"mode {int(name == 'k')} has {have} elements of {name}, the instruction reads {need}",
                "the layout must cover a whole instruction: tile_to_shape fills a larger shape with an atom",
            )
    tile = replace(tile, mn_major=_is_mn_major(layout, tile))
    found, note = _any_mode(layout, tile, base)
    remark += note
    for name, have, need in ((tile.letter, sizes[0], tile.mn), ("k", sizes[1], tile.k)):
        if have % need:
            remark += f"; the last {have % need} of {have} {name} are left over by steps of {need}"
    return CuteAnswer(layout, tile, found, len(found) * tile.mn * tile.k, remark)


def _base(layout: CuteLayout, base: int | None) -> tuple[int, str]:
    """(shared address of the first element, its origin in words)."""
    said = layout.pointer
    if not said:
        return base or 0, ""
    if base not in (None, said):
        raise OperandError(
            f"the layout begins at {said:#x} (smem_ptr), --base is {base:#x}", hint="leave one of them out, or make them equal"
        )
    if said >> 18:
        raise _none(
            f"its pointer {said:#x} is no address of shared memory, which has 18 bits",
            "a generic address: __cvta_generic_to_shared gives the shared one, `smem_ptr[16b](0x0)` and --base say it",
            "Matrix Descriptor Format",
        )
    return said, f", the first element at {said:#x} (said by the layout)"


def _any_mode(layout: CuteLayout, tile: Tile, base: int) -> tuple[tuple[CuteTile, ...], str]:
    """Tiles with the swizzling mode of the layout; else with any mode whose addresses are equal, as where the swizzle never
    sees a bit
    set. Raises the first error if there is none.
    """
    try:
        mode = _mode(layout, tile)
        return _tiles(layout, tile, lambda at: _derive(layout, tile, mode, at, base)), ""
    except OperandError as error:
        try:
            found = _tiles(layout, tile, lambda at: _same_bytes(layout, tile, at, base))
        except OperandError:
            raise error from None
    swizzle = f"{layout.swizzle} moves" if layout.swizzle else "no swizzle leaves"
    return found, f"; {swizzle} these bytes as mode {found[0].descriptor.swizzle} does"


def _tiles(layout: CuteLayout, tile: Tile, derive: Callable[[tuple[int, int, int]], MatrixDescriptor]) -> tuple[CuteTile, ...]:
    """A descriptor for each tile. Raises the error of the first tile without one, and says where it is."""
    sizes = layout.sizes
    found: list[CuteTile] = []
    for stage in range(int(np.prod(sizes[2:], dtype=np.int64))):
        for mn in range(0, sizes[0] - tile.mn + 1, tile.mn):
            for k in range(0, sizes[1] - tile.k + 1, tile.k):
                try:
                    d = derive((mn, k, stage))
                except OperandError as error:
                    if not found:
                        raise
                    where = f"the tile at {tile.letter} {mn}, k {k} has none, the {len(found)} before it have"
                    text = f"{error.message} ({where})"
                    raise OperandError(text, rule=error.rule, hint=error.hint) from None
                found.append(CuteTile(mn, k, stage, d))
    return tuple(found)


def _same_bytes(layout: CuteLayout, tile: Tile, at: tuple[int, int, int], base: int) -> MatrixDescriptor:
    """Any descriptor with a tile's addresses, by trying all modes and base offsets."""
    address = _address(layout, _offsets(layout, tile, at), base, tile.element.bits)
    for mode in tile.generation.modes.values():
        for base_offset in range(mode.mask + 1):
            plain = mode(address, base_offset)  # its own inverse: bits 7 and up stay
            leading, stride = _steps(tile, mode, plain.T if tile.mn_major else plain)
            try:
                d = tile.generation(int(plain[0, 0]), leading, stride, base_offset, mode.name)
            except MmulatorError:
                continue
            if np.array_equal(tile.addresses(d), address):
                return d
    raise _none("no mode has these addresses", "")


def _offsets(layout: CuteLayout, tile: Tile, at: tuple[int, int, int]) -> Map:
    """Offsets [mn, k] of a tile's elements, in elements, before the swizzle."""
    mn, k, stage = at
    rest = []
    for extent in layout.sizes[2:]:  # a flat index over all further modes: each takes its own part of it
        stage, index = divmod(stage, extent)
        rest.append(index)
    return layout.offsets(mn + np.arange(tile.mn)[:, None], k + np.arange(tile.k)[None, :], *rest)


def _steps(tile: Tile, mode: Swizzle, table: Any) -> tuple[int, int]:
    """LBO and SBO from a table of bytes [strided, contiguous]; an offset that the tile does not step over is as in the packed
    layout.
    """
    run = mode.width // 16 * tile.per_chunk
    lines = mode.lines
    outer = int(table[lines, 0] - table[0, 0]) if table.shape[0] > lines else mode.repeat
    inner = int(table[0, run] - table[0, 0]) if table.shape[1] > run else 16
    return (outer, inner) if tile.mn_major and not mode.mask else (inner, outer)


def _none(why: str, hint: str, rule: str = "Canonical Layouts") -> OperandError:
    return OperandError(f"no matrix descriptor: {why}", rule=f"{rule} (PTX ISA 9.1)", hint=hint)


def _in_elements(layout: CuteLayout, bits: int, units: str) -> tuple[CuteLayout, str]:
    """(layout with strides in elements, a remark about the units)."""
    if units != "elements" and units not in UNITS:
        raise OperandError(f"no units {units!r}", hint="elements, bytes or bits")
    said = bool(layout.unit_bits)
    unit = layout.unit_bits or UNITS.get(units, bits)
    if bits % unit:
        raise OperandError(
            f"the layout counts elements of {unit} bits, the operand has {bits}",
            hint="choose the layout of the operand's type, or recast it",
        )
    layout = replace(layout, unit_bits=unit).upcast(bits // unit)
    remark = f"strides in units of {unit} bits" + (" (said by the layout)" if said else f" ({units})")
    if layout.swizzle and layout.swizzle.bits:
        remark += ", swizzle on " + ("byte addresses" if layout.on_address else "offsets within the layout")
    return layout, remark


def _mode(layout: CuteLayout, tile: Tile) -> Swizzle:
    """The swizzling mode that a layout's swizzle is."""
    s, bits = layout.swizzle, tile.element.bits
    if s is None or s.bits == 0:
        return SWIZZLES["none"]
    in_bytes = s if layout.on_address else CuteSwizzle(s.bits, s.base + (bits.bit_length() - 1) - 3, s.shift)
    for mode in tile.generation.modes.values():
        if mode.mask and cute_swizzle(mode) == in_bytes:
            return mode
    why = (
        f"it moves chunks of {1 << in_bytes.base} bytes, wgmma's move 16" if in_bytes.base != 4
        else f"it takes its bits {in_bytes.shift} higher up, wgmma's 3" if in_bytes.shift != 3
        else f"it moves {1 << in_bytes.bits} chunks, wgmma's at most 8"
    )  # fmt: skip
    raise _none(
        f"{s} is {in_bytes} in bytes, and no swizzling mode of wgmma: {why}",
        "Sw<0,4,3>, Sw<1,4,3> (32B), Sw<2,4,3> (64B) and Sw<3,4,3> (128B), in bytes",
    )


def _is_mn_major(layout: CuteLayout, tile: Tile) -> bool:
    """Whether M or N, and not K, is the mode with 16 contiguous bytes."""
    t = tile.per_chunk
    runs = [bool((np.diff(layout.offsets(*((np.arange(t), 0), (0, np.arange(t)))[m])) == 1).all()) for m in (0, 1)]
    if runs[1]:
        return False
    if not runs[0]:
        first = [layout.leaves(m)[0] for m in (0, 1)]
        raise _none(
            f"neither mode has 16 contiguous bytes ({t} elements of {tile.element}): {first[0]}, {first[1]}",
            f"the innermost sub-mode of {tile.letter} or of k must be {t} or more elements with stride 1",
        )
    if tile.element.bits != 16 and tile.generation is MatrixDescriptor:
        raise _none(
            f"{tile.letter} is contiguous ({layout.leaves(0)[0]}), and elements of {tile.element} are read K-major only",
            f"imm-trans-{tile.operand} exists for .f16 and .bf16; make k the contiguous mode",
            "Shared Memory Matrix Layout",
        )
    return True


def _address(layout: CuteLayout, offsets: Map, base: int, bits: int) -> Map:
    """Byte addresses of unswizzled offsets in elements."""
    s = layout.swizzle
    if s is None or s.bits == 0:
        return base + offsets * bits // 8
    if layout.on_address:
        return s(base + offsets * bits // 8)
    return base + s(offsets) * bits // 8


def _derive(layout: CuteLayout, tile: Tile, mode: Swizzle, at: tuple[int, int, int], base: int) -> MatrixDescriptor:
    """The descriptor of one tile: its offsets are read off the layout, then all addresses are compared."""
    bits = tile.element.bits
    mn0, k0, _ = at
    offsets = _offsets(layout, tile, at)
    plain = offsets * bits // 8 if bits >= 8 else offsets * bits / 8
    start = int(plain[0, 0])
    if plain[0, 0] % 16:
        raise _none(
            f"{tile.name(mn0, k0)} lies {plain[0, 0]} bytes into the layout, no multiple of 16",
            "start addresses are in units of 16 bytes",
            "Matrix Descriptor Format",
        )
    table = plain.T if tile.mn_major else plain  # [strided, contiguous]
    leading, stride = _steps(tile, mode, table)
    steps = (leading, stride) if tile.mn_major and not mode.mask else (stride, leading)
    wrong = _wrong_step(layout, tile, mode, table, steps, at)
    if wrong:
        raise wrong
    on_offset = bool(mode.mask) and not layout.on_address
    if on_offset and base % 128:
        raise _none(f"the pattern starts at {base:#x}", "align the base to 128 bytes", "Matrix Descriptor Format")
    offset = (base >> 7) & 7 if on_offset and (base >> 7) & mode.mask else 0
    try:
        d = tile.generation(base + start, leading, stride, offset, mode.name)
    except MmulatorError as error:
        raise _none(error.message, error.hint or "", "Matrix Descriptor Format") from None
    want, got = _address(layout, offsets, base, bits), tile.addresses(d)
    if not np.array_equal(want, got):
        mn_bad, k_bad = (int(x) for x in np.argwhere(want != got)[0])
        raise _none(
            f"{tile.name(mn0 + mn_bad, k0 + k_bad)} lies at {int(want[mn_bad, k_bad]):#x}, a descriptor with LBO {leading} "
            f"and SBO {stride} reads {int(got[mn_bad, k_bad]):#x} ({_blame(layout, (mn0 + mn_bad, k0 + k_bad), tile)})",
            "the tile begins inside an atom and leaves it: let it begin at whole atoms",
        )
    return d


def _wrong_step(
    layout: CuteLayout, tile: Tile, mode: Swizzle, table: Any, steps: tuple[int, int], at: tuple[int, int, int]
) -> OperandError | None:
    """The error for a step of the layout that no descriptor has; None if there is no such step.

    layout, tile: the layout, and the part of it.
    mode: the swizzling mode.
    table: bytes [strided, contiguous].
    steps: between groups of 8 of the strided dimension, and between runs of `mode.width` bytes of the contiguous one.
    at: (mn, k, stage) of the tile's first element.
    """
    table = table - table[0, 0]
    run = mode.width // 16 * tile.per_chunk
    size = tile.element.bits / 8
    i, j = np.arange(table.shape[0]), np.arange(table.shape[1])
    strided_name, contiguous_name = tile.strided[0], tile.contiguous[0]

    def place(strided: int, contiguous: int) -> tuple[int, int]:
        mn, k = (contiguous, strided) if tile.mn_major else (strided, contiguous)
        return at[0] + mn, at[1] + k

    bad = np.flatnonzero(table[0] != j // run * steps[1] + j % run * size)
    if len(bad):
        index = int(bad[0])
        where = _blame(layout, place(0, index), tile)
        need = index // run * steps[1] + int(index % run * size)
        what = f"{contiguous_name} {index} of a tile is {int(table[0, index])} bytes from {contiguous_name} 0"
        if index < run:
            why = f"{what}, within the {mode.width} bytes that the {mode.name} mode keeps together it must be {need}"
        else:
            why = f"{what}, equal steps for every {run} {contiguous_name} would put it at {need}"
        return _none(f"{where}: {why}", f"{run} contiguous {contiguous_name}, then one stride for all further ones")
    lines = mode.lines
    bad = np.flatnonzero(table[:, 0] != i // lines * steps[0] + i % lines * mode.width)
    if len(bad):
        index = int(bad[0])
        where = _blame(layout, place(index, 0), tile)
        if index < lines:
            width = int(table[index, 0]) // index
            fitting = next((m.name for m in SWIZZLES.values() if m.width == width and m.mask), None)
            hint = f"rows of {width} bytes are those of the {fitting} swizzle" if fitting else "rows are 16, 32, 64 or 128 bytes"
            return _none(
                f"{where}: {strided_name} {index} lies {int(table[index, 0])} bytes from {strided_name} 0, rows of the "
                f"{'core matrix' if not mode.mask else mode.name + ' atom'} are {mode.width} bytes apart "
                f"({index * mode.width} is needed)",
                hint,
            )
        return _none(
            f"{where}: {strided_name} {index} lies {int(table[index, 0])} bytes from {strided_name} 0, one step for "
            f"every {lines} {strided_name} would put it at {index // lines * steps[0] + index % lines * mode.width}",
            f"groups of {lines} {strided_name} must be equally far apart",
        )
    return None


def _blame(layout: CuteLayout, coordinates: tuple[int, int], tile: Tile) -> str:
    """The sub-mode whose index grew last on the way to an element."""
    leaves = [
        leaf for m in ((0, 1) if tile.mn_major else (1, 0)) for leaf in layout.leaves(m)
        if coordinates[m] // leaf.step % leaf.size and leaf.size > 1
    ]  # fmt: skip
    return str(max(leaves, key=lambda leaf: leaf.step)) if leaves else f"layout {show(layout.shape)}"


def tile_of_layout(text: str, operand: str, type_name: str, units: str = "elements") -> Tile:
    """The whole of a layout's first two modes as one tile, for `descriptor_from_cute` without an instruction.

    Raises OperandError as `free_tile` does.
    """
    bits = free_tile(operand, 128, 128, type_name).element.bits
    layout, _ = _in_elements(CuteLayout.parse(text), bits, units)
    sizes = (*layout.sizes, 1)
    return free_tile(operand, sizes[0], sizes[1], type_name)
