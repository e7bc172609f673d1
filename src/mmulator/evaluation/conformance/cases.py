"""Cases of a subject: operands, memory images and scalars for many executions of one instruction, all from a seed.

A case is eight columns of results with operands of their own: one m16n8 `mma` is one case, one m64n256 `wgmma` is 32. For
    loads,
stores and matrix moves a case is an execution.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.evaluation.conformance import memory
from mmulator.evaluation.conformance.stream import RandomStream
from mmulator.evaluation.conformance.subjects import Subject, chunks, problem
from mmulator.evaluation.conformance.values import MatrixProblem, kinds, operands
from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.matrix.layouts import MatrixDescriptor, fragment, sparse

Array = NDArray[Any]


@dataclass(frozen=True)
class Segment:
    """A run of executions that share their scalars. kind: of their operands. scalars: operands as `execute` takes them."""

    first: int
    count: int
    kind: str
    scalars: dict[str, Any] = field(default_factory=dict)

    @property
    def part(self) -> slice:
        return slice(self.first, self.first + self.count)


@dataclass(frozen=True)
class Wish:
    """Properties that all executions of a batch shall have; None leaves a property to the seed.

    scale_d: operand of wgmma.
    swizzle: of B's descriptor.
    leading: leading byte offset of B's descriptor.
    odd: draw descriptors that no kernel writes.
    """

    scale_d: int | None = None
    swizzle: str | None = None
    leading: tuple[int, ...] = ()
    odd: bool | None = None


@dataclass(frozen=True)
class CaseBatch:
    """Executions of a subject.

    registers: name -> words [count, lanes, registers] (uint64 for .f64); metadata and row offsets [count, lanes].
    image: shared or global memory, uint8 [count, bytes], or None.
    """

    subject: Subject
    count: int
    segments: tuple[Segment, ...]
    registers: dict[str, Array]
    image: NDArray[np.uint8] | None = None

    def kind_of(self, execution: int) -> str:
        return self.segment_of(execution).kind

    def segment_of(self, execution: int) -> Segment:
        return next(s for s in self.segments if s.first <= execution < s.first + s.count)


def weight(form: Form) -> int:
    """Cases in one execution."""
    return max(1, form.n // 8) if form.atype else 1


def kinds_of(form: Form, device: str) -> tuple[str, ...]:
    """Kinds of operands that a form is tried with."""
    if form.effects.opaque and not form.atype:
        return ("default stride", "wide stride", "offset", "far stride")
    if not form.atype:
        return ("rows in order", "rows anywhere")
    found = kinds(problem(form, device))
    return (*found, "metadata") if form.sparse else found


def executions(form: Form, cases: int, parts: int, device: str) -> int:
    """Executions of each of `parts` subjects that together have at least `cases` cases, and one of each kind of operands."""
    return max(-(-cases // (weight(form) * parts)), len(kinds_of(form, device)))


def build(
    subject: Subject, device: str, seed: int, count: int, *, first: int = 0, only: tuple[str, ...] = (), wish: Wish | None = None
) -> CaseBatch:
    """A batch of `count` executions, shared out among the kinds of operands. Equal arguments give equal batches on every
    machine.

    subject: what is executed.
    device: whose arithmetic has the edges that operands shall meet.
    first: number of the batch, for several batches of one seed.
    only: kinds of operands, None for all.
    wish: properties of all executions.
    """
    form = subject.form
    names = only or kinds_of(form, device)
    share = [count // len(names) + (i < count % len(names)) for i in range(len(names))]
    plan = [(kind, n, RandomStream(seed, subject.name, kind, first)) for kind, n in zip(names, share) if n]
    if form.lanes > 32:
        return _wgmma(subject, device, plan, wish or Wish())
    build = _matrix_move if form.is_move else _mma if form.effects.multiplies else _wmma_move
    return build(subject, device, plan)


Plan = list[tuple[str, int, RandomStream]]


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


# Multiplications -----------------------------------------------------------------------------------------------------
def _metadata(s: RandomStream, form: Form, count: int, anything: bool) -> NDArray[np.uint8]:
    """Nibbles [count, M, chunks]: defined ones, or any."""
    shape = (count, form.m, chunks(form))
    if anything:
        return s.below(16, *shape).astype(np.uint8)
    allowed = list(sparse.granularity(form).nibbles)
    if not form.ordered_metadata and len(allowed) > 2:  # without the promise of an order, either order is defined
        allowed += [(x & 3) << 2 | x >> 2 for x in allowed]
    return s.choice(np.array(allowed, np.uint8), *shape)


def _dot(s: RandomStream, kind: str, p: MatrixProblem, form: Form, count: int) -> tuple[Array, Array, Array, Array | None]:
    """Matrices a, b, c and the metadata operand's nibbles."""
    values = "near" if kind == "metadata" and p.atype.is_float else "bits" if kind == "metadata" else kind
    a, b, c = operands(s, values, p, count)
    nibbles = _metadata(s, form, count, kind == "metadata") if form.sparse else None
    return a, b, c, nibbles


