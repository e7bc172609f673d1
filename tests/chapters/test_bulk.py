"""Bulk copies and reductions: every direction, and what is wrong with one. (machine/test_transfers.py has when they are done.)"""

from __future__ import annotations

from tests.support import rows

test_rows = rows.run_or_refused("bulk")
