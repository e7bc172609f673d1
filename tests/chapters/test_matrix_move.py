"""ldmatrix, stmatrix and movmatrix; those of bytes, in a kernel, against `Instruction.execute`."""

import numpy as np
import pytest

from mmulator.isa.form import Form
from mmulator.isa.matrix import matrix_forms
from mmulator.matrix.instruction.execution import execute
from mmulator.matrix.layouts.operands import fragment, memory_bits, row_bytes
from mmulator.matrix.twin.moves import lines
from tests.support.matrix_kernels import CASES, kernel, load, registers, run, store


def byte_moves(family: str) -> list[Form]:
    return [f for f in matrix_forms() if f.family == family and (f.m, f.n) != (8, 8)]


@pytest.mark.parametrize("form", byte_moves("ldmatrix"), ids=str)
def test_byte_ldmatrix(form: Form) -> None:
    rng = np.random.default_rng(5)
    memory = rng.integers(0, 256, (CASES, 1024), dtype=np.uint8)
    odd = rng.integers(0, 32 // row_bytes(form), (CASES, 32)) * row_bytes(form)
    p = (rng.permuted(np.tile(np.arange(32), (CASES, 1)), axis=1) * 32 + odd).astype(np.uint32)
    count = fragment(form, "r").registers
    body = [
        *load("memory", 8), "mov.u32 %s, tile;", "mad.lo.u32 %s, %t, 32, %s;",
        *(f"st.shared.b32 [%s+{4 * i}], %memory{i};" for i in range(8)), "bar.sync 0;",
        *load("p", 1), "mov.u32 %s, tile;", "add.u32 %p0, %p0, %s;",
        *(["cvt.u64.u32 %q, %p0;", "cvta.shared.u64 %q, %q;"] if not form.space else []),
        f"{form.mnemonic} {registers('d', count)}, [{'%p0' if form.space else '%q'}];", *store("d", count),
    ]  # fmt: skip
    module = kernel({"memory": 8, "p": 1, "d": count}, body, ".shared .align 128 .b8 tile[1024];")
    out = np.zeros((CASES, 32, count), np.uint32)
    run(module, [memory.view(np.uint32), p, out])
    for case in range(CASES):
        expected = execute(form, "sm_120", {"memory": memory[case], "p": p[case]})
        assert np.array_equal(out[case], expected)


@pytest.mark.parametrize("form", byte_moves("stmatrix"), ids=str)
def test_byte_stmatrix(form: Form) -> None:
    rng = np.random.default_rng(6)
    count = fragment(form, "r").registers
    r = rng.integers(0, 1 << 32, (CASES, 32, count), dtype=np.uint32)
    p = (rng.permuted(np.tile(np.arange(32), (CASES, 1)), axis=1) * 32).astype(np.uint32)
    body = [
        "mov.u32 %s, tile;", "mad.lo.u32 %s, %t, 32, %s;", *(f"st.shared.b32 [%s+{4 * i}], 0;" for i in range(8)), "bar.sync 0;",
        *load("r", count), *load("p", 1), "mov.u32 %s, tile;", "add.u32 %p0, %p0, %s;",
        *(["cvt.u64.u32 %q, %p0;", "cvta.shared.u64 %q, %q;"] if not form.space else []),
        f"{form.mnemonic} [{'%p0' if form.space else '%q'}], {registers('r', count)};", "bar.sync 0;",
        "mov.u32 %s, tile;", "mad.lo.u32 %s, %t, 32, %s;",
        *(f"ld.shared.b32 %d{i}, [%s+{4 * i}];" for i in range(8)), *store("d", 8),
    ]  # fmt: skip
    module = kernel({"r": count, "p": 1, "d": 8}, body, ".shared .align 128 .b8 tile[1024];")
    out = np.zeros((CASES, 32, 8), np.uint32)
    run(module, [r, p, out])
    for case in range(CASES):
        memory = np.zeros(1024, np.uint8)
        execute(form, "sm_120", {"memory": memory, "p": p[case], "r": r[case]})
        assert np.array_equal(out[case].reshape(-1), memory.view(np.uint32))


def moves_of_whole_elements() -> list[Form]:
    moves = [f for f in matrix_forms() if f.family in ("ldmatrix", "stmatrix")]
    return [f for f in moves if memory_bits(f) == fragment(f, "r").bits]


@pytest.mark.parametrize("form", moves_of_whole_elements(), ids=str)
def test_rows_move_element_by_element(form: Form) -> None:
    """As the places of a form's elements say; of rows of stmatrix that are one the last wins."""
    places, bits = lines(form), fragment(form, "r").bits
    rng, element, count = np.random.default_rng(7), np.dtype(f"u{bits // 8}"), fragment(form, "r").registers
    for most in (64, 3):  # rows that may be one
        memory, p = rng.integers(0, 256, 1024, dtype=np.uint8), (rng.integers(0, most, 32) * 16).astype(np.uint32)
        starts = p[: len(places)]
        if form.family == "ldmatrix":
            flat = np.zeros(places.size, element)
            for row, start in zip(places, starts):
                flat[row] = memory[start : start + 16].view(element)
            got = execute(form, "sm_120", {"memory": memory, "p": p})
            assert np.array_equal(got, flat.view(np.uint32).reshape(count, 32).T)
        else:
            r = rng.integers(0, 1 << 32, (32, count), dtype=np.uint32)
            flat, wanted = np.ascontiguousarray(r.T).reshape(-1).view(element), memory.copy()
            for row, start in zip(places, starts):
                wanted[start : start + 16] = flat[row].view(np.uint8)
            execute(form, "sm_120", {"memory": memory, "p": p, "r": r})
            assert np.array_equal(memory, wanted)
