"""Operands that `execute`, `compute` and `matmul` refuse: the error, the rule and the value; nothing is written before."""

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator import Instruction
from mmulator.errors import ExecutionFault, MmulatorError, OperandError, UnsupportedError
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import DEVICES
from mmulator.matrix.instruction import execution
from mmulator.matrix.layouts import sparse

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SP = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
ORDERED = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TF32 = "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
SCALED = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e5m2.f32.ue8m0"
U4 = "mma.sync.aligned.m16n8k32.row.col.s32.u4.u4.s32"
B1 = "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc"
FP6 = "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32"
FP6_SP = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
WGMMA_SP = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
LOAD = "wmma.load.a.sync.aligned.row.m16n16k16.f16"
STORE = "wmma.store.d.sync.aligned.row.m16n16k16.f32"
LDMATRIX = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
STMATRIX = "stmatrix.sync.aligned.m8n8.x4.shared.b16"


def z(*shape: int) -> Any:
    return np.zeros(shape, np.uint32)


ABC = {"a": z(32, 4), "b": z(32, 2), "c": z(32, 4)}
SPARSE = {"a": z(32, 2), "b": z(32, 2), "c": z(32, 4), "e": z(32) + 0x44444444, "f": 0}
SHARED = np.zeros(8192, np.uint8)
ROWS = 16 * np.arange(32)
SCALES = {"device": "sm_120", "scale_a_data": z(32), "byte_id_a": 0, "thread_id_a": 0,
          "scale_b_data": z(32), "byte_id_b": 0, "thread_id_b": 0}  # fmt: skip

