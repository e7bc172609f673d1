"""Sentences about mbarriers and clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mmulator.machine.launch.findings.context import Context
from mmulator.rules.mbarriers import INIT_IN_USE


def _init_in_use(c: Context) -> str:
    return f"{c.instruction.mnemonic} of an mbarrier that has been initialised, and that nobody has invalidated"


SENTENCES: Mapping[int, Callable[[Context], str]] = {INIT_IN_USE.number: _init_in_use}
