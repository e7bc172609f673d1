// Matrix products through nvcuda::wmma: every type and shape, both layouts of each operand, one warp per tile.
#include <mma.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
using namespace nvcuda;

template <class L> __device__ constexpr bool row = false;
template <> __device__ constexpr bool row<wmma::row_major> = true;

// D = A B + C for one M by N tile a warp, K in steps; strides are those of tight arrays in the operand's own layout.
template <int M, int N, int K, class T, class TC, class TD, class LA, class LB, class S>
__device__ void product(const S* a, const S* b, const TC* c, TD* d, int m, int n, int k, wmma::layout_t lc) {
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, columns = n / N;
  int i = warp / columns * M, j = warp % columns * N;
  if (i >= m) return;
  wmma::fragment<wmma::matrix_a, M, N, K, T, LA> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, T, LB> fb;
  wmma::fragment<wmma::accumulator, M, N, K, TC> fc;
  wmma::fragment<wmma::accumulator, M, N, K, TD> fd;
  int ldc = lc == wmma::mem_row_major ? n : m, at = lc == wmma::mem_row_major ? i * n + j : j * m + i;
  wmma::load_matrix_sync(fc, c + at, ldc, lc);
  for (int t = 0; t < k; t += K) {
    wmma::load_matrix_sync(fa, a + (row<LA> ? i * k + t : t * m + i), row<LA> ? k : m);
    wmma::load_matrix_sync(fb, b + (row<LB> ? t * n + j : j * k + t), row<LB> ? n : k);
    wmma::mma_sync(fd, fa, fb, fc);
    for (int e = 0; e < fc.num_elements; e++) fc.x[e] = fd.x[e];
  }
  wmma::store_matrix_sync(d + at, fd, ldc, lc);
}

#define WMMA(NAME, M, N, K, T, S, TC, TD, LA, LB, LC)                                                              \
  extern "C" __global__ void NAME(const S* a, const S* b, const TC* c, TD* d, int m, int n, int k) {               \
    product<M, N, K, T, TC, TD, wmma::LA, wmma::LB>(a, b, c, d, m, n, k, wmma::mem_##LC);                          \
  }
#define LAYOUTS(NAME, M, N, K, T, S, TC, TD)                                 \
  WMMA(NAME##_rr, M, N, K, T, S, TC, TD, row_major, row_major, row_major)    \
  WMMA(NAME##_rc, M, N, K, T, S, TC, TD, row_major, col_major, col_major)    \
  WMMA(NAME##_cr, M, N, K, T, S, TC, TD, col_major, row_major, row_major)    \
  WMMA(NAME##_cc, M, N, K, T, S, TC, TD, col_major, col_major, col_major)

LAYOUTS(wmma_f16_f32, 16, 16, 16, half, half, float, float)
LAYOUTS(wmma_f16_f16, 16, 16, 16, half, half, half, half)
LAYOUTS(wmma_f16_32x8, 32, 8, 16, half, half, float, float)
LAYOUTS(wmma_f16_8x32, 8, 32, 16, half, half, half, half)
LAYOUTS(wmma_bf16, 16, 16, 16, __nv_bfloat16, __nv_bfloat16, float, float)
LAYOUTS(wmma_bf16_32x8, 32, 8, 16, __nv_bfloat16, __nv_bfloat16, float, float)
LAYOUTS(wmma_bf16_8x32, 8, 32, 16, __nv_bfloat16, __nv_bfloat16, float, float)
LAYOUTS(wmma_tf32, 16, 16, 8, wmma::precision::tf32, float, float, float)
LAYOUTS(wmma_s8, 16, 16, 16, signed char, signed char, int, int)
LAYOUTS(wmma_u8, 16, 16, 16, unsigned char, unsigned char, int, int)
LAYOUTS(wmma_s8_32x8, 32, 8, 16, signed char, signed char, int, int)
LAYOUTS(wmma_u8_8x32, 8, 32, 16, unsigned char, unsigned char, int, int)
LAYOUTS(wmma_f64, 8, 8, 4, double, double, double, double)

// Operands pass through shared memory with padded strides, and tf32 is rounded explicitly.
extern "C" __global__ void wmma_shared_tf32(const float* a, const float* b, float* d, float alpha) {
  __shared__ float sa[16][20], sb[16][24], sd[16 * 20];
  for (int i = threadIdx.x; i < 256; i += 32) sa[i / 16][i % 16] = a[i], sb[i / 16][i % 16] = b[i];
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> acc;
  wmma::fill_fragment(acc, 0.5f);
  for (int k = 0; k < 16; k += 8) {
    wmma::load_matrix_sync(fa, &sa[0][k], 20);
    wmma::load_matrix_sync(fb, &sb[0][k], 24);
    for (int t = 0; t < fa.num_elements; t++) fa.x[t] = wmma::__float_to_tf32(fa.x[t]);
    for (int t = 0; t < fb.num_elements; t++) fb.x[t] = wmma::__float_to_tf32(fb.x[t] * alpha);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  wmma::store_matrix_sync(sd, acc, 20, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) d[i] = sd[i / 16 * 20 + i % 16];
}

// Four-bit and one-bit operands.
extern "C" __global__ void wmma_s4(const int* a, const int* b, int* d) {
  wmma::fragment<wmma::matrix_a, 8, 8, 32, wmma::experimental::precision::s4, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, 32, wmma::experimental::precision::s4, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, 32, int> acc;
  wmma::fill_fragment(acc, -7);
  wmma::load_matrix_sync(fa, a, 32);
  wmma::load_matrix_sync(fb, b, 32);
  wmma::mma_sync(acc, fa, fb, acc, true);
  wmma::store_matrix_sync(d, acc, 8, wmma::mem_row_major);
}
extern "C" __global__ void wmma_u4(const int* a, const int* b, int* d) {
  wmma::fragment<wmma::matrix_a, 8, 8, 32, wmma::experimental::precision::u4, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, 32, wmma::experimental::precision::u4, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, 32, int> acc;
  wmma::fill_fragment(acc, 3);
  wmma::load_matrix_sync(fa, a, 32);
  wmma::load_matrix_sync(fb, b, 32);
  wmma::mma_sync(acc, fa, fb, acc);
  wmma::store_matrix_sync(d, acc, 8, wmma::mem_col_major);
}
extern "C" __global__ void wmma_b1(const int* a, const int* b, int* d) {
  wmma::fragment<wmma::matrix_a, 8, 8, 128, wmma::experimental::precision::b1, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 8, 8, 128, wmma::experimental::precision::b1, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 8, 8, 128, int> acc;
  wmma::fill_fragment(acc, 0);
  wmma::load_matrix_sync(fa, a, 128);
  wmma::load_matrix_sync(fb, b, 128);
  wmma::bmma_sync(acc, fa, fb, acc, wmma::experimental::bmmaBitOpXOR);
  wmma::bmma_sync(acc, fa, fb, acc, wmma::experimental::bmmaBitOpAND);
  wmma::store_matrix_sync(d, acc, 8, wmma::mem_row_major);
}
