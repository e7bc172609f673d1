// Floating point: every directed rounding, half and bfloat16 intrinsics, conversions, double precision, the math library.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void f32_roundings(const float* in, float* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  float a = in[t], b = in[(t + 1) % n], c = in[(t + 2) % n], *o = out + t;
  o[0] = __fadd_rn(a, b), o[n] = __fadd_rz(a, b), o[2 * n] = __fadd_ru(a, b), o[3 * n] = __fadd_rd(a, b);
  o[4 * n] = __fmul_rn(a, b), o[5 * n] = __fmul_rz(a, b), o[6 * n] = __fmul_ru(a, b), o[7 * n] = __fmul_rd(a, b);
  o[8 * n] = __fmaf_rn(a, b, c), o[9 * n] = __fmaf_rz(a, b, c), o[10 * n] = __fmaf_ru(a, b, c), o[11 * n] = __fmaf_rd(a, b, c);
  o[12 * n] = __fdiv_rn(a, b), o[13 * n] = __fdiv_rz(a, b), o[14 * n] = __fdiv_ru(a, b), o[15 * n] = __fdiv_rd(a, b);
  o[16 * n] = __fsqrt_rn(a), o[17 * n] = __fsqrt_rz(a), o[18 * n] = __fsqrt_ru(a), o[19 * n] = __fsqrt_rd(a);
  o[20 * n] = __frcp_rn(a), o[21 * n] = __frcp_rz(a), o[22 * n] = __frcp_ru(a), o[23 * n] = __frcp_rd(a);
  o[24 * n] = __saturatef(a), o[25 * n] = fminf(a, b), o[26 * n] = fmaxf(a, b), o[27 * n] = copysignf(a, b), o[28 * n] = fabsf(a - b);
  o[29 * n] = truncf(a), o[30 * n] = rintf(a), o[31 * n] = floorf(a) + ceilf(b), o[32 * n] = isnan(a) + 2 * isinf(b) + 4 * signbit(c) + 8 * (a < b) + 16 * (a >= c);
}

extern "C" __global__ void f64_arithmetic(const double* in, double* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  double a = in[t], b = in[(t + 1) % n], c = in[(t + 2) % n], *o = out + t;
  o[0] = __dadd_rz(a, b), o[n] = __dmul_ru(a, b), o[2 * n] = __fma_rd(a, b, c), o[3 * n] = a / b, o[4 * n] = sqrt(fabs(a));
  o[5 * n] = __ddiv_rz(a, b), o[6 * n] = __dsqrt_ru(fabs(b)), o[7 * n] = 1 / a, o[8 * n] = fmin(a, b) + fmax(b, c), o[9 * n] = rint(a) + floor(b);
  o[10 * n] = a * b + c, o[11 * n] = (double)(float)a, o[12 * n] = (double)(long long)(b * 1e6), o[13 * n] = (double)(unsigned)fabs(c * 1000), o[14 * n] = __hiloint2double(__double2loint(a), __double2hiint(b) & 0x7fefffff);
}

extern "C" __global__ void f64_library(const double* in, double* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  double a = in[t], p = fabs(a), *o = out + t;
  o[0] = exp(a), o[n] = log(p), o[2 * n] = sin(a), o[3 * n] = cos(a * 100), o[4 * n] = pow(p, a), o[5 * n] = tanh(a), o[6 * n] = atan2(a, p + 1), o[7 * n] = cbrt(a);
  o[8 * n] = erf(a), o[9 * n] = fmod(a * 100, p + 0.1), o[10 * n] = rsqrt(p), o[11 * n] = hypot(a, 2.0);
}

