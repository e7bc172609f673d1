"""The matrices of the next instruction: what a matrix product, a matrix move or a tensor copy is about to read or write."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from mmulator.base.errors import OperandError
from mmulator.isa.effects import Flow, MemoryEffect, Queue, Step, Together
from mmulator.isa.form import Form
from mmulator.isa.types import TYPES
from mmulator.matrix.layouts.fragments import Fragment
from mmulator.matrix.layouts.operands import element_of, fragment, memory_bits
from mmulator.observation.debug.views.matrix import AXES, MatrixView, expanded, factors, gathered, mask_outside
from mmulator.observation.debug.views.scene import Scene, lanes_in
from mmulator.observation.debug.views.tensor_cells import moved_cells, tensor_copy, tensor_product
from mmulator.observation.debug.views.tiles import by_tensor_map, memory_elements, of_descriptor
from mmulator.observation.record.addresses import elements, signed32
from mmulator.observation.record.memory import moved
from mmulator.observation.record.steps import WarpPlace
from mmulator.ptx.tree import Address, Immediate, Operand, Reg
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.native.state import WGMMA, OperationKind, Tile, Warpgroup, WgmmaTable

_TABLE = WgmmaTable.numpy_dtype()
_TILE, _GROUP = Tile.numpy_dtype(), Warpgroup.numpy_dtype()


def matrices(scene: Scene) -> list[MatrixView]:
    """The matrices of the next instruction as they are before it, by the specification's names; none for other instructions."""
    if scene.site < 0:
        return []
    form = scene.trail.instruction(scene.next_step).form
    return next((list(views(scene, form)) for is_one, views in _VIEWS if is_one(form)), [])


def operand(scene: Scene, name: str) -> MatrixView:
    """One matrix of the next instruction. name: `A`, `B`, `C`, `D`, `scale A`. Raises OperandError if it has no such matrix."""
    found = matrices(scene)
    for view in found:
        if view.name.lower() == name.lower():
            return view
    what = scene.instruction.mnemonic if scene.instruction is not None else "the end"
    raise OperandError(f"{what} has no matrix {name!r}", hint=f"it has {', '.join(v.name for v in found) or 'none'}")


# mma, wmma.mma -------------------------------------------------------------------------------------------------------------
def _product(scene: Scene, form: Form) -> Iterator[MatrixView]:
    named = scene.operands
    for name in "abcd":
        if name not in named:
            continue
        views = gathered(scene, form, name, named[name])
        if name == "d":
            views = [replace(v, notes=(*v.notes, "before the instruction writes it")) for v in views]
        yield from views
        if name == "a" and form.sparse:
            yield expanded(scene, form, views[0], named["e"], selector_of(named.get("f")))
    for side in "ab":
        if form.block_scale:
            yield factors(scene, form, side, named[f"scale-{side}-data"], named[f"selector-{side}"])


def selector_of(operand: Operand | None) -> int:
    """The sparsity selector of a product; 0 where none is written."""
    return operand.value if isinstance(operand, Immediate) else 0


# wgmma ---------------------------------------------------------------------------------------------------------------------
def _warpgroup_product(scene: Scene, form: Form) -> Iterator[MatrixView]:
    named = scene.operands
    for side in "ab":
        view = _of_descriptor(scene, form, side) if f"{side}-desc" in named else gathered(scene, form, side, named[side])[0]
        yield view
        if side == "a" and form.sparse:
            compressed = replace(view, notes=()) if "a-desc" in named else view
            yield expanded(scene, form, compressed, named["sp-meta"], selector_of(named["sp-sel"]))
    yield accumulator(scene, form, named["d"])
    yield from computed_so_far(scene, form, named["d"])


