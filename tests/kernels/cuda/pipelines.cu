// sm_90a: how CUDA C++ programs use asynchronous copies: cuda::barrier, cuda::pipeline, cuda::ptx, cooperative groups.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda/std/chrono>
#include <cuda_fp16.h>
#include <cstdint>
#include <utility>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
using block_barrier = cuda::barrier<cuda::thread_scope_block>;

__device__ void wait(uint64_t* bar, uint32_t parity) { while (!ptx::mbarrier_try_wait_parity(bar, parity)) {} }

// cuda::barrier counts the bytes of bulk copies in; bulk groups copy out. Two boxes of 512 floats.
extern "C" __global__ void barrier_bulk(const float* x, float* y, int tiles) {
  __shared__ alignas(128) float box[2][512];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ block_barrier ready[2];
  int t = threadIdx.x;
  if (t == 0) { init(&ready[0], blockDim.x); init(&ready[1], blockDim.x); ptx::fence_proxy_async(ptx::space_shared); }
  __syncthreads();
  block_barrier::arrival_token token[2];
  auto fetch = [&](int tile) {
    int i = tile % 2;
    if (t == 0) {
      cuda::device::memcpy_async_tx(box[i], x + tile * 512, cuda::aligned_size_t<16>(sizeof box[i]), ready[i]);
      token[i] = cuda::device::barrier_arrive_tx(ready[i], 1, sizeof box[i]);
    } else token[i] = ready[i].arrive();
  };
  fetch(0);
  for (int tile = 0; tile < tiles; tile++) {
    int i = tile % 2;
    if (tile + 1 < tiles) {
      if (t == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
      __syncthreads();
      fetch(tile + 1);
    }
    ready[i].wait(std::move(token[i]));
    for (int j = t; j < 512; j += blockDim.x) box[i][j] = box[i][j] * 1.5f + tile;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (t == 0) {
      ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y + tile * 512, box[i], sizeof box[i]);
      ptx::cp_async_bulk_commit_group();
    }
  }
  if (t == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
}

// cuda::barrier by phases: arrive and wait apart, arrive_and_drop, wait_parity, try_wait_for, an expected count that shrinks.
extern "C" __global__ void barrier_phases(const int* x, int* y) {
  __shared__ int box[64];
  __shared__ block_barrier all, pair;
  int t = threadIdx.x, sum = 0;
  if (t == 0) { init(&all, 64); init(&pair, 64); }
  __syncthreads();
  for (int turn = 0; turn < 4; turn++) {
    if (t >= 64 - 16 * turn) break;  // those who left in the turn before
    box[t] = x[turn * 64 + t];
    if (t >= 48 - 16 * turn) { all.arrive_and_drop(); continue; }
    auto token = all.arrive();
    sum += turn * t;
    while (!all.try_wait_for(std::move(token), cuda::std::chrono::nanoseconds(100))) {}
    sum += box[(t + 16) % (64 - 16 * turn)];
    all.arrive_and_wait();
  }
  (void)pair.arrive();
  pair.wait_parity(false);
  y[t] = sum;
}

// A pipeline that all threads fill and drain: four stages, the last ones partly empty.
extern "C" __global__ void pipeline_unified(const int* x, int* y, int batches) {
  __shared__ alignas(16) int box[4][256];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 4> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int t = threadIdx.x, sum = 0;
  for (int batch = 0, ahead = 0; batch < batches; batch++) {
    for (; ahead < batches && ahead < batch + 4; ahead++) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, box[ahead % 4], x + ahead * 256, cuda::aligned_size_t<16>(sizeof box[0]), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    sum = sum * 31 + box[batch % 4][255 - t];
    y[batch * 256 + t] = sum;
    pipe.consumer_release();
  }
}

// Half of the warps produce, half consume. Copies of 16 and, at an odd offset, of 4 bytes.
extern "C" __global__ void pipeline_roles(const int* x, int* y, int batches) {
  __shared__ alignas(16) int box[3][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
  auto block = cg::this_thread_block();
  int t = threadIdx.x;
  bool loads = t / 32 % 2 == 0;
  int mine = t / 64 * 32 + t % 32;
  auto pipe = cuda::make_pipeline(block, &state, loads ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  if (loads) {
    for (int batch = 0; batch < batches; batch++) {
      pipe.producer_acquire();
      if (batch % 2) cuda::memcpy_async(&box[batch % 3][mine * 2], x + batch * 130 + mine * 2 + 1, sizeof(int) * 2, pipe);
      else if (mine % 2 == 0) cuda::memcpy_async((int4*)&box[batch % 3][mine * 2], (const int4*)(x + batch / 2 * 260 + mine * 2), cuda::aligned_size_t<16>(16), pipe);
      pipe.producer_commit();
    }
  } else {
    int sum = 0;
    for (int batch = 0; batch < batches; batch++) {
      pipe.consumer_wait();
      sum += box[batch % 3][mine] ^ box[batch % 3][127 - mine] * (batch + 1);
      pipe.consumer_release();
      y[batch * 64 + mine] = sum;
    }
  }
}

// Each thread's own pipeline: cp.async groups.
extern "C" __global__ void pipeline_thread(const int* x, int* y, int batches) {
  __shared__ alignas(16) int box[2][64][4];
  auto pipe = cuda::make_pipeline();
  int t = threadIdx.x;
  auto fetch = [&](int batch) {
    pipe.producer_acquire();
    if (batch < batches) cuda::memcpy_async(box[batch % 2][t], x + (batch * 64 + t) * 4, cuda::aligned_size_t<16>(16), pipe);
    pipe.producer_commit();
  };
  fetch(0);
  for (int batch = 0; batch < batches; batch++) {
    fetch(batch + 1);
    cuda::pipeline_consumer_wait_prior<1>(pipe);
    y[batch * 64 + t] = box[batch % 2][t][0] + 3 * box[batch % 2][t][1] + 5 * box[batch % 2][t][2] + 7 * box[batch % 2][t][3];
    pipe.consumer_release();
  }
}

// Boxes of 16 x 32 halves through tensor maps: in by one block for both of the cluster, added up, out by a store and by a reduction.
extern "C" __global__ void __cluster_dims__(2, 1, 1)
boxes(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, const __grid_constant__ CUtensorMap onto, int rows) {
  __shared__ alignas(128) half box[2][16][32];
  __shared__ uint64_t full;
  int t = threadIdx.x;
  uint32_t rank = ptx::get_sreg_cluster_ctarank();
  if (t == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    asm volatile("prefetch.tensormap [%0];" ::"l"(&from) : "memory");
  }
  auto cluster = cg::this_cluster();
  cluster.sync();
  for (int turn = 0, row = blockIdx.y * 16; row < rows; turn++, row += 16 * gridDim.y) {
    if (t == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof box);
      int at[3] = {-8 + (int)rank * 32, row, (int)rank};
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, box[rank], &from, at, &full, (uint16_t)3);
    }
    wait(&full, turn & 1);
    for (int i = t; i < 512; i += 64) (&box[rank][0][0])[i] = __hadd((&box[0][0][0])[i], (&box[1][0][0])[i]);
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (t == 0) {
      int at[2] = {(int)rank * 32, row}, sum[2] = {8, row / 2};
      ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, at, box[rank]);
      if (row == 0 && rank == 0) ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &onto, sum, box[rank]);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
    }
    cluster.sync();
  }
  if (t == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
}

