"""Every operation of atom and red, in every place and type that the tables allow, against an NVIDIA GPU."""

import itertools

import numpy as np
import pytest

from mmulator.errors import InternalError
from mmulator.host.module import Module
from mmulator.runtime.native.memory.combine import combiner
from tests.data import atomic_vectors
from tests.data.atomic_vectors import BLOCK, Case, cases, head, kernel

GROUP = 16  # cases in a kernel


def chosen_cases() -> list[Case]:
    """All but integers by generic addresses, where `add`, `exch` and `cas` stand for the rest: only the windows differ."""
    integer = ("u32", "s32", "u64", "s64", "b32", "b64")
    return [c for c in cases() if not (c.name.startswith("generic") and c.type in integer and c.op not in ("add", "exch", "cas"))]


def groups() -> dict[str, list[Case]]:
    found = {}
    for grid, same in itertools.groupby(sorted(chosen_cases(), key=lambda c: c.grid), key=lambda c: c.grid):
        together = list(same)
        for n in range(0, len(together), GROUP):
            found[f"{grid}-{n // GROUP}"] = together[n : n + GROUP]
    return found


def difference(c: Case, got: np.ndarray, want: np.ndarray) -> str | None:
    dtype = np.dtype(f"u{min(c.element, 8)}")
    got, want = got.view(dtype), want.view(dtype)
    at = np.flatnonzero(got != want)
    if not len(at):
        return None
    operands = ", ".join(f"{n} = {int(x.view(dtype)[at[0]]):#x}" for n, x in c.operands().items())
    return f"{c.name}: {int(got[at[0]]):#x}, not {int(want[at[0]]):#x}, for {operands}; {len(at)} differ"


def test_what_has_no_meaning_is_refused() -> None:
    """A type that no table of the machine knows is not taken for an integer."""
    for op, type_name in (("min", "f32"), ("max", "f64"), ("and", "f16"), ("inc", "f32"), ("add", "e4m3x2"), ("mul", "u32")):
        with pytest.raises(InternalError, match=f"atomic {op} of .{type_name}"):
            combiner(op, type_name, shared=False)


def test_every_case_was_captured() -> None:
    missing = [c.name for c in cases() if c.name not in atomic_vectors.stored()]
    assert not missing, "run evidence/capture/atomics.py on a GPU for them"


@pytest.mark.parametrize("name", list(groups()))
def test_atomics_have_the_bits_of_the_hardware(name: str) -> None:
    chosen = groups()[name]
    arrays = []
    for c in chosen:
        given = [x.copy() for x in c.operands().values()]
        arrays.append([*given, *([np.zeros_like(given[0])] if c.returns else [])])
    module = Module.load(head(chosen) + kernel("k", chosen), name=name)
    module["k"].launch(chosen[0].grid, BLOCK, [x for held in arrays for x in held], device="sm_90", timeout=600)
    found = []
    for c, held in zip(chosen, arrays):
        results = [held[0], *([held[-1]] if c.returns else [])]
        found += [difference(c, got, want) for got, want in zip(results, c.results(), strict=True)]
    assert not any(found), "\n".join(f for f in found if f)


def in_another_block(c: Case) -> str:
    """The case on cells of the other block of a cluster of two: those of .shared, by addresses of .shared::cluster."""
    peer = (
        ".reg .u32 %peer; mov.u32 %peer, %cluster_ctarank; xor.b32 %peer, %peer, 1; mov.u64 %p, cells;"
        "mapa.shared::cluster.u64 %p, %p, %peer;"
    )
    text = kernel("k", [c]).replace("mov.u64 %p, cells;", peer)
    text = text.replace(c.mnemonic, c.mnemonic.replace(".shared.", ".shared::cluster."))
    return text.replace(".shared.b", ".shared::cluster.b").replace("ret;", "barrier.cluster.arrive; barrier.cluster.wait; ret;")


HALVES = ("f16x2", "bf16x2")  # ptxas 13.0 has an H200 add these as integers where they lie in another block
ELSEWHERE = [c for c in cases() if c.name.startswith("shared.") and c.type not in HALVES and c.grid % 2 == 0]


@pytest.mark.parametrize("c", ELSEWHERE, ids=lambda c: c.name)
def test_atomics_in_another_block_have_the_bits_of_those_in_the_own_one(c: Case) -> None:
    """An H200 was asked for 49 operations on 96 operands each: they agree."""
    text = in_another_block(c)
    assert "mapa" in text and ".shared." not in text
    arrays = {n: a.copy() for n, a in c.operands().items()}
    given = [*arrays.values(), *([np.zeros_like(arrays["a"])] if c.returns else [])]
    Module.load(head([c]) + text)["k"].launch(c.grid, BLOCK, given, cluster=2)
    got = [given[0], *([given[-1]] if c.returns else [])]
    wrong = [d for g, w in zip(got, c.results()) if (d := difference(c, g, w)) is not None]
    assert not wrong, wrong[0]
