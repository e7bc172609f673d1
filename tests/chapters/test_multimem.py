"""Memory of several GPUs under one address is not modelled: every row is refused by name."""

from tests.support import rows

test_rows = rows.run_or_refused("multimem")
