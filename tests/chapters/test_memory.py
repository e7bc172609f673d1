"""Loads and stores, and hints to caches. (Bounds and every way into memory: laws/test_memory.py.)"""

import numpy as np
import pytest

from mmulator.host.module import Module
from tests.support.ptx_text import kernel


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.v4.f32 {%u1, %s2, %r3, %u4}, [%rd0]; add.u32 %u1, %u1, 1; st.global.v4.f32 [%rd0], {%u1, %s2, %r3, %u4};",
        "ld.v2.f32 {%u1, _}, [%rd0]; add.u32 %u1, %u1, 1; st.u32 [%rd0], %u1;",
        "ld.global.v4.s32 {%f1, %r2, %u3, %s4}, [%rd0]; mov.b32 %u1, %f1; add.u32 %u1, %u1, 1; mov.b32 %f1, %u1; "
        "st.global.v4.u32 [%rd0], {%f1, %r2, %u3, %s4};",
        "ldu.global.v2.f64 {%v1, %w2}, [%rd0]; add.u64 %v1, %v1, 1; st.global.v2.f64 [%rd0], {%v1, %w2};",
    ],
)
def test_vectors_of_several_types_are_bits(body: str) -> None:
    """ptxas takes integers for floats, and anything beside `.b32`. A conversion would change each of these values, a flush the
    subnormal; NaNs keep their payload.
    """
    registers = ".reg .u32 %u<5>; .reg .s32 %s<5>; .reg .u64 %v<3>; .reg .s64 %w<3>;"
    words = np.array([0x00000001, 0x7FA00001, 0x80000003, 0xFFC12345], np.uint32)
    given = words.copy()
    Module.load(kernel(registers + body))["k"].launch(1, 1, [given])
    assert given.tolist() == [words[0] + 1, *words[1:]]


def test_wider_registers_of_a_vector_of_several_types_are_extended() -> None:
    body = "ld.global.v2.s16 {%rd1, %d1}, [%rd0]; st.global.v2.b64 [%rd0], {%rd1, %d1};"
    given = np.array([0x7FFF8001, 0, 0, 0], np.uint32)
    Module.load(kernel(body))["k"].launch(1, 1, [given])
    assert given.view(np.int64).tolist() == [-0x7FFF, 0x7FFF]
