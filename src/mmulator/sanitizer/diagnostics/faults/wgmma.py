"""Faults of a warpgroup as sentences: which warps and lanes are missing, and in what its warps differ."""

from collections.abc import Callable
from typing import Any

from mmulator.base.errors import ExecutionFault
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.grid import Grid
from mmulator.runtime.launch.resident import ResidentCta
from mmulator.runtime.native.state import FULL, LANES, WGMMA, FaultKind
from mmulator.sanitizer.diagnostics.whereabouts import lanes_text, verb

WARPS = 4
_SECTION = "PTX ISA 9.1, Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation"
_WARPGROUP = "a warpgroup is four contiguous warps, the rank of the first is a multiple of 4 (PTX ISA 9.1, Warpgroup)"
_ALIGNED = f"all threads in the warpgroup must execute the same wgmma.mma_async instruction ({_SECTION})"
_SAME = f"the contents of a matrix descriptor, and scale-d, must be the same in all warps of the warpgroup ({_SECTION})"


def describe_warpgroup(grid: Grid, cta: ResidentCta) -> ExecutionFault:
    """The exception for a WGMMA_LANES, WGMMA_MISMATCH or WGMMA_SCALE fault."""
    state = cta.state
    ins = grid.kernel.sites[int(state["fault_site"])]
    first = int(state["fault_warp"]) // WARPS * WARPS
    describe = {FaultKind.WGMMA_LANES: _incomplete, FaultKind.WGMMA_SCALE: _scale}.get(FaultKind(int(state["fault"])), _different)
    text, rule, hint = describe(grid, cta, ins, first)
    return ExecutionFault(f"{text}, in {cta}", span=ins.span, rule=rule, hint=hint)


# warps that are not whole --------------------------------------------------------------------------------------------
def _incomplete(grid: Grid, cta: ResidentCta, ins: Instruction, first: int) -> tuple[str, str, str]:
    threads, warps = grid.shape.threads, grid.shape.warps
    name = f"{ins.mnemonic} by an incomplete warpgroup"
    if threads < (first + WARPS) * LANES:
        here = threads - first * LANES
        return (
            f"{name}: warpgroup {first // WARPS} of a block of {threads} threads has {here} of {WARPS * LANES} threads, in "
            f"{_plural(warps - first, 'warp')}",
            _WARPGROUP,
            "launch a multiple of 128 threads, or let only whole warpgroups reach the wgmma",
        )
    number = int(cta.state["fault_address"])
    gone = []
    for w in cta.warps[first : first + WARPS]:
        exited = FULL & ~int(w["live"])
        if exited and int(w["queues"]["issued"][WGMMA.queue]) <= number:
            who = f"warp {int(w['index'])}"
            some = f"{lanes_text(exited)} of {who} {verb(exited, 'has', 'have')} exited"
            gone.append(f"{who} has exited" if exited == FULL else some)
    return f"{name}: {', '.join(gone)}", _ALIGNED, "let no thread of the warpgroup return before its last wgmma"


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _scale(grid: Grid, cta: ResidentCta, ins: Instruction, first: int) -> tuple[str, str, str]:
    on, warp = int(cta.state["fault_address"]), int(cta.state["fault_warp"])
    return (
        f"scale-d of {ins.mnemonic} differs among the lanes of warp {warp}: true in {lanes_text(on)}, false in "
        f"{lanes_text(FULL & ~on)}",
        _SAME,
        "compute it from values that all 128 threads share; what a chip takes depends on how ptxas writes the predicate",
    )


# warps that differ ---------------------------------------------------------------------------------------------------
_OPERANDS: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("a_desc", "a-desc", hex), ("b_desc", "b-desc", hex), ("scale_d", "scale-d", str),
)  # fmt: skip


def _different(grid: Grid, cta: ResidentCta, ins: Instruction, first: int) -> tuple[str, str, str]:
    ops = _operations(cta, first)
    if len({int(op["site"]) for op in ops}) > 1:
        said = [(_statement(grid.kernel.sites[int(op["site"])]), int(op["site"])) for op in ops]
        return (
            f"the warps of a warpgroup issue different wgmma instructions: {_by_warp(first, said)}",
            _ALIGNED,
            "let the four warps of a warpgroup take the same branches",
        )
    differing = [
        f"{name} is {_by_warp(first, [(show(int(op[field])), int(op[field])) for op in ops])}"
        for field, name, show in _OPERANDS
        if len({int(op[field]) for op in ops}) > 1
    ]
    return (
        f"the warps of a warpgroup differ in an operand of {ins.mnemonic}: {'; '.join(differing)}",
        _SAME,
        "compute it from values that all 128 threads share, such as the number of the warpgroup, not from the warp's",
    )


def _operations(cta: ResidentCta, first: int) -> list[Any]:
    """The record of each of the four warps for the operation that was due to be computed."""
    number = int(cta.state["fault_address"])
    return [cta.operation(WGMMA, warp, number) for warp in range(first, first + WARPS)]


def _statement(ins: Instruction) -> str:
    line = f" (line {ins.span.line})" if ins.span is not None else ""
    return f"{ins.mnemonic}{line}"


def _by_warp(first: int, said: list[tuple[str, int]]) -> str:
    """Values of the four warps grouped by equal value: `0 in warps 0, 1, 2, 1 in warp 3`."""
    warps: dict[int, list[int]] = {}
    for n, (_, key) in enumerate(said):
        warps.setdefault(key, []).append(n)
    return " and ".join(
        f"{said[n[0]][0]} in warp{'s' * (len(n) > 1)} {', '.join(str(first + w) for w in n)}" for n in warps.values()
    )
