"""Rules of the generic and the asynchronous proxy (rules/proxies.py)."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native

HOOKS: Mapping[str, Native] = {}
