"""The nvcc half of the corpus: one case a launch. Architecture 90a only where a kernel needs it."""

from tests.kernels.arguments import arr, bits, inout, out

INT = ["integers", -100, 100]
SMALL = ["integers", 0, 256]


def tensor_map(buffer, *box, **more):
    """A tensor map of a buffer, by value. box: as the buffer's shape, outermost first."""
    return {"tensormap": buffer, "box": list(box), **more}


def case(entry, file, grid, block, args, *, name=None, arch="90", **more):
    def three(n):
        return [n, 1, 1] if isinstance(n, int) else n

    return {"name": name or entry, "entry": entry, "file": file, "arch": arch, "grid": three(grid),
            "block": three(block), "args": args, **more}


def wmma(name, ta, tc, td, m, n, k, warps, dist="normal"):
    """The four layout combinations of one wmma type and shape, two warps a block."""
    return [case(f"wmma_{name}_{lay}", "wmma.cu", -(-warps // 2), 64,
                 [arr(ta, m, k, seed=1, dist=dist), arr(ta, k, n, seed=2, dist=dist),
                  arr(tc, m, n, seed=3, dist=INT if tc == "s32" else "normal"), out(td, m, n), m, n, k])
            for lay in ("rr", "rc", "cr", "cc")]  # fmt: skip


EDGE = ["values", 0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, 3.5, -2.5, 1e-40, -3e-42, 1.1754942e-38, 3.4028235e38, -3.4e38,
        float("inf"), float("-inf"), float("nan"), 65504.0, 65520.0, 6e-8, 2147483648.0, -2147483904.0, 1e-20, 1e20,
        448.0, 464.0, 57344.0, 61440.0, 0.1, 0.3333333, 255.5, -0.75]  # fmt: skip

GEMMS = ((256, 128, 64, 1), (300, 264, 200, 2), (512, 512, 512, 4))  # and pairs of blocks that share them

CASES = [
    *wmma("f16_f32", "f16", "f32", "f32", 32, 32, 48, 4),
    *wmma("f16_f16", "f16", "f16", "f16", 32, 32, 32, 4),
    *wmma("f16_32x8", "f16", "f32", "f32", 32, 16, 32, 2),
    *wmma("f16_8x32", "f16", "f16", "f16", 16, 32, 32, 2),
    *wmma("bf16", "bf16", "f32", "f32", 32, 32, 32, 4),
    *wmma("bf16_32x8", "bf16", "f32", "f32", 32, 16, 32, 2),
    *wmma("bf16_8x32", "bf16", "f32", "f32", 16, 32, 32, 2),
    *wmma("tf32", "f32", "f32", "f32", 32, 32, 24, 4),
    *wmma("s8", "s8", "s32", "s32", 32, 32, 32, 4, "bits"),
    *wmma("u8", "u8", "s32", "s32", 32, 32, 32, 4, "bits"),
    *wmma("s8_32x8", "s8", "s32", "s32", 32, 16, 32, 2, "bits"),
    *wmma("u8_8x32", "u8", "s32", "s32", 16, 32, 32, 2, "bits"),
    *wmma("f64", "f64", "f64", "f64", 16, 16, 16, 4),
    case("wmma_shared_tf32", "wmma.cu", 1, 32,
         [arr("f32", 16, 16), arr("f32", 16, 16, seed=2), out("f32", 16, 16), {"f32": 0.7}]),
    case("wmma_s4", "wmma.cu", 1, 32, [bits("s32", 8, 4), bits("s32", 8, 4, seed=2), out("s32", 8, 8)]),
    case("wmma_u4", "wmma.cu", 1, 32, [bits("s32", 8, 4), bits("s32", 8, 4, seed=2), out("s32", 8, 8)]),
    case("wmma_b1", "wmma.cu", 1, 32, [bits("s32", 8, 4), bits("s32", 8, 4, seed=2), out("s32", 8, 8)]),
    case("hgemm_3_stages", "tensor.cu", [2, 2, 1], 128,
         [arr("f16", 128, 96), arr("f16", 96, 128, seed=2), out("f32", 128, 128), 128, 128, 96], shared=24576),
    case("hgemm_3_stages", "tensor.cu", [2, 2, 1], 128,
         [arr("f16", 75, 40), arr("f16", 40, 72, seed=2), out("f32", 75, 72), 75, 72, 40], shared=24576,
         name="hgemm_3_stages_odd"),
    case("matrix_moves", "tensor.cu", 1, 32, [bits("u32", 128), out("u32", 416)]),
    case("mma_registers", "tensor.cu", 1, 32,
         [bits("u32", 128), bits("u32", 128, seed=2), bits("u32", 128, seed=3), out("u32", 8, 4, 32)]),
    # control
    case("divergent_loop", "control.cu", 1, 64, [bits("s32", 64), out("s32", 64)],
         note="masks come from __activemask() in a diverged loop: the outcome depends on how lanes reconverge"),
    case("nested_branches", "control.cu", 2, 64, [bits("s32", 128), out("u32", 128)]),
    case("shuffles", "control.cu", 1, 32, [arr("s32", 32, dist=INT), out("s32", 608)]),
    case("reductions", "control.cu", 2, 128, [arr("s32", 256, dist=INT), out("s32", 2048), out("f32", 2)],
         name="block_reductions"),
    case("dense_switch", "control.cu", 1, 32, [bits("s32", 32), out("s32", 32)]),
    case("early_exit", "control.cu", 1, 128, [bits("s32", 128), out("s32", 128)]),
    case("calls", "control.cu", 1, 32, [arr("f32", 97), arr("s32", 32, dist=INT, seed=2), out("f32", 128),
                                        out("s32", 192)]),
    case("function_pointers", "control.cu", 1, 32, [bits("s32", 32), out("s32", 32)]),
    case("virtual_calls", "control.cu", 1, 32, [arr("f32", 33), out("f32", 32)]),
    case("mandelbrot", "control.cu", 10, 128, [out("s32", 1280), 64, {"f32": 0.05}]),
    # memory
    case("constants", "memory.cu", 1, 32, [bits("s32", 32), out("f32", 32), out("s32", 64)]),
    case("shared_mix", "memory.cu", 1, 96, [arr("s32", 96, dist=INT), out("s32", 96), 80], shared=800),
    case("generic_pointers", "memory.cu", 1, 32, [arr("s32", 64, dist=["integers", 0, 100]), out("s32", 128)]),
    case("local_arrays", "memory.cu", 2, 32, [bits("s32", 256), out("s32", 128)],
         note="both blocks compute the same"),
    case("struct_parameters", "memory.cu", 1, 32,
         [{"struct": 80, "fields": [[0, "f32", 1.5], [4, "s32", 30], [8, "s16", -7], [16, "f64", 0.125], [24, "s8", 9],
                                    [32, "s16", 11], [40, "f64", -2.5], [48, "s8", 1], [56, "u64", {"buffer": 0}],
                                    [64, "u64", {"buffer": 1}], [72, "u8", 5]]}, -3,
          {"struct": 24, "fields": [[0, "s16", 21], [8, "f64", 3.75], [16, "s8", 65]]},
          {"struct": 12, "fields": [[0, "s32", 1], [4, "s32", 2], [8, "s32", 3]]}],
         buffers=[arr("f32", 32), out("f32", 32)]),
    case("accesses", "memory.cu", 1, 32, [bits("u32", 32, 4), out("u32", 1024), bits("u8", 128, seed=2), out("u8", 96),
                                          inout("s32", 32, seed=3)]),
    case("identity", "memory.cu", [3, 2, 2], [8, 4, 2], [out("s32", 12, 64, 8)]),
    # integer
    case("wide_integers", "integer.cu", 2, 128, [bits("s64", 200), out("s64", 21, 200), 200]),
    case("narrow_integers", "integer.cu", 2, 128, [bits("s32", 200), out("s32", 33, 200), 200]),
    case("packed_integers", "integer.cu", 1, 128, [bits("u32", 100), out("u32", 18, 100), 100]),
    case("hashes", "integer.cu", 1, 32, [bits("u8", 200), 200, out("u32", 32), out("u32", 32), out("u64", 32)]),
    case("sha256", "integer.cu", 1, 32, [bits("u32", 32, 16), out("u32", 32, 8)]),
    # floats
    case("f32_roundings", "floats.cu", 2, 64, [arr("f32", 120), out("f32", 33, 120), 120]),
    case("f32_roundings", "floats.cu", 1, 32, [arr("f32", 32, dist=EDGE), out("f32", 33, 32), 32],
         name="f32_roundings_edges"),
    case("f32_roundings", "floats.cu", 4, 64, [bits("f32", 256), out("f32", 33, 256), 256], name="f32_roundings_bits"),
    case("f64_arithmetic", "floats.cu", 2, 64, [arr("f64", 120), out("f64", 15, 120), 120]),
    case("f64_arithmetic", "floats.cu", 2, 64, [bits("f64", 120), out("f64", 15, 120), 120],
         name="f64_arithmetic_bits"),
    case("f64_library", "floats.cu", 2, 64, [arr("f64", 100), out("f64", 12, 100), 100]),
    case("f32_library", "floats.cu", 2, 64, [arr("f32", 100), out("f32", 32, 100), 100]),
    case("f32_library", "floats.cu", 1, 32, [arr("f32", 32, dist=EDGE), out("f32", 32, 32), 32],
         name="f32_library_edges"),
    case("f32_intrinsics", "floats.cu", 2, 64, [arr("f32", 100), out("f32", 12, 100), 100]),
    case("halves", "floats.cu", 2, 64, [arr("f16", 120), out("f16", 34, 120), 120]),
    case("halves", "floats.cu", 4, 64, [bits("f16", 256), out("f16", 34, 256), 256], name="halves_bits"),
    case("bfloats", "floats.cu", 2, 64, [arr("bf16", 120), out("bf16", 19, 120), 120]),
    case("bfloats", "floats.cu", 4, 64, [bits("bf16", 256), out("bf16", 19, 256), 256], name="bfloats_bits"),
    case("fp8_conversions", "floats.cu", 2, 64, [arr("f32", 100), out("u32", 2, 100), out("f32", 3, 100), 100]),
    case("fp8_conversions", "floats.cu", 1, 32, [arr("f32", 32, dist=EDGE), out("u32", 2, 32), out("f32", 3, 32), 32],
         name="fp8_conversions_edges"),
    case("conversions", "floats.cu", 2, 64,
         [arr("f32", 100), bits("s32", 100, seed=2), out("s32", 8, 100), out("f32", 8, 100), out("s64", 6, 100), 100]),
    case("conversions", "floats.cu", 1, 32,
         [arr("f32", 32, dist=EDGE), bits("s32", 32, seed=2), out("s32", 8, 32), out("f32", 8, 32), out("s64", 6, 32),
          32], name="conversions_edges"),
    case("summation", "floats.cu", 1, 32, [arr("f32", 300), out("f32", 128), 300]),
    case("fast_math", "fast.cu", 2, 64, [arr("f32", 100), out("f32", 16, 100), 100], flags=["-use_fast_math"]),
    case("fast_math", "fast.cu", 1, 32, [arr("f32", 32, dist=EDGE), out("f32", 16, 32), 32], flags=["-use_fast_math"],
         name="fast_math_edges"),
    # synchronisation
    case("named_barriers", "sync.cu", 1, 128, [arr("s32", 256, dist=INT), out("s32", 384)]),
    case("spin_flag", "sync.cu", 2, 64, [arr("s32", 64, dist=INT), out("s32", 128), out("s32", 128), out("s32", 1)]),
    case("last_block", "sync.cu", 5, 64, [arr("s32", 1000, dist=INT), out("s32", 5), out("s32", 1), 1000]),
    case("warp_lock", "sync.cu", 2, 32, [out("s32", 1), out("s32", 1), out("s32", 64)]),
    case("integer_atomics", "sync.cu", 1, 128,
         [bits("s32", 128), inout("s32", 256), inout("s64", 256), out("s32", 1088)]),
    case("float_atomics", "sync.cu", 1, 128,
         [bits("s32", 128), out("f32", 136), out("f64", 4), out("f16", 32), out("bf16", 8), out("f32", 24)]),
    case("library_barriers", "sync.cu", 1, 64, [arr("s32", 64, dist=INT), out("s32", 195)]),
    case("groups", "sync.cu", 1, 64, [arr("s32", 64, dist=INT), out("s32", 192)]),
    case("mbarriers", "sync.cu", 1, 64, [out("u64", 1), out("s32", 65)]),
    # algorithms
    case("block_scan", "algorithms.cu", 2, 256, [arr("s32", 512, dist=INT), out("s32", 512), out("s32", 2)]),
    case("look_back_scan", "algorithms.cu", 6, 64,
         [arr("s32", 350, dist=INT), out("s32", 350), out("u64", 6), out("u32", 1), 350]),
    case("bitonic_sort", "algorithms.cu", 1, 256, [arr("f32", 256), out("f32", 256)]),
    case("radix_pass", "algorithms.cu", 1, 128, [bits("u32", 128), out("u32", 128), 8]),
    case("tiled_transpose", "algorithms.cu", [3, 2, 1], [16, 16, 1], [bits("f32", 30, 45), out("f32", 45, 30), 45, 30]),
    case("sgemm_tiled", "algorithms.cu", [3, 2, 1], [16, 16, 1],
         [arr("f32", 30, 37), arr("f32", 37, 40, seed=2), out("f32", 30, 40), 30, 40, 37]),
    case("stencil", "algorithms.cu", [3, 2, 1], [16, 16, 1],
         [arr("f32", 30, 45), out("f32", 30, 45), 45, 30, {"f32": 0.2}]),
    case("sparse_rows", "algorithms.cu", 1, 128,
         [["in", "s32", [15], {"dist": ["values", 0, 3, 3, 10, 30, 31, 40, 64, 65, 66, 90, 91, 100, 119, 120]}],
          arr("s32", 120, seed=2, dist=["integers", 0, 50]), arr("f32", 120, seed=3), arr("f32", 50, seed=4),
          out("f32", 14), 14]),
    case("breadth_first", "algorithms.cu", 1, 64,
         [["inout", "s32", [150], {"dist": ["values", 0, *[-1] * 149]}], 150, 37]),
    case("nbody", "algorithms.cu", 2, 32, [arr("f32", 64, 4, dist="uniform"), out("f32", 64, 4), 64]),
    case("fft64", "algorithms.cu", 1, 32, [arr("f32", 64, 2), out("f32", 64, 2)]),
    case("lu16", "algorithms.cu", 1, [16, 16, 1], [arr("f64", 16, 16), out("f64", 16, 16)]),
    case("life", "algorithms.cu", 8, 128, [arr("u8", 30, 33, dist=["integers", 0, 2]), out("u8", 30, 33), 33, 30]),
    case("histogram_shared", "algorithms.cu", 3, 128, [bits("u8", 3000), out("u32", 256), 3000]),
    # Hopper
    case("wgmma_f16", "hopper.cu", 1, 256,
         [arr("f16", 128, 64), arr("f16", 32, 64, seed=2), out("f32", 128, 32), out("f32", 128, 32)], arch="90a",
         shared=20480),
    case("bulk_copy", "hopper.cu", 1, 128, [bits("s32", 5, 256), out("s32", 5, 256), 5], arch="90a"),
    case("bulk_reduce", "hopper.cu", 4, 128, [arr("s32", 512, dist=INT), out("s32", 128)], arch="90a"),
    case("cluster_exchange", "hopper.cu", 2, 64, [bits("s32", 128), out("s32", 130)], arch="90a"),
    case("specialised", "hopper.cu", 1, 256, [arr("s32", 384, dist=INT), out("s32", 384)], arch="90a"),
    case("asserting", "debug.cu", 1, 32, [arr("s32", 32, dist=INT), out("s32", 32), 1000]),
    case("printing", "debug.cu", 1, 32, [arr("s32", 32, dist=INT), out("s32", 32)]),
    case("wgmma_types", "hopper.cu", 1, 128,
         [bits("u8", 64, 32), bits("u8", 16, 32, seed=2), out("f32", 4, 8, 128), out("s32", 2, 8, 128)], arch="90a",
         shared=10240),
    case("cluster_async", "hopper.cu", 4, 64, [bits("s32", 320), out("s32", 768)], arch="90a"),
    case("copy_arrive", "hopper.cu", 1, 64, [bits("s32", 512), out("s32", 512)], arch="90a"),
    # pipelines: barriers of libcu++, tensor maps, clusters
    case("barrier_bulk", "pipelines.cu", 1, 128, [arr("f32", 5, 512), out("f32", 5, 512), 5], arch="90a"),
    case("barrier_phases", "pipelines.cu", 1, 64, [arr("s32", 256, dist=INT), out("s32", 64)], arch="90a"),
    case("pipeline_unified", "pipelines.cu", 1, 256, [bits("s32", 9, 256), out("s32", 9, 256), 9], arch="90a"),
    case("pipeline_roles", "pipelines.cu", 1, 128, [bits("s32", 1000), out("s32", 7, 64), 7], arch="90a"),
    case("pipeline_thread", "pipelines.cu", 1, 64, [bits("s32", 6, 256), out("s32", 6, 64), 6], arch="90a"),
    *(case("boxes", "pipelines.cu", [2, 2, 1], 64, [tensor_map(0, 1, 16, 32, oob_fill=fill), tensor_map(1, 16, 32),
                                                   tensor_map(2, 16, 32), 50],
           name=f"boxes_{fill}", buffers=[arr("f16", 2, 50, 64), inout("f16", 50, 56), inout("f16", 30, 40, dist="normal")],
           arch="90a") for fill in ("zero", "nan")),
    case("made_here", "pipelines.cu", 3, 64, [tensor_map(0, 4, 8), ["scratch", "u8", [384]], bits("s32", 24, 36),
                                              out("s32", 24, 48), 36], buffers=[bits("s32", 24, 36, seed=2)], arch="90a"),
    case("cluster_sums", "pipelines.cu", 8, 32, [arr("s32", 256, dist=INT), out("s32", 264)], arch="90a"),
    *(case("gemm_tma", "gemm_pipelines.cu", 2 * pairs, 384,
           [tensor_map(0, 128, 64, swizzle="128B"), tensor_map(1, 64, 64, swizzle="128B"),
            tensor_map(2, 64, 64, swizzle="128B"), m, n, k], name=f"gemm_tma_{m}x{n}x{k}", arch="90a", shared=164864,
           buffers=[arr("f16", m, k), arr("f16", n, k, seed=2), out("f16", m, n)]) for m, n, k, pairs in GEMMS),
    *(case("gemm_cp_async", "gemm_pipelines.cu", [-(-m // 128), -(-n // 128), 1], 256,
           [arr("f16", m, k), arr("f16", n, k, seed=2), out("f16", m, n), m, n, k], name=f"gemm_cp_async_{m}x{n}x{k}",
           arch="90a", shared=164864) for m, n, k, _ in GEMMS),
]

# The same again as debuggers see it: nvcc -G leaves every variable in local memory behind generic addresses.
CASES += [{**c, "name": f"{c['name']}_debug", "variant": "debug", "flags": ["-G"]} for c in CASES
          if c["file"] in ("control.cu", "memory.cu")]  # fmt: skip
CASES += [{**c, "name": f"{c['name']}_lineinfo", "variant": "lineinfo", "flags": ["-lineinfo"]} for c in CASES
          if c["name"] in ("sgemm_tiled", "look_back_scan", "fft64")]  # fmt: skip
