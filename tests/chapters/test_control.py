"""Control flow: that every row is written. (What it does: kernels, native/test_divergence.py and test_calls.py.)"""

from tests.support import rows

test_rows = rows.run_or_refused("control")
