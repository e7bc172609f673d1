// Thread block clusters: distributed shared memory, the barrier of a cluster, warps that change their registers, grids that meet.
#include <cooperative_groups.h>
#include <cstdint>
namespace cg = cooperative_groups;

// A histogram whose bins are spread over the shared memory of the cluster.
extern "C" __global__ void cluster_histogram(const int* in, int* bins, int n, int per_block) {
  extern __shared__ int own[];
  auto cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) own[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int bin = in[i] % (per_block * (int)cluster.num_blocks());
    atomicAdd(cluster.map_shared_rank(own, bin / per_block) + bin % per_block, 1);
  }
  cluster.sync();
  int* mine = bins + cluster.block_rank() * per_block;
  for (int i = threadIdx.x; i < per_block; i += blockDim.x) atomicAdd(mine + i, own[i]);
}

// Each block adds up what all blocks of its cluster hold, in the order of their ranks.
extern "C" __global__ void cluster_sum(const float* in, float* out, int* ranks) {
  extern __shared__ float value[];
  auto cluster = cg::this_cluster();
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), i = block * blockDim.x + threadIdx.x;
  value[threadIdx.x] = in[i];
  cluster.sync();
  float sum = 0;
  for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) sum += *cluster.map_shared_rank(&value[threadIdx.x ^ rank], rank);
  cluster.sync();
  out[i] = sum;
  dim3 at = cluster.block_index(), size = cluster.dim_blocks();
  ranks[i] = cluster.thread_rank() + 100000 * (at.x + 16 * (at.y + 16 * at.z)) + size.x + 17 * size.y + 31 * size.z;
}

// A token goes round the ring of blocks: each reads its left neighbour's while the right one reads its own.
extern "C" __global__ void cluster_ring(const int* in, int* out, int rounds) {
  __shared__ int box[2][64];
  auto cluster = cg::this_cluster();
  unsigned left = (cluster.block_rank() + cluster.num_blocks() - 1) % cluster.num_blocks();
  int i = blockIdx.x * 64 + threadIdx.x, v = in[i];
  box[0][threadIdx.x] = v;
  for (int r = 0; r < rounds; ++r) {
    auto token = cluster.barrier_arrive();
    v = v * 3 + r;
    cluster.barrier_wait(std::move(token));
    v += cluster.map_shared_rank(&box[r & 1][0], left)[(threadIdx.x + 1) % 64];
    box[~r & 1][threadIdx.x] = v;
  }
  cluster.sync();
  out[i] = v;
}

// Vectors from several blocks in one instruction, and to them.
extern "C" __global__ void cluster_vectors(const uint4* in, uint4* out) {
  __shared__ uint4 got[64];
  __shared__ uint4 given[64];
  auto cluster = cg::this_cluster();
  int i = blockIdx.x * 64 + threadIdx.x, size = cluster.num_blocks();
  given[threadIdx.x] = in[i];
  cluster.sync();
  uint4 v = cluster.map_shared_rank(given, (threadIdx.x * 7 + cluster.block_rank()) % size)[63 - threadIdx.x];
  cluster.map_shared_rank(got, (threadIdx.x + cluster.block_rank()) % size)[threadIdx.x] = make_uint4(v.y, v.x, v.w ^ v.z, i);
  cluster.sync();
  out[i] = got[threadIdx.x];
}

