// sm_90a: one GEMM, D = A B^T of f16 with sums in f32, fed in two ways. Tiles of 128 x 128 x 64, two warpgroups that multiply,
// four stages, all tiles under the 128-byte swizzle; edges of any size.
//   gemm_tma: a warpgroup that loads through tensor maps, half of B for each block of a pair and sent to both; mbarriers full and
//     empty, the latter across the pair; persistent; results stored through a tensor map.
//   gemm_cp_async: the same threads load with cp.async and multiply; one tile a block.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_fp16.h>
#include <cstdint>

namespace ptx = cuda::ptx;
constexpr int M = 128, N = 128, K = 64, STAGES = 4, TILE = M * K * 2, PAIR = 2;

struct Storage {
  alignas(1024) uint8_t a[STAGES][TILE], b[STAGES][TILE], d[2 * TILE];
  uint64_t full[STAGES], empty[STAGES];
};

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ uint64_t descriptor(const void* tile) {  // K-major, 128-byte swizzle: 8 rows are 1024 bytes
  return (uint64_t)(shared_address(tile) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}
__device__ bool elected() {
  uint32_t yes;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(yes));
  return yes;
}
__device__ void wait(uint64_t* bar, uint32_t parity) { while (!ptx::mbarrier_try_wait_parity(bar, parity)) {} }

#define SUM4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUM16(d, i) SUM4(d, i), SUM4(d, i + 4), SUM4(d, i + 8), SUM4(d, i + 12)
#define SUM64(d) SUM16(d, 0), SUM16(d, 16), SUM16(d, 32), SUM16(d, 48)
__device__ void fence(float (&d)[64]) { asm volatile("wgmma.fence.sync.aligned;" : SUM64(d)::"memory"); }
template <int LEFT> __device__ void finished(float (&d)[64]) { asm volatile("wgmma.wait_group.sync.aligned %64;" : SUM64(d) : "n"(LEFT) : "memory"); }
__device__ void multiply(float (&d)[64], const uint8_t* a, const uint8_t* b, bool add) {
  fence(d);
#pragma unroll
  for (int k = 0; k < K / 16; k++)
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
        " %64, %65, p, 1, 1, 0, 0;}"
        : SUM64(d) : "l"(descriptor(a + k * 32)), "l"(descriptor(b + k * 32)), "r"((int)(add || k)));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// 64 rows of results to shared memory, as two boxes of 64 columns under the 128-byte swizzle.
__device__ void keep(const float (&d)[64], uint8_t* to) {
  int t = threadIdx.x % 128, row = t / 32 * 16 + t % 16, half_of = t % 32 / 16;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    uint32_t word[4];
    for (int j = 0; j < 4; j++) {
      __half2 pair = __floats2half2_rn(d[i * 8 + j * 2], d[i * 8 + j * 2 + 1]);
      word[j] = *(uint32_t*)&pair;
    }
    int column = i * 16 + half_of * 8, at = column / 64 * 8192 + row * 128 + ((column % 64 / 8) ^ row % 8) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to + at)), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3]) : "memory");
  }
}

