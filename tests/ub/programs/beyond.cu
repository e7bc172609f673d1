// The last block reaches beyond the array: its size is no multiple of the block's.
#include <cstdio>

__global__ void doubled(int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2 * i; //~ memory-out-of-bounds
}

int main() {
    int *out;
    cudaMalloc(&out, 100 * sizeof(int));
    doubled<<<2, 64>>>(out);
    puts(cudaGetErrorName(cudaDeviceSynchronize()));
}
