"""Where things lie."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
KERNELS = ROOT / "tests" / "kernels"
