// Calls to the device runtime that real kernels leave in: assert and printf.
#include <cassert>
#include <cstdio>

extern "C" __global__ void asserting(const int* in, int* out, int limit) {
  int t = threadIdx.x, v = in[t];
  assert(v < limit);
  if (v > limit) printf("thread %d: %d is above %d, ratio %f\n", t, v, limit, v / (double)limit);
  assert(t + v != -12345 && "never");
  out[t] = v * 2;
}

// One line from one lane.
extern "C" __global__ void printing(const int* in, int* out) {
  int t = threadIdx.x;
  if (t == 3) printf("lane %d holds %d and %.3f %s\n", t, in[t], in[t] * 0.5, "units");
  out[t] = in[t] + 1;
}
