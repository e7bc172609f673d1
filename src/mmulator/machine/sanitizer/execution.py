"""Rules of who must execute an instruction together (rules/execution.py)."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native

HOOKS: Mapping[str, Native] = {}
