"""Launches of one kernel one after the other find what each finds alone: nothing of an earlier launch is left in kept memory."""

import random
from typing import Any

import numpy as np
import pytest

import mmulator as mm

# Each thread stores its number to the word of `to` that `from` says, and reads another one where `from` has that bit.
READ = 1 << 20
KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 to, .param .u64 from) {
  .reg .b64 p, q, at; .reg .b32 t, i, v; .reg .pred reads;
  ld.param.u64 p, [to]; ld.param.u64 q, [from]; mov.u32 t, %tid.x;
  mad.wide.u32 at, t, 4, q; ld.global.u32 i, [at];
  and.b32 v, i, 0x100000; setp.ne.u32 reads, v, 0; and.b32 i, i, 0xfffff;
  mad.wide.u32 at, i, 4, p; @reads ld.global.u32 v, [at+4]; @!reads st.global.u32 [at], t;
  ret; }
"""
SMALL, LARGE = 128, 1 << 15  # words; the shadow of the large array is not kept
T = np.arange(64, dtype=np.uint32)
PLACES = {
    "own": T, "other half": (T + 32) % 64, "backwards": T[::-1], "shared by warps": T % 32, "shared by lanes": T // 2,
    "read": np.where(T < 32, T, T - 32 | READ), "read alone": T | READ,
}  # fmt: skip


def found(kernel: Any, blocks: int, words: int, places: str, threads: int) -> list[tuple[Any, ...]]:
    to, of = np.zeros(words + 1, np.uint32), PLACES[places] + np.uint32(words // 2)
    findings = kernel.launch(blocks, 64, [to, of], sanitize=True, threads=threads).findings
    return [(f.rule, f.location, f.count if threads == 1 else 0) for f in findings]


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_launch_finds_what_it_finds_alone(seed: int, blocks: int) -> None:
    choose, kernel = random.Random(seed), mm.Module.load(KERNEL)["k"]
    seen = set()
    for turn in range(30):
        how = choose.choice([SMALL, SMALL, SMALL, LARGE]), choose.choice([*PLACES]), choose.choice([1, 1, 2])
        alone = found(mm.Module.load(f"{KERNEL}// {seed} {blocks} {turn}\n")["k"], blocks, *how)
        assert found(kernel, blocks, *how) == alone, how
        seen.add(tuple(rule for rule, *_ in alone))
    assert len(seen) > 1 and (blocks > 1 or () in seen)
