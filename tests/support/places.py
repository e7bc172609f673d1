"""Where things lie."""

from pathlib import Path

import mmulator

PACKAGE = Path(mmulator.__file__).parents[1]  # of what is tested: a process that finds it there starts with its compiled files
ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
KERNELS = ROOT / "tests" / "kernels"
