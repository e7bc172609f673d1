"""Rules that a module's text breaks on every path, whatever it is launched with: what `mmulator check` says besides errors.

Only what is certain is told: an instruction that is executed breaks the rule whichever way led there. So a finding here has no
threads, and what depends on values is left to a launch (machine/sanitizer/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mmulator.findings import Finding
from mmulator.ptx.tree import Module

# Each gives the findings of one module.
ANALYSES: tuple[Callable[[Module], Iterator[Finding]], ...] = ()


def static_findings(module: Module) -> tuple[Finding, ...]:
    """In the order of the text. The module is verified."""
    found = [finding for analysis in ANALYSES for finding in analysis(module)]
    return tuple(sorted(found, key=lambda f: (f.span.start if f.span else 0, f.rule)))
