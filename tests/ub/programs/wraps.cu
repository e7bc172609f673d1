// A row of a matrix of more than 2^31 elements, of which this program holds one row: the product of two ints is too large.
#include <cstdio>

__global__ void copied(float *to, const float *last, int row, int columns, long long first) {
    to[threadIdx.x] = last[row * columns + (int)threadIdx.x - first]; //~ memory-out-of-bounds
}

int main() {
    float *last, *to;
    cudaMalloc(&last, 32768 * sizeof(float));
    cudaMemset(last, 0, 32768 * sizeof(float));
    cudaMalloc(&to, 32 * sizeof(float));
    copied<<<1, 32>>>(to, last, 70000, 32768, 70000LL * 32768);
    puts(cudaGetErrorName(cudaDeviceSynchronize()));
}