CASES: list[tuple[str, dict[str, Any], type[MmulatorError], str]] = [
    # shapes, types, lanes, registers
    (MMA, {**ABC, "a": z(31, 4)}, OperandError, r"operand a of shape \(31, 4\): \[..., 32 lanes, 4 registers\]"),
    (MMA, {**ABC, "c": z(32, 5)}, OperandError, r"operand c of shape \(32, 5\)"),
    (MMA, {**ABC, "b": np.zeros((32, 2))}, OperandError, "operand b is float64: registers are uint32"),
    (MMA, {**ABC, "b": [[1], [2, 3]]}, OperandError, "operand b makes no array"),
    (MMA, {**ABC, "a": None}, OperandError, "operand a is object"),
    (MMA, {**ABC, "a": z(3, 32, 4), "b": z(4, 32, 2)}, OperandError, r"do not broadcast: a \(3,\), b \(4,\)"),
    (WGMMA, {"d": z(128, 5), "a_desc": 0, "b_desc": 0, "shared": SHARED}, OperandError, "128 lanes, 4 registers"),
    # which operands
    (MMA, {"a": z(32, 4), "b": z(32, 2)}, OperandError, "operand c is missing"),
    (MMA, {**ABC, "e": 0}, OperandError, "has no operand e"),
    (WGMMA, {"d": z(128, 4), "b_desc": 0, "shared": SHARED}, OperandError, "exactly one"),
    (WGMMA, {"a_desc": 0, "b_desc": 0, "shared": SHARED}, OperandError, "operand d is missing"),
    (WGMMA, {"a_desc": 0, "b_desc": 0, "shared": SHARED, "scale_d": 2}, OperandError, "one of 0, 1"),
    (WGMMA, {"a_desc": 0, "b_desc": 0, "shared": SHARED, "scale_d": 0, "imm_scale_a": 0}, OperandError, "one of -1, 1"),
    ("wgmma.fence.sync.aligned", {}, UnsupportedError, "orders other instructions"),
    (LOAD, {"memory": SHARED.astype(np.int8), "p": 0}, OperandError, "uint8"),
    # metadata, selectors
    (SP, {**SPARSE, "e": z(32) + 0x44444544}, OperandError, "0b0101"),
    (ORDERED, {**SPARSE, "e": z(32) + 0x44144444}, OperandError, "0b0001"),
    (TF32, {**SPARSE, "e": z(32) + 0x444444E5}, OperandError, "0b0101"),
    (SP, {**SPARSE, "e": z(31)}, OperandError, r"operand e of shape \(31,\)"),
    (SP, {**SPARSE, "e": np.zeros(32)}, OperandError, "operand e is float64"),
    (SP, {**SPARSE, "f": 4}, OperandError, "sparsity selector 4 .* must be 0 to 3"),
    (SP, {**SPARSE, "f": 1.5}, OperandError, "operand f is 1.5: an integer"),
    (SCALED, {**ABC, **SCALES, "byte_id_a": 4}, OperandError, "byte-id-a is 4"),
    (SCALED, {**ABC, **SCALES, "thread_id_a": 2}, OperandError, "thread-id-a is 2"),
    (SCALED, {**ABC, **SCALES, "scale_b_data": z(16)}, OperandError, r"scale_b_data of shape \(16,\)"),
    # descriptors
    (WGMMA, {"d": z(128, 4), "a_desc": 0x3FFF, "b_desc": 0, "shared": SHARED}, ExecutionFault, "0x3fff0 is outside shared"),
    (WGMMA, {"d": z(128, 4), "a_desc": 0, "b_desc": 0, "shared": SHARED[:0]}, ExecutionFault, "it is empty"),
    (WGMMA, {"d": z(128, 4), "a_desc": 0, "b_desc": 0, "shared": SHARED, "shared_base": 64}, ExecutionFault, "0x0 is outside"),
    (WGMMA, {"d": z(128, 4), "a_desc": 1 << 70, "b_desc": 0, "shared": SHARED}, OperandError, "a descriptor has 64 bits"),
    (WGMMA, {"d": z(128, 4), "a_desc": 0, "b_desc": -1, "shared": SHARED}, OperandError, "b_desc is -0x1: .* 0 to 2"),
    (WGMMA, {"d": z(128, 4), "a_desc": 0, "b_desc": np.int64(-1), "shared": SHARED}, ExecutionFault, "0x3fff0 is outside"),
    (WGMMA, {"d": z(128, 4), "a_desc": "0", "b_desc": 0, "shared": SHARED}, OperandError, "a_desc is '0': an integer"),
    # addresses and strides
    (LOAD, {"memory": SHARED, "p": 8}, OperandError, "p is 8: it must be a multiple of 32"),
    (LOAD, {"memory": SHARED, "p": 0, "stride": 20}, OperandError, "stride is 20: 20 .f16 elements are 40 bytes.*of 16"),
    (LOAD, {"memory": SHARED, "p": 0, "stride": 8}, OperandError, "stride is 8: it must be at least 16"),
    (LOAD, {"memory": SHARED, "p": 0, "stride": 16.0}, OperandError, "stride is 16.0: an integer"),
    (LOAD, {"memory": SHARED, "p": -32}, ExecutionFault, "-0x20 is outside memory"),
    (LDMATRIX, {"memory": SHARED, "p": ROWS + (np.arange(32) == 3) * 8}, OperandError, "operand p of lane 3 is 56: .* of 16"),
    (LDMATRIX, {"memory": SHARED, "p": ROWS + 8192}, ExecutionFault, "0x2000 is outside memory"),
    (LDMATRIX, {"memory": SHARED, "p": ROWS[:8]}, OperandError, r"p is int64 of shape \(8,\)"),
    # devices
    (MMA, {**ABC, "device": "sm_70"}, UnsupportedError, "sm_70 has no mma.sync"),
    (MMA, {**ABC, "device": "sm_90a"}, UnsupportedError, "'sm_90a'\n.*no suffix: sm_90 "),
    (MMA, {**ABC, "device": None}, UnsupportedError, "unknown device None"),
    (MMA, {**ABC, "device": ["sm_90"]}, UnsupportedError, "unknown device \\['sm_90'\\]"),
    (WGMMA, {"d": z(128, 4), "a_desc": 0, "b_desc": 0, "shared": SHARED, "device": "sm_100"}, UnsupportedError, "sm_100 has no"),
    (LOAD, {"memory": SHARED, "p": 0, "device": "H1000"}, UnsupportedError, "unknown device 'H1000'"),
    (SCALED, {**ABC, **SCALES, "device": "sm_90"}, UnsupportedError, "sm_90 has no mma.sync"),
]


