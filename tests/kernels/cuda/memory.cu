// State spaces: constant, static and dynamic shared, local arrays, generic pointers, structures as parameters.
#include <cstdint>

__constant__ float coefficients[8] = {1.f, -0.5f, 0.25f, -0.125f, 3.5f, 1e-3f, -7.f, 0.f};
__constant__ int permutation[32] = {5, 3, 1, 0, 2, 4, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6};
__constant__ char text[] = "wgmma.mma_async";
__device__ int counter = 40;
__device__ const uint64_t primes[6] = {2, 3, 5, 7, 11, 0xffffffffffffffc5ull};
struct Entry { int key; const int* where; double weight; };
__device__ Entry entries[2] = {{1, &counter, 0.5}, {2, &counter, -1.25}};

extern "C" __global__ void constants(const int* in, float* out, int* iout) {
  int t = threadIdx.x;
  float x = in[t] * 1e-9f, y = 0;
  for (int i = 0; i < 8; i++) y = y * x + coefficients[i];
  out[t] = y + coefficients[in[t] & 7];
  iout[t] = permutation[in[t] & 31] * 256 + text[t % sizeof(text)];
  iout[32 + t] = (int)(primes[t % 6] % 1000) + (int)(entries[t & 1].weight * 4) + *entries[t & 1].where;
}

// Static and dynamic shared memory together; the dynamic part is cut into arrays of different types.
extern "C" __global__ void shared_mix(const int* in, int* out, int n) {
  __shared__ int fixed[64];
  __shared__ double weights[4];
  extern __shared__ char pool[];
  short* shorts = (short*)pool;
  float* floats = (float*)(pool + 2 * n);
  uint4* quads = (uint4*)(pool + 6 * n);
  int t = threadIdx.x;
  if (t < 64) fixed[t] = in[t] * 3;
  if (t < 4) weights[t] = t + 0.25;
  if (t < n) shorts[t] = (short)in[t], floats[n - 1 - t] = in[t] * 0.5f;
  if (t < n / 4) quads[t] = make_uint4(t, t * t, in[t], ~t);
  __syncthreads();
  uint4 q = quads[(t * 7) % (n / 4)];
  out[t] = fixed[(t * 5) & 63] + shorts[(t + 1) % n] + (int)floats[t % n] + (int)(weights[t & 3] * 4) + q.x + q.y + q.z + q.w;
}

// A generic pointer that is global, shared or local depending on data; then the address-space predicates.
__noinline__ __device__ int total(const int* p, int n) { int s = 0; for (int i = 0; i < n; i++) s = s * 31 + p[i]; return s; }
extern "C" __global__ void generic_pointers(const int* in, int* out) {
  __shared__ int s[32];
  int t = threadIdx.x, local[8];
  s[t] = in[t] + 1;
  for (int i = 0; i < 8; i++) local[(i + in[t]) & 7] = in[t] * i;
  __syncthreads();
  const int* p = in[t] % 3 == 0 ? in + (t & 15) : in[t] % 3 == 1 ? s + (t & 15) : local;
  out[t] = total(p, 8);
  out[32 + t] = __isGlobal(p) + 2 * __isShared(p) + 4 * __isLocal(p) + 8 * __isConstant(p);
  atomicAdd((int*)(in[t] & 1 ? (int*)&s[t & 3] : out + 64 + (t & 3)), t);
  __syncthreads();
  out[96 + t] = s[t];
}

