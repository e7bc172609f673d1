"""Rules that a module's text breaks on every path, whatever the launch: findings of `mmulator check` besides errors.

Only certain breaches are reported: an instruction that breaks its rule on every path to it. So a finding names no threads, and
everything that depends on values is left to a launch (sanitizer/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mmulator.errors import MmulatorError
from mmulator.findings import Finding
from mmulator.program.blocks import Program, build
from mmulator.program.static.groups import left
from mmulator.program.static.ignored import ignored
from mmulator.program.static.operands import described, refused
from mmulator.program.static.registers import early
from mmulator.program.static.values import outside, unwritten
from mmulator.ptx.tree import ParsedModule
from mmulator.rules.accumulators import A_OVERWRITTEN, NOT_COMMITTED, NOT_WAITED, READ_EARLY, WRITTEN_EARLY

_MISSED = {r.name for r in (READ_EARLY, WRITTEN_EARLY, A_OVERWRITTEN)}
_AT_EXIT = {r.name for r in (NOT_COMMITTED, NOT_WAITED)}
# Each gives the findings of one kernel and the functions that it calls.
ANALYSES: tuple[Callable[[Program], Iterator[Finding]], ...] = (early, left, ignored, refused, described, outside, unwritten)


def static_findings(module: ParsedModule) -> tuple[Finding, ...]:
    """The findings of a verified module, in the order of the text; none for kernels that cannot run."""
    found: dict[tuple[str, str, str, int], Finding] = {}
    for program in _programs(module):
        for finding in _of_program(program):
            found.setdefault((*finding.key, finding.span.start if finding.span else 0), finding)
    return tuple(sorted(found.values(), key=lambda f: (f.span.start if f.span else 0, f.rule)))


def _of_program(program: Program) -> Iterator[Finding]:
    """The findings of a program. A wait for wgmma that is missing before a use is not reported again at the exit."""
    findings = [finding for analysis in ANALYSES for finding in analysis(program)]
    missed = any(f.rule in _MISSED for f in findings)
    return (f for f in findings if not (missed and f.rule in _AT_EXIT))


def _programs(module: ParsedModule) -> Iterator[Program]:
    for function in module.functions:
        if function.is_entry and function.is_defined:
            try:
                yield build(module, function)
            except MmulatorError:
                continue