def _mma(subject: Subject, device: str, plan: Plan) -> CaseBatch:
    form = subject.form
    p = problem(form, device)
    parts, segments, at = [], [], 0
    for kind, count, s in plan:
        copies = fragment(form, "d").copies
        a, b, c, nibbles = _dot(s, kind, p, form, count * copies)
        made = {
            name: fragment(form, name).to_registers(x.reshape(count, copies, *x.shape[1:]) if copies > 1 else x)
            for name, x in (("a", a), ("b", b), ("c", c))
        }
        if nibbles is not None:
            noise = s.words(count, form.lanes)  # lanes and bits that do not contribute hold anything
            made["e"] = _with_noise(nibbles, form, subject.fixed["f"], noise)
        for side in "ab" if form.block_scale else "":
            made[f"scale_{side}_data"] = _scales(s, kind, form, count)
        parts.append(made)
        segments.append(Segment(at, count, kind, dict(subject.immediates)))
        at += count
    return CaseBatch(subject, at, tuple(segments), _joined(parts))


def _with_noise(nibbles: Array, form: Form, selector: int, noise: Array) -> Array:
    ones = sparse.to_registers(np.full(nibbles.shape[1:], 15, np.uint8), form, selector)
    out: Array = sparse.to_registers(nibbles, form, selector) | (noise & ~ones)
    return out


def _scales(s: RandomStream, kind: str, form: Form, count: int) -> Array:
    """Four scale bytes a lane: near one, or any."""
    if kind in ("bits", "special", "wide"):
        return s.words(count, 32)
    middle = 127 if str(form.stype) == "ue8m0" else 0x38
    near = s.between(middle - 3, middle + 3, count, 32, 4).astype(np.uint8)
    return near.view("<u4")[..., 0]


def image_bytes(subject: Subject) -> int:
    """Size of a subject's memory image, 0 if it has none."""
    form = subject.form
    if form.lanes > 32:
        return sum(place.room for place in _places(subject).values())
    if form.effects.opaque:
        return 0 if form.atype else _wmma_bytes(form)
    return 4096 if form.is_move and form.effects.memory is not MemoryEffect.NONE else 0


