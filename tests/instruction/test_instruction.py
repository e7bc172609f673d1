"""Instruction: matrices and registers say the same thing, operands are checked before anything happens."""

import ctypes
import ctypes.util
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator import Instruction
from mmulator.errors import InvalidInstructionError, OperandError
from mmulator.matrix.layouts import sparse

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16"
WGMMA_SP = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16"
DENSE = [
    MMA,
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sync.aligned.m16n8k8.row.col.rz.f64.f64.f64.f64",
    "wmma.mma.sync.aligned.col.row.m8n32k16.f32.f16",
]


def inputs(i: Instruction, seed: int, batch: tuple[int, ...] = (3,)) -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(seed)
    f = i.form

    def matrix(element: Any, rows: int, columns: int) -> Any:
        small = generator.integers(-7, 8, (*batch, rows, columns))
        if element.name == "b1":
            return (small & 1).astype(np.uint8)
        if not element.has_sign:
            small = abs(small)
        return small.astype(getattr(ml_dtypes, element.numpy, None) or element.numpy)

    return matrix(f.atype, f.m, f.k), matrix(f.btype, f.k, f.n), matrix(f.ctype or f.dtype, f.m, f.n)


@pytest.mark.parametrize("text", DENSE)
def test_compute_and_execute_agree_and_are_exact_on_small_integers(text: str) -> None:
    i = Instruction.parse(text)
    a, b, c = inputs(i, 1)
    d = i.compute(a, b, c)
    exact = [x.astype(np.float64) for x in (a, b, c)]
    if i.form.bit_op == "xor":
        expected = (exact[0][..., :, :, None] != exact[1][..., None, :, :]).sum(-2) + exact[2]
    else:
        expected = exact[0] @ exact[1] + exact[2]
    assert np.array_equal(d.astype(np.float64), expected)
    registers = i.execute(a=i.layout("a").to_registers(a), b=i.layout("b").to_registers(b), c=i.layout("c").to_registers(c))
    assert np.array_equal(i.layout("d").to_matrix(registers), d)


def test_m8n8k4_multiplies_four_matrices() -> None:
    i = Instruction.parse("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", target="sm_70", ptx="6.4")
    a, b, c = inputs(i, 2, (5, 4))
    lay = {k: i.layout(k) for k in "abcd"}
    assert lay["a"].shape == (4, 8, 4)
    d = i.execute(device="sm_70", **{k: lay[k].to_registers(x) for k, x in zip("abc", (a, b, c))})
    assert np.array_equal(lay["d"].to_matrix(d), i.compute(a, b, c, device="sm_70"))


