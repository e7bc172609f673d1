"""The compiled twin of mxf4 and mxf4nvf4: groups of 16 e2m1 products, summed exactly and scaled, as in `dot.grouped`.

Elements are unpacked to f32 lanes, B in blocks of 16 columns. A group's sum is exact in f32; times its scale factors it is
exact in f64, and so are all further steps until the one rounding.
"""

# The kernels are written in the language of codegen.lang: their annotations are machine types.
# mypy: disable-error-code="valid-type, arg-type, index"

from __future__ import annotations

from dataclasses import dataclass

from mmulator.codegen.lang import Native, unrolled
from mmulator.codegen.ops import (
    absolute,
    bitcast,
    cast_ptr,
    load,
    masked_load,
    masked_store,
    maximum,
    minimum,
    null,
    select,
    stack,
    store,
    trunc,
)
from mmulator.codegen.types import f32, i32, i64, ptr, ptr_to, u8, u32
from mmulator.codegen.values import Value
from mmulator.isa.types import ElementType
from mmulator.numerics.formats import element_type
from mmulator.numerics.profiles import GROUP, DotKey, Profile
from mmulator.twin.pack import Decoded
from mmulator.twin.plan import Parts, Plan
from mmulator.twin.slow import exponents, lanes, power_of_two, toward_zero, turned
from mmulator.twin.tile import INF, NAN, OUTLINED, SIGN, D, F, I, U

COLUMNS = 16
BYTES16 = u8.vec(16)


