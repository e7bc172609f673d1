"""The environment variables of mmulator, and what each says. An unknown one is reported once a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress

PREFIX = "MMULATOR_"
# Variables for people; docs/robustness.md has them as a table.
VARIABLES: dict[str, str] = {
    "DEVICE": "the chip that programs find, as `H100` or `sm_90`",
    "SEED": "the seed of the scheduler's choices",
    "SEEDS": "under how many seeds each kernel is launched; other bits are an error",
    "TIMEOUT": "seconds that a launch may take",
    "THREADS": "cores that a launch uses",
    "REPORT": "`1` prints what each launch executed, a name that ends in `.jsonl` gets lines of JSON",
    "PROGRESS": "`auto`, `always` or `never`: how far long launches are",
    "AUTOTUNE": "`measure`, or `first` for the first configuration that fits",
    "SANITIZE": "`1` says what undefined behaviour launches have, `strict` with notes, `raise` as an error",
    "RULES": "which undefined behaviour is looked for",
    "BASELINE": "a SARIF file of an earlier run, of which nothing is told again",
    "KEEP_GOING": "`1`: an access out of bounds is a finding, and the launch goes on",
    "WHY": "elements whose values are explained: `z[999]`, several apart by `;`; `auto`: those that asserts reject",
    "WHY_AGAINST": "a device, a seed or `reference` with which these are compared: `sm_80`, `7`",
    "WHY_TO": "a file, `why.html`, that receives the explanations as the program ends",
    "WHY_DEPTH": "how many instructions such an explanation has behind each other; 6 if nothing is said",
    "PROFILE": "`1` prints what each line of a kernel did, a name that ends in `.html`, `.json`, `.txt` or `.info` gets it",
    "TRACE": "a name that ends in `.json` gets what happened when in launches, for Perfetto",
    "CAPTURE": "a launch that is written as files: `KERNEL:N` is the Nth of a kernel with such a name",
    "CAPTURE_TO": "the folder of these files; `capture` if nothing is said",
    "RECORD": "a file for digests of what each launch was given and left",
    "REPLAY": "such a file: the first launch that differs is told",
    "DEBUG": "the debugger that launches come under, as `mmulator debug` sets it",
    "CACHE": "the folder of compiled code",
    "NVCC": "the nvcc that compiles CUDA C++, unless it is on `PATH`, in `CUDA_HOME` or among Python's packages",
    "CPU": "the level of CPUs that code is made for, as `x86-64-v3` or `armv8.1-a`",
    "TRACEBACK": "`1` shows the way through mmulator in tracebacks",
    "QUOTE_SOURCE": "`1` quotes lines of any source file in errors, `0` of none",
    "FORCE": "`1` opens torch's door where torch has a GPU",
    "SHIP": "what a wheel is built with: `release`, compiled code for every machine (also `release-aarch64`); `0`, none",
    "GUARD": "`left` or `right`: pages that trap around all memory of kernels, for tests of mmulator",
    "GOLDEN": "a folder of further hardware vectors, for tests of mmulator",
    "QEMU": "a command that runs Python on aarch64, for tests of mmulator",
    "PTXAS": "a ptxas to compare with, for tools of mmulator",
}
# Variables by which mmulator's own processes talk to each other.
INTERNAL = frozenset(("EXEC", "FINDINGS", "PROFILES", "REPLAYED", "SUPERVISOR", "TRACES", "FUZZ_PLANT"))

_told: set[str] = set()


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Report unknown variables on standard error. Under exec, exec has done so for the program's."""
    if PREFIX + "EXEC" in environment:
        return
    for name in environment:
        word = name.removeprefix(PREFIX)
        if word != name and word not in VARIABLES and word not in INTERNAL and name not in _told:
            _told.add(name)
            _say(name, word)


def _say(name: str, word: str) -> None:
    from difflib import get_close_matches

    near = get_close_matches(word, VARIABLES, 1, 0.6)
    meant = f"; did you mean {PREFIX}{near[0]}?" if near else "; docs/robustness.md has a table of them"
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"mmulator: {name} is set, and is no variable of mmulator's{meant}\n")
