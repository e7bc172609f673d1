// Small facts about the chip: where shared memory starts, what lies below it, and how far the approximate functions are
// from the correctly rounded value over every input.
#include <cstdint>

// Error of an approximate function against the double-precision one, over all 2^32 inputs inside |x| <= limit.
template <class F, class G> __device__ void survey(F approx, G exact, bool ftz, float limit, unsigned long long* hist, double* worst) {
  unsigned long long local[12] = {};
  double most = 0, most_abs = 0;
  uint32_t at = 0;
  for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < 1ull << 32; i += (uint64_t)gridDim.x * blockDim.x) {
    float x = __uint_as_float((uint32_t)i);
    if (!(fabsf(x) <= limit)) continue;
    float in = ftz && fabsf(x) < 1.17549435e-38f ? copysignf(0.f, x) : x;
    float y = approx(x);
    double e = exact((double)in);
    float r = (float)e;
    if (ftz && fabsf(r) < 1.17549435e-38f) r = copysignf(0.f, r), e = r;
    if (isnan(r) || isnan(y)) { local[isnan(r) && isnan(y) ? 0 : 11]++; continue; }
    int a = __float_as_int(y), b = __float_as_int(r);
    long long oa = a < 0 ? -(long long)(a & 0x7fffffff) : a, ob = b < 0 ? -(long long)(b & 0x7fffffff) : b, d = llabs(oa - ob);
    local[d < 5 ? d : d <= 8 ? 5 : d <= 16 ? 6 : d <= 64 ? 7 : d <= 1024 ? 8 : d <= 65536 ? 9 : 10]++;
    if (isinf(r) || isinf(y)) continue;
    int ex; frexp(e, &ex);
    double ulp = ldexp(1.0, max(ex - 24, -149)), err = fabs((double)y - e);
    if (err / ulp > most) most = err / ulp, at = (uint32_t)i;
    most_abs = fmax(most_abs, err);
  }
  for (int k = 0; k < 12; k++) if (local[k]) atomicAdd(hist + k, local[k]);
  atomicMax((unsigned long long*)worst + 1, (unsigned long long)__double_as_longlong(most_abs));
  unsigned long long old = atomicMax((unsigned long long*)worst, (unsigned long long)__double_as_longlong(most));
  __threadfence();
  if (__longlong_as_double(old) < most) ((unsigned long long*)worst)[2] = at;
}
#define SURVEY(NAME, OP, EXACT)                                                                                                    \
  extern "C" __global__ void NAME(unsigned long long* hist, double* worst, float limit) {                                           \
    survey([](float x) { float y; asm("" OP ".f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }, [](double x) { return EXACT; }, false, limit, hist, worst);      \
  }                                                                                                                                \
  extern "C" __global__ void NAME##_ftz(unsigned long long* hist, double* worst, float limit) {                                     \
    survey([](float x) { float y; asm("" OP ".ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }, [](double x) { return EXACT; }, true, limit, hist, worst);   \
  }
SURVEY(ex2_approx, "ex2.approx", exp2(x))
SURVEY(lg2_approx, "lg2.approx", log2(x))
SURVEY(rcp_approx, "rcp.approx", 1 / x)
SURVEY(rsqrt_approx, "rsqrt.approx", 1 / sqrt(x))
SURVEY(sqrt_approx, "sqrt.approx", sqrt(x))
SURVEY(sin_approx, "sin.approx", sin(x))
SURVEY(cos_approx, "cos.approx", cos(x))
extern "C" __global__ void tanh_approx(unsigned long long* hist, double* worst, float limit) {
  survey([](float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }, [](double x) { return tanh(x); }, false, limit, hist, worst);
}

// Addresses of the first dynamic byte, without and with static shared memory, as .shared and as generic addresses.
extern "C" __global__ void base_dynamic(uint64_t* out) {
  extern __shared__ char pool[];
  out[0] = __cvta_generic_to_shared(pool), out[1] = (uint64_t)pool;
  uint32_t total, dynamic;
  asm("mov.u32 %0, %%total_smem_size;" : "=r"(total));
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
  out[2] = total, out[3] = dynamic;
  asm("mov.u32 %0, %%reserved_smem_offset_begin;" : "=r"(total));
  asm("mov.u32 %0, %%reserved_smem_offset_end;" : "=r"(dynamic));
  out[4] = total, out[5] = dynamic;
  asm("mov.u32 %0, %%reserved_smem_offset_cap;" : "=r"(total));
  out[6] = total;
  uint32_t local_at; uint64_t local_generic; int v[4]; v[threadIdx.x & 3] = 1;
  local_generic = (uint64_t)v; local_at = (uint32_t)__cvta_generic_to_local(v);
  out[7] = local_generic, out[8] = local_at;
  out[9] = v[(threadIdx.x + total) & 3];
}
extern "C" __global__ void base_static(uint64_t* out) {
  extern __shared__ char pool[];
  __shared__ int a[5];
  __shared__ __align__(128) char b[3];
  a[threadIdx.x % 5] = 1, b[threadIdx.x % 3] = 2;
  __syncthreads();
  out[0] = __cvta_generic_to_shared(pool), out[1] = __cvta_generic_to_shared(a), out[2] = __cvta_generic_to_shared(b), out[3] = a[1] + b[1];
}
// One load at a shared address chosen by the host.
extern "C" __global__ void peek(uint64_t* out, uint32_t address) {
  extern __shared__ char pool[];
  ((int*)pool)[threadIdx.x] = 0x5a5a5a5a;
  __syncthreads();
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  out[0] = v, out[1] = 1;
}