@dataclass(frozen=True)
class Groups(Parts):
    """The parameters of a kernel."""

    t: ElementType
    scale: ElementType
    k: int
    blocks: int  # scale factors per instruction
    sparse: bool
    fraction: int
    floor: int
    plan: Plan

    @property
    def products(self) -> int:
        return self.k // 2 if self.sparse else self.k

    @property
    def groups(self) -> int:
        return self.products // GROUP

    def a_bytes(self, m: int, k: int) -> int:
        return m * (k // self.k) * self.products * 4

    def b_bytes(self, n: int, k: int) -> int:
        return -(-n // COLUMNS) * COLUMNS * k * 4


def groups_for(key: DotKey, p: Profile) -> Groups:
    t, f = element_type(key.atype), element_type("f32")
    rounding = Plan(t, t, f, f, key.k, GROUP, p.fraction, p.floor, 23, key.sparse, False, False, False, True)
    return Groups(t, element_type(key.stype or "ue8m0"), key.k, key.scale_blocks, key.sparse, p.fraction, p.floor, rounding)


def pack_a_groups(g: Groups, name: str) -> Native:
    """A function that packs raw A [m][lda] to f32 [m][k]."""
    t, divide = g.t, 2 if g.sparse else 1

    def pack_a(raw: ptr, lda: i64, m: i64, k: i64, out: ptr) -> None:
        width = k // divide
        for i in range(m):
            for j in range(i64(0), width, 16):
                value = Decoded(t, U(load(BYTES16, raw + (i * lda + j)))).value
                store(value, cast_ptr(f32, out) + (i * width + j))

    return Native(pack_a, name)


def pack_b_groups(g: Groups, name: str, rows: bool) -> Native:
    """A function that packs raw B [k][ldb] (rows) or [n][ldb] to blocks of 16 columns [k][16]; columns beyond n are zeros."""
    t = g.t

    def pack_b(raw: ptr, ldb: i64, n: i64, k: i64, out: ptr) -> None:
        room = stack(u8, COLUMNS)
        for j in range(i64(0), n, COLUMNS):
            target = cast_ptr(f32, out) + j * k
            for r in range(k):
                if rows:
                    line = masked_load(BYTES16, raw + (r * ldb + j), lanes(n - j), BYTES16(0))
                    store(Decoded(t, U(line)).value, target + r * COLUMNS)
                else:
                    for c in range(i64(0), i64(COLUMNS)):
                        room[c] = 0
                        if j + c < n:
                            room[c] = raw[(j + c) * ldb + r]
                    store(Decoded(t, U(load(BYTES16, room))).value, target + r * COLUMNS)

    return Native(pack_b, name)


def row_function(g: Groups, name: str) -> Native:
    """A function for one row by 16 columns and one instruction: state -> state."""
    groups, per_scale, scale_t, plan = range(g.groups), g.groups // g.blocks, g.scale, g.plan

    def scale_of(raw: Value) -> tuple[Value, Value]:
        """(value in f32 lanes, exponent) of scale factors; ue8m0 exceeds f32's normal range, so the exponent is separate."""
        if scale_t.name == "ue8m0":
            e = I(raw) - 127
            return select(raw == 255, bitcast(F, U(NAN)), F(1.0)), e
        d = Decoded(scale_t, raw & 0x7F)
        return d.value, d.exponent

    def row(
        a: ptr_to(f32), b: ptr_to(f32), index: ptr_to(i32), state: ptr_to(f32), scale_a: ptr, scale_b: ptr,
        stride: i64, n: i64,
    ) -> None:  # fmt: skip
        c = D(load(F, state))
        largest = maximum(exponents(c, -126), I(g.floor))
        special = c
        sums = []
        for s in groups:
            total, any_bits = F(0.0), U(0)
            for j in unrolled(s * GROUP, s * GROUP + GROUP):
                place = b + j * COLUMNS
                if g.sparse:
                    place = b + i64(index[j]) * COLUMNS
                p = load(F, place) * F(a[j])
                any_bits = any_bits | (bitcast(U, p) << 1)
                total = total + p
            block = s // per_scale
            ones, e_a = scale_of(U(u32(scale_a[block])))
            factors, e_b = scale_of(U(masked_load(BYTES16, scale_b + stride * block, lanes(n), BYTES16(0))))
            both = D(ones * factors)
            special = special + both * 0.0
            e = e_a + e_b
            exact = D(total) * both
            if scale_t.name == "ue8m0":
                exact = exact * power_of_two(e)
            used = (any_bits != 0) & (both != 0.0)
            largest = select(used, maximum(largest, e), largest)
            sums.append(select(used, exact, D(0.0)))
        scale = power_of_two(g.fraction - largest)
        whole = trunc(c * scale)
        for value in sums:
            whole = whole + trunc(value * scale)
        exact = whole * power_of_two(largest - g.fraction)
        result = bitcast(F, bitcast(U, toward_zero(plan, exact) + 0.0))
        signed = bitcast(F, U(INF) | (bitcast(U, F(special)) & SIGN))
        result = select(absolute(special) < float("inf"), result, signed)
        store(select(special == special, result, bitcast(F, U(NAN))), state)

    return Native(row, name, OUTLINED)


def dot_groups(g: Groups, name: str) -> Native:
    """A function that computes D = A B + C from packed operands and raw scale factors."""
    row = row_function(g, f"{name}_row")
    kk, products, blocks, sparse = g.k, g.products, g.blocks, g.sparse

    def core(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        state = cast_ptr(f32, stack(f32, COLUMNS))
        instructions = k // kk
        width = instructions * products
        flip = u32(0)
        if ((flags >> 1) ^ (flags >> 2)) & 1 != 0:
            flip = u32(SIGN)
        for j in range(i64(0), n, COLUMNS):
            count = minimum(n - j, i64(COLUMNS))
            for i in range(m):
                value = F(0.0)
                if flags & 1 == 0:
                    value = masked_load(F, cast_ptr(f32, c) + (i * ldc + j), lanes(count), F(0.0))
                store(bitcast(F, bitcast(U, value) ^ U(flip)), state)
                for inst in range(instructions):
                    panel = cast_ptr(f32, b) + j * k
                    if not sparse:
                        panel = panel + inst * (kk * COLUMNS)
                    row(
                        cast_ptr(f32, a) + (i * width + inst * products), panel, index + (i * width + inst * products),
                        state, scale_a + (i * instructions + inst) * blocks, scale_b + (inst * blocks * n + j), n,
                        count,
                    )  # fmt: skip
                result = turned(load(F, state), flip)
                masked_store(result, cast_ptr(f32, d) + (i * ldd + j), lanes(count))

    inner = Native(core, f"{name}_core", OUTLINED)

    def dot(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64,
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, null(i32), scale_a, scale_b)

    def dot_sparse(
        a: ptr, b: ptr, c: ptr, ldc: i64, d: ptr, ldd: i64, m: i64, n: i64, k: i64, flags: i64, index: ptr_to(i32),
        scale_a: ptr, scale_b: ptr,
    ) -> None:  # fmt: skip
        inner(a, b, c, ldc, d, ldd, m, n, k, flags, index, scale_a, scale_b)

    return Native(dot_sparse if sparse else dot, name)
