"""Profiles, what launches did line by line: made of the sums of native code (counts.py).

Counts are those of PTX instructions; ptxas makes others of them (docs/how-to/measuring.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mmulator.isa.chips import REGISTERS
from mmulator.isa.effects import Ends, Together
from mmulator.matrix.layouts.operands import fragment
from mmulator.observation.record.counts import Counts
from mmulator.observation.record.profile.data import KINDS, SUMS, Executed, Occupancy, ProfileData, Tally, Traffic
from mmulator.observation.record.profile.views import body, table
from mmulator.ptx.program.as_ptxas.inflight import is_injected
from mmulator.ptx.program.blocks import Block, Program, instructions
from mmulator.ptx.program.counts import instruction_macs
from mmulator.ptx.tree import Function, Instruction, Label, VectorOperand
from mmulator.runtime.launch.limits import MULTIPROCESSOR, held_by
from mmulator.runtime.launch.shape import LaunchShape
from mmulator.sanitizer.diagnostics.mbarriers import operates

WARP = 32
WARPGROUP = 4  # warps
WAVEFRONT = 128  # bytes of shared memory


@dataclass(frozen=True)
class LaunchProfile(ProfileData):
    """The profile of launches of a kernel. `print(profile)` gives it as a table."""

    def __str__(self) -> str:
        return table(self)

    def _repr_html_(self) -> str:
        return body([self])


# from sums ----------------------------------------------------------------------------------------------------------
def profile_of(kernel: str, device: str, counts: Counts) -> LaunchProfile:
    """The profile of launches. kernel, device: their names."""
    program, shape = counts.kernel.program, counts.shape
    works = _works(counts)
    found = []
    for item in program.functions.values():
        written = program.module.function(item.function.name) or item.function
        if any(i.original in works for b in item.blocks for i in instructions(b)):
            found += _executed(written, works)
    source = program.entry.function.span.source.name
    shared = counts.kernel.shared.static + shape.shared
    return LaunchProfile(
        kernel, device, shape.grid, shape.block, shape.cluster, shared, counts.launches, source, tuple(found),
        occupancy(shape, shared, device),
    )  # fmt: skip


def _around(block: Block) -> Instruction | None:
    """The guarded instruction around which a block branches; its own executions are in a block that follows."""
    last = block.last
    return last.original if block.ending is Ends.BRANCH and last is not None and last.effects.ends is not Ends.BRANCH else None


def _works(counts: Counts) -> dict[Instruction, Tally]:
    """The work of each instruction that is in the kernel's code."""
    program: Program = counts.kernel.program
    found: dict[Instruction, Tally] = {}
    skipped = {a for b in program.blocks if (a := _around(b)) is not None}
    for block, times, missing in zip(program.blocks, counts.blocks.tolist(), counts.missing.tolist()):
        lanes = WARP * times - missing
        own = {i.original for i in instructions(block) if not is_injected(i)} - skipped
        if (around := _around(block)) is not None:
            own.add(around)
        for ins in own:
            found[ins] = found.get(ins, Tally()) + Tally(times, lanes)
        for ins in {i.original for i in instructions(block) if instruction_macs(i)}:
            found[ins] = found.get(ins, Tally()) + Tally(macs=times * instruction_macs(ins), traffic=_matrices(ins, times))
    for ins, work in _of_sites(counts):
        if ins in found:
            found[ins] = found[ins] + work
    return {i: replace(w, polls=w.executions - w.met) if _waits(i) else w for i, w in found.items()}


