// mma.sync and its helpers in inline PTX: ldmatrix, stmatrix, movmatrix, cp.async, sparse metadata.
#include <cuda_fp16.h>
#include <cstdint>

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// 64x64 tile a block of 4 warps, three stages of cp.async, XOR-swizzled shared memory, ldmatrix with and without .trans.
template <int STAGES> __device__ void hgemm(const half* a, const half* b, float* c, int m, int n, int k) {
  extern __shared__ __align__(128) half tiles[];
  half *sa = tiles, *sb = tiles + STAGES * 64 * 32;
  int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, bm = blockIdx.y * 64, bn = blockIdx.x * 64;
  float acc[8][4] = {};
  auto load = [&](int stage, int k0) {
    for (int i = tid; i < 64 * 4; i += 128) {  // A: 64 rows of 32 halves, 16 bytes a step
      int r = i / 4, q = i % 4, bytes = bm + r < m && k0 + q * 8 < k ? 16 : 0;
      uint32_t to = shared_address(sa + stage * 64 * 32 + r * 32 + ((q ^ ((r >> 1) & 3)) * 8));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(a + (bm + r) * k + k0 + q * 8), "r"(bytes));
    }
    for (int i = tid; i < 32 * 8; i += 128) {  // B: 32 rows of 64 halves
      int r = i / 8, q = i % 8, bytes = k0 + r < k && bn + q * 8 < n ? 16 : 0;
      uint32_t to = shared_address(sb + stage * 32 * 64 + r * 64 + ((q ^ (r & 7)) * 8));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(b + (k0 + r) * n + bn + q * 8), "r"(bytes));
    }
    asm volatile("cp.async.commit_group;");
  };
  int steps = (k + 31) / 32;
  for (int s = 0; s < STAGES - 1; s++) s < steps ? load(s, s * 32) : (void)({ asm volatile("cp.async.commit_group;"); });
  for (int step = 0; step < steps; step++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
    __syncthreads();
    const half *ta = sa + step % STAGES * 64 * 32, *tb = sb + step % STAGES * 32 * 64;
    for (int kk = 0; kk < 32; kk += 16) {
      uint32_t fa[4];
      int r = warp * 16 + lane % 16, q = kk / 8 + lane / 16;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                   : "r"(shared_address(ta + r * 32 + ((q ^ ((r >> 1) & 3)) * 8))));
      for (int j = 0; j < 8; j++) {
        uint32_t fb[2];
        int rb = kk + lane % 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(fb[0]), "=r"(fb[1]) : "r"(shared_address(tb + rb * 64 + ((j ^ (rb & 7)) * 8))));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(acc[j][0]), "+f"(acc[j][1]), "+f"(acc[j][2]), "+f"(acc[j][3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
      }
    }
    if (step + STAGES - 1 < steps) load((step + STAGES - 1) % STAGES, (step + STAGES - 1) * 32);
    else asm volatile("cp.async.commit_group;");
  }
  for (int j = 0; j < 8; j++)
    for (int e = 0; e < 4; e++) {
      int r = bm + warp * 16 + lane / 4 + e / 2 * 8, q = bn + j * 8 + lane % 4 * 2 + e % 2;
      if (r < m && q < n) c[r * n + q] = acc[j][e];
    }
}
extern "C" __global__ void hgemm_3_stages(const half* a, const half* b, float* c, int m, int n, int k) { hgemm<3>(a, b, c, m, n, k); }

// Every lane's view of ldmatrix, stmatrix and movmatrix.
extern "C" __global__ void matrix_moves(const uint32_t* in, uint32_t* out) {
  __shared__ __align__(16) uint32_t s[128], t[128];
  int lane = threadIdx.x;
  for (int i = lane; i < 128; i += 32) s[i] = in[i], t[i] = 0;
  __syncwarp();
  uint32_t r[4], at = shared_address(s + lane * 4), to = shared_address(t + (lane ^ 5) * 4);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
  for (int i = 0; i < 4; i++) out[i * 32 + lane] = r[i];
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r[0]) : "r"(r[0]));
  out[128 + lane] = r[0];
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
  __syncwarp();
  for (int i = 0; i < 4; i++) out[160 + i * 32 + lane] = t[i * 32 + lane];
  __syncwarp();
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(at), "r"(r[2]), "r"(r[3]) : "memory");
  __syncwarp();
  for (int i = 0; i < 4; i++) out[288 + i * 32 + lane] = s[i * 32 + lane];
}

// One warp, registers straight from memory: integer, FP8, sparse and double precision products side by side.
extern "C" __global__ void mma_registers(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d) {
  int l = threadIdx.x;
  uint32_t A[4] = {a[l], a[32 + l], a[64 + l], a[96 + l]}, B[4] = {b[l], b[32 + l], b[64 + l], b[96 + l]};
  uint32_t C[4] = {c[l], c[32 + l], c[64 + l], c[96 + l]}, D[4];
#define STORE(N) for (int i = 0; i < 4; i++) d[(N * 4 + i) * 32 + l] = D[i];
#define MMA(N, OP)                                                                                             \
  asm volatile(OP " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                                  \
               : "=r"(D[0]), "=r"(D[1]), "=r"(D[2]), "=r"(D[3])                                                \
               : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]), "r"(C[0]), "r"(C[1]), "r"(C[2]), "r"(C[3])); \
  STORE(N)
  MMA(0, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
  MMA(1, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32")
  MMA(2, "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32")
  MMA(3, "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc")
#define MMAF(N, OP)                                                                                            \
  asm volatile("{.reg .f32 x<8>; mov.b32 x4,%10; mov.b32 x5,%11; mov.b32 x6,%12; mov.b32 x7,%13;\n" OP         \
               " {x0,x1,x2,x3}, {%4,%5,%6,%7}, {%8,%9}, {x4,x5,x6,x7};\n"                                      \
               "mov.b32 %0,x0; mov.b32 %1,x1; mov.b32 %2,x2; mov.b32 %3,x3;}"                                  \
               : "=r"(D[0]), "=r"(D[1]), "=r"(D[2]), "=r"(D[3])                                                \
               : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]), "r"(C[0]), "r"(C[1]), "r"(C[2]), "r"(C[3])); \
  STORE(N)
  MMAF(4, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
  MMAF(5, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
  MMAF(6, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32")
  uint32_t e = 0x44444444u ^ (l * 0x11111111u & 0x88888888u);  // indices 0,1 or, in odd lanes' low bit pattern, 0,3
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7,%8,%9}, {%10,%11}, %12, 0x1;"
               : "=r"(D[0]), "=r"(D[1])
               : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]), "r"(B[2]), "r"(B[3]), "r"(C[0]), "r"(C[1]), "r"(e));
  D[2] = D[3] = e;
  STORE(7)
}
