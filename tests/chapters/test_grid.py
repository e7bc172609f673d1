"""Dependent grids: a launch is alone, so that nothing is waited for."""

from tests.support import rows

test_rows = rows.run_or_refused("grid")
