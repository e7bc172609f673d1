"""Rules of operands of matrix instructions (rules/operands.py)."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native

HOOKS: Mapping[str, Native] = {}
