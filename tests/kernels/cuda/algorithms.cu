// Whole small algorithms as people write them.
#include <cstdint>

extern "C" __global__ void block_scan(const int* in, int* out, int* totals) {
  __shared__ int warp_sums[8];
  int t = threadIdx.x, lane = t & 31, v = in[blockIdx.x * 256 + t], x = v;
  for (int d = 1; d < 32; d *= 2) { int y = __shfl_up_sync(~0u, x, d); if (lane >= d) x += y; }
  if (lane == 31) warp_sums[t / 32] = x;
  __syncthreads();
  if (t < 8) { int s = warp_sums[t]; for (int d = 1; d < 8; d *= 2) { int y = __shfl_up_sync(0xff, s, d); if (t >= d) s += y; } warp_sums[t] = s; }
  __syncthreads();
  if (t >= 32) x += warp_sums[t / 32 - 1];
  out[blockIdx.x * 256 + t] = x - v;
  if (t == 255) totals[blockIdx.x] = x;
}

// Single-pass scan with decoupled look-back: blocks wait for their predecessors' published sums.
extern "C" __global__ void look_back_scan(const int* in, int* out, volatile unsigned long long* status, unsigned* ticket, int n) {
  __shared__ int s[64], base;
  __shared__ unsigned block;
  int t = threadIdx.x;
  if (t == 0) block = atomicAdd(ticket, 1);
  __syncthreads();
  int i = block * 64 + t, v = i < n ? in[i] : 0;
  s[t] = v;
  __syncthreads();
  for (int d = 1; d < 64; d *= 2) { int y = t >= d ? s[t - d] : 0; __syncthreads(); s[t] += y; __syncthreads(); }
  if (t == 0) {
    unsigned total = s[63], sum = 0;
    status[block] = (block ? 1ull : 2ull) << 32 | total;
    __threadfence();
    for (int b = (int)block - 1; b >= 0;) {
      unsigned long long w = status[b];
      unsigned flag = w >> 32;
      if (flag == 0) continue;
      sum += (unsigned)w;
      if (flag == 2) break;
      b--;
    }
    if (block) { status[block] = 2ull << 32 | (sum + total); __threadfence(); }
    base = sum;
  }
  __syncthreads();
  if (i < n) out[i] = base + s[t];
}

extern "C" __global__ void bitonic_sort(const float* in, float* out) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = in[t];
  __syncthreads();
  for (int k = 2; k <= 256; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      int p = t ^ j;
      if (p > t && (s[t] > s[p]) == !(t & k)) { float x = s[t]; s[t] = s[p]; s[p] = x; }
      __syncthreads();
    }
  out[t] = s[t];
}

// One pass of a radix sort: ballots give ranks within a warp.
extern "C" __global__ void radix_pass(const unsigned* in, unsigned* out, int shift) {
  __shared__ unsigned counts[16][4], offsets[16][4];
  int t = threadIdx.x, lane = t & 31, warp = t / 32;
  unsigned v = in[t], d = v >> shift & 15, same = ~0u;
  for (int b = 0; b < 4; b++) { unsigned m = __ballot_sync(~0u, d >> b & 1); same &= d >> b & 1 ? m : ~m; }
  if (t < 64) counts[t / 4][t % 4] = 0;
  __syncthreads();
  int rank = __popc(same & ((1u << lane) - 1));
  if (rank == 0) counts[d][warp] = __popc(same);
  __syncthreads();
  if (t == 0) { unsigned s = 0; for (int i = 0; i < 16; i++) for (int w = 0; w < 4; w++) offsets[i][w] = s, s += counts[i][w]; }
  __syncthreads();
  out[offsets[d][warp] + rank] = v;
}

