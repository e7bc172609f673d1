// Accumulators that are zeroed before wgmma.fence: nvcc puts the moves after it, and ptxas takes them as they are meant. The
// second kernel multiplies once more, and lacks the fence after it has changed the sums.
#include <cstdint>
#include <cstdio>

__device__ uint64_t matrix(const void *tile) {
    return (__cvta_generic_to_shared(tile) >> 4 & 0x3fff) | 8ull << 16 | 16ull << 32;
}

__device__ void multiply(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b)); //~ wgmma-fence-missing
}

__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ void wait() { asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory"); }

template <int ROUNDS> __global__ void products(float *out) {
    __shared__ alignas(128) uint16_t a[64 * 16], b[16 * 8];
    int t = threadIdx.x;
    for (int i = t; i < 64 * 16; i += 128)
        a[i] = 0x3c00;
    b[t] = 0x4000;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    float d[4] = {};
    fence();
    multiply(d, matrix(a), matrix(b));
    wait();
    if (ROUNDS == 2) {
        for (int i = 0; i < 4; i++)
            d[i] += out[4 * t + i];
        multiply(d, matrix(a), matrix(b));
        wait();
    }
    for (int i = 0; i < 4; i++)
        out[4 * t + i] = d[i];
}

int main() {
    float *out, sum;
    cudaMalloc(&out, 2048);
    cudaMemset(out, 0, 2048);
    products<1><<<1, 128>>>(out);
    cudaMemcpy(&sum, out, 4, cudaMemcpyDeviceToHost);
    printf("%g\n", sum);
    products<2><<<1, 128>>>(out);
    puts(cudaGetErrorName(cudaDeviceSynchronize()));
}