// A tensor map made on the device: from one that is a parameter, changed in shared memory, written to global memory, used there.
extern "C" __global__ void made_here(const __grid_constant__ CUtensorMap like, CUtensorMap* made, const int* x, int* y, int width) {
  __shared__ alignas(128) CUtensorMap map;
  __shared__ alignas(128) int box[8][16];
  __shared__ uint64_t full;
  int t = threadIdx.x;
  if (t < 32) {
    ((uint32_t*)&map)[t] = ((const uint32_t*)&like)[t];
    __syncwarp();
    if (t == 0) {
      ptx::tensormap_replace_global_address(ptx::space_shared, &map, x + blockIdx.x * 8 * width);
      ptx::tensormap_replace_global_dim(ptx::space_shared, &map, ptx::n32_t<0>{}, width - (int)blockIdx.x);
      ptx::tensormap_replace_global_dim(ptx::space_shared, &map, ptx::n32_t<1>{}, 8 - (int)blockIdx.x);
      ptx::tensormap_replace_global_stride(ptx::space_shared, &map, ptx::n32_t<0>{}, (int64_t)width * 4);
      ptx::tensormap_replace_box_dim(ptx::space_shared, &map, ptx::n32_t<0>{}, 16);
      ptx::tensormap_replace_box_dim(ptx::space_shared, &map, ptx::n32_t<1>{}, 8);
    }
    __syncwarp();
    ptx::tensormap_cp_fenceproxy(ptx::sem_release, ptx::scope_gpu, made + blockIdx.x, &map, ptx::n32_t<128>{});
    ptx::fence_proxy_tensormap_generic(ptx::sem_acquire, ptx::scope_gpu, made + blockIdx.x, ptx::n32_t<128>{});
  }
  if (t == 0) { ptx::mbarrier_init(&full, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
  __syncthreads();
  for (int column = 0, turn = 0; column < width; column += 16, turn++) {
    if (t == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof box);
      int at[2] = {column, 0};
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, box, made + blockIdx.x, at, &full);
    }
    wait(&full, turn & 1);
    for (int i = t; i < 128; i += 64) y[(blockIdx.x * 8 + i / 16) * ((width + 15) / 16 * 16) + column + i % 16] = box[i / 16][i % 16];
    __syncthreads();
  }
}

// A cluster adds up: distributed shared memory, asynchronous stores and reductions, arrivals at another block's barrier.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_sums(const int* x, int* y) {
  __shared__ int mine, inbox[4][32];
  __shared__ unsigned total;
  __shared__ uint64_t bar, counted;
  auto cluster = cg::this_cluster();
  int t = threadIdx.x, rank = cluster.block_rank();
  if (t == 0) {
    mine = 0; total = 0;
    ptx::mbarrier_init(&bar, 1);
    ptx::mbarrier_init(&counted, 1 + 4 * 32);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof inbox);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &counted, rank == 0 ? 4 * 32 * 4 : 0);
  }
  cluster.sync();
  int v = x[blockIdx.x * 32 + t];
  for (int to = 0; to < 4; to++) {  // to everybody's inbox
    ptx::st_async(cluster.map_shared_rank(&inbox[rank][t], to), v + to, cluster.map_shared_rank(&bar, to));
    atomicAdd(cluster.map_shared_rank(&mine, to), v);
  }
  ptx::red_async(ptx::op_add, cluster.map_shared_rank(&total, 0), (uint32_t)v, cluster.map_shared_rank(&counted, 0));
  for (int to = 0; to < 4; to++) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, cluster.map_shared_rank(&counted, to));
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &bar, 0)) {}
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &counted, 0)) {}
  int sum = 0;
  for (int from = 0; from < 4; from++) sum += inbox[from][t] * (from + 1);
  cluster.sync();
  y[blockIdx.x * 32 + t] = sum * 1000 + *cluster.map_shared_rank(&mine, (rank + 1) % 4) % 1000;
  if (t == 0) y[gridDim.x * 32 + blockIdx.x] = total;
  cluster.sync();
}
