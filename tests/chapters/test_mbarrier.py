"""Mbarriers are not modelled in kernels: every row is refused by name. (machine/test_pending.py has what they will run on.)"""

from __future__ import annotations

from tests.support import rows

test_rows = rows.run_or_refused("mbarrier")
