"""The operands of one element of a matrix product of a trail: what the machine read, as raw elements along k."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.isa.form import Form
from mmulator.isa.types import ElementType
from mmulator.matrix.instruction.wgmma import shared_matrix
from mmulator.matrix.layouts import MatrixDescriptor, operand_addresses
from mmulator.matrix.layouts.operands import fragment
from mmulator.matrix.layouts.scales import BYTE_IDS, THREADS
from mmulator.matrix.layouts.scales import places as scale_places
from mmulator.matrix.layouts.sparse import metadata
from mmulator.matrix.numerics.formats import element_type
from mmulator.matrix.numerics.profiles import DotKey, dot_key
from mmulator.observation.record.addresses import InMemory, InRegister, Operands, Place, elements, operands_of, signed32, value_of
from mmulator.observation.record.trail import Trail, TrailStep
from mmulator.ptx.program.addresses import SHARED_BASE
from mmulator.ptx.tree import Immediate, Operand, Reg
from mmulator.runtime.native.state import LANES

MATRICES = 64  # products whose matrices are kept
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class ProductElement:
    """One element of D of a matrix instruction that was executed.

    key: the instruction's arithmetic.
    k: elements along k of one instruction, in the dense matrices.
    row, column: of the element.
    a, b: raw elements along k that are multiplied.
    c: the raw element of C; None where nothing is added.
    sign: 1 or -1: whether products are negated.
    c_at: where the element of C was read; None where nothing is added.
    positions: k of each product in the dense matrices.
    a_at, b_at: where each of these elements was read.
    scale_a, scale_b: raw scale factors along k, in block scaling.
    scale_a_at, scale_b_at: where each of these was read.
    halved: how often C is halved before the sum.
    d_at: the register of the element of D, where an operand says whether D is added.
    """

    key: DotKey
    k: int
    row: int
    column: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: int | None
    sign: int
    c_at: Place | None
    positions: tuple[int, ...]
    a_at: tuple[Place, ...]
    b_at: tuple[Place, ...]
    scale_a: tuple[int, ...] = ()
    scale_b: tuple[int, ...] = ()
    scale_a_at: tuple[Place, ...] = ()
    scale_b_at: tuple[Place, ...] = ()
    halved: int = 0
    d_at: InRegister | None = None

    @property
    def a_type(self) -> ElementType:
        """Type of an element of A."""
        return element_type(self.key.atype)

    @property
    def b_type(self) -> ElementType:
        """Type of an element of B."""
        return element_type(self.key.btype)

    @property
    def d_bits(self) -> int:
        """Bits of an element of D."""
        return element_type(self.key.dtype).bits


def product_element(trail: Trail, step: TrailStep, lane: int, register: str, low: int) -> ProductElement | None:
    """The element of D whose bits begin at bit `low` of a lane's register; None where operands are not known."""
    key = step.number, lane, register, low
    if key not in trail.products:
        trail.products[key] = _element(trail, step, lane, register, low)
    found: ProductElement | None = trail.products[key]
    return found


def _element(trail: Trail, step: TrailStep, lane: int, register: str, low: int) -> ProductElement | None:
    ins = trail.instruction(step)
    form, named = ins.form, operands_of(ins)
    d = fragment(form, "d")
    names = [o.name for o in elements(named["d"]) if isinstance(o, Reg)]
    quarter = step.place.warp % 4 if form.lanes > 32 else 0
    copy, rows, columns = d.maps
    at = quarter * LANES + lane, names.index(register), low // d.bits
    row, column, which = int(rows[at]), int(columns[at]), int(copy[at])
    c_name = "c" if "c" in named else "d"
    added = value_of(trail, step, lane, named.get("scale-d")) != 0
    c_register = elements(named[c_name])[at[1]] if added else None
    c = None
    if isinstance(c_register, Reg):
        value = trail.register(step, c_register.name)
        c = None if value is None else int(value[lane]) >> low & (1 << d.bits) - 1
    a, b = matrices(trail, step)
    if a is None or b is None:
        return None
    left, right = (m if m.ndim == 2 else m[which] for m in (a, b))
    line, other = left[row], right[:, column]
    positions = np.arange(len(line))
    if form.sparse:
        found = kept(trail, step, form, named, row, quarter)
        if found is None:
            return None
        positions = found
        other = other[positions]
    a_at = _places(trail, step, form, named, "a", quarter, row, np.arange(len(line)), which)
    b_at = _places(trail, step, form, named, "b", quarter, column, positions, which)
    scales = [value_of(trail, step, lane, named.get(f"imm-scale-{x}")) or 1 for x in "ab"]
    scaling = [factors(trail, step, form, named, side, line) for side, line in (("a", row), ("b", column))]
    raw = [tuple(_byte(trail, step, place) for place in side) for side in scaling]
    sign = -1 if [signed32(x) for x in scales].count(-1) == 1 else 1
    return ProductElement(
        dot_key(form), form.k, row, column, tuple(map(int, line)), tuple(map(int, other)), c, sign,
        InRegister(lane, c_register.name, low) if isinstance(c_register, Reg) else None, tuple(positions.tolist()),
        a_at, b_at, raw[0], raw[1], scaling[0], scaling[1],
        d_at=InRegister(lane, register, low) if "scale-d" in named else None,
    )  # fmt: skip


def matrices(trail: Trail, step: TrailStep) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """A [m, k] and B [k, n] of a matrix instruction as raw elements, with an axis for copies before; None where not known."""
    if step.number not in trail.matrices:
        if len(trail.matrices) >= MATRICES:
            trail.matrices.clear()
        ins = trail.instruction(step)
        form, named = ins.form, operands_of(ins)
        quarter = step.place.warp % 4 if form.lanes > LANES else 0
        trail.matrices[step.number] = tuple(_matrix(trail, step, form, named, side, quarter) for side in "ab")
    found: tuple[NDArray[Any] | None, NDArray[Any] | None] = trail.matrices[step.number]
    return found


