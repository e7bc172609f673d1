"""Each row of the table of instructions alone: a kernel of one instruction, in each mode of a launch. Its outcome is a result
or an error of the family, and the same in every mode. Each process may die; what it died of is named.

    python -m evidence.fuzz.alone --modules 3000 --launches 0          # all rows, in one block, in a pair of CTAs, in a cluster
    python -m evidence.fuzz.alone --seed 1 --case 47                   # one of them: its text, and what becomes of it

Case N of a seed is a row and a place: the first ones are a row of each chapter for each thing that hooks keep a state for,
then come all rows, in another order for each seed. Registers that hold an address point to memory that has been written; all
others are zero.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evidence.fuzz import driver
from mmulator.base.source import Source
from mmulator.isa.effects import Effects
from mmulator.isa.row import Row
from mmulator.isa.targets import PTX_VERSIONS
from mmulator.ptx.parser import parse_module
from mmulator.ptx.verify import verify
from tests.support import row_forms, rows
from tests.support.vectors import NAMES

TIME = 60.0  # seconds of a launch: nothing loops, but twins are compiled
HANG = 240.0  # seconds of a case, in a process that makes the object code of all modes
PLACES = {"block": (1, None), "pair": (2, 2), "cluster": (4, 4)}  # grid and cluster
THREADS = 128
MODES: dict[str, dict[str, Any]] = {
    "plain": {}, "sanitize": {"sanitize": True}, "strict": {"sanitize": "strict"}, "profile": {"profile": True},
    "trace": {"trace": ""}, "why": {"why": (0, 0)}, "debug": {"debug": True},
}  # fmt: skip
# Of the effects of a row, those that hooks keep a state for
HOOKED = ("ends", "together", "memory", "queue", "step", "orders", "stored", "holds", "frees", "tensor")
FRAME = """.version {version}
.target {target}
.address_size 64
.global .align 1024 .b8 in_global[4096];
.const .align 1024 .b8 in_const[4096];
.func (.reg .b32 r) f(.reg .b32 a) {{ mov.b32 r, a; ret; }}
.visible .entry k(.param .u64 out)
{{
.shared .align 1024 .b8 in_shared[4096]; .local .align 128 .b8 in_local[4096];
{declared}
.reg .b64 %to; ld.param.u64 %to, [out];
{values}
{statement}
st.global.u32 [%to], 7;
ret;
}}
"""


@dataclass(frozen=True)
class Case:
    """row: the key of its row. place: out of PLACES. target, statement: the instruction, and what it is for."""

    row: str
    place: str
    target: str
    statement: str

    @property
    def text(self) -> str:
        space = next((s for s in ("shared", "local", "const", "global") if f".{s}" in self.statement), "global")
        used = sorted({*re.findall(r"%b64_\d+", self.statement)})
        values = " ".join(f"mov.u64 {register}, in_{space};" for register in used)
        version = "{}.{}".format(*PTX_VERSIONS[-1])
        return FRAME.format(version=version, target=self.target, declared=rows.DECLARED, values=values, statement=self.statement)


@cache
def kinds() -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """(a row of each chapter for each different choice of HOOKED, all rows that run)."""
    runs = [(name, row) for name in NAMES for row in NAMES[name].ROWS if any(runs for *_, runs in rows.groups(row))]
    first: dict[tuple[object, ...], Row] = {}
    for chapter, row in runs:
        does = tuple(getattr(row.effects, name) for name in HOOKED)
        if does != tuple(getattr(Effects(), name) for name in HOOKED):
            first.setdefault((chapter, does), row)
    return tuple(first.values()), tuple(row for _, row in runs)


def cases(seed: int) -> list[tuple[Row, str]]:
    hooked, runs = kinds()
    every = [(row, place) for row in runs for place in PLACES]
    random.Random(seed).shuffle(every)
    return [*((row, "block") for row in hooked), *every]


def case(seed: int, number: int) -> Case:
    every = cases(seed)
    row, place = every[number % len(every)]
    rng = random.Random(f"{seed}.{number}")
    found = [(target, statement) for target, statements, runs in rows.groups(row) if runs for statement in statements]
    made = (Case(row_forms.row_key(row), place, *one) for one in rng.sample(found, len(found)))
    return next(one for one in made if not verify(parse_module(Source("alone.ptx", one.text))))


def outcomes(one: Case) -> Iterator[str]:
    """Outcomes of the kernel in each mode. Raises what is not of the family, an error of the module, and
    AssertionError where modes differ."""
    from mmulator.host.module import Module
    from tests.support.sessions import debugger

    kernel = Module.load(one.text)["k"]
    yield "loaded"
    grid, cluster = PLACES[one.place]
    ends: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for mode, how in MODES.items():
            options = {**how}
            if mode == "trace":
                options["trace"] = Path(folder, "trace.json")
            if mode == "debug":
                options["debug"] = debugger(lambda session: session.go())
            ends[mode], counted = ended(kernel, grid, cluster, options)
            yield from counted
    if len({*ends.values()}) > 1:
        said = map(": ".join, ends.items())
        raise AssertionError("\n".join([f"{one.row}, in a {one.place}: the outcome depends on the mode", *said]))


def ended(kernel: Any, grid: int, cluster: int | None, options: dict[str, Any]) -> tuple[str, list[str]]:
    """(how a launch ended, what the driver counts of it)."""
    import numpy as np

    from mmulator.errors import ExecutionFault, MmulatorError

    memory = np.zeros(64, np.uint32)
    try:
        kernel.launch(grid, THREADS, [memory], cluster=cluster, timeout=TIME, **options)
        return f"finished, {memory[0]}", ["launched", "finished"]
    except ExecutionFault as error:
        late = "did not finish" in str(error)
        return "time limit" if late else str(error).splitlines()[0], ["launched", "time limit" if late else "fault"]
    except MmulatorError as error:
        return str(error).splitlines()[0], ["not launched"]


FUZZ = driver.Fuzz(
    "evidence.fuzz.alone", case, lambda one: one.text, lambda one: f"{one.row}, in a {one.place}", outcomes, batch=8, hang=HANG,
)  # fmt: skip

if __name__ == "__main__":
    driver.main(FUZZ, __doc__, launches=0, modules=sum(map(len, (cases(1),))))
