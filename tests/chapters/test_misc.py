"""Miscellaneous instructions: hints, and what is for debuggers. (trap: diagnostics/test_faults.py.)"""

from __future__ import annotations

from tests.support import rows

test_rows = rows.run_or_refused("misc")
