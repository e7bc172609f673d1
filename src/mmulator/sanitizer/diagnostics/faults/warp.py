"""Faults and deadlocks of lanes that do not meet, as sentences: partial warps, deadlocks, and CTAs that do not end: the words of
memory at which their loops look, what they hold, and what they are compared with.
"""

from collections.abc import Iterator, Sequence

from mmulator.base.errors import ExecutionFault
from mmulator.base.rules import waits as rules
from mmulator.isa.effects import Algebra, Ends, MemoryEffect, Queue, Together
from mmulator.isa.types import TYPES, type_bits
from mmulator.matrix.numerics.element import number
from mmulator.ptx.program.blocks import blocks_from, instructions, takes_whole_warp
from mmulator.ptx.program.frames import slot_bytes
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Address, Immediate, Instruction, Operand, Reg
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import Resident, ResidentCta
from mmulator.runtime.native.state import FULL, LANES
from mmulator.sanitizer.diagnostics.faults.cluster import WAITS, waits_text
from mmulator.sanitizer.diagnostics.faults.mbarrier import describe_waits
from mmulator.sanitizer.diagnostics.faults.memory import argument_of, named
from mmulator.sanitizer.diagnostics.mbarriers import place_text
from mmulator.sanitizer.diagnostics.whereabouts import LaneGroup, everywhere, groups, lanes_text, verb, warps_text

_BARRIER = (
    "bar.sync: every participating thread must arrive (PTX ISA 9.1, Parallel Synchronization and Communication Instructions)"
)
_WARPGROUP = "wgmma: all threads of the warpgroup, four warps, must execute the same instruction (PTX ISA 9.1, Warpgroup)"
_FEW = 8  # words of an argument that are told where it is not known which the loop reads
_MOST = 2  # words and comparisons that are told
_LOOKS = (MemoryEffect.READ, MemoryEffect.ATOMIC)


def _section(ins: Instruction) -> str:
    return str(ins.form.section)


def _meets(ins: Instruction | None) -> bool:
    return ins is not None and ins.effects.together is Together.MEETING


def _rule(ins: Instruction) -> str:
    if ins.effects.ends is Ends.BARRIER:
        return (
            "bar.sync, and barrier with .aligned: all threads of the warp must execute the same instruction; in code under a "
            f"condition only if they evaluate it alike: {_section(ins)}"
        )
    if takes_whole_warp(ins):
        return (
            f".aligned: all 32 threads of the warp must execute the same {ins.opcode} instruction; the behaviour is undefined "
            f"if they evaluate its condition differently or if any has exited: {_section(ins)}"
        )
    if _meets(ins):
        return (
            "bar.warp.sync: every thread that the member mask names, and that has not exited, must execute a bar.warp.sync with "
            f"the same mask: {_section(ins)}"
        )
    return (
        f"{ins.opcode}: every thread that the member mask names, and that has not exited, must execute the same "
        f"instruction with the same mask: {_section(ins)}"
    )


# instructions for whole warps ----------------------------------------------------------------------------------------
def describe_partial(grid: Grid, cta: ResidentCta) -> ExecutionFault:
    """The exception for a PARTIAL_WARP fault: which lanes execute the instruction, and why the other lanes do not."""
    state = cta.state
    ins = grid.kernel.sites[int(state["fault_site"])]
    warp, lanes = int(state["fault_warp"]), int(state["fault_address"])
    here, off = lanes & FULL, lanes >> LANES
    live = int(cta.warps[warp]["live"])
    threads = min(grid.shape.threads - warp * LANES, LANES)
    exist = (1 << threads) - 1
    why = []
    if off:
        why.append(f"{lanes_text(off)} {verb(off, 'is', 'are')} predicated off")
    if gone := exist & ~live:
        why.append(f"{lanes_text(gone)} {verb(gone, 'has', 'have')} exited")
    if threads < LANES:
        lacks = FULL & ~exist
        why.append(f"{lanes_text(lacks)} {verb(lacks, 'does', 'do')} not exist, since the block has {grid.shape.threads} threads")
    why += [str(g) for g in _others(groups(grid, cta), warp, here | off)]
    hint = rules.IN_WARP.hint
    if ins.effects.ends is Ends.BARRIER:
        why = [str(g) for g in _others(groups(grid, cta), warp, here)]
        hint = "let the whole warp take one branch, or write barrier.sync without .aligned, at which lanes may arrive one by one"
    elif threads < LANES:
        hint = "launch a multiple of 32 threads, or let only whole warps reach it"
    elif gone:
        hint = "let no lane of the warp return before its last such instruction"
    return ExecutionFault(
        f"{ins.mnemonic} by part of a warp: {lanes_text(here)} of warp {warp} {verb(here, 'executes', 'execute')} it; "
        f"{'; '.join(why)}, in {cta}", span=ins.span, rule=_rule(ins), hint=hint, fault="DEADLOCK",
    )  # fmt: skip