// Atomics in another block's shared memory: through shared::cluster addresses, and generic ones.
extern "C" __global__ void cluster_atomics(const unsigned* in, unsigned* out) {
  __shared__ unsigned cell[16];
  __shared__ unsigned long long wide[2];
  auto cluster = cg::this_cluster();
  int t = threadIdx.x, size = cluster.num_blocks();
  if (t < 16) cell[t] = t == 3 ? 0xFFFFFFFFu : t == 8 ? 1u : t == 9 ? 0x00200000u : 0u;
  if (t < 2) wide[t] = 0;
  cluster.sync();
  unsigned to = (cluster.block_rank() + 1) % size, value = in[blockIdx.x * 64 + t];
  unsigned own = (unsigned)__cvta_generic_to_shared(cell), at, old;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(own), "r"(to));
  asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
  asm volatile("atom.shared::cluster.max.u32 %0, [%1+4], %2;" : "=r"(old) : "r"(at), "r"(value) : "memory");
  asm volatile("red.shared::cluster.xor.b32 [%0+8], %1;" ::"r"(at), "r"(value) : "memory");
  asm volatile("atom.shared::cluster.and.b32 %0, [%1+12], %2;" : "=r"(old) : "r"(at), "r"(value | 0xF000000F) : "memory");
  asm volatile("atom.shared::cluster.inc.u32 %0, [%1+16], %2;" : "=r"(old) : "r"(at), "r"(40) : "memory");
  unsigned* there = cluster.map_shared_rank(cell, to);
  atomicMin((int*)&there[5], (int)value);
  atomicSub(&there[6], value);
  atomicOr(&there[7], value & 0x00FF00F0);
  atomicAdd(cluster.map_shared_rank(wide, to) + (t & 1), (unsigned long long)value << 13);
  // floats, by one thread: normal, subnormal, by the address of a space and by a generic one
  if (t == 0) {
    float small = __uint_as_float(0x00000003);
    asm volatile("red.relaxed.cluster.shared::cluster.add.f32 [%0+32], %1;" ::"r"(at), "f"(small) : "memory");
    atomicAdd((float*)&there[9], __uint_as_float(0x00100001));
    asm volatile("red.shared::cluster.add.f32 [%0+40], %1;" ::"r"(at), "f"(1.5f) : "memory");
    atomicAdd((float*)&there[11], small);
    for (unsigned seen = 0, want = 0; want < 5; want = seen + 1)
      asm volatile("atom.shared::cluster.cas.b32 %0, [%1+48], %2, %3;" : "=r"(seen) : "r"(at), "r"(want), "r"(want + 1) : "memory");
  }
  cluster.sync();
  if (t < 16) out[blockIdx.x * 20 + t] = cell[t];
  if (t < 4) out[blockIdx.x * 20 + 16 + t] = (unsigned)(wide[t >> 1] >> (t & 1 ? 32 : 0));
}

// What the special registers say, in the first thread of each block.
#define READ(n, name) asm volatile("mov.u32 %0, %" name ";" : "=r"(v)); out[n] = v;
extern "C" __global__ void cluster_registers(unsigned* result) {
  unsigned v, *out = result + 32 * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
  if (threadIdx.x) return;
  READ(0, "%cluster_ctaid.x") READ(1, "%cluster_ctaid.y") READ(2, "%cluster_ctaid.z") READ(3, "%cluster_ctaid.w")
  READ(4, "%cluster_nctaid.x") READ(5, "%cluster_nctaid.y") READ(6, "%cluster_nctaid.z") READ(7, "%cluster_nctaid.w")
  READ(8, "%clusterid.x") READ(9, "%clusterid.y") READ(10, "%clusterid.z") READ(11, "%clusterid.w")
  READ(12, "%nclusterid.x") READ(13, "%nclusterid.y") READ(14, "%nclusterid.z") READ(15, "%nclusterid.w")
  READ(16, "%cluster_ctarank") READ(17, "%cluster_nctarank") READ(18, "%total_smem_size") READ(19, "%dynamic_smem_size")
  READ(20, "%aggr_smem_size") READ(21, "%nctaid.x") READ(22, "%nctaid.y") READ(23, "%nctaid.z")
  asm volatile("{.reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p;}" : "=r"(v));
  out[24] = v;
  READ(25, "%ctaid.x") READ(26, "%ctaid.y") READ(27, "%ctaid.z")
}

// What kind of address is what: bits for shared, shared::cta, shared::cluster, global, local, param, const; and ranks.
extern "C" __global__ void cluster_addresses(unsigned* out, const __grid_constant__ int4 parameter) {
  __shared__ int own[4];
  volatile int here[2] = {1, 2};
  auto cluster = cg::this_cluster();
  unsigned long long g[7];
  g[0] = (unsigned long long)own;
  for (unsigned r = 0; r < 3; ++r) asm volatile("mapa.u64 %0, %1, %2;" : "=l"(g[1 + r]) : "l"(g[0]), "r"(r));
  g[4] = (unsigned long long)out, g[5] = (unsigned long long)here, g[6] = (unsigned long long)&parameter;
  unsigned* to = out + (blockIdx.x * 32 + threadIdx.x) * 16;
  for (int n = 0; n < 7; ++n) {
    unsigned bits = 0, bit;
#define ASK(k, space) asm volatile("{.reg .pred p; isspacep." space " p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(bit) : "l"(g[n])); bits |= bit << k;
    ASK(0, "shared") ASK(1, "shared::cta") ASK(2, "shared::cluster") ASK(3, "global") ASK(4, "local") ASK(5, "param") ASK(6, "const")
    to[n] = bits;
  }
  for (int n = 0; n < 3; ++n) {
    unsigned rank, low;
    asm volatile("getctarank.u64 %0, %1;" : "=r"(rank) : "l"(g[1 + n]));
    asm volatile("{.reg .b64 s; cvta.to.shared::cluster.u64 s, %1; cvt.u32.u64 %0, s;}" : "=r"(low) : "l"(g[1 + n]));
    unsigned again, mapped;
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(again) : "r"(low));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"((unsigned)__cvta_generic_to_shared(own)), "r"(n));
    to[8 + n] = rank + 256 * again + 65536 * (mapped == low) + (1 << 20) * (cluster.query_shared_rank((void*)g[1 + n]) & 0xFF);
  }
  to[11] = (unsigned)__cvta_generic_to_shared(own) >> 24;
}

