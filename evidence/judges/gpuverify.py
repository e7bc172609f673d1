"""GPUVerify's test suite, the part in CUDA C++: small kernels whose first line says whether the verifier accepts them.

    python -m evidence.judges.gpuverify ~/gpuverify --work /tmp/gpuverify --json gpuverify.json

A kernel is compiled with -G, since an optimiser removes accesses whose values nobody uses. Grid and block are those of its second
line. The verifier reasons about all arguments; here a kernel is launched with several: each set of VALUES for its numbers, on
arrays that hold zeros and on arrays that hold small numbers. A set that __requires refuses is left out. What __assert says is
checked. Invariants of loops, and what speaks of two threads at once, are hints to the verifier, and are left out.
"""

from __future__ import annotations

import importlib.util
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from itertools import product
from math import prod
from pathlib import Path

from evidence.judges.common import Answer, Count, Judge, arguments, compiled, finish, resumed

VALUES, MOST = (0, 1, 2, 5, 64, 185), 216  # numbers, beside those that the kernel's text compares with; sets of a kernel
BYTES, DATA = 1 << 21, (0, 8)  # of an array; its words of 32 bits are below the number behind it
BLOCK, GRID = 1024, 64  # the most threads and blocks that are launched
OPTIONS = ("--gpu-architecture=compute_80", "--device-debug", "--std=c++17")
HEAD = """\
typedef unsigned char uint8_t; typedef unsigned int uint; typedef unsigned int uint32_t;
#define __builtin_memcpy memcpy
#define __builtin_memset memset
static __device__ bool _refused() { asm volatile("brkpt;"); return true; }
static __device__ bool _wrong() { asm volatile("trap;"); return true; }
#define __requires(...) ((__VA_ARGS__) ? true : _refused())
#define __assume(...) __requires(__VA_ARGS__)
#define __assert(...) ((__VA_ARGS__) ? true : _wrong())
#undef assert
#define assert(...) __assert(__VA_ARGS__)
#define __implies(a, b) (!(a) || (b))
"""
GROUPS = """\
#include "cooperative_groups.h"
template <class Group> static __device__ void synchronize(Group &group) { group.sync(); }
"""
# Calls whose text is dropped: of the verifier alone, and those that hold a word about two threads or about what was accessed
_ALONE = ("__invariant", "__global_invariant", "__ensures", "__requires_fresh_array", "__function_wide_invariant")
_CALL = re.compile(r"\b(__\w+)\s*\(")
_TWO = re.compile(r"\b__(other|distinct|uniform|all|no|read|write|ptr|return|same|mod|enabled|old|at)\w*\s*\(")
RACES, ASSERTS, FAULTS, BARRIERS = "races", "assertions", "writes of constants and through null", "divergent barriers"
TRAP = "trap"  # no rule: a fault, in which a false __assert ends here
RULES = {
    RACES: ("race-*", "store-lanes-differ"), ASSERTS: (TRAP,), FAULTS: ("memory-*",),
    BARRIERS: ("barrier-*", "aligned-*", "membermask-*", "deadlock-*", "livelock"),
}  # fmt: skip
_CALLER = "the verifier says that a caller could pass a null pointer or any address; here a pointer is that of an array"
_VERIFIER = "the verifier reports a limit of its own: "
_CURAND = "needs curand's headers"
# Why a kernel that is refused is refused: a row of the table, or another text: why no launch can tell
REFUSED = {
    "function_pointers/soundness_issue": ASSERTS, "function_pointers/unknown_function": _VERIFIER + "the address of cos",
    "function_pointers/*": _CALLER, "return_val/*": _VERIFIER + "a hint of another type", "memset/null_dst": FAULTS,
    "memcpy/null_*": FAULTS, "memset/unhandled_*": _VERIFIER + "a length or value that is not constant",
    "atomics/test_abstraction_enforced": ASSERTS, "param_values/value_in_assert": ASSERTS, "misc/fail/miscfail8": ASSERTS,
    "misc/fail/miscfail7": _CALLER, "misc/fail/miscfail2": _VERIFIER + "an invariant that it cannot show",
    "misc/fail/miscfail5": FAULTS, "misc/pass/misc3": FAULTS, "misc/fail/miscfail1": "a name that is not declared",
    "misc/fail/miscfail6": "an array of size 0, which CUDA C++ does not have", "curand_tests/*": _CURAND,
    "globalarray/fail": "the host could change the constants before the launch",
    "warpsync/equality_abstraction_issue": _VERIFIER + "an abstraction that forgets values",
    "cooperative_groups/fail/race": RACES, "cooperative_groups/fail/*": BARRIERS, "*": RACES,
}  # fmt: skip
_SAME = "all threads write one value: to write what is there already is no finding"
REASONS = {
    "loop_unwind": _SAME,
    "memcpy/fail_arrayofstruct": "both threads write a value that nobody has written (found: `uninitialized-store`), and alike",
    "memcpy/*": _SAME,
    "cooperative_groups/fail/divergence*": "half of the threads go to their exit, which counts as arrival at a barrier",
    "warpsync/*": "right if the lanes of a warp run in lockstep (--warp-sync=32), which PTX does not promise",
}
JUDGE = Judge(
    "gpuverify", "GPUVerify's tests, CUDA", "github.com/mc-imperial/gpuverify", "49219770",
    {RACES: Count(17, 23, 4, 104), ASSERTS: Count(4, 4, 0, 0), FAULTS: Count(5, 5, 0, 0), BARRIERS: Count(1, 3, 0, 0)},
    tuple(rule for rules in RULES.values() for rule in rules if rule != TRAP),
)  # fmt: skip