@pytest.mark.parametrize(("text", "operands", "error", "says"), CASES)
def test_execute_refuses(text: str, operands: dict[str, Any], error: type[MmulatorError], says: str) -> None:
    with pytest.raises(error, match=says):
        Instruction.parse(text).execute(**operands)


@pytest.mark.parametrize(
    ("text", "operands", "says"),
    [
        (STORE, {"p": 8, "r": z(32, 8) + 1}, "p is 8"),
        (STORE, {"p": 0, "stride": 17, "r": z(32, 8) + 1}, "stride is 17"),
        (STORE, {"p": 8192 - 64, "r": z(32, 8) + 1}, "outside memory"),
        (STORE, {"p": 0, "r": z(3, 32, 8) + 1}, r"operand r of shape \(3, 32, 8\)"),
        (STORE, {"p": 0, "r": z(32, 8) + 1, "device": "sm_60"}, "unknown device"),
        (STMATRIX, {"p": ROWS + 8, "r": z(32, 4) + 1}, "operand p of lane 0 is 8"),
        (STMATRIX, {"p": ROWS + 8192 - 256, "r": z(32, 4) + 1}, "outside memory"),
        (STMATRIX, {"p": ROWS, "r": z(32, 3) + 1}, "32 lanes, 4 registers"),
        (STMATRIX, {"p": ROWS, "r": z(2, 32, 4) + 1}, r"operand r of shape \(2, 32, 4\)"),
        (STMATRIX, {"p": ROWS, "r": z(32, 4) + 1, "device": "sm_80"}, "sm_80 has no stmatrix"),
    ],
)
def test_a_refused_store_leaves_memory_alone(text: str, operands: dict[str, Any], says: str) -> None:
    memory = np.zeros(8192, np.uint8)
    with pytest.raises(MmulatorError, match=says):
        Instruction.parse(text).execute(memory=memory, **operands)
    assert not memory.any()


def test_memory_that_cannot_be_written_takes_no_store() -> None:
    memory = np.zeros(8192, np.uint8)
    memory.flags.writeable = False
    with pytest.raises(OperandError, match="writable"):
        Instruction.parse(STORE).execute(memory=memory, p=0, r=z(32, 8))