// Lanes arrive one by one, some exit after they have arrived, some before.
extern "C" __global__ void cluster_leavers(int* out) {
  __shared__ int box[64];
  auto cluster = cg::this_cluster();
  int t = threadIdx.x, r = cluster.block_rank();
  box[t] = 1000 * r + t;
  if (t == 5) return;
  if (t % 3 == 0) asm volatile("barrier.cluster.arrive;" ::: "memory");
  else asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  if (t >= 32 && t < 40) return;
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
  int v = cluster.map_shared_rank(box, (r + 1) % cluster.num_blocks())[63 - t];
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  asm volatile("barrier.cluster.wait;" ::: "memory");
  out[blockIdx.x * 64 + t] = v;
}

// elect.sync of every mask that a thread names.
extern "C" __global__ void elected(const unsigned* masks, unsigned* out) {
  unsigned mask = masks[blockIdx.x], lane = threadIdx.x, who, is;
  if (!(mask >> lane & 1)) return;
  asm volatile("{.reg .pred p; elect.sync %0|p, %2; selp.u32 %1, 1, 0, p;}" : "=r"(who), "=r"(is) : "r"(mask));
  out[(blockIdx.x * 32 + lane) * 2] = who;
  out[(blockIdx.x * 32 + lane) * 2 + 1] = is;
}

// A producer gives registers to two consumer warpgroups; named barriers hand over buffers.
extern "C" __global__ void __launch_bounds__(384, 1) register_pool(const int* in, int* out, int rounds) {
  __shared__ int box[2][256];
  int t = threadIdx.x, group = t / 128;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    for (int r = 0; r < rounds; ++r) {
      if (r >= 2) asm volatile("barrier.sync %0, 384;" ::"r"(3 + (r & 1)) : "memory");
      for (int k = 0; k < 2; ++k) box[r & 1][t + 128 * k] = in[(r * 2 + k) * 128 + t];
      asm volatile("barrier.arrive %0, 384;" ::"r"(1 + (r & 1)) : "memory");
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
      asm volatile("barrier.sync %0, 384;" ::"r"(1 + (r & 1)) : "memory");
      sum = sum * 5 + box[r & 1][(t * 3 + r) & 255];
      if (r + 2 < rounds) asm volatile("barrier.arrive %0, 384;" ::"r"(3 + (r & 1)) : "memory");
    }
    out[t - 128] = sum;
  }
}

// All blocks of a grid meet, some rounds long.
extern "C" __global__ void grid_rounds(int* a, int* b, int rounds) {
  auto grid = cg::this_grid();
  int n = grid.size(), i = grid.thread_rank();
  for (int r = 0; r < rounds; ++r) {
    b[i] = a[(i * 5 + r) % n] + i;
    grid.sync();
    a[i] = b[n - 1 - i] ^ r;
    grid.sync();
  }
}

// A grid of clusters that meets as a whole, after each cluster has.
extern "C" __global__ void grid_of_clusters(const int* in, int* out) {
  __shared__ int part;
  auto cluster = cg::this_cluster();
  auto grid = cg::this_grid();
  if (threadIdx.x == 0) part = in[blockIdx.x];
  cluster.sync();
  int sum = 0;
  for (unsigned r = 0; r < cluster.num_blocks(); ++r) sum += *cluster.map_shared_rank(&part, r);
  cluster.sync();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
  grid.sync();
  int total = 0;
  for (unsigned b = 0; b < gridDim.x; b += cluster.num_blocks()) total += out[b];
  grid.sync();
  if (threadIdx.x == 0) out[blockIdx.x] = total * 100 + sum;
}