extern "C" __global__ void tiled_transpose(const float* in, float* out, int w, int h) {
  __shared__ float tile[16][17];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x < w && y < h) tile[threadIdx.y][threadIdx.x] = in[y * w + x];
  __syncthreads();
  x = blockIdx.y * 16 + threadIdx.x, y = blockIdx.x * 16 + threadIdx.y;
  if (x < h && y < w) out[y * h + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void sgemm_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float sa[16][16], sb[16][16];
  int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
  float acc = 0;
  for (int t = 0; t < k; t += 16) {
    sa[y][x] = row < m && t + x < k ? a[row * k + t + x] : 0;
    sb[y][x] = col < n && t + y < k ? b[(t + y) * n + col] : 0;
    __syncthreads();
    for (int i = 0; i < 16; i++) acc += sa[y][i] * sb[i][x];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = acc;
}

extern "C" __global__ void stencil(const float* in, float* out, int w, int h, float k) {
  __shared__ float s[18][18];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  auto at = [&](int i, int j) { return i < 0 || j < 0 || i >= w || j >= h ? 0.f : in[j * w + i]; };
  for (int j = threadIdx.y; j < 18; j += 16) for (int i = threadIdx.x; i < 18; i += 16) s[j][i] = at(blockIdx.x * 16 + i - 1, blockIdx.y * 16 + j - 1);
  __syncthreads();
  int i = threadIdx.x + 1, j = threadIdx.y + 1;
  if (x < w && y < h) out[y * w + x] = s[j][i] + k * (s[j][i - 1] + s[j][i + 1] + s[j - 1][i] + s[j + 1][i] - 4 * s[j][i]);
}

extern "C" __global__ void sparse_rows(const int* start, const int* column, const float* value, const float* x, float* y, int rows) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, lane = threadIdx.x & 7;
  float s = 0;
  if (row < rows) for (int i = start[row] + lane; i < start[row + 1]; i += 8) s += value[i] * x[column[i]];
  for (int d = 4; d; d /= 2) s += __shfl_down_sync(~0u, s, d, 8);
  if (row < rows && lane == 0) y[row] = s;
}

// Breadth-first search over a ring with chords, frontier in shared memory, one block.
extern "C" __global__ void breadth_first(int* level, int nodes, int chord) {
  __shared__ int changed;
  int depth = 0;
  do {
    __syncthreads();
    if (threadIdx.x == 0) changed = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < nodes; i += blockDim.x)
      if (level[i] == depth)
        for (int e = 0; e < 3; e++) {
          int j = e == 0 ? (i + 1) % nodes : e == 1 ? (i + nodes - 1) % nodes : (i * chord + 1) % nodes;
          if (atomicCAS(level + j, -1, depth + 1) == -1) changed = 1;
        }
    __syncthreads();
    depth++;
  } while (changed);
}

extern "C" __global__ void nbody(const float4* p, float4* a, int n) {
  __shared__ float4 s[32];
  int i = blockIdx.x * 32 + threadIdx.x;
  float4 me = p[i];
  float ax = 0, ay = 0, az = 0;
  for (int b = 0; b < n; b += 32) {
    s[threadIdx.x] = p[b + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 32; j++) {
      float dx = s[j].x - me.x, dy = s[j].y - me.y, dz = s[j].z - me.z, r2 = dx * dx + dy * dy + dz * dz + 0.01f;
      float f = s[j].w / (r2 * sqrtf(r2));
      ax += dx * f, ay += dy * f, az += dz * f;
    }
    __syncthreads();
  }
  a[i] = make_float4(ax, ay, az, me.w);
}

// 64-point FFT in a block, twiddles from the library's sincospif.
extern "C" __global__ void fft64(const float2* in, float2* out) {
  __shared__ float2 s[64];
  int t = threadIdx.x;
  s[__brev(t) >> 26] = in[t];
  s[__brev(t + 32) >> 26] = in[t + 32];
  __syncthreads();
  for (int h = 1; h < 64; h *= 2) {
    int i = t / h * 2 * h + t % h;
    float c, w;
    sincospif(-(float)(t % h) / h, &w, &c);
    float2 a = s[i], b = s[i + h], m = make_float2(b.x * c - b.y * w, b.x * w + b.y * c);
    s[i] = make_float2(a.x + m.x, a.y + m.y), s[i + h] = make_float2(a.x - m.x, a.y - m.y);
    __syncthreads();
  }
  out[t] = s[t], out[t + 32] = s[t + 32];
}

// LU factorisation without pivoting of a 16x16 double matrix.
extern "C" __global__ void lu16(const double* in, double* out) {
  __shared__ double a[16][17];
  int x = threadIdx.x, y = threadIdx.y;
  a[y][x] = in[y * 16 + x] + (x == y ? 20 : 0);
  __syncthreads();
  for (int k = 0; k < 15; k++) {
    if (x == k && y > k) a[y][k] /= a[k][k];
    __syncthreads();
    if (x > k && y > k) a[y][x] -= a[y][k] * a[k][x];
    __syncthreads();
  }
  out[y * 16 + x] = a[y][x];
}

extern "C" __global__ void life(const uint8_t* in, uint8_t* out, int w, int h) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, x = i % w, y = i / w, n = 0;
  if (y >= h) return;
  for (int dy = -1; dy <= 1; dy++) for (int dx = -1; dx <= 1; dx++) if (dx || dy) n += in[(y + dy + h) % h * w + (x + dx + w) % w] & 1;
  out[i] = n == 3 || ((in[i] & 1) && n == 2);
}

extern "C" __global__ void histogram_shared(const uint8_t* in, unsigned* out, int n) {
  __shared__ unsigned bins[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(bins + in[i], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) if (bins[i]) atomicAdd(out + i, bins[i]);
}
