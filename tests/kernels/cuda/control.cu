// Control flow and warp-level primitives: divergence, reconvergence, votes, shuffles, early exits, calls.
#include <cstdint>

// Lanes leave a loop one by one; survivors vote and shuffle among themselves.
extern "C" __global__ void divergent_loop(const int* in, int* out) {
  int t = threadIdx.x, n = in[t] & 15, acc = 0;
  for (int i = 0; i < n; i++) {
    unsigned active = __activemask();
    acc += __popc(active) * i;
    if ((in[t] >> i) & 1) continue;
    acc ^= __ballot_sync(__activemask(), i & 1) + t;
    if (acc % 11 == 3) break;
  }
  out[t] = acc;
}

// Convergence is forced with __syncwarp, so every mask is defined.
extern "C" __global__ void nested_branches(const int* in, unsigned* out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, v = in[t];
  unsigned r = 0;
  if (v & 1) {
    unsigned m = __ballot_sync(__activemask(), 1);
    if (v & 2) r = 1 + __popc(m); else if (v & 4) r = 2 * __popc(m); else { for (int i = 0; i < (v >> 3 & 7); i++) r = r * 3 + i; }
    r ^= m << 8;
  } else if (v & 8) {
    r = lane < 16 ? 100 : 200;
    if (v & 16) r++;
  }
  __syncwarp();
  unsigned all = __ballot_sync(~0u, r & 1);
  out[t] = r * 7 + __shfl_xor_sync(~0u, r, 5) + all;
}

extern "C" __global__ void shuffles(const int* in, int* out) {
  int t = threadIdx.x, v = in[t], *o = out + t;
  unsigned full = ~0u;
  o[0] = __shfl_sync(full, v, 7), o[32] = __shfl_sync(full, v, v & 31, 8), o[64] = __shfl_up_sync(full, v, 3);
  o[96] = __shfl_up_sync(full, v, 5, 16), o[128] = __shfl_down_sync(full, v, 9), o[160] = __shfl_down_sync(full, v, 2, 4);
  o[192] = __shfl_xor_sync(full, v, 31), o[224] = __shfl_xor_sync(full, v, 6, 8);
  long long w = __shfl_sync(full, ((long long)v << 20) - t, t ^ 9);
  o[256] = (int)w, o[288] = (int)(w >> 32);
  double f = __shfl_down_sync(full, v * 0.5, 1);
  o[320] = (int)f;
  if (t < 16) o[352] = __shfl_sync(0xffff, v, 15 - t); else o[352] = __shfl_xor_sync(0xffff0000, v, 1);
  o[384] = __any_sync(full, v < 0), o[416] = __all_sync(full, v > 0), o[448] = __ballot_sync(full, v % 3 == 0);
  o[480] = __match_any_sync(full, v & 3);
  int pred;
  unsigned same = __match_all_sync(full, v >> 31, &pred);
  o[512] = same + 2 * pred;
  same = __match_all_sync(full, 5, &pred);
  o[544] = same + pred;
  o[576] = __match_any_sync(full, (unsigned long long)(v & 1) << 40);
}

// Warp and block reductions with shuffles, redux, and all the block-wide barriers that return something.
extern "C" __global__ void reductions(const int* in, int* out, float* fout) {
  __shared__ float part[8];
  int t = threadIdx.x, v = in[blockIdx.x * blockDim.x + t], lane = t % 32;
  float f = v * 0.001f;
  for (int i = 16; i; i /= 2) f += __shfl_down_sync(~0u, f, i);
  if (lane == 0) part[t / 32] = f;
  int n = __syncthreads_count(v > 0), all = __syncthreads_and(v > -1000000), any = __syncthreads_or(v == in[0]);
  if (t < 32) {
    float s = t < blockDim.x / 32 ? part[t] : 0;
    for (int i = 4; i; i /= 2) s += __shfl_xor_sync(~0u, s, i);
    if (t == 0) fout[blockIdx.x] = s;
  }
  int* o = out + (blockIdx.x * blockDim.x + t) * 8;
  o[0] = n, o[1] = all, o[2] = any, o[3] = __reduce_add_sync(~0u, v), o[4] = __reduce_max_sync(~0u, v);
  o[5] = __reduce_min_sync(~0u, (unsigned)v), o[6] = __reduce_xor_sync(~0u, v);
  o[7] = (t & 1) ? __reduce_or_sync(0xaaaaaaaa, v) : __reduce_and_sync(0x55555555, v);
}

