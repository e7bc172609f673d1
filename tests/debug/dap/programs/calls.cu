#include <cstdio>
__device__ __noinline__ float twice(float v, int n) {
  float r = v;
  for (int i = 0; i < n; i++)
    r = r * 2.0f;
  return r;
}
__device__ __noinline__ float both(float v, int n) {
  float a = twice(v, n);
  return a + twice(a, 1);
}
__global__ void kernel(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    x[i] = both(x[i], i % 3);
  if (i == 0) printf("kernel %d\n", n);
}
int main() {
  float *x, h[48];
  for (int i = 0; i < 48; i++) h[i] = i;
  cudaMalloc(&x, sizeof h);
  cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice);
  kernel<<<2, 32>>>(x, 48);
  cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);
  printf("h[5] = %g\n", h[5]);
  return 0;
}
