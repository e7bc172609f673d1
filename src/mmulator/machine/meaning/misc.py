"""Miscellaneous instructions without an effect on any value (PTX ISA 9.1, Miscellaneous Instructions)."""

from __future__ import annotations

from mmulator.machine.meaning import lower
from mmulator.machine.meaning.operands import nothing

lower("setmaxnreg", "pmevent", "nanosleep", "brkpt")(nothing)
