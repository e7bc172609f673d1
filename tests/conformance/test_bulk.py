"""Cases of bulk copies and reductions: spread, the same on the machine as plain arrays have them; a difference is told."""

import numpy as np
import pytest

from mmulator.evaluation.conformance import bulk
from mmulator.evaluation.conformance.bulk import HALF, REGION, WINDOW
from mmulator.evaluation.conformance.suites import SUITES
from mmulator.host.cpu import Cpu

CPU = Cpu("sm_90")


def inc(old: np.ndarray, operand: np.ndarray) -> np.ndarray:
    return np.where(old >= operand, 0, old + 1)


def dec(old: np.ndarray, operand: np.ndarray) -> np.ndarray:
    return np.where((old == 0) | (old > operand), operand, old - 1)


INTEGERS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
            "xor": np.bitwise_xor, "inc": inc, "dec": dec}  # fmt: skip


def reduced(b: bulk.BulkBatch) -> tuple[np.ndarray, np.ndarray]:
    """Global and shared memory after reductions of integers."""
    regions, windows = b.regions.copy(), b.windows.copy()
    dtype = np.dtype(("i" if b.kind.type[0] == "s" else "u") + str(int(b.kind.type[1:]) // 8))
    for block, (size, source, target, _) in enumerate(b.places.tolist()):
        given = b.windows[block * WINDOW + source :][:size].view(dtype)
        at = (block ^ 1) * WINDOW + HALF + target
        into = regions[block * REGION + target :][:size] if b.kind.to == "global" else windows[at : at + size]
        into[:] = INTEGERS[b.kind.op](into.view(dtype), given).astype(dtype).view(np.uint8)
    return regions, windows


def moved(b: bulk.BulkBatch) -> tuple[np.ndarray, np.ndarray]:
    """What copies do, without a kernel; of reductions nothing is known here."""
    regions, windows = b.regions.copy(), b.windows.copy()
    for block, (size, source, target, _) in enumerate(b.places.tolist()):
        own, other = block * WINDOW, (block ^ 1) * WINDOW + HALF + target
        given = b.regions[block * REGION + source :] if b.kind.source == "global" else b.windows[own + source :]
        if b.kind.to == "global":
            regions[block * REGION + target :][:size] = given[:size]
        else:
            windows[other : other + size] = given[:size]
    return regions, windows


@pytest.mark.parametrize("kind", bulk.SUITES["copies"], ids=lambda k: k.name)
def test_copies_are_those_of_arrays(kind: bulk.BulkKind) -> None:
    b = bulk.batch(3, kind, 60)
    compared, wrong, said = bulk.differences(b, bulk.run(CPU, b), moved(b))
    assert not wrong, said
    assert compared == 60 * (REGION + WINDOW)


@pytest.mark.parametrize("kind", [k for k in bulk.SUITES["reductions"] if k.type[1:].isdigit() and k.type[0] in "usb"],
                         ids=lambda k: k.name)  # fmt: skip
def test_reductions_of_integers_are_those_of_arrays(kind: bulk.BulkKind) -> None:
    b = bulk.batch(4, kind, 8)
    _, wrong, said = bulk.differences(b, bulk.run(CPU, b), reduced(b))
    assert not wrong, said


def test_kinds_are_those_of_the_rows() -> None:
    kinds = bulk.SUITES["reductions"]
    assert len(set(kinds)) == len(kinds) == 40
    assert {k.type for k in kinds if k.to == "global"} == {"b32", "b64", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"}


def test_cases_are_spread() -> None:
    sizes = bulk.batch(1, bulk.SUITES["copies"][0], 600).places[:, 0]
    assert (sizes % 16 == 0).all() and sizes.min() == 16 and sizes.max() > 3900 and len(set(sizes.tolist())) > 100
    assert (sizes[::2] == sizes[1::2]).all()


def test_the_same_seed_makes_the_same_cases() -> None:
    a, b = (bulk.batch(5, bulk.SUITES["reductions"][3], 20) for _ in range(2))
    assert (a.places == b.places).all() and (a.windows == b.windows).all() and (a.regions == b.regions).all()


def test_a_difference_is_told() -> None:
    b = bulk.batch(1, bulk.SUITES["copies"][1], 4)
    got = bulk.run(CPU, b)
    got[0][2 * REGION + 5] ^= 1
    compared, wrong, said = bulk.differences(b, got, bulk.model(b, "sm_90"))
    assert (wrong, compared) == (1, 4 * (REGION + WINDOW))
    assert f"{b.said(2)}: byte 5 of global memory" in said


@pytest.mark.parametrize("what", bulk.SUITES)
def test_suites_run(what: str) -> None:
    rows = list(SUITES[f"bulk {what}"].run(CPU, 1, 8))
    assert len(rows) == len(bulk.SUITES[what])
    assert not any(r.wrong or r.first for r in rows)
    assert all(r.words and r.cases for r in rows)
