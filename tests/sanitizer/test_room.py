"""Room that the sanitizer has for what it keeps is never left, and rules have none where a kernel needs none."""

from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.sanitizer.diagnostics.findings import shadows
from mmulator.sanitizer.shadow.records import DOUBTS, Races

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
# Four warps write a word of each 16 bytes, and the fifth all four with one store, its lanes in an order of their own
STORES = HEAD + """.visible .entry k() {
  .reg .b32 %r<8>; .reg .pred %p; .shared .align 16 .b8 sm[512];
  mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5; mov.u32 %r3, sm;
  setp.eq.u32 %p, %r2, 4; @%p bra all;
  mad.lo.u32 %r3, %r1, 16, %r3; mad.lo.u32 %r3, %r2, 4, %r3; st.shared.b32 [%r3], %r0;
  ret;
all:
  mul.lo.u32 %r1, %r1, 5; and.b32 %r1, %r1, 31; mad.lo.u32 %r3, %r1, 16, %r3; st.shared.v4.b32 [%r3], {%r0, %r0, %r0, %r0};
  ret; }
"""


@pytest.mark.parametrize("seed", range(4))
def test_more_writes_in_doubt_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    behind: list[Any] = []

    class Padded:
        """NumPy, but that 4 KB follow what a cluster knows of races."""

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def zeros(self, shape: Any, dtype: Any = float) -> Any:
            if dtype != Races.numpy_dtype():
                return np.zeros(shape, dtype)
            whole = np.zeros(Races.size + 4096, np.uint8)
            behind.append(whole[Races.size :])
            return whole[: Races.size].view(dtype)

    monkeypatch.setattr(shadows, "np", Padded())
    report = mm.Module.load(STORES)["k"].launch(1, 160, sanitize=True, seed=seed, threads=1)
    assert behind and not any(x.any() for x in behind)
    assert {f.rule for f in report.findings} == {"race-write-write"}
    assert DOUBTS < 4 * 32