def balanced(text: str, at: int) -> int:
    """Where the parenthesis that opens just before `at` is closed, and one more."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def launchable(text: str) -> str:
    """A kernel's text without the hints to the verifier, with those of its calls defined that a launch can check."""
    text = re.sub(r"^\s*#\s*include[^\n]*", "", text, flags=re.M)
    kept, at = "", 0
    for call in _CALL.finditer(text):
        if call.start() < at:
            continue
        end = balanced(text, call.end())
        spoken = call[1] in ("__requires", "__assert", "__assume") and _TWO.search(text, call.end(), end)
        if call[1] in _ALONE or spoken:
            kept, at = kept + text[at : call.start()] + "true", end
    groups = GROUPS if "cooperative_groups" in text else ""
    return groups + HEAD + kept + text[at:]


def extent(text: str, name: str) -> tuple[int, int, int]:
    found = re.search(rf"--{name}=\[?([\d,]+)", text)
    sizes = [int(size) for size in found[1].split(",")] if found else [64]
    return (*sizes, 1, 1, 1)[:3]  # type: ignore[return-value]


def settings(numbers: int, text: str) -> list[tuple[int, ...]]:
    """Sets of arguments for a kernel's parameters that are numbers, at most MOST."""
    named = sorted({int(n) for n in re.findall(r"[=<>] ?(\d{1,4})\b", text)} - set(VALUES))
    values = [*named, *VALUES]
    while len(values) ** numbers > MOST and len(values) > 1:
        values.pop()
    return list(product(values, repeat=numbers))


def judged(path: Path, work: Path) -> tuple[list[str], str]:
    """(rules broken in any launch; why there was none, or "")."""
    from mmulator.errors import MmulatorError, UnsupportedError
    from mmulator.host.driver import use

    text = path.read_text()
    found = importlib.util.find_spec("nvidia.cu13")
    include = Path(*(found.submodule_search_locations or ()) if found else (), "include")
    given = [f"-D{name}" for name in re.findall(r" -D(\S+)", text.split("\n")[1])]
    try:
        options = (*OPTIONS, *given, f"--include-path={include}", f"--include-path={include / 'cccl'}")
        ptx = compiled(launchable(text), work, options)
    except RuntimeError as error:
        return [], "CUDA C++ does not take it: " + next(line for line in str(error).splitlines() if "error" in line)
    driver = use(device="sm_80", sanitize="report", timeout=60)
    driver.readers.clear()  # what is found is counted here
    if not (entries := re.findall(r"\.entry (\w+)", ptx)):
        return [], "no kernel"
    function = driver.load(ptx, name="kernel.ptx").function(entries[0])
    grid, block = extent(text, "gridDim"), extent(text, "blockDim")
    grid = (min(grid[0], GRID), min(grid[1], GRID), min(grid[2], GRID))
    block = block if prod(block) <= BLOCK else (BLOCK, 1, 1)
    rules, launched, layout = set[str](), 0, list(words(ptx, text))
    for data, numbers in product(DATA, settings(sum(kind == "number" for kind, _, _ in layout), text)):
        with filled(layout, data, numbers) as params:
            try:
                report = driver.launch(function, grid, block, params, cooperative="grid_group" in text)
                findings, ended = report.findings, ""
            except UnsupportedError as error:
                return [], "a function without a body" if "not defined" in str(error) else str(error)
            except MmulatorError as error:
                findings, ended = error.findings, f"{type(error).__name__}: {error}"
        if "brkpt" in ended:
            continue  # refused by the kernel's own __requires
        launched += 1
        rules |= {finding.rule for finding in findings}
        rules |= {TRAP} if "trap executed" in ended else set()
    return sorted(rules), "" if launched else "no argument that was tried meets __requires: the address of a function"


