"""Miscellaneous instructions: hints, and what is for debuggers. (trap: ub/faults/control.ptx.)"""

from tests.support import rows

test_rows = rows.run_or_refused("misc")
