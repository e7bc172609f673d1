"""Kernels of Triton that the tests launch."""

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m) + tl.load(y_ptr + i, mask=m), mask=m)


@triton.jit
def copy(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def odd_copy(x_ptr, o_ptr, n, BLOCK: tl.constexpr, ODD: tl.constexpr):
    """With ODD by an instruction that wants several GPUs."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    if ODD:
        text: tl.constexpr = "multimem.ld_reduce.relaxed.gpu.global.add.f32 $0, [$1];"
        v = tl.inline_asm_elementwise(text, "=f,l", [(x_ptr + i).to(tl.int64)], dtype=tl.float32, is_pure=False, pack=1)
    tl.store(o_ptr + i, v, mask=i < n)


@triton.jit
def scalars(o_ptr, a, b, c, d: tl.float32, e: tl.bfloat16, f: tl.float16, g: tl.int8, h: tl.uint64, k: tl.float64):
    tl.store(o_ptr + 0, a.to(tl.float64))
    tl.store(o_ptr + 1, b.to(tl.float64))
    tl.store(o_ptr + 2, c.to(tl.float64))
    tl.store(o_ptr + 3, d.to(tl.float64))
    tl.store(o_ptr + 4, e.to(tl.float32).to(tl.float64))
    tl.store(o_ptr + 5, f.to(tl.float64))
    tl.store(o_ptr + 6, g.to(tl.float64))
    tl.store(o_ptr + 7, h.to(tl.float64))
    tl.store(o_ptr + 8, k)


@triton.jit
def grouped(addresses, sizes, o_ptr, BLOCK: tl.constexpr):
    g = tl.program_id(0)
    p = tl.load(addresses + g).to(tl.pointer_type(tl.float32))
    n = tl.load(sizes + g)
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + g, tl.sum(tl.load(p + i, mask=i < n, other=0.0), 0))


@triton.jit
def pair(ptrs, o_ptr, scale, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + i, (tl.load(ptrs[0] + i) + tl.load(ptrs[1] + i)) * scale)


@triton.jit
def matmul(a, b, c, K, BLOCK: tl.constexpr):
    r = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        x = tl.load(a + r[:, None] * K + k + r[None, :])
        y = tl.load(b + (k + r[:, None]) * BLOCK + r[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + r[:, None] * BLOCK + r[None, :], acc)


@triton.jit
def tile(d, o_ptr, N: tl.constexpr):
    x = d.load([N, 0])
    i = tl.arange(0, N)
    tl.store(o_ptr + i[:, None] * N + i[None, :], x)


@triton.jit
def scratch(x_ptr, o_ptr, N: tl.constexpr):
    d = tl.make_tensor_descriptor(x_ptr, [2 * N, N], [N, 1], [N, N])
    i = tl.arange(0, N)
    tl.store(o_ptr + i[:, None] * N + i[None, :], d.load([N, 0]))


@triton.jit
def says(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.device_print("x", tl.load(x_ptr + i))


@triton.jit
def asserts(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.device_assert(x > 0, "x is not positive")
    tl.store(x_ptr + tl.arange(0, BLOCK), x + 1)


@triton.jit
def meet(count, o_ptr, BLOCKS: tl.constexpr):
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < BLOCKS:
        pass
    tl.store(o_ptr + tl.program_id(0), 1)


# tensor descriptors -------------------------------------------------------------------------------------------------
@triton.jit
def copy1(x, o, A: tl.constexpr):
    i = tl.program_id(0) * A
    o.store([i], x.load([i]))


@triton.jit
def copy2(x, o, A: tl.constexpr, B: tl.constexpr):
    i, j = tl.program_id(0) * A, tl.program_id(1) * B
    o.store([i, j], x.load([i, j]))


@triton.jit
def copy3(x, o, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i, j, k = tl.program_id(0) * A, tl.program_id(1) * B, tl.program_id(2) * C
    o.store([i, j, k], x.load([i, j, k]))


@triton.jit
def copy5(x, o, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr):
    i, j, k = tl.program_id(0) * A, tl.program_id(1) * B, tl.program_id(2) * C
    o.store([i, j, k, 0, 0], x.load([i, j, k, 0, 0]))


@triton.jit
def copy_device(x_ptr, o_ptr, m, n, A: tl.constexpr, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [A, B])
    o = tl.make_tensor_descriptor(o_ptr, [m, n], [n, 1], [A, B])
    copy2(x, o, A, B)


@triton.jit
def padded(x, o_ptr, A: tl.constexpr, B: tl.constexpr):
    """Blocks of two columns of blocks, one after the other."""
    number = tl.program_id(0) * 2 + tl.program_id(1)
    inside = tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(o_ptr + number * A * B + inside, x.load([tl.program_id(0) * A, tl.program_id(1) * B]))


@triton.jit
def padded_device(x_ptr, m, n, o_ptr, A: tl.constexpr, B: tl.constexpr):
    padded(tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [A, B], padding_option="nan"), o_ptr, A, B)


@triton.jit
def reduces(x_ptr, o, OP: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    v = tl.load(x_ptr + tl.arange(0, A)[:, None] * B + tl.arange(0, B)[None, :])
    if OP == "add":
        o.atomic_add([0, 0], v)
    else:
        o.atomic_max([0, 0], v)


@triton.jit
def product(a, b, c, length, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """a @ b.T"""
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, length, K):
        acc = tl.dot(a.load([row, k]), b.load([column, k]).T, acc)
    c.store([row, column], acc)


@triton.jit
def persistent(a_ptr, b_ptr, c_ptr, m, n, length, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """The same, a block for several tiles, loads by warps of their own."""
    a = tl.make_tensor_descriptor(a_ptr, [m, length], [length, 1], [M, K])
    b = tl.make_tensor_descriptor(b_ptr, [n, length], [length, 1], [N, K])
    c = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [M, N])
    columns = tl.cdiv(n, N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, M) * columns, tl.num_programs(0), warp_specialize=True, num_stages=2):
        row, column = tile // columns * M, tile % columns * N
        acc = tl.zeros((M, N), tl.float32)
        for k in range(tl.cdiv(length, K)):
            acc = tl.dot(a.load([row, k * K]), b.load([column, k * K]).T, acc)
        c.store([row, column], acc.to(tl.float16))


@triton.jit
def summed(x_ptr, o_ptr, N: tl.constexpr):
    tl.store(o_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))))


@triton.jit
def counted(count_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(count_ptr, 1)


@triton.jit
def wide(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    """A thread loads and stores several vectors in one statement."""
    i = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n, other=0.0)  # the load
    v = v * 3.0
    v = v + 1.0
    tl.store(o_ptr + i, v, mask=i < n)  # the store
