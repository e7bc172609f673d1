"""Loads that do not use all bytes: `.pragma "used_bytes_mask"`, as nvcc writes it for arrays of three elements."""

import numpy as np
import pytest

import mmulator as mm

TEXT = """.version 9.0
.target sm_90
.address_size 64
.visible .entry sum(.param .u64 from, .param .u64 to) {
  .reg .b64 %a; .reg .b64 %b; .reg .f32 %x; .reg .f32 %y; .reg .f32 %z; .reg .f32 %w; .reg .f32 %s; .reg .b32 %t;
  .shared .align 16 .b32 at[3];
  ld.param.u64 %a, [from]; ld.param.u64 %b, [to];
  PRAGMA
  ld.global.v4.f32 {%x, %y, %z, %w}, [%a];
  FIRST
  st.global.f32 [%b], %s;
  ret;
}
"""
SUM = "add.f32 %s, %x, %y; add.f32 %s, %s, %z;"


def launch(pragma: str, first: str = SUM, sanitize: bool = False) -> float:
    to = np.zeros(1, np.float32)
    module = mm.Module.load(TEXT.replace("PRAGMA", pragma).replace("FIRST", first))
    report = module["sum"].launch(1, 1, [np.array([1, 2, 4], np.float32), to], sanitize=sanitize)
    assert not (report.findings or ())
    return float(to[0])


def test_elements_that_are_not_used_may_lie_behind_the_array() -> None:
    with pytest.raises(mm.errors.ExecutionFault, match="of 16 bytes at address"):
        launch("")
    assert launch('.pragma "used_bytes_mask 4095";') == launch('.pragma "nounroll", "used_bytes_mask 0xfff";') == 7
    assert launch('.pragma "used_bytes_mask 0xff0";', "add.f32 %s, %y, %z;") == 6


def test_the_mask_is_of_the_next_load_alone() -> None:
    with pytest.raises(mm.errors.ExecutionFault, match="of 16 bytes"):
        launch('.pragma "used_bytes_mask 4095";', "ld.global.v4.f32 {%x, %y, %z, %w}, [%a]; " + SUM)


def test_a_load_may_overwrite_its_own_address() -> None:
    own = """mov.u32 %t, at; st.shared.f32 [%t], %x; st.shared.f32 [%t+4], %y; st.shared.f32 [%t+8], %z;
      .pragma "used_bytes_mask 4095"; ld.shared.v4.b32 {%t, %y, %z, %w}, [%t]; mov.b32 %x, %t; """
    assert launch('.pragma "used_bytes_mask 4095";', own + SUM) == 7


def test_bytes_that_are_not_used_are_not_read() -> None:
    """The sanitizer sees no read of memory that was not written."""
    part = """mov.u32 %t, at; st.shared.f32 [%t], %x; st.shared.f32 [%t+4], %y;
      .pragma "used_bytes_mask 255"; ld.shared.v4.f32 {%x, %y, %z, %w}, [%t]; add.f32 %s, %x, %y;"""
    assert launch('.pragma "used_bytes_mask 4095";', part, sanitize=True) == 3


def test_an_element_that_is_read_all_the_same_is_loaded() -> None:
    own = """mov.u32 %t, at; st.shared.f32 [%t], %x; st.shared.f32 [%t+4], %y;
      .pragma "used_bytes_mask 240"; ld.shared.v2.f32 {%x, %y}, [%t]; mov.b32 %z, 0; """
    assert launch('.pragma "used_bytes_mask 255";', own + SUM) == 3
