"""Fences: host memory is coherent, so that there is nothing to do."""

from tests.support import rows

test_rows = rows.run_or_refused("fence")
