// Built with -use_fast_math: .ftz everywhere, approximate division, square root and functions.
extern "C" __global__ void fast_math(const float* in, float* out, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  float a = in[t], b = in[(t + 1) % n], p = fabsf(a), *o = out + t;
  o[0] = a + b, o[n] = a * b, o[2 * n] = a * b + p, o[3 * n] = a / b, o[4 * n] = sqrtf(p), o[5 * n] = 1 / sqrtf(p), o[6 * n] = expf(a), o[7 * n] = logf(p);
  o[8 * n] = sinf(a), o[9 * n] = powf(p, b), o[10 * n] = tanhf(a), o[11 * n] = fminf(a, b), o[12 * n] = (float)(int)a, o[13 * n] = a > b ? a : -b, o[14 * n] = 1 / a, o[15 * n] = fmaf(a, b, -p);
}
