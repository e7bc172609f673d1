"""Code that tracks undefined values: which results of an instruction are undefined, and whether it uses an undefined register.

Each instruction that may read such a register (ptx/program/undefined.py) gets a few operations on masks of lanes
(emit/shadow.py). Undefined values may be copied and computed with. They matter if lanes branch on them, use them as an address,
or store them to memory that other threads see. Products propagate them by element: a tile may be stored in part.
"""

from collections.abc import Callable, Iterable

from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import bits_mask, iota, load, mask_bits, select, shuffle, store
from mmulator.base.codegen.types import i32, u32, u64
from mmulator.base.codegen.values import Value, constant
from mmulator.base.errors import InternalError, must_be
from mmulator.base.rules.execution import NO_SOURCE
from mmulator.base.rules.mbarriers import CANCEL_REFUSED
from mmulator.base.rules.values import UNDEFINED_ADDRESS, UNDEFINED_BRANCH, UNDEFINED_KEPT, UNDEFINED_STORE
from mmulator.compiler.emit.block import LANES
from mmulator.compiler.emit.emitter import Emitter
from mmulator.compiler.emit.shadow import FULL, Masks, Shadow, every, some
from mmulator.compiler.lowering import product_lines
from mmulator.compiler.lowering.operands import address_of, elements, state_space, table_pointer
from mmulator.compiler.meaning.memory import place_of
from mmulator.isa.effects import Addressed, Algebra, Ends, Flow, MemoryEffect, Stored
from mmulator.isa.form import Form
from mmulator.isa.types import type_bits
from mmulator.matrix.layouts import Fragment
from mmulator.matrix.layouts.sparse.metadata import contributing
from mmulator.ptx.program.addresses import SLOT_CONST, SLOT_LOCAL, SLOT_PARAM, SLOT_SHARED, SLOT_SHIFT
from mmulator.ptx.program.undefined import flow_of
from mmulator.ptx.program.uses import accesses, call_operands, registers_of
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg, flatten
from mmulator.runtime.native.hooks import events
from mmulator.runtime.native.state import FULL as ALL
from mmulator.runtime.native.threads.warp import shfl_function

U32, U64 = u32.vec(LANES), u64.vec(LANES)
_SLOTS = {"shared": SLOT_SHARED, "local": SLOT_LOCAL, "const": SLOT_CONST, "param": SLOT_PARAM}
_ROWS = 8  # of a matrix of ldmatrix


def _base(space: str) -> int:
    return _SLOTS.get(space.partition("::")[0], 0) << SLOT_SHIFT


def _names(operands: Iterable[Operand]) -> list[str]:
    return [n for o in operands for n in registers_of(o)]


def _mask(s: Shadow, operands: Iterable[Operand]) -> Value | None:
    """Mask of the lanes that hold a value in all registers of operands."""
    return every(s.of(n) for n in _names(operands))


# uses that matter -----------------------------------------------------------------------------------------------------
def _use(e: Emitter, s: Shadow, names: Iterable[str], lanes: Value, rule: int) -> None:
    """Report lanes that use undefined registers in a way that matters.

    e: the emitter.
    s: the shadow.
    names: registers.
    lanes: the lanes that use them.
    rule: number of the rule.
    """
    for name in names:
        if (mask := s.of(name)) is not None:
            with e.b.if_((bad := lanes & ~mask) != 0):
                e.call(events.undefined_used, e.w, bad, rule, s.doubt.memory(name), e.site)


def decides(e: Emitter, ins: Instruction) -> None:
    """Report an undefined guard by which lanes branch."""
    if e.shadow is not None and ins.guard is not None:
        _use(e, e.shadow, [ins.guard[0].name], e.mask, UNDEFINED_BRANCH.number)


def _uses(e: Emitter, s: Shadow, ins: Instruction) -> None:
    effects = ins.effects
    if ins.guard is not None and effects.ends is Ends.NO and (effects.memory is not MemoryEffect.NONE or not effects.pure):
        decides(e, ins)
    if effects.ends is Ends.INDEXED:
        _use(e, s, _names(ins.operands[:1]), e.mask, UNDEFINED_BRANCH.number)
    if effects.hints:
        return
    for operand in ins.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Reg) and s.doubts(operand.base.name):
            _use(e, s, [operand.base.name], _of_address(e, ins), UNDEFINED_ADDRESS.number)


