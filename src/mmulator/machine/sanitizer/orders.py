"""Who knows of whom: which accesses of other threads, and of asynchronous operations, come before what a thread does now."""

from __future__ import annotations

from collections.abc import Mapping

from mmulator.codegen.lang import Native

HOOKS: Mapping[str, Native] = {}
