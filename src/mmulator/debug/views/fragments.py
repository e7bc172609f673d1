"""Fragments at a matrix instruction: registers of the lanes of a warp or warpgroup as matrices, through layouts/."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.debug.views.barrier_state import masks_text
from mmulator.debug.views.matrix import MatrixView
from mmulator.debug.views.scene import Scene
from mmulator.diagnostics.whereabouts import lanes_text
from mmulator.isa.form import Form
from mmulator.isa.types import ElementType
from mmulator.layouts.fragments import Fragment
from mmulator.layouts.operands import element_of, fragment
from mmulator.layouts.scales import BYTE_IDS, THREADS
from mmulator.layouts.scales import places as scale_places
from mmulator.layouts.sparse import metadata
from mmulator.native.state import FULL, LANES
from mmulator.ptx.tree import Immediate, Operand, Reg
from mmulator.record.addresses import elements
from mmulator.record.steps import WarpPlace

Words = NDArray[np.uint64]
AXES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"), "d": ("m", "n"), "r": ("", "")}


@dataclass(frozen=True)
class FragmentWarp:
    """A warp that holds a part of a fragment.

    place: the warp.
    frame: byte of its register file at which the registers of the function begin; -1 if the warp is not in the function.
    lanes: mask of its lanes that are at the instruction.
    """

    place: WarpPlace
    frame: int
    lanes: int


def holders(scene: Scene, count: int) -> list[FragmentWarp]:
    """The warp whose turn it is; or, for a count of 128 lanes, the four warps of its warpgroup."""
    own = FragmentWarp(scene.place, scene.frame_at, scene.lanes)
    if count == LANES:
        return [own]
    first = scene.place.warp & ~3
    warps = range(first, min(first + 4, scene.grid.shape.warps))
    return [own if w == scene.place.warp else _other(scene, w) for w in warps]


def _other(scene: Scene, warp: int) -> FragmentWarp:
    """Another warp of the warpgroup, as far as it is in the function."""
    found = [g for g in scene.groups_of(scene.cta) if g.warp == warp]
    inside = [g for g in found if scene.function_of(g) == scene.function]
    here = [g for g in inside if g.instruction is scene.instruction]
    lanes = 0
    for g in here:
        lanes |= g.lanes
    frame = (here or inside)[0].frame if inside else -1
    return FragmentWarp(scene.warp_at(scene.place.cta, warp), frame, lanes)


def words(scene: Scene, operand: Operand, held: list[FragmentWarp], type_name: str = "b32") -> tuple[Words, NDArray[np.bool_]]:
    """(registers of a vector operand, uint64 [lanes, registers]; which of them are known).

    operand: a register, or a vector of registers and constants.
    held: the warps.
    type_name: PTX type of a constant.
    """
    parts = elements(operand)
    out = np.zeros((LANES * len(held), len(parts)), np.uint64)
    known = np.zeros(out.shape, bool)
    for number, one in enumerate(held):
        rows = slice(LANES * number, LANES * (number + 1))
        for column, part in enumerate(parts):
            value: Any = None
            if isinstance(part, Reg) and one.frame >= 0:
                value = scene.register(part.name, one.place, frame=one.frame)
            elif isinstance(part, Immediate):
                value = part.bits(type_name)
            if value is not None:
                out[rows, column], known[rows, column] = value, True
    return out, known


def names_of(operand: Operand) -> str:
    """Registers of an operand in words: `{%r1..%r4}`."""
    said = [p.name if isinstance(p, Reg) else str(p.value) if isinstance(p, Immediate) else "_" for p in elements(operand)]
    if len(said) == 1:
        return said[0]
    return "{" + (", ".join(said) if len(said) <= 4 else f"{said[0]}, {said[1]}, ... {said[-1]}") + "}"


def gathered(scene: Scene, form: Form, name: str, operand: Operand) -> list[MatrixView]:
    """The matrix in a fragment: one view, or as many as there are matrices in the operand.

    form, name: the instruction, and its operand's name.
    operand: its registers.
    """
    f, t = fragment(form, name), element_of(form, name)
    held = holders(scene, f.lanes)
    have, known = words(scene, operand, held, "b64" if f.register_bits == 64 else "b32")
    matrix = f.to_matrix(have.astype(f"<u{f.register_bits // 8}"))
    off = np.concatenate([_bits(FULL & ~h.lanes) for h in held])[:, None] | np.zeros(known.shape, bool)
    views = (_spread(f, mask) for mask in (off, ~known))
    out, unread = (v.reshape(f.copies, f.rows, f.columns) for v in views)
    notes = tuple(_notes(scene, held))
    raw = matrix.reshape(f.copies, f.rows, f.columns)
    label = name.upper() if name != "r" else "R"
    return [
        MatrixView(
            label + (str(n) if f.copies > 1 else ""), names_of(operand), t.name, raw[n], AXES.get(name, ("", "")),
            out[n] if out.any() else None, unread[n] if unread.any() else None, notes=notes,
        )
        for n in range(f.copies)
    ]  # fmt: skip


def _spread(f: Fragment, of_register: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For each element of the matrix a fact about the register that has it, which is given [lanes, registers]."""
    found: NDArray[np.bool_] = np.repeat(of_register.reshape(-1), f.per_register)[f.first_places]
    return found


