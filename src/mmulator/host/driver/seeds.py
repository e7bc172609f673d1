"""A launch of a driver's function under several seeds: a kernel in order leaves the same bits under all of them.

The seed says when asynchronous copies and wgmma complete, and which warp goes first. Under the first seed blocks begin in
order, under each other one as the seed has it. A launch has one thread of the host in this mode, so that what differs is the
seed's doing. (A block that takes long is set aside for others, but by counted work, never by the clock:
runtime/launch/workers.py.)
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from mmulator.base.demangle import demangle
from mmulator.base.errors import UnstableResult
from mmulator.base.rules.choice import chosen
from mmulator.host.campaign import Piece, Snapshot, campaign, raised
from mmulator.host.driver.functions import Function
from mmulator.host.module import Kernel
from mmulator.host.report import Report
from mmulator.host.settings import STRICT, Settings
from mmulator.isa.effects import MemoryEffect
from mmulator.ptx.program.calls import reached
from mmulator.ptx.program.uses import uses_and_defs
from mmulator.ptx.tree import Instruction, SpecialRegister
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.regions import Region, Regions

WORD = 4  # bytes that a message shows
RULE = (
    "the seed chooses what the hardware is free to choose: when asynchronous operations complete, which warp goes first, "
    "which block begins first"
)


def memory_of(function: Function, regions: Regions) -> Iterator[tuple[Region, np.ndarray]]:
    """All that a launch may write: variables of its module, and regions."""
    image = function.kernel.module.image
    names = {address: name for name, address in image.addresses.items()}
    yield from ((Region(start, a.nbytes, f"variable {names.get(start, '')}"), a) for start, a, can in image.buffers if can)
    yield from ((r, bytes_at(r.host, r.size)) for r in regions if r.writable)


def agreed(function: Function, regions: Regions, settings: Settings, run: Callable[[int, Settings], Report]) -> Report:
    """The report of the first seed's launch. Its stores are what memory has afterwards, whatever is raised of the others.

    run(seed, settings) launches. Raises UnstableResult if another seed leaves other bits; what `run` raises, which says under
    which seed if it was not the first.
    """
    seeds = range(settings.seed, settings.seed + settings.seeds)
    alone = replace(settings, threads=1, sanitize=settings.sanitize and STRICT)  # notes may become errors
    asked = chosen(settings.rules, settings.sanitize == STRICT)
    first = time.perf_counter()
    memory = Snapshot(memory_of(function, regions), ((r.written, r.size) for r in regions if r.written is not None))

    unlike: list[Piece] = []
    last = seeds[0]

    def timed(seed: int) -> Report:
        nonlocal first
        done = run(seed, alone)
        first = time.perf_counter() if seed == seeds[0] else first
        return done

    def compare(seed: int) -> None:
        nonlocal last
        last = seed
        unlike.extend(memory.differing())
        if unlike:
            raise _error(function, regions.given, unlike, (seeds[0], seed))

    try:
        report, findings = campaign(seeds, timed, memory, compare)
    except UnstableResult as error:
        places = [p.owner.start + p.start for p in unlike]
        inside = [r for r in (*regions, *regions.given) if any(r.start <= at < r.end for at in places)]
        labels = [f" of {r.label}, which has {r.size}" for r in inside] if any(reasons(function.kernel)) else [""]
        found = raised(error.findings, last, "", labels)
        error.findings = tuple(f for f in found if f.rule in asked or f.is_error)
        raise
    findings = tuple(f for f in findings if f.rule in asked)
    same = f"the same bits under seeds {seeds[0]} to {seeds[-1]}, {time.perf_counter() - first:.1f} s for the others"
    return replace(report, notes=[*report.notes, same], findings=findings)


def _error(function: Function, given: Sequence[Region], found: Sequence[Piece], seeds: tuple[int, int]) -> UnstableResult:
    piece = found[0]
    at = int(np.argmax(piece.live != piece.wanted))
    address = piece.owner.start + piece.start + at
    memory = next((r for r in given if r.start <= address < r.end), piece.owner)  # as the launch was given it
    byte = address - memory.start
    word = max(at - byte % WORD, 0)
    values = _words(*(a[word:][:WORD] for a in (piece.wanted, piece.live)))
    first, second = (f"{value} under seed {seed}" for value, seed in zip(values, seeds))
    count = sum(int(np.count_nonzero(p.live != p.wanted)) for p in found)
    why = list(reasons(function.kernel))
    missing = "a wait, a fence or a barrier may be missing, so that something is read before it is there"
    missing += "; or blocks share memory without atomics"
    return UnstableResult(
        f"{demangle(function.name)} left other bits under seed {seeds[1]} than under seed {seeds[0]}: "
        f"{count} byte{'s differ' if count != 1 else ' differs'}, the first is byte {byte} of {memory.label}, which "
        f"has {memory.size}; the word at byte {byte - at + word} is {first}, {second}",
        span=why[0][0].span if why else None, rule=RULE,
        hint="; ".join([missing, *(f"or {i.mnemonic} at line {i.span.line} is the reason: it {does}" for i, does in why)]),
    )  # fmt: skip


def _words(*parts: np.ndarray) -> list[str]:
    """`0x3f800000 (1.0 as f32)`, or `0x00000060 (96)` where not all are numbers as people write them."""
    bits = [int.from_bytes(p.tobytes(), "little") for p in parts]
    floats = [float(np.uint32(b).view(np.float32)) for b in bits]
    plain = len(parts[0]) == WORD and all(f == 0 or 1e-12 < abs(f) < 1e12 for f in floats)
    return [f"0x{b:0{2 * len(parts[0])}x} ({f'{f:.9g} as f32' if plain else b})" for b, f in zip(bits, floats)]


_FLOATS = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}
_CLOCKS = ("clock", "globaltimer")


def reasons(kernel: Kernel) -> Iterator[tuple[Instruction, str]]:
    """Instructions that may make a kernel in order leave other bits: the first of each kind."""
    said: set[str] = set()
    for f in reached(kernel.module.tree, kernel.function).functions.values():
        for ins in f.instructions:
            why = _reason(ins)
            if why and why not in said:
                said.add(why)
                yield ins, why


def _reason(ins: Instruction) -> str:
    atomic = ins.effects.memory is MemoryEffect.ATOMIC and ins.effects.counted_as == "atomic"
    if atomic and ins.form["op"] == "add" and ins.form["type"] in _FLOATS:
        return "adds in the order in which threads come, and floating-point sums depend on it, on a GPU too"
    if atomic and uses_and_defs(ins)[1]:
        return "returns what was there before, which depends on who came first, on a GPU too"
    if any(isinstance(o, SpecialRegister) and o.name.startswith(_CLOCKS) for o in ins.operands):
        return "reads a clock"
    return ""
