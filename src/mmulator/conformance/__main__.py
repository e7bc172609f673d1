"""`python -m mmulator.conformance`: a command of earlier versions, which says what replaced it."""

import sys

sys.exit(
    "python -m mmulator.conformance is now `mmulator conformance` (python -m mmulator conformance).\n"
    "--gpu N: CUDA_VISIBLE_DEVICES=N mmulator conformance --gpu; --replay DIR: --vectors DIR; --state FILE: --resume.\n"
    "--machine DEVICE and --no-edges have no replacement."
)
