"""Registers that live across blocks, and their places in a warp's register file."""

from collections import defaultdict
from collections.abc import Set as AbstractSet
from dataclasses import field
from heapq import heappop, heappush

from mmulator.base.classes import dataclass
from mmulator.base.errors import must_be
from mmulator.isa.effects import Ends, MemoryEffect
from mmulator.isa.types import type_bits
from mmulator.ptx.program.addresses import HEADER_BYTES
from mmulator.ptx.program.blocks import Block, FunctionBlocks
from mmulator.ptx.program.flow import live_out
from mmulator.ptx.program.steps import steps_of
from mmulator.ptx.program.uses import CARRY, pinned_by, registers_of, uses_and_defs
from mmulator.ptx.tree import Instruction, Reg

WORD = 8  # bytes that a uniform register has
LINE = 64  # bytes of a line of the cache: vectors begin with one, and small registers share one


@dataclass(frozen=True)
class Frame:
    """The frame of a function.

    slots: register -> byte offset in the frame, for registers that live across blocks.
    live_out: block index -> registers that are live at its end.
    bytes: size of the frame, header included.
    types: register -> type.
    uniform: registers with one value for all lanes (uniform.py).
    words: uniform register that lives across blocks -> byte offset.
    unread: results of atomic operations that nothing reads.
    steps: access to memory -> by how much its address probably rises from lane to lane (steps.py).
    """

    slots: dict[str, int]
    live_out: dict[int, frozenset[str]]
    bytes: int
    types: dict[str, str]
    uniform: frozenset[str] = frozenset()
    words: dict[str, int] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    steps: dict[Instruction, int] = field(default_factory=dict)


def slot_bytes(type_name: str) -> int:
    """Bytes of a register of 32 lanes; a predicate has one bit for each lane."""
    bits = type_bits(type_name)
    return 4 if bits == 1 else max(bits, 8) * 4


def block_uses_defs(block: Block) -> tuple[set[str], set[str], set[str]]:
    """(registers read before written, surely written, touched) of a block."""
    reads: set[str] = set()
    writes: set[str] = set()
    touched: set[str] = set()

    def step(uses: AbstractSet[str], defs: AbstractSet[str]) -> None:
        reads.update(uses - writes)
        writes.update(defs)
        touched.update(uses, defs)

    if block.after is not None:
        _, defs = uses_and_defs(block.after)
        step(set(), defs)
    for ins in block.body:
        step(*uses_and_defs(ins))
    if block.last is not None:
        if block.ending is Ends.BRANCH:
            step({must_be(block.last.guard, tuple)[0].name}, set())
        else:
            uses, defs = uses_and_defs(block.last)
            step(uses, defs if block.ending is Ends.WAIT else set())
    return reads, writes, touched


def pinned_registers(function: FunctionBlocks) -> frozenset[str]:
    """Operands of asynchronous instructions: the hardware accesses them later, so they do not share slots."""
    if "pinned" not in function.known:
        pinning = (ins for block in function.blocks for ins in block.body if ins.effects.pinned)
        function.known["pinned"] = frozenset(name for ins in pinning for name in pinned_by(ins))
    found: frozenset[str] = function.known["pinned"]
    return found


@dataclass(frozen=True)
class Liveness:
    """Registers of each block of a function: (read before written, surely written, touched), and those live at its begin and
    end.
    """

    facts: list[tuple[set[str], set[str], set[str]]]
    into: list[set[str]]
    out: list[set[str]]


def liveness(function: FunctionBlocks) -> Liveness:
    """The registers that live between the blocks of a function."""
    blocks = function.blocks
    facts = [block_uses_defs(b) for b in blocks]
    numbers = [b.index for b in blocks]
    reads, writes = (dict(zip(numbers, sets)) for sets in ([f[0] for f in facts], [f[1] for f in facts]))
    live = live_out({b.index: b.targets for b in blocks}, reads, writes)
    return Liveness(facts, [{*reads[n], *(live[n] - writes[n])} for n in numbers], [{*live[n]} for n in numbers])


def unread_results(function: FunctionBlocks) -> frozenset[str]:
    """Results of atomic operations that no instruction reads. Compilers emit them, and ptxas removes them."""
    if "unread results" in function.known:
        known: frozenset[str] = function.known["unread results"]
        return known
    every = [i for b in function.blocks for i in (b.after, *b.body, b.last) if i is not None]
    atomic = {i: i.operands[0].name for i in every if i.effects.memory is MemoryEffect.ATOMIC and isinstance(i.operands[0], Reg)}
    results = set(atomic.values())
    if results:
        for ins in every:
            uses, _ = uses_and_defs(ins)
            if ins in atomic:  # which reads what stays where its guard is false, and nothing else of its result
                uses = frozenset(name for o in ins.operands[1:] for name in registers_of(o))
            results -= uses
    given = {p.name for p in (*function.function.params, *function.function.returns)}
    function.known["unread results"] = frozenset(results - given)
    return unread_results(function)


