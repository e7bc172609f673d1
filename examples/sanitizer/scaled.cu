// D = (scale * A) B^T of f16 with f32 sums: a row of A is scaled on its way to shared memory, wgmma reads it there.
//
//     nvcc -arch=sm_90a -ptx -lineinfo scaled.cu -o scaled.ptx
//     nvcc -arch=sm_90a -ptx -lineinfo -DFIXED scaled.cu -o fixed.ptx
#include <cstdint>
#include <cuda_fp16.h>

constexpr int M = 64, N = 8, K = 64;  // a block's tile, and what it takes of k at a time

struct Tiles {
    // Core matrices of 8 rows of 16 bytes, those of a column of eight one behind the other.
    alignas(128) half a[K / 8][M][8];
    alignas(128) half b[K / 8][N][8];
};

__device__ uint64_t descriptor(const void* tile, uint32_t between_columns) {
    uint64_t address = __cvta_generic_to_shared(tile);
    return (address >> 4 & 0x3fff) | uint64_t(between_columns >> 4) << 16 | uint64_t(128 >> 4) << 32;
}

__device__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ void multiply(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(128)
scaled(const half* a, const half* b, const float* scale, float* d, int k) {
    __shared__ Tiles tiles;
    int first = blockIdx.x * M;
    float sum[4] = {};
    for (int k0 = 0; k0 < k; k0 += K) {
        for (int i = threadIdx.x; i < M * K / 8; i += blockDim.x) {
            int row = i % M, column = i / M;
            half2 s = __float2half2_rn(scale[first + row]);
            uint4 raw = *reinterpret_cast<const uint4*>(a + (first + row) * k + k0 + 8 * column);
            half2* pairs = reinterpret_cast<half2*>(&raw);
            for (int p = 0; p < 4; p++) pairs[p] = __hmul2(pairs[p], s);
            *reinterpret_cast<uint4*>(tiles.a[column][row]) = raw;
        }
        if (threadIdx.x < N * K / 8) {
            int row = threadIdx.x % N, column = threadIdx.x / N;
            *reinterpret_cast<uint4*>(tiles.b[column][row]) =
                *reinterpret_cast<const uint4*>(b + row * k + k0 + 8 * column);
        }
#ifdef FIXED
        fence_proxy_async();
#else
        if (threadIdx.x == 0) fence_proxy_async();
#endif
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int step = 0; step < K / 16; step++)
            multiply(sum, descriptor(tiles.a[2 * step], sizeof tiles.a[0]), descriptor(tiles.b[2 * step], sizeof tiles.b[0]));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    int row = first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int half_ = 0; half_ < 2; half_++)
        for (int n = 0; n < 2; n++) d[(row + 8 * half_) * N + column + n] = sum[2 * half_ + n];
}
