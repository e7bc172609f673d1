"""griddepcontrol (PTX ISA 9.1, Parallel Synchronization and Communication Instructions): launches do not overlap."""

from __future__ import annotations

from mmulator.machine.meaning import lower
from mmulator.machine.meaning.operands import nothing

lower("griddepcontrol")(nothing)