// Local arrays indexed by data: an insertion sort and a stack machine in every thread.
extern "C" __global__ void local_arrays(const int* in, int* out) {
  int t = threadIdx.x, a[24];
  for (int i = 0; i < 24; i++) a[i] = in[(t * 7 + i * 13) & 255];
  for (int i = 1; i < 24; i++) { int v = a[i], j = i; while (j && a[j - 1] > v) { a[j] = a[j - 1]; j--; } a[j] = v; }
  int stack[8], sp = 0;
  for (int i = 0; i < 24; i++) {
    int op = a[i] & 3;
    if (op < 2 || sp < 2) { if (sp < 8) stack[sp++] = a[i]; }
    else { int y = stack[--sp], x = stack[--sp]; stack[sp++] = op == 2 ? x + y : x * 3 - y; }
  }
  out[t] = a[t % 24] ^ stack[sp - 1];
  unsigned char bytes[16] = {};
  for (int i = 0; i < 16; i++) bytes[(i * in[t]) & 15] = (unsigned char)(i + t);
  out[64 + t] = bytes[t & 15] + (bytes[(t + 3) & 15] << 8);
}

struct Inner { short s; double d; char c; };
struct Params { float alpha; int n; Inner inner[2]; const float* x; float* y; uint8_t flags; };
extern "C" __global__ void struct_parameters(Params p, char c, const __grid_constant__ Inner g, int3 dims) {
  int t = threadIdx.x;
  if (t >= p.n) return;
  float v = p.x[t] * p.alpha + (float)p.inner[t & 1].d;
  if (p.flags & 4) v += p.inner[0].s * c;
  const Inner* q = t & 1 ? &g : &p.inner[1];
  p.y[t] = v + q->s + dims.x * 100 + dims.y * 10 + dims.z + (float)g.d;
}

struct __align__(16) Wide { int a[4]; };
struct Packed { unsigned lo : 5, mid : 11, hi : 16; };
// Vector accesses of every width, bit fields, volatile, unaligned bytes, 64-bit and 16-bit elements.
extern "C" __global__ void accesses(const uint4* in, uint4* out, const uint8_t* bytes, uint8_t* bout, volatile int* flags) {
  int t = threadIdx.x;
  uint4 v = __ldg(in + t);
  v.x += v.y, v.z ^= v.w;
  out[t] = v;
  ((uint2*)out)[64 + 2 * t] = make_uint2(v.x, v.w);
  ((ushort4*)out)[192 + t] = make_ushort4(v.x, v.y, v.z, v.w);
  ((double2*)(out + 128))[t] = make_double2(v.x, v.y * 0.5);
  Wide w = *(const Wide*)(in + (31 - t));
  Packed b = *(Packed*)&w.a[t & 3];
  b.mid += b.lo, b.hi ^= t;
  ((Packed*)(out + 160))[t] = b;
  int s = 0;
  for (int i = 0; i < 5; i++) s = s * 3 + (signed char)bytes[t * 3 + i];
  bout[t] = (uint8_t)s;
  *(uint16_t*)(bout + 32 + 2 * t) = (uint16_t)(bytes[t] << 8 | bytes[t + 1]);
  flags[t] = flags[t ^ 1] + 0 * s + t;
  asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(out + 168 + t), "r"(v.x) : "memory");
  unsigned q;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(q) : "l"(in + t));
  asm volatile("st.global.wt.v2.u32 [%0], {%1, %2};" ::"l"((uint2*)(out + 200) + t), "r"(q), "r"(v.y) : "memory");
}

// Identity of a thread in a three-dimensional launch.
extern "C" __global__ void identity(int* out) {
  int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned lane, warp, mask_lt, mask_ge;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask_lt));
  asm("mov.u32 %0, %%lanemask_ge;" : "=r"(mask_ge));
  int* o = out + (b * blockDim.x * blockDim.y * blockDim.z + t) * 8;
  o[0] = threadIdx.x | threadIdx.y << 8 | threadIdx.z << 16, o[1] = blockIdx.x | blockIdx.y << 8 | blockIdx.z << 16;
  o[2] = blockDim.x | blockDim.y << 8 | blockDim.z << 16, o[3] = gridDim.x | gridDim.y << 8 | gridDim.z << 16;
  o[4] = lane, o[5] = warpSize, o[6] = mask_lt, o[7] = mask_ge;
}