def _of_descriptor(scene: Scene, form: Form, side: str) -> MatrixView:
    """A [m, k] or B [k, n] of a wgmma in shared memory."""
    t = form.atype if side == "a" else form.btype
    rows, k = (form.m, form.k // 2 if form.sparse else form.k) if side == "a" else (form.n, form.k)
    negative = signed32(scene.value(scene.operands.get(f"imm-scale-{side}")) or 1) == -1
    view = of_descriptor(scene, side, rows, k, t, bool(scene.value(scene.operands.get(f"imm-trans-{side}"))), negative)
    if view.unread is None:
        return view
    lost = f"?: {int(view.unread.sum())} of {view.unread.size} elements lie outside of shared memory"
    return replace(view, notes=(*view.notes, lost))


def accumulator(scene: Scene, form: Form, registers: Operand) -> MatrixView:
    """The accumulator of a wgmma [64, n]; elements whose registers an operation in flight may still write are `?`.

    form: the instruction.
    registers: its operand `d`.
    """
    (view,) = gathered(scene, form, "d", registers)
    flying = np.zeros(view.shape, bool)
    f = fragment(form, "d")
    slots = scene.frame().slots
    names = [slots.get(r.name, -1) if isinstance(r, Reg) else -1 for r in elements(registers)]
    for number in range(4):
        place = scene.warp_at(scene.place.cta, scene.place.warp & ~3 | number)
        busy = registers_in_flight(scene, place)
        if busy:
            flying[16 * number : 16 * number + 16] = np.isin(f.maps[1], range(16 * number, 16 * number + 16)).any() and _columns(
                f, number, [at in busy for at in names], view.shape[1])  # fmt: skip
    if not flying.any():
        return view
    note = "?: a wgmma in flight writes these registers; they are readable behind the wgmma.wait_group that covers it"
    unread = flying if view.unread is None else flying | view.unread
    return replace(view, unread=unread, notes=(*view.notes, note))


def computed_so_far(scene: Scene, form: Form, registers: Operand) -> Iterator[MatrixView]:
    """The accumulator of wgmma in flight as the machine has it, which the program cannot read yet; none if none is in flight.

    form: a wgmma.
    registers: its operand `d`.
    """
    slots = scene.frame().slots
    wanted = [slots.get(r.name, -1) for r in elements(registers) if isinstance(r, Reg)]
    place, memory = scene.place, scene.resident.arena
    if WGMMA not in scene.kernel.queues:
        return
    for number, tile in enumerate(_tiles(scene, place)):
        table = bytes_at(int(tile["table"]), _TABLE.itemsize).view(_TABLE)[0] if tile["live"] else None
        if table is None or table["d_slots"][: int(table["d_words"])].tolist() != wanted:
            continue
        size = scene.kernel.matrix.tile_bytes
        at = ((place.cta * scene.grid.warpgroups + place.warp // 4) * scene.grid.tiles + number) * size
        flat = memory.view("tile_memory", np.uint8)[at : at + size].view(f"<u{form.dtype.bits // 8}")
        raw = flat[: form.m * form.n].reshape(form.m, form.n)
        done = np.repeat([not int(tile["live"]) >> w & 1 for w in range(4)], 16)[:, None] | np.zeros(raw.shape, bool)
        left = len(in_flight(scene, WGMMA, place))
        notes: tuple[str, ...] = (f"{left} operations of warp {place.warp} are issued and not in it yet",) if left else ()
        notes += ("?: in the registers, which have been waited for",) if done.any() else ()
        yield MatrixView(
            "D so far", "what the machine has computed and the program cannot read yet", form.dtype.name, raw.copy(), AXES["d"],
            unread=mask_outside(~done), notes=notes,
        )  # fmt: skip


def _columns(f: Fragment, warp: int, busy: list[bool], columns: int) -> np.ndarray:
    """For each [row, column] of a warp's 16 rows whether its register is busy."""
    _, rows, cols = f.maps
    lanes = slice(32 * warp, 32 * warp + 32)
    out = np.zeros((16, columns), bool)
    for register, is_busy in enumerate(busy):
        if is_busy:
            out[rows[lanes, register] % 16, cols[lanes, register]] = True
    return out


def registers_in_flight(scene: Scene, place: WarpPlace) -> set[int]:
    """Bytes in the frame of the registers that wgmma in flight have yet to write, for a warp."""
    if WGMMA not in scene.kernel.queues:
        return set()
    cta = scene.resident.each()[place.cta]
    out: set[int] = set()
    for number in in_flight(scene, WGMMA, place):
        out |= _slots_of(int(cta.operation(WGMMA, place.warp, number)["table"]))
    for tile in _tiles(scene, place):
        if int(tile["live"]) >> place.warp % 4 & 1:
            out |= _slots_of(int(tile["table"]))
    return out


def _tiles(scene: Scene, place: WarpPlace) -> np.ndarray:
    grid = scene.grid
    every = scene.resident.arena.view("tiles", _TILE).reshape(-1, max(1, grid.tiles))
    found: np.ndarray = every[place.cta * grid.warpgroups + place.warp // 4]
    return found


def _slots_of(table: int) -> set[int]:
    row = bytes_at(table, _TABLE.itemsize).view(_TABLE)[0]
    return set(row["d_slots"][: int(row["d_words"])].tolist())


# matrix moves --------------------------------------------------------------------------------------------------------------
def _warp_move(scene: Scene, form: Form) -> Iterator[MatrixView]:
    """ldmatrix, stmatrix, wmma.load, wmma.store: the registers, and the memory at their elements' places."""
    registers = scene.operands["r"]
    views = gathered(scene, form, "r", registers)
    f, t = fragment(form, "r"), element_of(form, "r")
    loads = form.effects.memory is MemoryEffect.READ
    found = moved(scene.trail, scene.next_step)
    if found is not None:
        _, places, _ = found
        bits = memory_bits(form) if form.is_move else t.bits
        element = TYPES[_STORED[form.src_fmt]] if form.src_fmt else t
        at = places.reshape(-1)[f.first_places]
        across = f.maps[1 if form["trans"] else 2].reshape(-1)[f.first_places]
        low = across * bits % 8 if bits < 8 else 0
        raw, inside, where = memory_elements(scene, at, element, low)
        shape = f.copies, f.rows, f.columns
        raw, inside = raw.reshape(shape), inside.reshape(shape)
        for n in range(f.copies):
            yield MatrixView(
                "memory" + (str(n) if f.copies > 1 else ""), f"{where}, {'to be loaded' if loads else 'before the store'}",
                element.name, raw[n], views[0].axes, unread=mask_outside(inside[n]),
            )  # fmt: skip
    for view in views:
        yield replace(view, notes=(*view.notes, "before the load writes it")) if loads else view


_STORED = {"s4": "s4", "b4x16_p64": "e2m1", "b6x16_p32": "e3m2"}  # types that elements in memory are shown in


def _moved_within(scene: Scene, form: Form) -> Iterator[MatrixView]:
    for name in "ad":
        yield from gathered(scene, form, name, scene.operands[name])


# tensor memory and tensor copies -------------------------------------------------------------------------------------------
def _box(scene: Scene, form: Form) -> Iterator[MatrixView]:
    """The boxes that a tensor copy of each lane moves: where they come from, and what is now where they go to."""
    named = scene.operands
    at, store = named["tensorMap"], "srcMem" in named
    memory = named.get("srcMem") or named.get("dstMem")
    if not isinstance(at, Address):
        return
    maps = scene.addresses(at, "")
    shared = scene.addresses(memory, "shared") if isinstance(memory, Address) else None
    info = named.get("im2colOffsets") or named.get("im2colInfo")
    for lane in lanes_in(scene.guarded) if maps is not None else ():
        numbers = [scene.value(o, lane) for o in at.coordinates]
        offsets = [scene.value(o, lane) for o in elements(info)] if info is not None else []
        if None in numbers or None in offsets:
            continue
        coordinates = [signed32(n) for n in numbers if n is not None]
        given = {"mode": form["mode"] or None, "offsets": [o for o in offsets if o is not None], "store": store}
        address = int(maps[lane])  # type: ignore[index]
        there = [("global memory", None), ("shared memory", None if shared is None else int(shared[lane]))]
        for name, where in there[:: -1 if store else 1]:
            if name == "global memory" or where is not None:
                view = by_tensor_map(scene, address, coordinates, where, name, **given)  # type: ignore[arg-type]
                going = (name == "shared memory") != store
                yield replace(view, notes=(*view.notes, "before the copy writes it" if going else "as it is now"))


_Maker = Callable[[Scene, Form], Iterator[MatrixView]]
_VIEWS: tuple[tuple[Callable[[Form], bool], _Maker], ...] = (
    (lambda f: f.effects.multiplies and f.effects.tensor, tensor_product),
    (lambda f: f.effects.multiplies and f.effects.together is Together.WARPGROUP, _warpgroup_product),
    (lambda f: f.effects.multiplies, _product),
    (lambda f: f.is_matrix and f.effects.memory is not MemoryEffect.NONE, _warp_move),
    (lambda f: f.effects.flow is Flow.MOVED, _moved_within),
    (lambda f: f.effects.queue is Queue.TENSOR_MOVES and f.effects.step is Step.ISSUE, moved_cells),
    (lambda f: f.effects.queue is Queue.TENSOR and "s-desc" in {o.name for o in f.operands}, tensor_copy),
    (lambda f: "tensorMap" in {o.name for o in f.operands}, _box),
)  # fmt: skip


def in_flight(scene: Scene, kind: OperationKind, place: WarpPlace) -> range:
    """Numbers of the operations of a kind that a warp has issued and that are not carried out."""
    if kind not in scene.kernel.queues:
        return range(0)
    queue = scene.resident.each()[place.cta].warps[place.warp]["queues"][kind.queue]
    return range(int(queue["done"]), int(queue["issued"]))