extern "C" __global__ void __cluster_dims__(PAIR, 1, 1) __launch_bounds__(384, 1)
gemm_tma(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap d, int m, int n, int k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Storage& s = *(Storage*)memory;
  uint32_t rank = ptx::get_sreg_cluster_ctarank();
  int group = threadIdx.x / 128, steps = (k + K - 1) / K, rows = (m + PAIR * M - 1) / (PAIR * M), tiles = rows * ((n + N - 1) / N);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) ptx::mbarrier_init(&s.full[i], 1), ptx::mbarrier_init(&s.empty[i], 2 * PAIR);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x < 32 && elected()) {
      int turn = 0;
      for (int tile = blockIdx.x / PAIR; tile < tiles; tile += gridDim.x / PAIR)
        for (int step = 0; step < steps; step++, turn++) {
          int stage = turn % STAGES;
          wait(&s.empty[stage], turn / STAGES & 1 ^ 1);
          ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &s.full[stage], 2 * TILE);
          int at_a[2] = {step * K, (tile % rows * PAIR + (int)rank) * M}, at_b[2] = {step * K, tile / rows * N + (int)rank * (N / PAIR)};
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, s.a[stage], &a, at_a, &s.full[stage]);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, s.b[stage] + rank * (TILE / PAIR), &b, at_b, &s.full[stage], (uint16_t)3);
        }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    uint8_t* mine = s.d + (group - 1) * TILE;
    float sums[64];
    int turn = 0;
    auto release = [&](int stage) {  // to the block of the pair whose number the thread has
      if (threadIdx.x % 128 < PAIR) {
        uint32_t remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(&s.empty[stage])), "r"(threadIdx.x % 128));
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
      }
    };
    for (int tile = blockIdx.x / PAIR; tile < tiles; tile += gridDim.x / PAIR) {
      for (int step = 0; step < steps; step++, turn++) {
        int stage = turn % STAGES;
        wait(&s.full[stage], turn / STAGES & 1);
        multiply(sums, s.a[stage] + (group - 1) * (TILE / 2), s.b[stage], step > 0);
        if (step) finished<1>(sums), release((turn - 1) % STAGES);
      }
      finished<0>(sums);
      release((turn - 1) % STAGES);
      if (threadIdx.x % 128 == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
      asm volatile("barrier.sync %0, 128;" ::"r"(group) : "memory");
      keep(sums, mine);
      ptx::fence_proxy_async(ptx::space_shared);
      asm volatile("barrier.sync %0, 128;" ::"r"(group) : "memory");
      if (threadIdx.x % 128 == 0) {
        int row = (tile % rows * PAIR + (int)rank) * M + (group - 1) * 64, left[2] = {tile / rows * N, row}, right[2] = {tile / rows * N + 64, row};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &d, left, mine);
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &d, right, mine + 8192);
        ptx::cp_async_bulk_commit_group();
      }
    }
    if (threadIdx.x % 128 == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  }
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
}

// Rows of 64 elements of one stage, 16 bytes a thread and turn; zeros beyond the edges.
__device__ void load(uint8_t* to, const half* from, int row, int rows, int column, int columns) {
  for (int i = threadIdx.x; i < M * 8; i += 256) {
    int r = i / 8, c = i % 8, bytes = row + r < rows && column + c * 8 < columns ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to + r * 128 + (c ^ r % 8) * 16)),
                 "l"(from + (bytes ? (int64_t)(row + r) * columns + column + c * 8 : 0)), "r"(bytes) : "memory");
  }
}

extern "C" __global__ void __launch_bounds__(256, 1) gemm_cp_async(const half* a, const half* b, half* d, int m, int n, int k) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Storage& s = *(Storage*)memory;
  int group = threadIdx.x / 128, steps = (k + K - 1) / K, row = blockIdx.x * M, column = blockIdx.y * N;
  float sums[64];
  auto fetch = [&](int step) {
    if (step < steps) load(s.a[step % STAGES], a, row, m, step * K, k), load(s.b[step % STAGES], b, column, n, step * K, k);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int i = 0; i < STAGES - 2; i++) fetch(i);
  for (int step = 0; step < steps; step++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 3) : "memory");
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    fetch(step + STAGES - 2);  // into the stage that the last product but one has read, in both warpgroups
    multiply(sums, s.a[step % STAGES] + group * (TILE / 2), s.b[step % STAGES], step > 0);
    finished<1>(sums);
  }
  finished<0>(sums);
  uint8_t* mine = s.d + group * TILE;
  keep(sums, mine);
  asm volatile("barrier.sync %0, 128;" ::"r"(group + 1) : "memory");
  for (int i = threadIdx.x % 128; i < 64 * 16; i += 128) {
    int r = i / 16, c = i % 16 * 8, y = row + group * 64 + r, x = column + c;
    if (y < m && x < n) *(uint4*)(d + (int64_t)y * n + x) = *(const uint4*)(mine + c / 64 * 8192 + r * 128 + ((c % 64 / 8) ^ r % 8) * 16);
  }
}