def _of_address(e: Emitter, ins: Instruction) -> Value:
    """Mask of the lanes whose addresses are used."""
    addressed = ins.effects.addressed
    if addressed is Addressed.ROWS:
        return constant(e.b, u32, (1 << _ROWS * max(1, ins.form.num)) - 1)
    if addressed is Addressed.WARP:
        return e.mask & (constant(e.b, u32, 0) - e.mask)
    return e.lanes_of(ins)


# results --------------------------------------------------------------------------------------------------------------
def judge(e: Emitter, ins: Instruction) -> Callable[[], None] | None:
    """Before an instruction is written: report its uses, and return the function that updates the shadow behind it."""
    s = e.shadow
    if s is None:
        return None
    _uses(e, s, ins)
    targets = [o for access, operand in accesses(ins) if "w" in access and not isinstance(operand, Address)
               for o in _registers(operand)]  # fmt: skip
    names = [t.name for t in targets]
    if ins.effects.ends is Ends.WAIT:  # its code ends the block, and stores the masks: all lanes of the block write
        _set(s, names, _defined(e, s, ins, targets), None, None)
    if ins.effects.ends is not Ends.NO:
        return None
    stored = ins.effects.stored
    if ins in s.doubt.kept and stored is Stored.NOTHING:
        with e.b.if_((bad := e.lanes_of(ins) & ~must_be(every(_loaded(e, s, ins, targets)), Value)) != 0):
            e.call(events.undefined_used, e.w, bad, UNDEFINED_KEPT.number, 1, e.site)
        return None
    if stored is not Stored.NOTHING and isinstance(ins.operands[0], Address):
        return _STORES[stored](e, s, ins)
    if (flow := flow_of(ins, s.doubt.watched)) is Flow.MOVED:
        return s.set_behind(names, f"{ins.mnemonic} has Flow.MOVED: its function in compiler/meaning/ calls definedness.moved")
    if flow in (Flow.WGMMA, Flow.TILE) or (not any(map(s.doubts, names)) and stored is Stored.NOTHING):
        return None
    masks = _RESULTS[flow](e, s, ins, targets)
    guarded = _guarded(e, s, ins)
    behind = _STORES[stored](e, s, ins) if stored is not Stored.NOTHING else None

    def settle() -> None:
        _set(s, names, masks, *guarded)
        if behind is not None:
            behind()

    return settle


def _guarded(e: Emitter, s: Shadow, ins: Instruction) -> Masks:
    """[mask of the lanes where the guard is defined, lanes where the instruction acts]."""
    return [None, None] if ins.guard is None else [s.of(ins.guard[0].name), mask_bits(must_be(e.guard(ins), Value))]


def _set(s: Shadow, names: list[str], masks: Masks, guard: Value | None, lanes: Value | None) -> None:
    for name, mask in zip(names, masks):
        s.set(name, mask, lanes)
        if guard is not None and s.doubts(name):
            s.set(name, guard & must_be(s.of(name), Value))


def _registers(operand: Operand) -> list[Reg]:
    return [o for o in flatten((operand,)) if isinstance(o, Reg)]


def _sources(ins: Instruction) -> list[Operand]:
    return [o for access, o in accesses(ins) if "r" in access and not isinstance(o, Address)]


