"""Masks of vectors become numbers by instructions that have all the registers of a processor."""

import ctypes

import numpy as np
import pytest

from mmulator.base.codegen import engine

COUNT = 40  # vectors at once: more than there are registers
BITS = {8: 32, 16: 8, 32: 8}  # of an element, for so many lanes: what fits into half a register


def text_of(lanes: int) -> str:
    """masks(in, out): the signs of vectors that are doubled, each as a number."""
    vector = f"<{lanes} x i{BITS[lanes]}>"
    lines = [f"define void @masks_{lanes}(ptr %in, ptr %out) {{"]
    for n in range(COUNT):
        lines += [f"  %p{n} = getelementptr {vector}, ptr %in, i64 {n}", f"  %v{n} = load volatile {vector}, ptr %p{n}, align 1"]
    for n in range(COUNT):
        lines += [f"  %d{n} = add {vector} %v{n}, %v{n}", f"  %m{n} = icmp slt {vector} %d{n}, zeroinitializer",
                  f"  %b{n} = bitcast <{lanes} x i1> %m{n} to i{lanes}",
                  f"  %q{n} = getelementptr i{lanes}, ptr %out, i64 {n}",
                  f"  store volatile i{lanes} %b{n}, ptr %q{n}, align 1"]  # fmt: skip
    return "\n".join([*lines, "  ret void", "}", ""])


@pytest.mark.parametrize("lanes", BITS)
def test_many_masks_at_once(lanes: int) -> None:
    library = engine.Library(text_of(lanes), 1)
    values = np.random.default_rng(5).integers(-100, 100, (COUNT, lanes), dtype=f"i{BITS[lanes] // 8}")
    out = np.zeros(COUNT, f"u{lanes // 8}")
    masks = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address(f"masks_{lanes}"))
    masks(values.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, ((values + values < 0).astype(np.uint64) << np.arange(lanes, dtype=np.uint64)).sum(1))


@pytest.mark.skipif("+avx512bw" not in engine._cpu()[1], reason="this processor has no AVX-512: there are no masks to keep")
@pytest.mark.skipif(engine.llvm_version() < 21, reason="LLVM of llvmlite is older than the fault")
@pytest.mark.parametrize("lanes", BITS)
def test_no_mask_goes_through_an_instruction_without_the_upper_registers(lanes: int) -> None:
    vector = f"<{lanes} x i{BITS[lanes]}>"
    text = (
        f"define i{lanes} @signs({vector} %v) {{\n  %m = icmp slt {vector} %v, zeroinitializer\n"
        f"  %b = bitcast <{lanes} x i1> %m to i{lanes}\n  ret i{lanes} %b\n}}\n"
    )

    def moves(text: str) -> int:
        module = engine._binding().parse_assembly(text)
        return str(engine._target_machine(1).emit_assembly(module)).count("movmsk")

    assert moves(text) == 1
    assert moves(engine._keep_masks(text)) == 0
