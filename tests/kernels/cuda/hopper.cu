// sm_90a: wgmma with descriptors, bulk copies, clusters, elected lanes, asynchronous stores.
#include <cuda_fp16.h>
#include <cstdint>

__device__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ uint64_t descriptor(uint32_t address, int leading, int stride, int swizzle) {
  return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | (uint64_t)swizzle << 62;
}
__device__ void wait_parity(uint32_t bar, uint32_t parity) {
  asm volatile("{.reg .pred p;\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra WAIT;\n}" ::"r"(bar), "r"(parity) : "memory");
}
#define ACC(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])

// Two warpgroups, 128x32 result; A and B K-major under the 128-byte swizzle, K = 64; A from shared memory, then from registers.
extern "C" __global__ void __launch_bounds__(256) wgmma_f16(const half* a, const half* b, float* d, float* d2) {
  extern __shared__ __align__(1024) uint8_t smem[];
  half *sa = (half*)smem, *sb = (half*)(smem + 16384);
  int t = threadIdx.x, group = t / 128;
  for (int i = t; i < 128 * 64; i += 256) { int r = i / 64, k = i % 64; sa[r * 64 + ((k / 8 ^ r % 8) * 8 + k % 8)] = a[i]; }
  for (int i = t; i < 32 * 64; i += 256) { int r = i / 64, k = i % 64; sb[r * 64 + ((k / 8 ^ r % 8) * 8 + k % 8)] = b[i]; }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float acc[16], acc2[16];
  for (int i = 0; i < 16; i++) acc[i] = acc2[i] = i;
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int k = 0; k < 4; k++) {
    uint64_t da = descriptor(shared_address(sa) + group * 8192 + k * 32, 16, 1024, 1), db = descriptor(shared_address(sb) + k * 32, 16, 1024, 1);
    asm volatile("{.reg .pred p; setp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;}"
                 : ACC(acc) : "l"(da), "l"(db), "r"(k));
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  int lane = t % 32, warp = t / 32, r = warp * 16 + lane / 4, q = lane % 4 * 2;
  uint32_t f[4];
  for (int i = 0; i < 4; i++) f[i] = *(const uint32_t*)(a + (r + i % 2 * 8) * 64 + i / 2 * 8 + q);
  asm volatile("wgmma.wait_group.sync.aligned 0;" : ACC(acc) : : "memory");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, 1, -1, 1, 0;"
               : ACC(acc2) : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "l"(descriptor(shared_address(sb), 16, 1024, 1)));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" : ACC(acc2) : : "memory");
  for (int i = 0; i < 16; i++) {
    int at = (r + i / 2 % 2 * 8) * 32 + i / 4 * 8 + q + i % 2;
    d[at] = acc[i], d2[at] = acc2[i];
  }
}

// Bulk copies in and out, completion counted in bytes on an mbarrier, two stages.
extern "C" __global__ void bulk_copy(const int* in, int* out, int stages) {
  __shared__ __align__(128) int buffer[2][256];
  __shared__ __align__(8) uint64_t bars[2];
  int t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < 2; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(bars + i)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  auto fetch = [&](int s) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(shared_address(bars + s % 2)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(shared_address(buffer[s % 2])), "l"(in + s * 256), "r"(shared_address(bars + s % 2)) : "memory");
  };
  if (t == 0) fetch(0);
  for (int s = 0; s < stages; s++) {
    if (t == 0 && s + 1 < stages) { if (s) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); fetch(s + 1); }
    wait_parity(shared_address(bars + s % 2), s / 2 & 1);
    int v = buffer[s % 2][t] * 3 + s, w = buffer[s % 2][t + 128] - s;
    __syncthreads();
    buffer[s % 2][t] = w, buffer[s % 2][t + 128] = v;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(out + s * 256), "r"(shared_address(buffer[s % 2])) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// A reduction performed by the copy engine.
extern "C" __global__ void bulk_reduce(const int* in, int* out) {
  __shared__ __align__(16) int buffer[128];
  int t = threadIdx.x;
  buffer[t] = in[blockIdx.x * 128 + t];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], 512;" ::"l"(out), "r"(shared_address(buffer)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// Clusters of two blocks exchange shared memory.
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_exchange(const int* in, int* out) {
  __shared__ int s[64];
  __shared__ int counter;
  int t = threadIdx.x;
  uint32_t rank, size, remote, v;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  s[t] = in[blockIdx.x * 64 + t];
  if (t == 0) counter = 0;
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(s + 63 - t)), "r"(rank ^ 1));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(remote) : "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(&counter)), "r"(0));
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(remote), "r"(t) : "memory");
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  out[blockIdx.x * 64 + t] = v + size * 1000 + rank * 100000;
  if (t == 0) out[128 + blockIdx.x] = counter;
}