@pytest.mark.parametrize("text", [SP, ORDERED, TF32, WGMMA_SP])
def test_every_nibble_is_refused_where_it_is_undefined_and_taken_without_strict(text: str) -> None:
    """One nibble at one place of the last instruction of a batch; the error names row and value."""
    form = Instruction.parse(text).form
    generator = np.random.default_rng(0)
    shape = (form.m, form.k // sparse.granularity(form).chunk)
    for value in range(16):
        nibbles = np.full((3, *shape), 0b0100, np.uint8)
        row, chunk = (int(generator.integers(0, s)) for s in shape)
        nibbles[2, row, chunk] = value
        words = sparse.to_registers(nibbles, form, 0)
        operands: dict[str, Any] = SPARSE | {"e": words}
        if form.family == "wgmma":
            operands = {"d": z(128, 4), "a": z(128, 4), "b_desc": 0, "shared": SHARED, "sp_meta": words, "sp_sel": 0}
        i = Instruction(form)
        if not sparse.undefined(nibbles, form).any():
            i.execute(**operands)
            continue
        with pytest.raises(OperandError, match=rf"0b{value:04b}.*row {row}\b"):
            i.execute(**operands)
        i.execute(strict=False, **operands)


@pytest.mark.full
def test_a_device_that_no_target_of_the_form_runs_on_is_refused() -> None:
    for form in {id(form.row): form for form in matrix_forms()}.values():
        numbers = {t.number for t in form.row.requires.targets()}
        for device in DEVICES:
            number = int(device[3:])
            if form.row.requires.suffixes == "a":
                expected = number in numbers
            else:
                expected = number >= min(numbers) and (not form.row.requires.families or number // 10 == min(numbers) // 10)
            if expected:
                execution.check_device(form, device)
            else:
                with pytest.raises(UnsupportedError, match=f"{device} has no {form.family}"):
                    execution.check_device(form, device)


def raw(*shape: int, odd: int = 0) -> Any:
    """Raw zeros, with one other element at [..., 3, 5] of the last matrix."""
    out = np.zeros(shape, np.uint8)
    out[(*(s - 1 for s in shape[:-2]), 3, 5)] = odd
    return out


H = np.float16
A, B, C = np.zeros((16, 16), H), np.zeros((16, 8), H), np.zeros((16, 8), np.float32)
E4, E5 = np.zeros((16, 32), ml_dtypes.float8_e4m3fn), np.zeros((32, 8), ml_dtypes.float8_e5m2)
ONE = np.zeros((16, 1), np.uint8)


@pytest.mark.parametrize(
    ("text", "arguments", "options", "error", "says"),
    [
        (MMA, (A[0], B), {}, OperandError, r"A of shape \(16,\)"),
        (MMA, (A, None), {}, OperandError, "B is missing"),
        (MMA, (A.astype(np.float64), B), {}, OperandError, ".f16 elements as float64"),
        (MMA, (A, B, C.astype(H)), {}, OperandError, ".f32 elements as float16"),
        (MMA, ([[1], [1, 2]], B), {}, OperandError, "A makes no array"),
        (MMA, (A[None].repeat(2, 0), B[None].repeat(3, 0)), {}, OperandError, r"A \(2,\), B \(3,\)"),
        (MMA, (A, B, C), {"device": "sm_70"}, UnsupportedError, "sm_70 has no mma.sync"),
        (MMA, (A, B, C), {"scale_a": ONE}, OperandError, "takes no scale_a"),
        (MMA, (A, B, C), {"device": "sm_12"}, UnsupportedError, "sm_12"),
        (MMA, (A, B), {"imm_scale_a": -1}, OperandError, "has no imm_scale_a"),
        (SCALED, (E4, E5), {"device": "sm_120"}, OperandError, "scale_a is missing"),
        (SP, (A + 1, B), {}, OperandError, "too dense.*row 0"),
        # raw elements of less than a byte
        (U4, (raw(16, 32, odd=17), raw(32, 8)), {}, OperandError, r"\.u4 raw element 17 \(0x11\) at \[3, 5\]: .* 0 to 15"),
        (U4, (raw(16, 32), raw(2, 32, 8, odd=255)), {}, OperandError, r"\.u4 raw element 255 \(0xff\) at \[1, 3, 5\]"),
        (U4.replace("u4", "s4"), (raw(16, 32, odd=16), raw(32, 8)), {}, OperandError, r"\.s4 raw element 16 .* 0 to 15"),
        (B1, (raw(16, 128, odd=2), raw(128, 8)), {}, OperandError, r"\.b1 raw element 2 .* at \[3, 5\]: .* 0 to 1\b"),
        (FP6, (raw(16, 32, odd=0xF2), raw(32, 8)), {"device": "sm_120"}, OperandError, r"\.e2m1 raw element 242 \(0xf2\)"),
        (FP6, (raw(16, 32), raw(32, 8, odd=64)), {"device": "sm_120"}, OperandError, r"\.e3m2 raw element 64 .* 0 to 63"),
        (FP6_SP, (raw(16, 64, odd=0xF0), raw(64, 8)), {"device": "sm_120"}, OperandError, r"\.e2m1 raw element 240"),
        ("wgmma.fence.sync.aligned", (A, B), {}, OperandError, "multiplies no matrices"),
    ],
)
def test_compute_and_matmul_refuse(text: str, arguments: Any, options: Any, error: type[MmulatorError], says: str) -> None:
    i = Instruction.parse(text)
    with pytest.raises(error, match=says):
        i.compute(*arguments, **options)
    if arguments[1] is not None and np.ndim(arguments[0] if not isinstance(arguments[0], list) else 0) != 1:
        with pytest.raises(error):
            mm.matmul(*arguments, instruction=i, **options)


def test_a_product_without_an_instruction_names_those_that_fit() -> None:
    h, w = ("'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'", "'wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16'")
    for device, says in (("H100", f"instruction={h} or {w} or 'wmma"), ("A100", f"instruction={h} or 'wmma"), ("V100", "'wmma")):
        with pytest.raises(OperandError, match=re.escape(says)):
            mm.matmul(A, B, device=device)
    with pytest.raises(OperandError, match="hint: `mmulator list` has all"):
        mm.matmul([[1]], [[1]])


def test_matmul_refuses_extents_that_do_not_fit() -> None:
    for a, b, c, says in (
        (A, B[:5], None, r"A \(16, 16\) and B \(5, 8\)"),
        (A, B, C[:5], r"C of shape \(5, 8\)"),
        (A[0], B, None, r"A of shape \(16,\) is no matrix"),
    ):
        with pytest.raises(OperandError, match=says):
            mm.matmul(a, b, c, instruction=MMA)
    with pytest.raises(OperandError, match="scale_a"):
        mm.matmul(E4, E5, instruction=SCALED, device="sm_120", scale_a=ONE[:15], scale_b=ONE[:1].repeat(8, 1))
    with pytest.raises(OperandError, match="needs an instruction"):
        mm.matmul(A, B, instruction=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [MMA, SP])
def test_either_byte_order_is_taken(text: str) -> None:
    numbers = np.random.default_rng(0).integers(1, 9, (16, 16)).astype(H)
    a, c = numbers * (np.arange(16) % 2).astype(H), np.ones((16, 16), np.float32)
    want = mm.matmul(a, numbers, c, instruction=text)
    for dtype in (">f2", ">u2"):
        swapped = [x.view(f"{dtype[1]}2").astype(dtype) for x in (a, numbers)]
        assert np.array_equal(mm.matmul(*swapped, c.astype(">f4"), instruction=text), want)
    registers = {name: np.arange(x.size, dtype=x.dtype).reshape(x.shape) for name, x in ABC.items()}
    i = Instruction.parse(MMA)
    assert np.array_equal(i.execute(**{n: x.astype(">u4") for n, x in registers.items()}), i.execute(**registers))


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        (sparse.compress, (A, None), "an instruction is needed, not NoneType"),
        (sparse.compress, ([[1], [1, 2]], Instruction.parse(SP)), "A makes no array"),
        (sparse.too_dense, (A, 3), "an instruction is needed, not int"),
        (sparse.expand, (3,), "a Compressed matrix is needed, not int"),
        (sparse.to_torch, (A,), "a Compressed matrix is needed, not ndarray"),
        (Instruction.parse, (MMA, None, 8.7), r"8\.7 is not a PTX version such as '8\.7'"),
        (Instruction.parse, (MMA, None, (8,)), r"\(8,\) is not a PTX version such as"),
        (Instruction.parse, (MMA, 90), "target is 90: a string"),
        (Instruction.parse(MMA).layout("a").locate, (99, 0), "^row 99 is outside"),
        (mm.Module.load, (None,), "a path or the text itself, not NoneType"),
        (mm.Module.load, (b".version 8.0",), r"as text, not bytes\n.*decode"),
        (mm.Module.load, ("",), "the text is empty"),
    ],
)
def test_what_is_no_argument_at_all(function: Callable[..., Any], arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(OperandError, match=says):
        function(*arguments)