// Whole-range versions of the single-precision library (no fast math): fma chains, argument reduction, branches.
extern "C" __global__ void f32_library(const float* in, float* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  float a = in[t], p = fabsf(a), *o = out + t;
  o[0] = expf(a), o[n] = logf(p), o[2 * n] = sinf(a), o[3 * n] = cosf(a * 1e6f), o[4 * n] = tanf(a), o[5 * n] = powf(p, a), o[6 * n] = exp2f(a), o[7 * n] = log2f(p);
  o[8 * n] = log10f(p), o[9 * n] = sqrtf(p), o[10 * n] = rsqrtf(p), o[11 * n] = 1 / a, o[12 * n] = a / (p + 0.3f), o[13 * n] = tanhf(a), o[14 * n] = atanf(a), o[15 * n] = asinf(a * 0.2f);
  o[16 * n] = erff(a), o[17 * n] = erfcf(a), o[18 * n] = cbrtf(a), o[19 * n] = fmodf(a * 50, 0.7f), o[20 * n] = lgammaf(p), o[21 * n] = expm1f(a), o[22 * n] = log1pf(p), o[23 * n] = sinhf(a);
  int e; float s, c;
  o[24 * n] = frexpf(a, &e) + e, o[25 * n] = ldexpf(a, t % 20 - 10), sincosf(a * 10, &s, &c), o[26 * n] = s - c, o[27 * n] = roundf(a * 10), o[28 * n] = normcdff(a), o[29 * n] = nextafterf(a, 0.f), o[30 * n] = remainderf(a * 9, 2.5f), o[31 * n] = sinpif(a);
}

// The same file is built with -use_fast_math for this kernel's twin in fast.cu.
extern "C" __global__ void f32_intrinsics(const float* in, float* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  float a = in[t], p = fabsf(a), *o = out + t;
  o[0] = __expf(a), o[n] = __logf(p), o[2 * n] = __sinf(a), o[3 * n] = __cosf(a), o[4 * n] = __tanf(a), o[5 * n] = __powf(p, a), o[6 * n] = __exp10f(a), o[7 * n] = __log2f(p);
  o[8 * n] = __fdividef(a, p + 0.5f), o[9 * n] = __frsqrt_rn(p), o[10 * n] = __log10f(p);
  float s, c; __sincosf(a, &s, &c); o[11 * n] = s * c;
}

extern "C" __global__ void halves(const __half* in, __half* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  __half a = in[t], b = in[(t + 1) % n], c = in[(t + 2) % n], *o = out + t;
  o[0] = __hadd(a, b), o[n] = __hsub(a, b), o[2 * n] = __hmul(a, b), o[3 * n] = __hfma(a, b, c), o[4 * n] = __hdiv(a, b), o[5 * n] = __hadd_sat(a, b), o[6 * n] = __hfma_sat(a, b, c);
  o[7 * n] = __hneg(a), o[8 * n] = __habs(a), o[9 * n] = __hmax(a, b), o[10 * n] = __hmin(a, b), o[11 * n] = __hmax_nan(a, b), o[12 * n] = __hfma_relu(a, b, c);
  o[13 * n] = hsqrt(a), o[14 * n] = hrcp(a), o[15 * n] = hexp(a), o[16 * n] = hlog(a), o[17 * n] = hfloor(a), o[18 * n] = hrint(a), o[19 * n] = htanh(a), o[20 * n] = hsin(a);
  __half2 x = __halves2half2(a, b), y = __halves2half2(c, a), z = __hfma2(x, y, x);
  o[21 * n] = __low2half(z), o[22 * n] = __high2half(__hadd2(x, y)), o[23 * n] = __low2half(__hmul2_sat(x, y)), o[24 * n] = __high2half(__hmin2(x, __lowhigh2highlow(y)));
  o[25 * n] = __hlt(a, b) ? a : b, o[26 * n] = __hbeq2(x, y) ? a : c, o[27 * n] = __low2half(__hgt2(x, y)), o[28 * n] = __float2half_rz((float)a * 1.001f), o[29 * n] = __float2half_ru((float)a * 1.001f);
  o[30 * n] = __int2half_rn(__half2int_rz(a)), o[31 * n] = __ushort_as_half(__half2ushort_rd(b)), o[32 * n] = __double2half((double)a / 3), o[33 * n] = __high2half(__h2div(x, y));
}