def _others(found: Sequence[LaneGroup], warp: int, known: int) -> list[LaneGroup]:
    """Groups of a warp with lanes that are not in `known`."""
    return [g for g in found if g.warp == warp and not g.lanes & known]


# deadlocks -----------------------------------------------------------------------------------------------------------
def describe_deadlock(grid: Grid, resident: Resident) -> ExecutionFault:
    """The exception for a deadlock: what each warp waits for. Lanes that wait for their own warp are named first, because no
    other warp can release them.
    """
    every = [(c, groups(grid, c)) for c in resident.each()]
    if resident.cluster["stalled"][0]:
        return describe_livelock([resident])
    cta, found = max(every, key=lambda x: _telling(x[1]))
    held = next((g for g in found if _is_held(g, found)), None)
    if held is not None and held.instruction is not None:
        return _describe_held(cta, found, held, held.instruction)
    if any(g.state == "sleeps" for _, gs in every for g in gs):
        return describe_waits(grid, resident, every)
    first = next((g for g in found if g.state == "waits"), found[0] if found else None)
    waits = first is not None and first.state == "waits"
    ins = first.instruction if first is not None else None
    rule, hint = _BARRIER, rules.AT_BARRIER.hint
    if waits:
        rule, hint = _WARPGROUP, "let the four warps of a warpgroup take the same branches"
    if waits and ins is not None and ins.effects.queue is Queue.NONE:
        rule, hint = WAITS[ins.effects.resizes, ins.effects.holds]
    return ExecutionFault(
        f"deadlock in {cta}: {everywhere(cta, every)}{waits_text(resident, cta)}",
        span=ins.span if ins is not None else None, rule=rule, hint=hint, fault="DEADLOCK",
    )  # fmt: skip


def describe_livelock(residents: Sequence[Resident]) -> ExecutionFault:
    """The exception for clusters whose threads run for ever, with the places of the first cluster's threads."""
    every = [(c, groups(r.grid, c)) for r in residents[:1] for c in r.each()]
    cta, first = next(((c, g) for c, found in every for g in found if g.state == "runs"), (every[0][0], every[0][1][0]))
    return ExecutionFault(
        f"livelock in {cta}: {everywhere(cta, every)}; nobody is left who could change what these threads look at",
        span=first.instruction.span if first.instruction is not None else None,
        rule="a loop that waits for a change of memory needs a thread that makes it",
        hint="look for who should store the value that ends the loop: whether it runs, stores there, and stores that value",
        fault="LIVELOCK",
    )  # fmt: skip


def _telling(found: Sequence[LaneGroup]) -> int:
    """How much the groups of a CTA explain about a deadlock: the CTA of a cluster with the greatest value is reported."""
    return 2 * any(_is_held(g, found) for g in found) + bool(found)


def _is_held(g: LaneGroup, found: Sequence[LaneGroup]) -> bool:
    """Whether a group waits for other lanes of its own warp, and no lane of that warp sleeps at an mbarrier."""
    return g.state == "held" and not any(o.warp == g.warp and o.state == "sleeps" for o in found)


def _describe_held(cta: ResidentCta, found: Sequence[LaneGroup], held: LaneGroup, ins: Instruction) -> ExecutionFault:
    others = _others(found, held.warp, held.lanes)
    same = [g for g in others if g.instruction is not None and _section(g.instruction) == _section(ins)]
    hint = rules.IN_WARP.hint
    if _meets(ins) and any(map(_meets, (g.instruction for g in others))):
        hint = "lanes that meet at several bar.warp.sync must name the same mask at each"
    elif same and same[0].instruction is not ins:
        hint = f"two {ins.opcode} in the text are two instructions: let the whole warp reach one of them"
    part = "part of a warp" if takes_whole_warp(ins) else "part of its member mask"
    return ExecutionFault(
        f"deadlock: {ins.mnemonic} by {part}: {lanes_text(held.lanes)} of warp {held.warp} {verb(held.lanes, 'waits', 'wait')} "
        f"at it; {'; '.join(map(str, others))}, in {cta}",
        span=ins.span, rule=_rule(ins), hint=hint, fault="DEADLOCK",
    )  # fmt: skip


