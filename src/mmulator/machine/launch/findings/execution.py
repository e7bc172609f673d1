"""Sentences about who must execute an instruction together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mmulator.machine.launch.findings.context import Context
from mmulator.machine.launch.grid import Grid
from mmulator.machine.launch.resident import ResidentCta
from mmulator.machine.state import FaultKind
from mmulator.rules import Rule

SENTENCES: Mapping[int, Callable[[Context], str | tuple[str, str]]] = {}
FAULTS: Mapping[FaultKind, Rule | Callable[[Grid, ResidentCta], Rule | None]] = {}  # what stops a run; findings/ended.py