def _defined(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    return [None] * len(targets)


def _each(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    sources = _sources(ins)
    if ins.form["boolop"] in ("and", "or") and isinstance(sources[2], Reg) and sources[2].type == "pred":
        own = _mask(s, sources[:2])
        return [_logic_of(e, s, ins.form["boolop"], sources[2], own)] * len(targets)
    return [_mask(s, sources)] * len(targets)


def _logic_of(e: Emitter, s: Shadow, op: str, operand: Operand, other: Value | None) -> Value | None:
    """Mask of the lanes where a logic operation on `other` and a predicate is defined; one operand may decide alone."""
    own = _mask(s, [operand])
    if other is None:
        return own
    value = mask_bits(e.source(operand, "pred"))
    alone = ~value if op == "and" else value
    if own is not None:
        return (own & other) | (own & alone)
    return other | alone


def _logic(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    a, b = ins.operands[1:3]
    masks = [_mask(s, [o]) for o in (a, b)]
    if masks[0] is None and masks[1] is None:
        return [None]
    known = [m if m is not None else constant(e.b, u32, FULL) for m in masks]
    alone = [mask_bits(e.source(o, "pred")) for o in (a, b)]
    if ins.effects.algebra is Algebra.AND:
        alone = [~v for v in alone]
    return [(known[0] & known[1]) | (known[0] & alone[0]) | (known[1] & alone[1])]


def _parts(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    return _of_parts(s, flatten(ins.operands[1:3]), targets)


def _picks(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    sources: list[Operand] = list(ins.operands[1:3])
    if isinstance(ins.operands[3], Immediate) and not ins.form["mode"]:
        picks = ins.operands[3].bits("b32")
        sources = [sources[n] for n in sorted({picks >> 4 * n >> 2 & 1 for n in range(4)})]
    return _of_parts(s, sources, targets)


def _of_parts(s: Shadow, sources: Iterable[Operand], targets: list[Reg]) -> Masks:
    """Masks of results that are defined in lanes where one of the sources is."""
    return [some(s.of(o.name) for o in sources if isinstance(o, Reg))] * len(targets)


def _choice(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    a, b, c = ins.operands[1:4]
    of = [_mask(s, [o]) for o in (a, b)]
    if of[0] is None and of[1] is None:
        return [_mask(s, [c])]
    if not (isinstance(c, Reg) and c.type == "pred"):  # which of the two is chosen is not computed twice
        return [every([some(of), _mask(s, [c])])]
    known = [m if m is not None else constant(e.b, u32, FULL) for m in of]
    p = mask_bits(e.source(c, "pred"))
    return [every([(p & known[0]) | (~p & known[1]), _mask(s, [c])])]


def _loaded(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    address = must_be(next(o for o in ins.operands if isinstance(o, Address)), Address)
    names = elements(ins.operands[0])
    space, where = place_of(e, ins, address)
    size = max(type_bits(ins.form["type"]) // 8, 1)
    place = e.room(U32)
    e.call(events.bytes_read, e.w, e.lanes_of(ins), e.spill(where), _base(space), size, len(names), place, e.site)
    return [load(u32, place, n) for n, o in enumerate(names) if isinstance(o, Reg)]


def _rows(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    form = ins.form
    if (form.m, form.n) != (8, 8):
        return [None] * len(targets)
    at, place = e.spill(address_of(e, ins.operands[1])), e.room(U32)
    trans = int("trans" in ins.modifiers)
    e.call(events.rows_read, e.w, at, _base(state_space(form)), max(1, form.num), trans, place, e.site)
    return [load(u32, place, n) for n in range(len(targets))]


def _lanes(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    a, b, c = ins.operands[1:4]
    by: list[Value] = []

    def taken(mask: Value | None) -> Value | None:
        """Macro: the lanes whose shuffle takes its value from a lane in `mask`."""
        if mask is None:
            return None
        if not by:
            by.extend(e.spill(U32(e.source(o, "b32"))) for o in (b, c))
        place, moved, values = e.room(U32), e.room(U32), e.room(U32)
        store(constant(e.b, u32, FULL), place)
        with e.b.if_(mask != FULL):
            ones = constant(e.b, U32, 1)
            e.b.store(select(bits_mask(mask), ones, 0), values)
            e.call(shfl_function(ins.form["mode"]), values, *by, moved)
            store(mask_bits(e.fetch(moved, U32) != 0), place)
        return load(u32, place)

    here = e.lanes_of(ins) if ins in s.doubt.misses else None
    met = taken(here)
    if here is not None and met is not None:
        e.call(events.value_missed, e.w, here & ~met, NO_SOURCE.number, e.site)
    lanes = every([met, taken(_mask(s, [a])), _mask(s, ins.operands[2:])])
    return [lanes, *[None] * (len(targets) - 1)]


def _answer(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    """Masks of the results of clusterlaunchcontrol.query_cancel that a response has only if a cluster was cancelled."""
    yes = mask_bits((e.source(ins.operands[1], "b128") >> 64 & 1) != 0)
    given, lanes = _mask(s, ins.operands[1:]), e.lanes_of(ins)
    e.call(events.value_missed, e.w, (lanes if given is None else lanes & given) & ~yes, CANCEL_REFUSED.number, e.site)
    return [every([yes, given])] * len(targets)


def _warp(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    """Masks of the results of a vote, match or reduction. A vote is defined if one participating lane is, a reduction if all
    are.
    """
    mask, members = (_mask(s, [o]) for o in ins.operands[1:3])
    if mask is not None:
        active = e.lanes_of(ins)
        bad = (active & ~mask) != 0 if ins.effects.flow is Flow.REDUCED else (active & mask) == 0
        mask = select(bad, constant(e.b, u32, 0), FULL)
    return [every([mask, members])] * len(targets)


# matrices -------------------------------------------------------------------------------------------------------------
def _product(e: Emitter, s: Shadow, ins: Instruction, targets: list[Reg]) -> Masks:
    whole: Masks = [None] * len(targets)
    of: list[Masks] = [[s.of(n) for n in _names([o])] for o in ins.operands]
    if all(m is None for masks in of[1:] for m in masks):
        return whole
    chosen = tuple(o.value if isinstance(o, Immediate) else None for o in flatten(ins.operands[4:]))
    sources = product_lines.held(ins.form, chosen)
    of_side = [[(h, of[h.operand][h.register]) for h in sources if h.side == side] for side in range(2)]
    sides = [[product_lines.of_thread(e, ins, h, mask) for h, mask in held] for held in of_side]
    places = [_spill(e, masks) for masks in (*sides, of[3] if len(of[3]) == len(targets) else whole, whole)]
    table = table_pointer(e, i32, ("lines", ins.form, chosen), lambda tables: product_lines.table(ins.form, sources))
    e.call(events.product_of, table, *places)
    selectors = (m for masks in of[5 + 2 * ins.form.sparse :: 2] for m in masks)
    known = every(select((e.mask & ~m) != 0, constant(e.b, u32, 0), FULL) for m in selectors if m is not None)
    return [every([load(u32, places[3], n), known]) for n in range(len(targets))]


def _spill(e: Emitter, masks: Masks) -> Value:
    place = e.room(U32, -(-len(masks) // LANES))
    for n, mask in enumerate(masks):
        store(mask if mask is not None else constant(e.b, u32, FULL), place, n)
    return place


def wgmma(e: Emitter, ins: Instruction, table: Value, a_desc: Value, b_desc: Value, adds: Value) -> None:
    """After the issue of a wgmma, mark which elements of its accumulator will be defined.

    e, ins: the emitter and the instruction.
    table: its table.
    a_desc, b_desc: descriptors of A and B.
    adds: lanes whose scale-d is true.
    """
    s = e.shadow
    if s is None:
        return
    d, a, b, *rest = ins.operands
    lane = e.mask & (constant(e.b, u32, 0) - e.mask)
    for operand in (a, b):
        if isinstance(operand, Reg):
            _use(e, s, [operand.name], lane, UNDEFINED_ADDRESS.number)
    scale = rest[2 if ins.form.sparse else 0]
    _use(e, s, _names([scale]), e.mask, UNDEFINED_BRANCH.number)
    names = _names([d])
    if not any(map(s.doubts, names)):
        return
    known = _of_metadata(ins.form, s, rest) if ins.form.sparse else None
    before = [m if (m := s.of(n)) is None else m | ~adds for n in names]
    places = [_spill(e, [s.of(n) for n in _names(elements(a))] if not isinstance(a, Reg) else [None] * 4), _spill(e, before)]
    e.call(events.product_in_shared, e.w, table, a_desc, b_desc, *places, e.site)
    for n, name in enumerate(names):
        s.set(name, every([load(u32, places[1], n), known]))


def _of_metadata(form: Form, s: Shadow, rest: list[Operand]) -> Value | None:
    """Mask of the lanes whose rows of a wgmma's D have defined metadata: a group of four lanes has both."""
    mask = _mask(s, rest[:1])
    if mask is None:
        return None
    lost = ~mask & sum(1 << lane for lane in contributing(form, must_be(rest[1], Immediate).value))
    lost = lost | lost >> 1
    return ~(((lost | lost >> 2) & 0x11111111) * 15)


def tile(e: Emitter, ins: Instruction, f: Fragment, table: Value, at: Value, stride: Value) -> None:
    """After a wmma.load, mark which elements are defined.

    e, ins: the emitter and the instruction.
    f: its fragment.
    table: its table.
    at, stride: place of the matrix.
    """
    s, names = e.shadow, _names(ins.operands[:1])
    if s is None or not any(map(s.doubts, names)):
        return
    place = e.room(U32)
    base = _base(state_space(ins.form))
    e.call(events.tile_read, e.w, table, at, base, stride, f.bits, f.per_register, place, e.site)
    for n, name in enumerate(names):
        s.set(name, load(u32, place, n))


def moved(e: Emitter, ins: Instruction, move: Native) -> None:
    """After a movement of bits between lanes, move the marks of undefined bits in the same way. The meaning of each instruction
    with Flow.MOVED calls it last.

    e, ins: the emitter and the instruction.
    move: the native function that moves its values: of a pointer for each source and then for each result, to 32 words for each
        register of the operand. It only moves bits, so a mark arrives where a value would.
    """
    sources, targets = ([o for access, o in accesses(ins) if x in access] for x in "rw")
    if any(isinstance(o, Address) for o in sources) or len(move.params) != len(sources) + len(targets):
        raise InternalError(f"{ins.mnemonic} has Flow.MOVED, {len(sources)} sources and {len(targets)} results: "
                            f"definedness.moved needs a function of a pointer for each, and {move.name} is none")  # fmt: skip
    s, names = e.shadow, _names(targets)
    if s is None or not any(map(s.doubts, names)):
        return
    marks: list[Masks] = [[s.of(o.name) if isinstance(o, Reg) else None for o in flatten((operand,))] for operand in sources]
    results: Masks = [None] * len(names)
    if any(m is not None for masks in marks for m in masks):
        outs = [e.room(U32, len(_names([o]))) for o in targets]
        none, whole = (constant(e.b, U32, n) for n in (0, FULL))
        words = ([none if m is None else select(bits_mask(m), none, whole) for m in masks] for masks in marks)
        e.call(move, *(e.spill(*each) for each in words), *outs)
        places = [(out, n) for out, o in zip(outs, targets) for n in range(len(_names([o])))]
        results = [mask_bits(e.fetch(out, U32, n) == 0) for out, n in places]
    _set(s, names, results, *_guarded(e, s, ins))


_RESULTS: dict[Flow, Callable[[Emitter, Shadow, Instruction, list[Reg]], Masks]] = {
    Flow.DEFINED: _defined, Flow.EACH: _each, Flow.ANY: _parts, Flow.CHOICE: _choice, Flow.LOGIC: _logic, Flow.LOADED: _loaded,
    Flow.ROWS: _rows, Flow.PRODUCT: _product, Flow.LANES: _lanes, Flow.WARP: _warp, Flow.REDUCED: _warp, Flow.PICKS: _picks,
    Flow.ANSWER: _answer,
}  # fmt: skip


# stores ---------------------------------------------------------------------------------------------------------------
def _written(e: Emitter, s: Shadow, ins: Instruction, values: tuple[Operand, ...], size: int) -> Callable[[], None] | None:
    """After a store, mark the bytes whose stored value is undefined."""
    found = [(n, name, m) for n, o in enumerate(values) for name in _names([o]) if (m := s.of(name)) is not None]
    if not found:
        return None
    address = must_be(next(o for o in ins.operands if isinstance(o, Address)), Address)
    space, where = place_of(e, ins, address)
    at, lanes = e.spill(where), e.lanes_of(ins)

    def settle() -> None:
        for n, name, mask in found:
            bad = lanes & ~mask
            with e.b.if_(bad != 0):
                e.call(events.undefined_written, e.w, lanes, bad, at, _base(space), n * size, size, s.doubt.memory(name), e.site)

    return settle


def _st(e: Emitter, s: Shadow, ins: Instruction) -> Callable[[], None] | None:
    return _written(e, s, ins, elements(ins.operands[1]), max(type_bits(ins.form["type"]) // 8, 1))


def _behind_atomic(e: Emitter, s: Shadow, ins: Instruction) -> Callable[[], None] | None:
    """After an atomic operation: an exchange defines the bytes if its operand is defined; other operations keep undefined bytes
    undefined.
    """
    at = next(n for n, o in enumerate(ins.operands) if isinstance(o, Address))
    size = type_bits(ins.form["type"]) // 8
    values = elements(ins.operands[-1] if ins.form["op"] == "cas" else ins.operands[at + 1])
    undefined = _written(e, s, ins, values, size)
    if ins.form["op"] != "exch" and ins not in s.doubt.kept:
        return undefined
    space, where = place_of(e, ins, must_be(ins.operands[at], Address))
    spilled, lanes = e.spill(where), e.lanes_of(ins)

    def settle() -> None:
        e.call(events.bytes_written, e.w, lanes, spilled, _base(space), size * len(values))
        if undefined is not None:
            undefined()

    return settle


def _stmatrix(e: Emitter, s: Shadow, ins: Instruction) -> Callable[[], None] | None:
    form = ins.form
    names = _names([ins.operands[1]])
    if (form.m, form.n) != (8, 8) or "trans" in ins.modifiers or not any(map(s.doubts, names)):
        return None
    found = [(n, name, m) for n, name in enumerate(names) if (m := s.of(name)) is not None]
    at = address_of(e, ins.operands[0])

    def settle() -> None:
        for n, name, mask in found:
            with e.b.if_(mask != FULL):
                rows = shuffle(at, None, [_ROWS * n + lane // 4 for lane in range(LANES)])
                own, base = e.spill(rows + (iota(U64) & 3) * 4), _base(state_space(form))
                e.call(events.undefined_written, e.w, ALL, ~mask, own, base, 0, 4, s.doubt.memory(name), e.site)

    return settle


def _wmma_store(e: Emitter, s: Shadow, ins: Instruction) -> None:
    """Report a wmma.store of undefined elements to global memory; what it stores elsewhere counts as defined."""
    if state_space(ins.form) == "global":
        _use(e, s, _names([ins.operands[1]]), e.mask, UNDEFINED_STORE.number)


_STORES: dict[Stored, Callable[[Emitter, Shadow, Instruction], Callable[[], None] | None]] = {
    Stored.VALUES: _st, Stored.COMBINED: _behind_atomic, Stored.ROWS: _stmatrix, Stored.TILE: _wmma_store,
}


# functions ------------------------------------------------------------------------------------------------------------
def received(e: Emitter, ins: Instruction) -> None:
    """Mark results that arrive when control comes back as defined."""
    if e.shadow is not None:
        for access, operand in accesses(ins):
            if "w" in access:
                for name in registers_of(operand):
                    e.shadow.set(name, None)
        if ins.effects.ends is Ends.CALL:
            for name in _names(call_operands(ins)[0]):
                e.shadow.set(name, None)


def entered(e: Emitter) -> None:
    """At the start of a function, mark its registers and variables as undefined, whatever an earlier call has left there."""
    s, first = e.shadow, e.block.function.blocks[0].index
    if s is None or any(first in b.targets for b in e.block.function.blocks):
        return
    given = {p.name for p in (*e.block.function.function.params, *e.block.function.function.returns)}
    for name in s.doubt.registers - given:
        s.set(name, constant(e.b, u32, 0))
    frame = e.locals
    e.call(events.frame_entered, e.w, e.mask, e.spill(e.local_base()), frame.abi.bytes, frame.bytes)