def _bits(mask: int) -> NDArray[np.bool_]:
    return (mask >> np.arange(LANES) & 1).astype(bool)


def _notes(scene: Scene, held: list[FragmentWarp]) -> list[str]:
    live = {h.place.warp: int(scene.cta.warps[h.place.warp]["live"]) for h in held}
    gone = [w for w, lanes in live.items() if not lanes]
    strangers = [h.place.warp for h in held if h.frame < 0 and live[h.place.warp]]
    away = [h.place.warp for h in held if h.frame >= 0 and not h.lanes]
    out = []
    if gone:
        out.append(f"?: {masks_text(dict.fromkeys(gone, FULL))} {'has' if len(gone) == 1 else 'have'} exited")
    if strangers:
        out.append(f"?: {masks_text(dict.fromkeys(strangers, FULL))} {_are(len(strangers))} not in {scene.function}")
    if away:
        out.append(f"': {masks_text(dict.fromkeys(away, FULL))} {_are(len(away))} elsewhere: what registers hold now")
    for h in held:
        missing = FULL & ~h.lanes
        if h.lanes and missing and h.frame >= 0:
            warp = f" of warp {h.place.warp}" * (len(held) > 1)
            who = f"{lanes_text(missing)}{warp} {_are(missing.bit_count())}"
            out.append(f"': {who} not at this instruction: what registers hold now")
    return out


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


# sparse A ------------------------------------------------------------------------------------------------------------------
def expanded(scene: Scene, form: Form, compressed: MatrixView, word: Operand, selector: int) -> MatrixView:
    """A sparse A as the dense matrix that it stands for; what metadata leaves out is zero.

    form: the instruction.
    compressed: A as it is stored.
    word: the register of the metadata.
    selector: the sparsity selector.
    """
    have, _ = words(scene, word, holders(scene, form.lanes))
    nibbles = metadata.from_registers(have[:, 0].astype(np.uint32), form, selector)
    return dense(compressed, nibbles, form, f"metadata in {names_of(word)}, selector {selector}")


def dense(compressed: MatrixView, nibbles: NDArray[np.uint8], form: Form, origin: str) -> MatrixView:
    """A sparse A as the dense matrix that it stands for.

    compressed: A as it is stored.
    nibbles: its metadata, [rows, chunks].
    form: the instruction.
    origin: where the metadata is, in words.
    """
    columns = metadata.indices(nibbles, form)
    raw = np.zeros((len(nibbles), form.k), compressed.raw.dtype)
    rows = np.arange(len(nibbles))[:, None]
    raw[rows, columns] = compressed.raw
    left_out = np.ones(raw.shape, bool)
    left_out[rows, columns] = False
    odd = int(metadata.undefined(nibbles, form).sum())
    notes = (*compressed.notes, f"{origin}; .: not stored, so zero")
    if odd:
        notes += (f"{odd} chunks have metadata that the specification leaves undefined",)
    off = None
    if compressed.off is not None:
        off = np.zeros(raw.shape, bool)
        off[rows, columns] = compressed.off
    return replace(compressed, name="A dense", raw=raw, off=off, left_out=left_out, notes=notes)


# block scaling ----------------------------------------------------------------------------------------------------------------
def factors(scene: Scene, form: Form, side: str, data: Operand, selector: Operand) -> MatrixView:
    """The scale factors of an mma: [m, blocks] of A, [blocks, n] of B.

    form: the instruction.
    side: `a` or `b`.
    data: the register that has them.
    selector: byte-id and thread-id.
    """
    byte, thread = (scene.value(o, type_name="b16") or 0 for o in elements(selector))
    byte, thread = byte % BYTE_IDS[form.scale_vec].stop, thread % THREADS[side]
    lanes, bytes = scale_places(form, side, byte, thread)
    have, _ = words(scene, data, holders(scene, LANES))
    raw = (have[lanes, 0][:, None] >> (8 * bytes).astype(np.uint64) & np.uint64(0xFF)).astype(np.uint8)
    what = f"{names_of(data)}, byte-id {byte}, thread-id {thread}"
    t: ElementType = form.stype
    shown, axes = (raw, ("m", "block")) if side == "a" else (raw.T, ("block", "n"))
    return MatrixView(f"scale {side.upper()}", what, t.name, shown, axes)
