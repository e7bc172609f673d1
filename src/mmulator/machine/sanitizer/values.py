"""Rules of registers and bytes that nobody has written (rules/values.py)."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native

HOOKS: Mapping[str, Native] = {}