// elect.sync, setmaxnreg, redux and stmatrix in a warp-specialised kernel.
extern "C" __global__ void __launch_bounds__(256, 1) specialised(const int* in, int* out) {
  __shared__ __align__(16) int box[128];
  __shared__ __align__(8) uint64_t full, empty;
  int t = threadIdx.x;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(shared_address(&full)) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(shared_address(&empty)) : "memory");
  }
  __syncthreads();
  if (t < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    for (int i = 0; i < 3; i++) {
      wait_parity(shared_address(&empty), i & 1 ^ 1);
      box[t] = in[i * 128 + t];
      asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(&full)) : "memory");
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    for (int i = 0; i < 3; i++) {
      wait_parity(shared_address(&full), i & 1);
      int v = box[(t * 5) & 127], leader;
      asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty)) : "memory");
      asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.s32 %0, 1, 0, p;}" : "=r"(leader));
      out[i * 128 + t - 128] = v + __reduce_add_sync(~0u, v & 15) + leader * 100000;
    }
  }
}

// wgmma of the other types in one kernel: A and B in shared memory without swizzle (core matrices of 8 rows by 16 bytes),
// and bf16 with both operands transposed under the 64-byte swizzle. N = 16 throughout, one k step each.
__device__ void fill_core(uint8_t* to, const uint8_t* from, int rows) {  // rows of 32 bytes
  for (int i = threadIdx.x; i < rows * 32; i += 128) { int r = i / 32, b = i % 32; to[(r / 8) * 256 + (b / 16) * 128 + r % 8 * 16 + b % 16] = from[i]; }
}
#define WGMMA8(OP, D, A, B, TAIL) \
  asm volatile("wgmma.fence.sync.aligned;" : "+r"(D[0]), "+r"(D[1]), "+r"(D[2]), "+r"(D[3]), "+r"(D[4]), "+r"(D[5]), "+r"(D[6]), "+r"(D[7]) : : "memory"); \
  asm volatile("wgmma.mma_async.sync.aligned." OP " {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1" TAIL ";" : "+r"(D[0]), "+r"(D[1]), "+r"(D[2]), "+r"(D[3]), "+r"(D[4]), "+r"(D[5]), "+r"(D[6]), "+r"(D[7]) : "l"(A), "l"(B)); \
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); \
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+r"(D[0]), "+r"(D[1]), "+r"(D[2]), "+r"(D[3]), "+r"(D[4]), "+r"(D[5]), "+r"(D[6]), "+r"(D[7]) : : "memory");
#define WGMMA8F(OP, D, A, B, TAIL) \
  asm volatile("wgmma.fence.sync.aligned;" : "+f"(D[0]), "+f"(D[1]), "+f"(D[2]), "+f"(D[3]), "+f"(D[4]), "+f"(D[5]), "+f"(D[6]), "+f"(D[7]) : : "memory"); \
  asm volatile("wgmma.mma_async.sync.aligned." OP " {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1" TAIL ";" : "+f"(D[0]), "+f"(D[1]), "+f"(D[2]), "+f"(D[3]), "+f"(D[4]), "+f"(D[5]), "+f"(D[6]), "+f"(D[7]) : "l"(A), "l"(B)); \
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); \
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(D[0]), "+f"(D[1]), "+f"(D[2]), "+f"(D[3]), "+f"(D[4]), "+f"(D[5]), "+f"(D[6]), "+f"(D[7]) : : "memory");
extern "C" __global__ void __launch_bounds__(128) wgmma_types(const uint8_t* a, const uint8_t* b, float* f, int* n) {
  extern __shared__ __align__(1024) uint8_t smem[];
  uint8_t *sa = smem, *sb = smem + 2048, *ta = smem + 4096, *tb = smem + 8192;
  fill_core(sa, a, 64), fill_core(sb, b, 16);
  // transposed: k rows of 64 (A) and 16 (B) bf16 elements along m and n
  for (int i = threadIdx.x; i < 16 * 128; i += 128) { int k = i / 128, x = i % 128, at = (x / 64) * 1024 + k * 64 + x % 64; ta[at ^ (at >> 7 & 3) << 4] = a[i]; }
  for (int i = threadIdx.x; i < 16 * 32; i += 128) { int k = i / 32, x = i % 32, at = k / 8 * 256 + k % 8 * 32 + x; tb[at ^ (at >> 7 & 1) << 4] = b[i]; }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  uint64_t da = descriptor(shared_address(sa), 128, 256, 0), db = descriptor(shared_address(sb), 128, 256, 0);
  float x[4][8] = {};
  int y[2][8] = {};
  WGMMA8F("m64n16k8.f32.tf32.tf32", x[0], da, db, ", 1, 1")
  WGMMA8F("m64n16k32.f32.e4m3.e5m2", x[1], da, db, ", 1, -1")
  WGMMA8F("m64n16k16.f32.bf16.bf16", x[2], da, db, ", -1, 1, 0, 0")
  uint64_t at = descriptor(shared_address(ta), 1024, 512, 2), bt = descriptor(shared_address(tb), 256, 256, 3);
  WGMMA8F("m64n16k16.f32.bf16.bf16", x[3], at, bt, ", 1, 1, 1, 1")
  WGMMA8("m64n16k32.s32.s8.u8", y[0], da, db, "")
  WGMMA8("m64n16k32.s32.u8.s8.satfinite", y[1], da, db, "")
  for (int i = 0; i < 4; i++) for (int e = 0; e < 8; e++) f[(i * 8 + e) * 128 + threadIdx.x] = x[i][e];
  for (int i = 0; i < 2; i++) for (int e = 0; e < 8; e++) n[(i * 8 + e) * 128 + threadIdx.x] = y[i][e];
}