// switch over many dense values, fall-through and default.
extern "C" __global__ void dense_switch(const int* in, int* out) {
  int t = threadIdx.x, v = in[t], r = v;
  for (int i = 0; i < 4; i++) {
    switch (v & 15) {
      case 0: r += 3; break;
      case 1: r ^= 0x55; break;
      case 2: r = r * 5 + 1;
      case 3: r -= t; break;
      case 4: r = r >> 3; break;
      case 5: r = ~r; break;
      case 6: r = __brev(r); break;
      case 7: r = r / 3; break;
      case 8: r = __popc(r) * 1000; break;
      case 9: r = r & 0xffff; break;
      case 11: r = r + in[(t + 1) & 31]; break;
      case 12: r = r << 2; goto out;
      case 13: r = r % 1000; break;
      default: r = r * r;
    }
    v = v / 16 + r;
  }
out:
  out[t] = r;
}

// Early return: barriers count only the threads that remain alive in a warp's place.
extern "C" __global__ void early_exit(const int* in, int* out) {
  __shared__ int s[128];
  int t = threadIdx.x;
  s[t] = in[t];
  __syncthreads();
  if (in[t] % 3 == 0) return;
  int v = s[127 - t];
  if (v < 0) { out[t] = -1; return; }
  out[t] = v + __popc(__activemask() & 0) + t;
}

struct Vec { float x, y, z; };
struct Pair { double d; int i; short s; char c[5]; };

__noinline__ __device__ Vec cross(Vec a, Vec b) { return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x}; }
__noinline__ __device__ Pair bump(Pair p, int k) { p.d *= 1.5; p.i += k; p.s = (short)(p.s * 3); for (int i = 0; i < 5; i++) p.c[i] ^= (char)(k + i); return p; }
__noinline__ __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__noinline__ __device__ int ackermann(int m, int n) { return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)); }
__noinline__ __device__ bool is_odd(unsigned n);
__noinline__ __device__ bool is_even(unsigned n) { return n == 0 || is_odd(n - 1); }
__noinline__ __device__ bool is_odd(unsigned n) { return n != 0 && is_even(n - 1); }
__noinline__ __device__ void swap_out(int* a, int* b) { int t = *a; *a = *b; *b = t; }
__noinline__ __device__ unsigned char narrow(unsigned char a, short b) { return (unsigned char)(a * b); }

// Calls with structures, recursion in divergent code, pointers to locals, predicates returned.
extern "C" __global__ void calls(const float* f, const int* in, float* fout, int* out) {
  int t = threadIdx.x, v = in[t];
  Vec a = {f[t], f[t + 32], f[t + 64]}, b = {f[t + 1], f[t + 33], f[t + 65]}, c = cross(a, b);
  if (v & 1) c = cross(c, a);
  fout[t] = c.x, fout[32 + t] = c.y, fout[64 + t] = c.z;
  Pair p = {f[t], v, (short)v, {1, 2, 3, 4, (char)t}};
  p = bump(p, t);
  if (t % 3) p = bump(p, v & 15);
  fout[96 + t] = (float)p.d;
  int x = v, y = t;
  swap_out(&x, &y);
  out[t] = p.i + p.s * 3 + p.c[0] + p.c[4] * 7;
  out[32 + t] = fibonacci(t % 12), out[64 + t] = ackermann(t % 3, v & 3);
  out[96 + t] = is_even(v & 31) * 2 + is_odd(t), out[128 + t] = x - 3 * y, out[160 + t] = narrow(v, v >> 8);
}

typedef int (*Op)(int, int);
__device__ int op_add(int a, int b) { return a + b; }
__device__ int op_mul(int a, int b) { return a * b; }
__device__ int op_sub(int a, int b) { return a - b; }
__device__ int op_mad(int a, int b) { for (int i = 0; i < (a & 3); i++) b = b * 3 + a; return b; }
__device__ Op table[4] = {op_add, op_mul, op_sub, op_mad};

// Function pointers from a table in memory, uniform and divergent.
extern "C" __global__ void function_pointers(const int* in, int* out) {
  int t = threadIdx.x, v = in[t];
  int r = table[in[0] & 3](v, t);
  out[t] = table[v & 3](r, t + 1);
}

struct Shape { __device__ virtual float area(float k) const = 0; };
struct Square : Shape { float s; __device__ float area(float k) const override { return s * s * k; } };
struct Disc : Shape { float r; __device__ float area(float k) const override { return 3.14159f * r * r + k; } };
extern "C" __global__ void virtual_calls(const float* in, float* out) {
  Square q; Disc d;
  int t = threadIdx.x;
  q.s = in[t]; d.r = in[t] + 1;
  const Shape* s = in[t] > 0 ? (const Shape*)&q : (const Shape*)&d;
  out[t] = s->area(in[t + 1]);
}

// Mandelbrot: long data-dependent loops, different in every lane.
extern "C" __global__ void mandelbrot(int* out, int width, float scale) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, x = i % width, y = i / width, n = 0;
  float cr = (x - 40) * scale, ci = (y - 16) * scale, zr = 0, zi = 0;
  while (n < 200 && zr * zr + zi * zi < 4) { float t = zr * zr - zi * zi + cr; zi = 2 * zr * zi + ci; zr = t; n++; }
  out[i] = n;
}