def packed(i: Instruction, a: Any, b: Any, mode: str) -> tuple[Any, mm.MatrixDescriptor, mm.MatrixDescriptor]:
    """A and B [N, K] K-major in an image of shared memory."""
    from mmulator.matrix.layouts import SWIZZLES, operand_addresses

    width = SWIZZLES[mode].width
    image = np.zeros(65536, np.uint8)
    out: list[mm.MatrixDescriptor] = []
    for start, x in ((0, a), (32768, b)):
        if mode == "none":
            d = mm.MatrixDescriptor(start, 128, 128 * (x.shape[1] * x.itemsize // 16), 0, mode)
        else:
            d = mm.MatrixDescriptor(start, 8 * width * (x.shape[0] // 8), 8 * width, 0, mode)
        address = operand_addresses(d, x.shape[0], x.shape[1], 8 * x.itemsize)
        raw = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, x.itemsize)
        image[address[..., None] + np.arange(x.itemsize)] = raw
        out.append(d)
    return image, out[0], out[1]


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
def test_wgmma_from_shared_memory_and_from_registers(mode: str) -> None:
    i = Instruction.parse(WGMMA, target="sm_90a")
    a, b, c = inputs(i, 3, ())
    image, da, db = packed(i, a, np.ascontiguousarray(b.T), mode)
    d = i.layout("d").to_registers(c)
    both = i.execute(d=d, a_desc=da.encode(), b_desc=db.encode(), shared=image)
    assert np.array_equal(i.layout("d").to_matrix(both), i.compute(a, b, c))
    assert np.array_equal(i.execute(d=d, a=i.layout("a").to_registers(a), b_desc=db, shared=image), both)
    without = i.execute(a_desc=da, b_desc=db, shared=image, scale_d=0, imm_scale_b=-1)
    assert np.array_equal(i.layout("d").to_matrix(without), i.compute(a, b, imm_scale_b=-1))
    assert np.array_equal(i.layout("d").to_matrix(without), -(a.astype(np.float32) @ b.astype(np.float32)) + 0.0)


def test_wgmma_sparse_from_compressed_registers() -> None:
    i = Instruction.parse(WGMMA_SP)
    a, b, c = inputs(i, 4, ())
    a[:, 1::2] = 0
    image, _, db = packed(i, a, np.ascontiguousarray(b.T), "none")
    s = mm.sparse.compress(a, i)
    for selector in (0, 1):
        d = i.execute(
            d=i.layout("d").to_registers(c), a=i.layout("a").to_registers(s.values), b_desc=db, shared=image,
            sp_meta=s.registers(selector), sp_sel=selector,
        )  # fmt: skip
        assert np.array_equal(i.layout("d").to_matrix(d), i.compute(a, b, c))
    assert np.array_equal(i.compute(s, b, c), (a.astype(np.float32) @ b.astype(np.float32)) + c)


def test_metadata_of_any_value_gathers_as_hardware_does() -> None:
    """f16: B at (nibble & 3) and (nibble >> 2). tf32: the same on 16-bit halves."""
    i = Instruction.parse("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    generator = np.random.default_rng(5)
    a = generator.integers(-4, 5, (16, 8)).astype(np.float16)
    b = generator.integers(-4, 5, (16, 8)).astype(np.float16)
    nibbles = generator.integers(0, 16, (16, 4), np.uint8)
    operands: dict[str, Any] = {"b": i.layout("b").to_registers(b), "c": np.zeros((32, 4), np.uint32), "f": 1}
    registers = {"a": i.layout("a").to_registers(a), "e": sparse.to_registers(nibbles, i.form, 1)}
    d = i.execute(strict=False, **registers, **operands)
    k = (4 * np.arange(4)[:, None] + np.stack([nibbles & 3, nibbles >> 2], -1)).reshape(16, 8)
    expected = np.einsum("mk,mkn->mn", a.astype(np.float32), b.astype(np.float32)[k])
    assert np.array_equal(i.layout("d").to_matrix(d), expected)

    i = Instruction.parse("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    b32 = generator.integers(0, 1 << 32, (8, 8), np.uint32) & np.uint32(0xBF80E000) | np.uint32(0x20000000)
    a32 = np.zeros((16, 4), np.float32)
    a32[:, 1] = 1.0
    nibbles = np.tile(np.arange(16, dtype=np.uint8)[:, None], (1, 4))
    d = i.execute(
        a=i.layout("a").to_registers(a32), b=i.layout("b").to_registers(b32), c=np.zeros((32, 4), np.uint32),
        e=sparse.to_registers(nibbles, i.form), f=0, strict=False,
    )  # fmt: skip
    halves = b32[2:4].T.copy().view(np.uint16)  # chunk 1: [N, 4 halves], low first
    n = np.arange(16)
    want = halves[:, n & 3].astype(np.uint32) | halves[:, n >> 2].astype(np.uint32) << 16
    got = i.layout("d").to_matrix(d).view(np.uint32).T
    finite = (want >> 23 & 255) != 255
    zero = want & 0x7FFFE000 == 0
    assert np.array_equal(got[finite & ~zero], (want & 0xFFFFE000)[finite & ~zero])
    assert finite.mean() > 0.9


def test_wmma_moves_matrices_of_any_stride() -> None:
    generator = np.random.default_rng(6)
    memory = generator.integers(0, 256, 4096, np.uint8)
    for layout in ("row", "col"):
        load = Instruction.parse(f"wmma.load.c.sync.aligned.{layout}.m16n16k16.f32")
        store = Instruction.parse(f"wmma.store.d.sync.aligned.{layout}.m16n16k16.f32")
        r = load.execute(memory=memory, p=64, stride=24)
        words = memory.view(np.float32)[16:].copy()
        matrix = np.stack([words[24 * j : 24 * j + 16] for j in range(16)])
        expected = matrix if layout == "row" else matrix.T
        assert np.array_equal(load.layout("r").to_matrix(r).view(np.uint32), expected.view(np.uint32))
        out = np.zeros_like(memory)
        assert store.execute(memory=out, p=64, stride=24, r=r) is out
        back = load.execute(memory=out, p=64, stride=24)
        assert np.array_equal(back, r)
        assert np.count_nonzero(out) <= 16 * 16 * 4


def test_ldmatrix_stmatrix_movmatrix() -> None:
    generator = np.random.default_rng(7)
    memory = generator.integers(0, 256, 2048, np.uint8)
    rows = 16 * generator.permutation(128)[:32]
    matrices = memory[rows[:, None] + np.arange(16)].view(np.uint16).reshape(4, 8, 8)
    for trans in ("", ".trans"):
        load = Instruction.parse(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16")
        store = Instruction.parse(f"stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16")
        r = load.execute(memory=memory, p=rows)
        assert np.array_equal(load.layout("r").to_matrix(r), matrices.swapaxes(1, 2) if trans else matrices)
        out = np.zeros_like(memory)
        store.execute(memory=out, p=rows, r=r)
        assert np.array_equal(out[rows[:, None] + np.arange(16)], memory[rows[:, None] + np.arange(16)])
    plain = Instruction.parse("ldmatrix.sync.aligned.m8n8.x1.b16").execute(memory=memory, p=rows)
    turned = Instruction.parse("ldmatrix.sync.aligned.m8n8.x1.trans.b16").execute(memory=memory, p=rows)
    move = Instruction.parse("movmatrix.sync.aligned.m8n8.trans.b16")
    assert np.array_equal(move.execute(a=plain), turned)


def test_ldmatrix_unpacks_narrow_elements() -> None:
    """.b4x16_p64 and .b6x16_p32: 16 elements from the low 8 or 12 bytes of a row, a byte each."""
    elements = np.arange(128, dtype=np.uint8).reshape(8, 16) * 5
    for bits, name in ((4, "b4x16_p64"), (6, "b6x16_p32")):
        memory = np.zeros(128, np.uint8)
        for row in range(8):
            word = sum((int(e) & ((1 << bits) - 1)) << (bits * j) for j, e in enumerate(elements[row]))
            memory[16 * row : 16 * row + 16] = np.frombuffer(word.to_bytes(16, "little"), np.uint8)
        i = Instruction.parse(f"ldmatrix.sync.aligned.m8n16.x1.b8x16.{name}")
        r = i.execute("sm_100", memory=memory, p=16 * (np.arange(32) % 8))
        assert np.array_equal(i.layout("r").to_matrix(r), elements & ((1 << bits) - 1))


@pytest.mark.parametrize(
    ("m", "k", "n"), [(1, 1, 1), (37, 70, 19), (16, 16, 8), (5, 0, 3)], ids=str
)  # fmt: skip
def test_matmul_of_any_size(m: int, k: int, n: int) -> None:
    generator = np.random.default_rng(8)
    a, b = generator.integers(-7, 8, (2, m, k)).astype(np.float16), generator.integers(-7, 8, (k, n)).astype(np.float16)
    c = generator.integers(-7, 8, (m, n)).astype(np.float32)
    d = mm.matmul(a, b, c, instruction=MMA, device="sm_80")
    assert d.dtype == np.float32
    assert np.array_equal(d, a.astype(np.float32) @ b.astype(np.float32) + c)


def test_matmul_chains_over_k_like_a_kernel() -> None:
    i = Instruction.parse(MMA)
    generator = np.random.default_rng(9)
    a, b = (generator.standard_normal(s).astype(np.float16) for s in ((16, 48), (48, 8)))
    c: Any = None
    for step in range(3):
        k = slice(16 * step, 16 * step + 16)
        c = i.compute(a[:, k], b[k], c)
    assert np.array_equal(mm.matmul(a, b, instruction=i), c)


def test_matmul_sparse_and_block_scaled() -> None:
    generator = np.random.default_rng(10)
    sp = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::mxf8f6f4.block_scale.f32.e2m1.e4m3.f32.ue8m0"
    a = generator.integers(-3, 4, (21, 150))
    a[:, ::2] = 0
    a = a.astype(ml_dtypes.float4_e2m1fn)
    b = generator.integers(-8, 9, (150, 5)).astype(ml_dtypes.float8_e4m3fn)
    scale_a = np.exp2(generator.integers(-2, 3, (21, 3))).astype(ml_dtypes.float8_e8m0fnu)
    scale_b = np.exp2(generator.integers(-2, 3, (3, 5))).astype(ml_dtypes.float8_e8m0fnu)
    d = mm.matmul(a, b, instruction=sp, device="sm_120", scale_a=scale_a, scale_b=scale_b)
    wide_a = a.astype(np.float64) * np.repeat(scale_a.astype(np.float64), 64, axis=1)[:, :150]
    wide_b = b.astype(np.float64) * np.repeat(scale_b.astype(np.float64), 64, axis=0)[:150]
    assert np.array_equal(d.astype(np.float64), wide_a @ wide_b)


def test_block_scales_come_from_the_selected_lanes_and_bytes() -> None:
    i = Instruction.parse("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e5m2.f32.ue8m0")
    a, b, c = inputs(i, 11, ())
    generator = np.random.default_rng(12)
    data = {x: generator.integers(120, 135, (32, 4), np.uint8) for x in "ab"}
    for byte in range(4):
        d = i.execute(
            device="sm_120", **{k: i.layout(k).to_registers(x) for k, x in zip("abc", (a, b, c))},
            scale_a_data=data["a"].view(np.uint32)[:, 0], byte_id_a=byte, thread_id_a=1,
            scale_b_data=data["b"].view(np.uint32)[:, 0], byte_id_b=byte, thread_id_b=3,
        )  # fmt: skip
        scale_a = np.concatenate([data["a"][2::4, byte], data["a"][3::4, byte]])[:, None]
        scale_b = data["b"][3::4, byte][None, :]
        expected = i.compute(a, b, c, device="sm_120", scale_a=scale_a, scale_b=scale_b)
        assert np.array_equal(i.layout("d").to_matrix(d), expected)


def test_parse_checks_target_and_version() -> None:
    i = Instruction.parse(f" {WGMMA}; ", target="sm_90a", ptx="8.7")
    assert (str(i), str(i.target), i.ptx) == (WGMMA, "sm_90a", (8, 7))
    with pytest.raises(InvalidInstructionError, match="sm_90a"):
        Instruction.parse(WGMMA, target="sm_90")


def test_importing_the_package_is_cheap() -> None:
    code = "import sys, mmulator; print('numpy' in sys.modules, sorted(set(mmulator.__all__) - set(dir(mmulator))))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "[]"]


@pytest.mark.parametrize(
    ("target", "ptx", "message"),
    [
        ("sm_90a", "7.8", "PTX ISA 7.8 has no .target sm_90a"),
        ("sm_120a", "8.6", "PTX ISA 8.6 has no .target sm_120a"),
        (None, "99.0", "PTX ISA 99.0 is not known"),
        (None, "5.0", "PTX ISA 5.0 is not known"),
        (None, "eight", "'eight' is not a PTX version"),
        (None, 8.7, "8.7 is not a PTX version such as '8.7'"),
        ("sm_91", None, "'sm_91' is not a known target"),
    ],
)
def test_targets_and_versions_that_do_not_exist(target: Any, ptx: Any, message: str) -> None:
    with pytest.raises(OperandError, match=message):
        Instruction.parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", target=target, ptx=ptx)


def test_what_a_program_made_of_its_floats_changes_no_bit() -> None:
    """Subnormals are flushed by the processor from here on, as torch.set_flush_denormal has it."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    rng = np.random.default_rng(1)
    i = mm.Instruction.parse("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    a, b, c = ((rng.standard_normal((64, 64)) * scale).astype(np.float32) for scale in (1e-20, 1e-20, 1e-40))
    wanted = mm.matmul(a, b, c, instruction=i), i.compute(a[:16, :8], b[:8, :8], c[:16, :8])
    environment = ctypes.create_string_buffer(256)
    library.fegetenv(environment)
    flushing = ctypes.create_string_buffer(environment.raw, 256)
    ctypes.c_uint32.from_buffer(flushing, 28).value |= 0x8040  # MXCSR
    library.fesetenv(flushing)
    try:
        assert np.float32(1e-40) * np.float32(1) == 0
        found = mm.matmul(a, b, c, instruction=i), i.compute(a[:16, :8], b[:8, :8], c[:16, :8])
        assert np.float32(1e-40) * np.float32(1) == 0
    finally:
        library.fesetenv(environment)
    for x, y in zip(wanted, found):
        np.testing.assert_array_equal(x.view(np.uint32), y.view(np.uint32))