def factors(trail: Trail, step: TrailStep, form: Form, named: Operands, side: str, line: int) -> tuple[InRegister, ...]:
    """Where the scale factors of a row of A, or of a column of B, are; none without block scaling. Selectors of the warp's first
    lane count, and of those in registers the bits that a selector has."""
    data = named.get(f"scale-{side}-data")
    if not form.block_scale or not isinstance(data, Reg):
        return ()
    first = (step.lanes & -step.lanes).bit_length() - 1
    byte, thread = (value_of(trail, step, first, o, "b16") or 0 for o in elements(named[f"selector-{side}"]))
    lanes, bytes = scale_places(form, side, byte % BYTE_IDS[form.scale_vec].stop, thread % THREADS[side])
    return tuple(InRegister(int(lanes[line]), data.name, 8 * n) for n in bytes.tolist())


def _byte(trail: Trail, step: TrailStep, place: InRegister) -> int:
    found = trail.register(step, place.name)
    return 0 if found is None else int(found[place.lane]) >> place.low & 0xFF


def _registers(trail: Trail, step: TrailStep, operand: Operand, lanes: int, quarter: int) -> Words | None:
    """A vector of registers, uint64 [lanes, registers]; other warps of a warpgroup have zeros."""
    parts = [trail.register(step, o.name) if isinstance(o, Reg) else np.zeros(LANES, np.uint64) for o in elements(operand)]
    if any(p is None for p in parts):
        return None
    own = np.stack([p for p in parts if p is not None], axis=1)
    out = np.zeros((lanes, own.shape[1]), np.uint64)
    out[quarter * LANES : (quarter + 1) * LANES] = own
    return out


def _matrix(trail: Trail, step: TrailStep, form: Form, named: Operands, name: str, quarter: int) -> NDArray[Any] | None:
    """A [m, k] or B [k, n] as raw elements."""
    if f"{name}-desc" not in named:
        f = fragment(form, name)
        words = _registers(trail, step, named[name], f.lanes, quarter)
        return None if words is None else f.to_matrix(words.astype(f"<u{f.register_bits // 8}"))
    read = described(trail, step, name)
    if read is None:
        return None
    word, trans, (_, data) = read
    image = np.frombuffer(data, np.uint8)
    if name == "a":
        columns = form.k // 2 if form.sparse else form.k
        return shared_matrix(image, SHARED_BASE, word, form.m, columns, form.atype, trans)
    return np.swapaxes(shared_matrix(image, SHARED_BASE, word, form.n, form.k, form.btype, trans), -1, -2)


def _places(
    trail: Trail, step: TrailStep, form: Form, named: Operands, name: str, quarter: int, line: int,
    k: NDArray[Any], copy: int,
) -> tuple[InRegister | InMemory, ...]:  # fmt: skip
    """Where the elements of a row of A, or of a column of B, are: `line` is its number, k those of the elements."""
    if f"{name}-desc" not in named:
        f = fragment(form, name)
        registers = [o.name if isinstance(o, Reg) else "" for o in elements(named[name])]
        lines = np.full(len(k), line)
        row, column = (lines, k) if name == "a" else (k, lines)
        lane, register, index = f.locate(row, column, copy)
        places = zip(lane.tolist(), register.tolist(), index.tolist())
        return tuple(InRegister(at - quarter * LANES, registers[r], n * f.bits + f.shift) for at, r, n in places)
    read = described(trail, step, name)
    if read is None:
        return ()
    word, trans, (before, _) = read
    rows, element = (form.m, form.atype) if name == "a" else (form.n, form.btype)
    columns = form.k // 2 if form.sparse and name == "a" else form.k
    at = operand_addresses(MatrixDescriptor.decode(word), rows, columns, element.bits, trans)[line][k]
    window = step.place.window(step.place.cta)
    return tuple(InMemory(window + address, before) for address in at.tolist())


def described(trail: Trail, step: TrailStep, name: str) -> tuple[int, bool, tuple[int, bytes]] | None:
    """(matrix descriptor, whether it is transposed, when it was read and the image of shared memory then) of A or B of wgmma;
    None where it is not known.
    """
    named, read = operands_of(trail.instruction(step)), trail.operands_read(step)
    word = value_of(trail, step, (step.lanes & -step.lanes).bit_length() - 1, named.get(f"{name}-desc"))
    trans = bool(value_of(trail, step, 0, named.get(f"imm-trans-{name}")))
    return None if read is None or word is None else (word, trans, read)


def kept(trail: Trail, step: TrailStep, form: Form, named: Operands, row: int, quarter: int) -> NDArray[Any] | None:
    """The k of each element of a row of sparse A."""
    register, selector = (named.get(own, named.get(other)) for own, other in (("e", "sp-meta"), ("f", "sp-sel")))
    if not (isinstance(register, Reg) and isinstance(selector, Immediate)):
        return None
    words = _registers(trail, step, register, form.lanes, quarter)
    if words is None:
        return None
    nibbles = metadata.from_registers(words[:, 0].astype(np.uint32), form, selector.value)
    found: NDArray[Any] = metadata.indices(nibbles, form)[row]
    return found


def halved(bits: int, size: int, times: int) -> int:
    """An element of C of f16 or f32 that is divided by a power of two, as scale-input-d says. size: its bits."""
    if not times:
        return bits
    stored, kind = (np.uint16, np.float16) if size == 16 else (np.uint32, np.float32)
    value = np.array([bits], stored).view(kind).astype(np.float32) * np.float32(0.5**times)
    return int(value.astype(kind).view(stored)[0])