// Four blocks of a cluster: asynchronous stores, remote arrivals, bulk copies between blocks, a multicast from global memory.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_async(const int* in, int* out) {
  __shared__ __align__(128) int inbox[64], copied[64], shared_by_all[64];
  __shared__ __align__(8) uint64_t bars[3];
  int t = threadIdx.x;
  uint32_t rank, remote, bar;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  inbox[t] = copied[t] = shared_by_all[t] = -1;
  if (t < 3) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bars + t)), "r"(t == 1 ? 65 : 1) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  if (t == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(shared_address(bars)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(shared_address(bars + 1)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(shared_address(bars + 2)) : "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  // each thread sends one word to the next block's inbox
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(inbox + (t ^ 1))), "r"((rank + 1) & 3));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar) : "r"(shared_address(bars)), "r"((rank + 1) & 3));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(remote), "r"(in[blockIdx.x * 64 + t] * 2), "r"(bar) : "memory");
  wait_parity(shared_address(bars), 0);
  // every thread of the previous block arrives here too, and its leader copies its inbox over
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar) : "r"(shared_address(bars + 1)), "r"((rank + 3) & 3));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(copied)), "r"((rank + 3) & 3));
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(remote), "r"(shared_address(inbox)), "r"(bar) : "memory");
    if (rank == 2)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 256, [%2], %3;" ::"r"(shared_address(shared_by_all)), "l"(in + 256), "r"(shared_address(bars + 2)), "h"((short)0xf) : "memory");
  }
  wait_parity(shared_address(bars + 1), 0);
  wait_parity(shared_address(bars + 2), 0);
  out[blockIdx.x * 64 + t] = inbox[t], out[256 + blockIdx.x * 64 + t] = copied[t], out[512 + blockIdx.x * 64 + t] = shared_by_all[t];
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// cp.async that arrives on an mbarrier.
extern "C" __global__ void copy_arrive(const int* in, int* out) {
  __shared__ __align__(16) int box[2][256];
  __shared__ __align__(8) uint64_t bars[2];
  int t = threadIdx.x;
  if (t < 2) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(shared_address(bars + t)) : "memory");
  __syncthreads();
  for (int i = 0; i < 2; i++) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(box[i] + 4 * t)), "l"(in + i * 256 + 4 * t) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(bars + i)) : "memory");
  }
  for (int i = 0; i < 2; i++) { wait_parity(shared_address(bars + i), 0); for (int j = 0; j < 4; j++) out[i * 256 + 4 * t + j] = box[i][255 - 4 * t - j]; }
}