def _wgmma(subject: Subject, device: str, plan: Plan, wish: Wish) -> CaseBatch:
    form = subject.form
    p = problem(form, device)
    size = image_bytes(subject)
    total = sum(count for _, count, _ in plan)
    image = np.empty((total, size), np.uint8)
    parts, segments, at = [], [], 0
    for number, (kind, count, s) in enumerate(plan):
        pieces = [count] if count < 4 else [count // 2, count - count // 2]
        for piece, n in enumerate(pieces):
            a, b, c, nibbles = _dot(s, kind, p, form, n)
            made = {"d": fragment(form, "d").to_registers(c)}
            part = image[at : at + n]
            part[:] = s.words(1, size // 4).view(np.uint8)
            scalars: dict[str, Any] = dict(subject.immediates)
            odd = (number + piece) % 2 == 1 if wish.odd is None else wish.odd
            for name, place in _places(subject).items():
                scalars[f"{name}_desc"] = d = _descriptor(s, place, form, name, odd, wish)
                memory.put(part, place, d, a if name == "a" else np.swapaxes(b, 1, 2))
            if subject.a_in_registers:
                made["a"] = fragment(form, "a").to_registers(a)
            if nibbles is not None:
                made["sp_meta"] = _with_noise(nibbles, form, subject.fixed["sp_sel"], s.words(n, form.lanes))
            scale_d = int(s.pick(range(6)) != 0)
            scalars["scale_d"] = scale_d if wish.scale_d is None else wish.scale_d
            parts.append(made)
            segments.append(Segment(at, n, kind, scalars))
            at += n
    return CaseBatch(subject, total, tuple(segments), _joined(parts), image)


def _descriptor(s: RandomStream, place: memory.OperandPlace, form: Form, name: str, odd: bool, wish: Wish) -> MatrixDescriptor:
    swizzle = s.pick(memory.SWIZZLES)
    leadings: tuple[int, ...] = (0, 16, 32, 64, 512, 1024) if odd and form.sparse and not place.mn_major else ()
    if name == "b":
        swizzle, leadings = wish.swizzle or swizzle, wish.leading or leadings
    leading = s.pick(leadings) if leadings else None
    d = memory.descriptor(s, place, swizzle, odd, leading)
    return d if place.fits(d) else memory.descriptor(s, place, swizzle, False)


def _places(subject: Subject) -> dict[str, memory.OperandPlace]:
    form = subject.form
    fixed, out, first = subject.fixed, {}, 0
    if not subject.a_in_registers:
        columns = form.k // 2 if form.sparse else form.k
        first = memory.room_for(form.m, columns, form.atype)
        out["a"] = memory.OperandPlace(form.m, columns, form.atype, bool(fixed.get("imm_trans_a")), 0, first)
    room = memory.room_for(form.n, form.k, form.btype)
    out["b"] = memory.OperandPlace(form.n, form.k, form.btype, bool(fixed.get("imm_trans_b")), first, room)
    return out


# Moves ---------------------------------------------------------------------------------------------------------------
def _leading(form: Form) -> tuple[int, int, int]:
    """Elements of the leading dimension, how many lines of it there are, and elements in 16 bytes."""
    rule = fragment(form, "r")
    lead, lines = (rule.columns, rule.rows) if form.layout == "row" else (rule.rows, rule.columns)
    return lead, lines, max(1, 128 // form.type.bits)


def _wmma_bytes(form: Form) -> int:
    lead, lines, unit = _leading(form)
    stride = max(lead, unit) + 6 * unit
    return -(-(64 + (lines - 1) * stride * form.type.bits // 8 + lead * form.type.bits // 8) // 128) * 128 + 128


def _wmma_move(subject: Subject, device: str, plan: Plan) -> CaseBatch:
    form = subject.form
    lead, _, unit = _leading(form)
    least = -(-lead // unit) * unit
    parts, images, segments, at = [], [], [], 0
    for kind, count, s in plan:
        stride, p = {
            "default stride": (least, 0), "wide stride": (least + unit, 0), "offset": (least, 64),
            "far stride": (least + int(s.pick((2, 3, 5, 6))) * unit, int(s.pick((0, 32, 64)))),
        }[kind]  # fmt: skip
        images.append(s.words(count, _wmma_bytes(form) // 4).view(np.uint8))
        if form.op == "store.d":
            rule = fragment(form, "r")
            words = s.words(count, rule.lanes, rule.registers * rule.register_bits // 32)
            parts.append({"r": words.view(f"<u{rule.register_bits // 8}")})
        segments.append(Segment(at, count, kind, {"p": p, "stride": stride}))
        at += count
    return CaseBatch(subject, at, tuple(segments), _joined(parts) if parts else {}, np.concatenate(images))


def _matrix_move(subject: Subject, device: str, plan: Plan) -> CaseBatch:
    form = subject.form
    if form.effects.memory is MemoryEffect.NONE:
        words = np.concatenate([s.words(count, 32) for _, count, s in plan])
        return CaseBatch(subject, len(words), (Segment(0, len(words), plan[0][0]),), {"a": words})
    size = image_bytes(subject)
    parts, images, segments, at = [], [], [], 0
    for kind, count, s in plan:
        for piece in range(min(count, 4)):
            n = count // 4 + (piece < count % 4) if count >= 4 else 1
            rows = np.argsort(s.words(size // 16), kind="stable")[:32] if kind == "rows anywhere" else np.arange(32)
            p = (16 * rows).astype(np.uint32)
            made: dict[str, Array] = {"p": np.broadcast_to(p, (n, 32))}
            if form.effects.memory is MemoryEffect.WRITE:
                made["r"] = s.words(n, 32, fragment(form, "r").registers)
            parts.append(made)
            images.append(s.words(n, size // 4).view(np.uint8))
            segments.append(Segment(at, n, kind, {"p": p}))
            at += n
    return CaseBatch(subject, at, tuple(segments), _joined(parts), np.concatenate(images))