extern "C" __global__ void bfloats(const __nv_bfloat16* in, __nv_bfloat16* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  __nv_bfloat16 a = in[t], b = in[(t + 1) % n], c = in[(t + 2) % n], *o = out + t;
  o[0] = __hadd(a, b), o[n] = __hsub(a, b), o[2 * n] = __hmul(a, b), o[3 * n] = __hfma(a, b, c), o[4 * n] = __hdiv(a, b), o[5 * n] = __hfma_relu(a, b, c), o[6 * n] = __hmax(a, b), o[7 * n] = __hmin_nan(a, b);
  __nv_bfloat162 x = __halves2bfloat162(a, b), y = __halves2bfloat162(c, a);
  o[8 * n] = __low2bfloat16(__hfma2(x, y, x)), o[9 * n] = __high2bfloat16(__hadd2(x, y)), o[10 * n] = __high2bfloat16(__hmax2(x, y)), o[11 * n] = __low2bfloat16(__habs2(x));
  o[12 * n] = __float2bfloat16_rz((float)a * 1.01f), o[13 * n] = __float2bfloat16_rd((float)b * 1.01f), o[14 * n] = hexp2(a), o[15 * n] = hrsqrt(b), o[16 * n] = __int2bfloat16_rn(__bfloat162int_rn(c)), o[17 * n] = __hgt(a, b) ? a : c, o[18 * n] = htanh(a);
}

// FP8 conversions through the CUDA headers, both types, with and without saturation.
extern "C" __global__ void fp8_conversions(const float* in, unsigned* out, float* back, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  float a = in[t], b = in[(t + 1) % n];
  auto p = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
  auto q = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E5M2);
  auto r = __nv_cvt_halfraw2_to_fp8x2(__half2_raw(__floats2half2_rn(a, b)), __NV_SATFINITE, __NV_E4M3);
  auto s = __nv_cvt_float_to_fp8(a, __NV_NOSAT, __NV_E5M2);
  out[t] = p | q << 16, out[n + t] = r | s << 16;
  __half2 h(__nv_cvt_fp8x2_to_halfraw2(p, __NV_E4M3)), g(__nv_cvt_fp8x2_to_halfraw2(q, __NV_E5M2));
  back[t] = __low2float(h), back[n + t] = __high2float(h), back[2 * n + t] = __low2float(g) - __high2float(g);
}

// Every integer/float pair in each rounding direction.
extern "C" __global__ void conversions(const float* in, const int* iin, int* out, float* fout, long long* wide, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  float a = in[t]; int i = iin[t]; int* o = out + t; float* f = fout + t; long long* w = wide + t;
  o[0] = __float2int_rn(a), o[n] = __float2int_rz(a), o[2 * n] = __float2int_ru(a), o[3 * n] = __float2int_rd(a), o[4 * n] = __float2uint_rn(a), o[5 * n] = (short)a, o[6 * n] = (unsigned char)a, o[7 * n] = __float_as_int(a) + (int)lrintf(a);
  f[0] = __int2float_rn(i), f[n] = __int2float_rz(i), f[2 * n] = __uint2float_ru(i), f[3 * n] = __ll2float_rd((long long)i * i), f[4 * n] = __ull2float_rn((unsigned long long)i * 77777), f[5 * n] = __double2float_rz(a * 1.1), f[6 * n] = (float)(signed char)i, f[7 * n] = (float)(unsigned short)i;
  w[0] = __float2ll_rn(a * 1e9f), w[n] = __float2ull_rz(a * 1e9f), w[2 * n] = __double2ll_ru(a * 1e12), w[3 * n] = __double2ull_rd(a * 1e5), w[4 * n] = __double_as_longlong(__ll2double_rn((long long)i << 30)), w[5 * n] = __double_as_longlong(__int2double_rn(i) / 3);
}

// Summation orders that only give these bits if every step is rounded as written (Kahan, pairwise, Horner).
extern "C" __global__ void summation(const float* in, float* out, int n) {
  int t = threadIdx.x;
  float s = 0, c = 0, plain = 0;
  for (int i = t; i < n; i += 32) { float y = in[i] - c, u = s + y; c = (u - s) - y; s = u; plain += in[i]; }
  double d = 0;
  for (int i = 0; i < n; i++) d = d * 0.99 + in[(i * t) % n];
  out[t] = s, out[32 + t] = c, out[64 + t] = plain, out[96 + t] = (float)d;
}
