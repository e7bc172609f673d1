"""The compiled twin of mma.m8n8k4 .f16 on devices without a tensor core for it: f32 arithmetic to nearest even, as in
`dot.software`.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type"

from mmulator.base.classes import dataclass
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.ops import bitcast, cast_ptr, fma, load, masked_load, masked_store, minimum, select, store
from mmulator.base.codegen.types import f32, i64, ptr, u16, u32
from mmulator.base.codegen.values import Value
from mmulator.isa.types import F16
from mmulator.matrix.numerics.dot import SOFTWARE_PAIRS
from mmulator.matrix.numerics.profiles import DotKey, Profile
from mmulator.matrix.twin.pack import Decoded
from mmulator.matrix.twin.plan import Parts
from mmulator.matrix.twin.slow import as_half, half_to_single, lanes, single_to_half
from mmulator.matrix.twin.tile import NAN, OUTLINED, F, U

COLUMNS, K = 16, 4


@dataclass(frozen=True)
class Software(Parts):
    """The types of C and D."""

    half_c: bool
    half_d: bool

    def a_bytes(self, m: int, k: int) -> int:
        return m * k * 4

    def b_bytes(self, n: int, k: int) -> int:
        return -(-n // COLUMNS) * COLUMNS * k * 4


def software_for(key: DotKey, p: Profile) -> Software:
    return Software(key.ctype == "f16", key.dtype == "f16")


def pack_a_software(s: Software, name: str) -> Native:
    """A function that packs raw A [m][lda] to f32 [m][k]."""

    def pack_a(raw: ptr, lda: i64, m: i64, k: i64, out: ptr) -> None:
        for i in range(m):
            for j in range(i64(0), k, COLUMNS):
                line = masked_load(u16.vec(16), cast_ptr(u16, raw) + (i * lda + j), lanes(k - j), u16.vec(16)(0))
                masked_store(Decoded(F16, U(line)).value, cast_ptr(f32, out) + (i * k + j), lanes(k - j))

    return Native(pack_a, name)


def pack_b_software(s: Software, name: str, rows: bool) -> Native:
    """A function that packs raw B [k][ldb] (rows) or [n][ldb] to f32 blocks of 16 columns [k][16]; columns beyond n
    are zeros.
    """

    def pack_b(raw: ptr, ldb: i64, n: i64, k: i64, out: ptr) -> None:
        source = cast_ptr(u16, raw)
        for j in range(i64(0), n, COLUMNS):
            target = cast_ptr(f32, out) + j * k
            for r in range(k):
                if rows:
                    line = masked_load(u16.vec(16), source + (r * ldb + j), lanes(n - j), u16.vec(16)(0))
                    store(half_to_single(U(line)), target + r * COLUMNS)
                else:
                    for c in range(i64(0), i64(COLUMNS)):
                        bits = u16(0)
                        if j + c < n:
                            bits = source[(j + c) * ldb + r]
                        cast_ptr(u32, target)[r * COLUMNS + c] = single(bits)

    return Native(pack_b, name)


def single(bits: Value) -> Value:
    return bitcast(U, half_to_single(U(u32(bits))))[0]


def step(s: Software, a: Value, b: Value, c: Value) -> Value:
    """The sum of four products for 16 columns."""

    def chain(total: Value, positions: tuple[int, ...]) -> Value:
        for k in positions:
            total = fma(F(a[k]), load(F, b, k * COLUMNS), total)
        return total

    if not s.half_d:
        return c + chain(F(0.0), tuple(range(K)))
    for pair in SOFTWARE_PAIRS:
        c = c + chain(F(-0.0), pair)
    return as_half(c)


def dot_software(s: Software, name: str) -> Native:
    """A function that computes D = A B + C from packed operands."""
    c_ty, d_ty = (u16 if s.half_c else u32), (u16 if s.half_d else u32)

    def core(a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64) -> None:
        for j in range(i64(0), n, COLUMNS):
            mask = lanes(minimum(n - j, i64(COLUMNS)))
            for i in range(m):
                value = F(0.0)
                if flags & 1 == 0:
                    raw = U(masked_load(c_ty.vec(16), cast_ptr(c_ty, c) + (i * ldc + j), mask, c_ty.vec(16)(0)))
                    value = half_to_single(raw) if s.half_c else bitcast(F, raw)
                for inst in range(k // K):
                    left = cast_ptr(f32, a) + (i * k + inst * K)
                    value = step(s, left, cast_ptr(f32, b) + (j * k + inst * (K * COLUMNS)), value)
                value = select(value == value, value, bitcast(F, U(NAN)))
                result = single_to_half(value) if s.half_d else bitcast(U, value)
                masked_store(d_ty.vec(16)(result), cast_ptr(d_ty, d) + (i * ldd + j), mask)

    return Native(core, name, OUTLINED)
