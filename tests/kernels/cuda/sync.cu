// Synchronisation and atomics: named barriers, spins between blocks, mbarriers, every atomic operation, fences.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/atomic>
#include <cstdint>
namespace cg = cooperative_groups;

// Two producers and two consumers meet at barriers 1 and 2 with bar.arrive and bar.sync on 128 threads.
extern "C" __global__ void named_barriers(const int* in, int* out) {
  __shared__ int box[64];
  int t = threadIdx.x;
  for (int round = 0; round < 4; round++) {
    if (t < 64) {
      if (round) asm volatile("bar.sync 2, 128;" ::: "memory");
      box[t] = in[round * 64 + t] * (round + 1);
      asm volatile("bar.arrive 1, 128;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      out[round * 64 + t - 64] = box[127 - t] + t;
      if (round < 3) asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
  int p, n = t % 3;
  asm volatile("{.reg .pred a, b; setp.eq.s32 a, %1, 0; barrier.red.or.pred b, 5, a; selp.s32 %0, 1, 0, b;}" : "=r"(p) : "r"(n));
  int k;
  asm volatile("{.reg .pred a; setp.eq.s32 a, %1, 1; barrier.red.popc.u32 %0, 6, 128, a;}" : "=r"(k) : "r"(n));
  out[256 + t] = p * 1000 + k;
}

// Block 1 waits for block 0's flag; each then reads what the other wrote.
extern "C" __global__ void spin_flag(const int* in, int* buffer, int* out, volatile int* flag) {
  int t = threadIdx.x;
  if (blockIdx.x == 0) {
    buffer[t] = in[t] * 2;
    __threadfence();
    __syncthreads();
    if (t == 0) *flag = 1;
    if (t == 0) while (*flag != 2) __nanosleep(20);
    __syncthreads();
    out[t] = ((volatile int*)buffer)[blockDim.x + t] + 1;
  } else {
    if (t == 0) while (*flag != 1) __nanosleep(20);
    __syncthreads();
    buffer[blockDim.x + t] = ((volatile int*)buffer)[blockDim.x - 1 - t] * 10;
    __threadfence();
    __syncthreads();
    if (t == 0) *flag = 2;
    out[blockDim.x + t] = t;
  }
}

// The last block to finish adds up the others' results.
__device__ unsigned finished;
extern "C" __global__ void last_block(const int* in, int* part, int* out, int n) {
  __shared__ int s[64];
  __shared__ bool last;
  int t = threadIdx.x, v = 0;
  for (int i = blockIdx.x * 64 + t; i < n; i += gridDim.x * 64) v += in[i];
  s[t] = v;
  __syncthreads();
  for (int k = 32; k; k /= 2) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
  if (t == 0) {
    part[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) { int sum = 0; for (int i = 0; i < gridDim.x; i++) sum += ((volatile int*)part)[i]; *out = sum; }
}

// A lock taken by every lane of a warp in turn: needs independent thread scheduling.
extern "C" __global__ void warp_lock(int* lock, int* count, int* order) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      int n = *(volatile int*)count;
      order[n] = 1 + order[n];
      *(volatile int*)count = n + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// All integer atomics, global and shared, 32 and 64 bits; each thread's own old values come back.
extern "C" __global__ void integer_atomics(const int* in, int* g, long long* w, int* olds) {
  __shared__ int s[16];
  __shared__ unsigned long long sw[8];
  int t = threadIdx.x, v = in[t], k = t & 1;
  if (t < 16) s[t] = t * 1000;
  if (t < 8) sw[t] = t;
  __syncthreads();
  atomicAdd(g + k, v), atomicSub(g + 2 + k, v), atomicMin(g + 4 + k, v), atomicMax(g + 6 + k, v), atomicAnd(g + 8 + k, v | 0xff00), atomicOr(g + 10 + k, v & 0xff), atomicXor(g + 12 + k, v);
  atomicMin((unsigned*)g + 14 + k, v), atomicMax((unsigned*)g + 16 + k, v), atomicInc((unsigned*)g + 18 + k, 20), atomicDec((unsigned*)g + 20 + k, 33);
  atomicAdd(s + k, v), atomicSub(s + 2 + k, v), atomicMin(s + 4 + k, v), atomicMax(s + 6 + k, v), atomicAnd(s + 8 + k, v), atomicOr(s + 10 + k, v), atomicXor(s + 12 + k, v), atomicInc((unsigned*)s + 14, 50), atomicDec((unsigned*)s + 15, 70);
  unsigned long long* uw = (unsigned long long*)w;
  atomicAdd(uw + k, (unsigned long long)v << 20), atomicMin(w + 2 + k, (long long)v << 31), atomicMax(w + 4 + k, (long long)v << 31), atomicAnd(uw + 6 + k, ~(1ull << (t & 63))), atomicOr(uw + 8 + k, 1ull << (t & 63)), atomicXor(uw + 10 + k, (unsigned long long)v << 5);
  atomicAdd(sw + k, v), atomicMax(sw + 2 + k, (unsigned long long)v), atomicXor(sw + 4 + k, v);
  int* o = olds + 8 * t;
  o[0] = atomicAdd(g + 32 + t, 5), o[1] = atomicExch(g + 32 + t, v), o[2] = atomicCAS(g + 32 + t, v, 77), o[3] = atomicCAS(g + 32 + t, 1, 2), o[4] = atomicMax(g + 32 + t, 78), o[5] = atomicInc((unsigned*)g + 32 + t, 10);
  o[6] = (int)atomicCAS((unsigned short*)(olds + 1024) + t, (unsigned short)0, (unsigned short)t), o[7] = (int)(atomicCAS(uw + 32 + t, 0ull, 1ull << t % 64) + atomicExch(uw + 32 + t, 9ull));
  __syncthreads();
  if (t < 16) g[200 + t] = s[t];
  if (t < 8) w[200 + t] = sw[t];
}

// Floating-point atomics on small integers and powers of two, so that the order cannot show.
extern "C" __global__ void float_atomics(const int* in, float* f, double* d, __half2* h, __nv_bfloat162* b, float4* v) {
  int t = threadIdx.x, k = t & 3, x = in[t] & 7;
  atomicAdd(f + k, (float)x), atomicAdd(d + k, x * 0.25), atomicAdd(h + k, __floats2half2_rn(x, 1)), atomicAdd(b + k, __floats2bfloat162_rn(1, t < 8 ? x : 0));
  atomicAdd((__half*)(h + 8) + k, __int2half_rn(x)), atomicExch(f + 8 + t, (float)t);
  atomicAdd(v + k, make_float4(x, 1, 2, -x)), atomicAdd((float2*)(v + 4) + k, make_float2(x, t));
  __shared__ float s[4];
  if (t < 4) s[t] = 0;
  __syncthreads();
  atomicAdd(s + k, (float)x);
  __syncthreads();
  if (t < 4) f[4 + t] = s[t];
}

// Block-scope barriers and atomics of libcu++: mbarrier phases, acquire and release, wait on an atomic.
extern "C" __global__ void library_barriers(const int* in, int* out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int s[64];
  __shared__ int ready_value;
  int t = threadIdx.x;
  if (t == 0) { init(&bar, blockDim.x); ready_value = 0; }
  __syncthreads();
  for (int i = 0; i < 3; i++) {
    s[t] = in[t] + i;
    auto token = bar.arrive();
    bar.wait(std::move(token));
    int v = s[(t + i + 1) & 63];
    bar.arrive_and_wait();
    out[i * 64 + t] = v;
  }
  cuda::atomic_ref<int, cuda::thread_scope_block> ready(ready_value);
  if (t == 40) { s[0] = 1234; ready.store(1, cuda::memory_order_release); }
  if (t == 3) { while (ready.load(cuda::memory_order_acquire) == 0) {} out[192] = s[0]; }
  cuda::atomic_ref<int, cuda::thread_scope_device> sum(out[193]);
  sum.fetch_add(t, cuda::memory_order_relaxed);
  cuda::atomic_ref<int, cuda::thread_scope_system> top(out[194]);
  top.fetch_max(in[t], cuda::memory_order_acq_rel);
}

// Cooperative groups: tiles, coalesced groups, partitions, reductions.
extern "C" __global__ void groups(const int* in, int* out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int t = block.thread_rank(), v = in[t];
  int s = v;
  for (int i = tile.size() / 2; i; i /= 2) s += tile.shfl_down(s, i);
  out[t] = tile.shfl(s, 0) + tile.meta_group_rank();
  if (v & 1) { auto g = cg::coalesced_threads(); out[64 + t] = g.thread_rank() * 100 + g.size() + g.shfl(v, 0); }
  out[128 + t] = tile.any(v > 50) + 2 * tile.all(v < 90) + 4 * tile.ballot(v & 2) + 2048 * tile.match_any(v & 1);
  block.sync();
}

// mbarrier by hand: expected counts, arrivals that drop, parity waits, pending counts.
extern "C" __global__ void mbarriers(uint64_t* states, int* out) {
  __shared__ __align__(8) uint64_t bar;
  __shared__ int data[64];
  int t = threadIdx.x;
  uint32_t at = (uint32_t)__cvta_generic_to_shared(&bar);
  if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(at) : "memory");
  __syncthreads();
  uint64_t state;
  data[t] = t * t;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
  uint32_t done = 0;
  while (!done) asm volatile("{.reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at), "l"(state) : "memory");
  out[t] = data[63 - t];
  if (t == 5) asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  else asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  done = 0;
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 1; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at) : "memory");
  __syncthreads();
  uint32_t pending = 0;
  if (t == 0) {
    asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], 3;" : "=l"(state) : "r"(at) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(state));
    out[64] = pending;
    states[0] = state;
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at) : "memory");
  }
}
