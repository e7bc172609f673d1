"""Loads mutated PTX modules and launches many of them, each in a process that may die: counts crashes, hangs and errors
outside the family, and keeps what caused them.

    python -m evidence.fuzz.modules --modules 1000000 --launches 100000 --seed 1
    python -m evidence.fuzz.modules --seed 1 --case 4711        # one module again: its text, and what becomes of it

Module N of a seed is always the same (cases.py); options and output are those of driver.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from evidence.fuzz import driver
from evidence.fuzz.cases import ARRAY, Case, case

TIME = 0.25  # seconds of a launch


def outcomes(one: Case) -> Iterator[str]:
    """What becomes of a module. Raises what is not of the family."""
    import numpy as np

    from mmulator.errors import ExecutionFault, LaunchError, MmulatorError, UnsupportedError
    from mmulator.host.module import Module

    try:
        module = Module.load(one.text)
    except MmulatorError as error:
        str(error)
        yield "refused"
        return
    yield "loaded"
    if one.launch is None or "k" not in module:
        return
    block, seed, threads = one.launch
    memory = np.full(ARRAY + 128, 0xA5, np.uint8)
    kernel = module["k"]
    args = [bytes(p.size) if p.shape else memory[64:-64] if p.type == "u64" else 1 for p in kernel.function.params]
    try:
        try:
            kernel.compile()
            kernel.launch(2, block, args, 2048, seed=seed, threads=threads, timeout=TIME)
            yield from ("launched", "finished")
        except ExecutionFault as error:
            yield from ("launched", "time limit" if "did not finish" in str(error) else "fault")
        except (LaunchError, UnsupportedError) as error:
            str(error)
            yield "not launched"
    finally:
        if not (memory[:64] == 0xA5).all() or not (memory[-64:] == 0xA5).all():
            raise AssertionError("memory beside the array was written")


FUZZ = driver.Fuzz(
    "evidence.fuzz.modules", case, lambda one: one.text,
    lambda one: f"{one.kind}; block, seed, threads of the launch: {one.launch}", outcomes,
)  # fmt: skip

if __name__ == "__main__":
    driver.main(FUZZ, __doc__)
