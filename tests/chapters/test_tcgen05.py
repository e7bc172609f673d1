"""tcgen05: every row is written. (native/test_tensor_core.py and test_tensor_memory.py run them.)"""

from tests.support import rows

test_rows = rows.run_or_refused("tcgen05")