def state_of(register: str) -> str:
    """Name of the frame's mask of lanes that have a value in a register."""
    return register + "?"


def allocate(
    function: FunctionBlocks,
    live: Liveness | None = None,
    doubtful: frozenset[str] = frozenset(),
    uniform: frozenset[str] = frozenset(),
    unread: frozenset[str] = frozenset(),
    apart: bool = False,
) -> Frame:
    """The frame of a function. Registers of one size whose ranges of blocks do not meet share a slot.

    function: the function.
    live: its liveness, if already computed.
    doubtful: registers that may be undefined; each has a second slot, like a predicate's, with the same lifetime (`state_of`).
    uniform: registers with one value for all lanes; each has a word of its own, because lanes that are apart would collide in a
        shared word.
    unread: results of atomic operations that nothing reads.
    apart: whether every register that an instruction names has a slot of its own.
    """
    types = {**function.function.registers, CARRY: "pred"}
    for parameter in (*function.function.params, *function.function.returns):
        if parameter.space == "reg":
            types[parameter.name] = parameter.type
    types |= {state_of(name): "pred" for name in doubtful}
    blocks = function.blocks
    live = live or liveness(function)

    def both(names: set[str]) -> set[str]:
        return names | {state_of(n) for n in names & doubtful}

    live_in, live_out = [both(s) for s in live.into], [both(s) for s in live.out]
    # a result that arrives after a call or barrier is written in the following block: nothing to keep alive
    pinned = {*pinned_registers(function)}
    for parameter in (*function.function.params, *function.function.returns):
        if parameter.space == "reg":
            pinned.add(parameter.name)
    if apart:
        pinned = pinned.union(*(touched for _, _, touched in live.facts))
    pinned = both(pinned)
    uniform = uniform - pinned
    slots = _assign(blocks, [s - uniform for s in live_in], [s - uniform for s in live_out], pinned, types)
    total = max((offset + slot_bytes(types[r]) for r, offset in slots.items()), default=HEADER_BYTES)
    first = -(-total // WORD) * WORD
    words = {r: first + WORD * n for n, r in enumerate(sorted(uniform & set().union(*live_in, *live_out), key=_by_number))}
    total = first + WORD * len(words)
    return Frame(
        slots,
        {b.index: frozenset(live_out[n] | (pinned & both(live.facts[n][2]))) for n, b in enumerate(blocks)},
        -(-total // 128) * 128,
        types,
        uniform,
        words,
        unread - pinned,
        steps_of(function, uniform) if uniform else {},
    )


def _by_number(name: str) -> tuple[int, str]:
    """Sort key of register names as compilers number them: neighbours are loaded together."""
    return len(name), name


def _assign(
    blocks: list[Block], live_in: list[set[str]], live_out: list[set[str]], pinned: set[str], types: dict[str, str]
) -> dict[str, int]:
    ranges: dict[str, tuple[int, int]] = {}
    before: set[str] = set()
    for n in range(len(blocks) + 1):
        here = live_in[n] | live_out[n] if n < len(blocks) else set()
        for r in here ^ before:  # it begins here, or it ended one block before
            ranges[r] = ranges.get(r, (n, n))[0], n if r in here else n - 1
        before = here
    for r in pinned:
        ranges[r] = (0, len(blocks))
    slots: dict[str, int] = {}
    at = HEADER_BYTES
    free: dict[int, list[int]] = defaultdict(list)
    active: list[tuple[int, int, str]] = []  # a heap: last block, number, register
    for number, r in enumerate(sorted(ranges, key=lambda name: (ranges[name][0], name))):
        low, high = ranges[r]
        ended = []
        while active and active[0][0] < low:
            ended.append(heappop(active)[1:])
        for _, other in sorted(ended):
            free[slot_bytes(types[other])].append(slots[other])
        size = slot_bytes(types[r])
        if not free[size]:
            room = -(-size // LINE) * LINE
            free[size] += range(at + room - size, at - 1, -size)
            at += room
        slots[r] = free[size].pop()
        heappush(active, (high, number, r))
    return slots
