"""Answers of this processor as digests, and whether another processor's are the same.

    python -m tools.processors FILE [--only REGEX] [--every N] [--seconds S] [--against OTHER]

computes every lane-wise instruction that has a recorded vector, on its recorded operands and on random bits; a product of every
form of mma, wgmma and wmma on operands of every kind; for every arithmetic of tcgen05.mma a product of matrices; and every launch
of tests/kernels, whose result is what differs from the H200. FILE gets a line of JSON for each: name, digest of the operands,
digest of the results. What FILE has already is not computed again, so the work can be done in parts.

--only: questions whose name this regular expression finds, such as ^launch.
--every: only each Nth, of every kind.
--seconds: ends after this time.
--against: compares with the file of another processor; the exit code is 1 if a name is in both with other results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Answer = tuple[Any, Any]  # arrays of operands, arrays of results
Question = tuple[str, Callable[[], Answer]]


def digest(arrays: Any) -> str:
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


@cache
def family_of(name: str) -> Any:
    import mmulator as mm
    from tests.data.scalar_vectors import HEAD, load

    return mm.Module.load(HEAD + "".join(case.body() for case in load() if case.family == name), name=f"{name}.ptx")


def lanewise() -> Iterator[Question]:
    from mmulator.errors import ExecutionFault
    from mmulator.evaluation.conformance.stream import RandomStream
    from tests.data.scalar_vectors import load

    def launched(case: Any, drawn: bool) -> Answer:
        operands = [a.copy() for a in case.operands().values()]
        if drawn:
            stream = RandomStream("processors", case.name)
            operands = [stream.words(-(-a.nbytes // 4)).view(np.uint8)[: a.nbytes].view(a.dtype) for a in operands]
        results = [np.zeros(size, np.uint8) for size in case.result_bytes]
        before = [a.copy() for a in operands]
        try:
            family_of(case.family)[case.entry].launch(case.grid, case.block, [*operands, *results])
        except ExecutionFault as fault:  # random addresses
            results = [np.frombuffer(fault.message.encode(), np.uint8)]
        return before, results

    for case in load():
        for drawn in (False, True):
            yield f"{case.name} on {'random bits' if drawn else 'recorded operands'}", lambda c=case, d=drawn: launched(c, d)


def products() -> Iterator[Question]:
    from mmulator.errors import UnsupportedError
    from mmulator.evaluation.conformance import compare, subjects, vectors
    from mmulator.isa.targets import DEVICES, Target
    from mmulator.matrix.numerics.profiles import dot_key, profile_for

    def product(form: Any, device: str) -> Answer:
        batches = [vectors.batch_of(subject, kinds, device) for subject, kinds in vectors.of_form(form, device)][:1]
        return [[vectors.inputs_digest(b)] for b in batches], [compare.model(b, device) for b in batches]

    def known(form: Any, device: str) -> bool:
        try:
            return not form.atype or bool(profile_for(dot_key(form), device))
        except UnsupportedError:  # a chip without this arithmetic
            return False

    seen = set()
    for device in DEVICES:
        for form in subjects.forms(Target.parse(f"{device}a" if int(device[3:]) >= 90 else device))[0]:
            if form.mnemonic not in seen and form.family != "tcgen05" and known(form, device):
                seen.add(form.mnemonic)
                yield f"{form.mnemonic} on {device}", lambda f=form, d=device: product(f, d)


def tensor_products() -> Iterator[Question]:
    from mmulator.matrix.twin.matrices import twin_matmul
    from tests.support.numerics_cases import operands
    from tools.ship import keys

    def product(key: Any, device: str) -> Answer:
        factors, options = operands(key, 21, 40, 2 * key.k, 1, ("special", "bits", "wide"))
        return factors, [twin_matmul(key, device, *factors, threads=1, **options)]

    for key in keys():
        if key.family == "tcgen05":
            yield f"{key} on sm_100", lambda k=key: product(k, "sm_100")


def launches() -> Iterator[Question]:
    from tests.support import corpus

    def launched(name: str) -> Answer:
        differences = corpus.launch(name, timeout=3000).differences
        for difference in differences:
            print(f"not as on an H200: {difference}")
        return [np.frombuffer(name.encode(), np.uint8)], [np.frombuffer(str(d).encode(), np.uint8) for d in differences]

    names = corpus.manifest().keys() - corpus.EXCEPT.keys()
    for name in sorted(names, key=lambda n: digest([np.frombuffer(n.encode(), np.uint8)])):  # drawn: a part of them has all kinds
        yield f"launch {name}", lambda n=name: launched(n)


def compared(mine: dict[str, Any], others: dict[str, Any]) -> int:
    """How many answers differ; each is told."""
    common = [name for name in mine if name in others]
    apart = [name for name in common if mine[name][0] != others[name][0]]
    wrong = [name for name in common if name not in apart and mine[name] != others[name]]
    for name in wrong:
        print(f"other results: {name}")
    for name in apart:
        print(f"other operands, not compared: {name}")
    print(f"{len(common) - len(apart)} answers are in both files, {len(wrong)} differ")
    return len(wrong)


def read(path: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {name: answer for name, *answer in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--against", type=Path)
    args = parser.parse_args()
    done, end = read(args.file), time.monotonic() + args.seconds
    kinds = [[q for q in kind() if re.search(args.only, q[0])] for kind in (lanewise, products, tensor_products, launches)]
    asked = [question for kind in kinds for question in kind[:: args.every]]
    with args.file.open("a") as out:
        for name, answer in asked:
            if name in done:
                continue
            if time.monotonic() > end:
                break
            operands, results = answer()
            done[name] = [digest(operands), digest(results)]
            print(json.dumps([name, *done[name]]), file=out, flush=True)
    print(f"{len([n for n, _ in asked if n in done])} of {len(asked)} answers are in {args.file}")
    if args.against:
        sys.exit(compared(done, read(args.against)) > 0)


if __name__ == "__main__":
    main()