@contextmanager
def filled(layout: Iterable[tuple[str, int, int]], data: int, numbers: tuple[int, ...]) -> Iterator[bytearray]:
    """The bytes of a launch's parameters.

    layout: kind, offset and bytes of each word.
    data: what each word of each array is below.
    numbers: of the parameters that are numbers.
    """
    import numpy as np

    from mmulator.doors.libcuda import memory

    layout, addresses, left = list(layout), list[int](), iter(numbers)
    params = bytearray(max((at + size for _, at, size in layout), default=0))
    for kind, at, size in layout:
        if kind == "pointer":
            addresses.append(memory.allocate(BYTES, memory.DEVICE_KIND))
            held = (np.arange(BYTES // 4, dtype=np.uint32) * 0x9E3779B1 >> 16) % max(data, 1)
            memory.copy_in(addresses[-1], held.ctypes.data, BYTES)
            struct.pack_into("<Q", params, at, addresses[-1])
        elif kind == "number":
            params[at : at + size] = next(left).to_bytes(8, "little")[:size]
        else:
            struct.pack_into("<f" if size == 4 else "<d", params, at, 1.0)
    try:
        yield params
    finally:
        for address in addresses:
            memory.free(address)


def words(ptx: str, text: str) -> Iterator[tuple[str, int, int]]:
    """(pointer, number or float; offset; bytes) of each word of the parameters. A structure is taken to hold pointers."""
    at, long = 0, "pointer" if not re.search(r"\bsize_t \w+\)", text) else "number"
    head = re.search(r"\.entry \w+\s*\((.*?)\)", ptx, re.S)
    found = re.findall(r"\.param (?:\.align (\d+) )?\.([a-z])(\d+) \w+(?:\[(\d+)\])?", head[1] if head else "")
    for place, (align, kind, bits, count) in enumerate(found, 1):
        size, number = int(bits) // 8, int(count or 1)
        at += -at % int(align or size)
        if count:
            step = 8 if number >= 8 else 4 if number >= 4 else 1
            yield from (("pointer" if step == 8 else "number", at + i, step) for i in range(0, number - step + 1, step))
        else:
            wide = long if place == len(found) else "pointer"  # a size_t stands last
            yield (wide if bits == "64" and kind in "ub" else "float" if kind == "f" else "number"), at, size
        at += size * number


def question_of(name: str, text: str) -> str:
    """The question that a kernel is for, or why it is out of reach."""
    if "__axiom" in text:
        return "an axiom for the verifier: only one block runs"
    return RACES if is_accepted(text) else next(row for pattern, row in REFUSED.items() if fnmatch(name, pattern))


def is_accepted(text: str) -> bool:
    return text[:6].lower() == "//pass"


def answer(name: str, question: str, accepted: bool, rules: list[str]) -> Answer:
    asked = (*JUDGE.rules, TRAP) if accepted else RULES[question]
    found = tuple(rule for rule in rules if any(fnmatch(rule, pattern) for pattern in asked))
    reason = next((why for pattern, why in REASONS.items() if fnmatch(name, pattern)), "") if accepted == bool(found) else ""
    return Answer(question, name, not accepted, found, reason)


def main() -> int:
    options = arguments(__doc__ or "").parse_args()
    folder = options.folder / "testsuite" / "CUDA"
    every = [path for path in sorted(folder.rglob("kernel.cu")) if options.only in str(path)]
    paths = {str(path.parent.relative_to(folder)): path for path in every}
    texts = {name: path.read_text() for name, path in paths.items()}
    questions = {name: question_of(name, text) for name, text in texts.items()}
    beyond = {name: question for name, question in questions.items() if question not in RULES}
    results = resumed(options, {name: partial(judged, path) for name, path in paths.items() if name not in beyond})
    given = []
    for name, (rules, why) in results.items():
        if why:
            beyond[name] = _CURAND if name.startswith("curand") else why
        else:
            given.append(answer(name, questions[name], is_accepted(texts[name]), rules))
    given.sort(key=lambda answer: list(RULES).index(answer.question))
    return finish(JUDGE, options, given, {name: beyond[name] for name in paths if name in beyond})


if __name__ == "__main__":
    sys.exit(main())
