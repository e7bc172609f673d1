"""Sentences about who must execute an instruction together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mmulator.machine.launch.findings.context import Context

SENTENCES: Mapping[int, Callable[[Context], str | tuple[str, str]]] = {}