def _matrices(ins: Instruction, times: int) -> dict[str, Traffic]:
    """The traffic of reads through descriptors by the warps that execute an instruction; no swizzle has bank conflicts."""
    bytes = descriptor_bytes(ins) * times // WARPGROUP
    return {"matrix": Traffic(times, WARP * times, bytes, bytes // WAVEFRONT, bytes // WAVEFRONT)} if bytes else {}


def _waits(ins: Instruction) -> bool:
    return operates(ins) and ins.effects.ends is Ends.WAIT


def _of_sites(counts: Counts) -> Iterator[tuple[Instruction, Tally]]:
    """The counts of each site of code."""
    sites = {name: numbers.tolist() for name, numbers in counts.sites.items()}
    memory = {name: numbers.tolist() for name, numbers in counts.memory.items()}
    for n, ins in enumerate(counts.kernel.sites):
        branch = ins.effects.ends is Ends.BRANCH
        taken = {name: sites[name][n] for name in ("taken", "passed", "parted")} if branch else {}
        kinds = {s: as_loaded(ins, Traffic(*(memory[name][n][k] for name in SUMS))) for k, s in enumerate(KINDS)}
        work = Tally(
            off=0 if branch else sites["off"][n], met=sites["met"][n], macs=sites["macs"][n], **taken,
            traffic={s: t for s, t in kinds.items() if t.requests},
        )  # fmt: skip
        if work != Tally():
            yield ins, work


def _executed(function: Function, works: dict[Instruction, Tally]) -> list[Executed]:
    """All instructions of a function's text. One that is not in the code, because it was made part of another, was executed as
    often as its neighbour in the same straight line."""
    runs: list[list[Instruction]] = [[]]
    for statement in function.body:
        if isinstance(statement, Label):
            runs.append([])
        else:
            runs[-1].append(statement)
            if statement.effects.ends is not Ends.NO:
                runs.append([])
    out = []
    for run in runs:
        known = next((works[i] for i in run if i in works), Tally())
        out += [_shown(i, function.name, works.get(i, Tally(known.executions, known.lanes))) for i in run]
    return out


def _shown(ins: Instruction, function: str, work: Tally) -> Executed:
    at = ins.span.location
    branch = ins.effects.ends is Ends.BRANCH and ins.guard is not None
    text = " ".join(ins.span.text.split())
    file, line, source = (at.file, at.line, at.quote() or "") if at else ("", 0, "")
    return Executed(ins.span.line, text, function, file, line, source, branch, work)


def occupancy(shape: LaunchShape, shared: int, device: str) -> Occupancy:
    """Warps of a launch that a multiprocessor of a chip holds. shared: bytes of a block."""
    limits = held_by(device, shape.threads, shared)
    limit = min(limits, key=limits.__getitem__)
    blocks = limits[limit]
    return Occupancy(
        blocks * shape.warps, MULTIPROCESSOR[device][0] // WARP, blocks, limit,
        min(255, REGISTERS // max(blocks * shape.warps * WARP, 1) // 8 * 8),
    )  # fmt: skip


_LANES = 32


def descriptor_bytes(ins: Instruction) -> int:
    """Bytes of A and B that a wgmma of four warps reads from shared memory."""
    if not ins.effects.multiplies or ins.effects.together is not Together.WARPGROUP:
        return 0
    form = ins.form
    row = form.k * form.atype.bits // 8
    a = 0 if isinstance(ins.operands[1], VectorOperand) else form.m * row // (2 if form.sparse else 1)
    return a + form.n * row


def as_loaded(ins: Instruction, traffic: Traffic) -> Traffic:
    """The accesses that ptxas makes of those of a wmma, of which `traffic` has one for each register.

    It loads once what a fragment holds several times, has one access for two registers that lie side by side in a row, and one
    for each byte where bytes of a register are in different rows.
    """
    kind, form = ins.mnemonic[:10], ins.form
    if kind not in ("wmma.load.", "wmma.store"):
        return traffic
    f, matrix = fragment(form, "r"), ins.modifiers[1] if kind == "wmma.load." else "d"
    less = f.registers * _LANES * f.register_bits // (f.bits * f.rows * f.columns) if matrix in "ab" else 1
    along = "row" if form.m >= form.n else "col"  # m8n32k16 is computed as its transpose
    if matrix in "cd" and along in ins.modifiers and f.bits == f.register_bits:
        less *= 2
    across = "col" if matrix == "a" else "row"
    more = 4 if matrix in "ab" and f.bits == 8 and across in ins.modifiers else 1
    return replace(
        traffic, requests=traffic.requests * more // less, bytes=traffic.bytes // less, units=traffic.units // less,
        lanes=traffic.lanes * more // less, ideal=traffic.ideal // less,
    )  # fmt: skip
