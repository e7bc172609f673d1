// Each thread adds what its neighbour stored.
#include <cstdio>

__global__ void neighbours(const float *in, float *out) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    tile[t] = in[t];
    out[t] = tile[t] + tile[(t + 1) % 64]; //~ race-read-write, race-within-warp
}

int main() {
    float *in, *out;
    cudaMalloc(&in, 256);
    cudaMalloc(&out, 256);
    cudaMemset(in, 0, 256);
    neighbours<<<1, 64>>>(in, out);
    puts(cudaGetErrorName(cudaDeviceSynchronize()));
}
