"""Barriers of a warp (PTX ISA 9.1, Parallel Synchronization and Communication Instructions); those of a block end one."""

from __future__ import annotations

from mmulator.machine.meaning import lower
from mmulator.machine.meaning.fence import fence

lower("bar.warp.sync")(fence)
