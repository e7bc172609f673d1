"""Random numbers of the device cuda beside those of an H100: prints JSON: {name of a case: whether it agrees}."""

from __future__ import annotations

import json
import sys

import torch

from mmulator.doors.torch import install
from tests.support.places import DATA
from tools.capture.torch_random import CASES, draw

if __name__ == "__main__":
    install()
    torch.set_num_threads(1)
    kept = json.loads((DATA / "torch_random_h100.json").read_text())
    agree = {name: kept[name] == found for name, found in draw(tuple(int(n) for n in sys.argv[1:])).items()}
    print(json.dumps({case: all(a for n, a in agree.items() if n.rpartition(" ")[0] == case) for case in CASES}))