# CTAs that do not end ------------------------------------------------------------------------------------------------
def unfinished(grid: Grid, residents: Sequence[Resident]) -> tuple[str, Instruction | None]:
    """The places of the warps of the first CTA that has begun, `; block (0, 0, 0) is at ...`; what runs first there."""
    begun = sorted((c for r in residents for c in r.each()), key=lambda c: int(c.state["linear"]))
    if not begun:
        return "", None
    found = groups(grid, begun[0])
    first = next((g for g in found if g.state == "runs"), found[0] if found else None)
    more = f", and {len(begun) - 1} more block{'s' * (len(begun) > 2)}" if len(begun) > 1 else ""
    loop = _waits_for(grid, begun[0], first) if first is not None else ""
    return f"; {begun[0]} is at {warps_text(found) or 'its end'}{more}{loop}", first.instruction if first is not None else None


def _waits_for(grid: Grid, cta: ResidentCta, group: LaneGroup) -> str:
    """`; the loop there reads byte 0 of argument 1 (lock), which holds 3, at ..., and compares with 2 at ...`; "" of a loop that
    stores something, or of none.
    """
    blocks = grid.kernel.program.blocks
    if group.state != "runs" or not 0 <= group.pc < len(blocks):
        return ""
    ahead = blocks_from([group.pc], lambda n: blocks[n].targets)
    loop = [n for n in sorted(ahead) if group.pc in blocks_from(blocks[n].targets, lambda k: blocks[k].targets)]
    inside = [i for n in loop for i in instructions(blocks[n])]
    if any(i.effects.memory is MemoryEffect.WRITE and i.form["space"] in ("", "global") for i in inside):
        return ""
    name = next(name for name, item in grid.kernel.program.functions.items() if item is blocks[group.pc].function)
    changing = {register for i in inside for register in uses_and_defs(i)[1]}

    def value(ins: Instruction, operand: Operand | None, type_name: str) -> int | None:
        """Bits of an operand that the loop does not change, in the first lane."""
        if isinstance(operand, Immediate):
            return operand.bits(type_name) if type_name in TYPES else None
        frame = grid.kernel.frames[name]
        if not isinstance(operand, Reg) or operand.name in changing or operand.name not in frame.slots:
            return None
        kind = frame.types[operand.name]
        at, size = int(cta.warps["regs"][group.warp]) + group.frame + frame.slots[operand.name], slot_bytes(kind) // LANES
        lane = (group.lanes & -group.lanes).bit_length() - 1
        return int.from_bytes(bytes_at(at + lane * size, size).tobytes(), "little") if size in (2, 4, 8) else None

    def words() -> Iterator[str]:
        for ins in inside:
            where = next((o for o in ins.operands if isinstance(o, Address)), None)
            if where is None or ins.effects.memory not in _LOOKS or ins.form["space"] not in ("", "global"):
                continue
            base, type_name = value(ins, where.base, "b64"), ins.form["type"]
            if not type_name:
                continue
            size, argument = type_bits(type_name) // 8, argument_of(grid, ins) if base is None else None
            address = base + where.offset if base is not None else argument[0] if argument is not None else -1
            m = next((m for m in named(grid) if m.start <= address <= m.end - size), None)
            if m is None:
                continue
            count = 1 if base is not None else min(m.size // size, _FEW)
            raw = bytes_at(m.host + address - m.start, count * size).tobytes()
            each = (int.from_bytes(raw[n : n + size], "little") for n in range(0, len(raw), size))
            held = ", ".join(_text(bits, type_name) for bits in each) + ", ..." * (base is None and m.size > len(raw))
            at = f"byte {address - m.start} of " if base is not None else ""
            yield f"{at}{m.label}, which holds {held}, at {place_text(ins.original)}"

    def compared() -> Iterator[str]:
        for ins in inside:
            if ins.effects.algebra is Algebra.COMPARISON and len(ins.operands) > 2:
                type_name = ins.form["type"]
                given = (value(ins, o, type_name) for o in ins.operands[1:3])
                yield from (f"{_text(bits, type_name)} at {place_text(ins.original)}" for bits in given if bits is not None)

    found, with_ = [*dict.fromkeys(words())][:_MOST], [*dict.fromkeys(compared())][:_MOST]
    if not found:
        return ""
    return f"; the loop there reads {' and '.join(found)}" + (f", and compares with {' and '.join(with_)}" if with_ else "")


def _text(bits: int, type_name: str) -> str:
    """A value: a number, with a sign if its type has one; bits of floating point as they are."""
    t = TYPES[type_name]
    return f"0x{bits:x}" if t.kind == "float" else str(number(t, bits))
