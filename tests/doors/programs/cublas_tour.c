/* Products by cuBLAS and cuBLASLt, with the digest of each result: a line a product.

     cc cublas_tour.c -lcudart -lcublas -lcublasLt && ./a.out [SEED COUNT]

   On a machine with a GPU it prints that GPU's digests. The declarations are those of cublas_v2.h, cublasLt.h and
   cuda_runtime_api.h that it needs. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemcpy(void *, const void *, size_t, int), cudaDeviceSynchronize(void);
typedef void *Handle;
extern int cublasCreate_v2(Handle *), cublasDestroy_v2(Handle), cublasLtCreate(Handle *), cublasLtDestroy(Handle);
extern int cublasGemmEx(Handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                        const void *, void *, int, int, int, int);
extern int cublasGemmStridedBatchedEx(Handle, int, int, int, int, int, const void *, const void *, int, int, long long,
                                      const void *, int, int, long long, const void *, void *, int, int, long long, int, int, int);
extern int cublasLtMatmulDescCreate(Handle *, int, int), cublasLtMatmulDescSetAttribute(Handle, int, const void *, size_t);
extern int cublasLtMatrixLayoutCreate(Handle *, int, uint64_t, uint64_t, int64_t), cublasLtMatmulPreferenceCreate(Handle *);
extern int cublasLtMatmulPreferenceSetAttribute(Handle, int, const void *, size_t);
extern int cublasLtMatmulAlgoGetHeuristic(Handle, Handle, Handle, Handle, Handle, Handle, Handle, int, void *, int *);
extern int cublasLtMatmul(Handle, Handle, const void *, const void *, Handle, const void *, Handle, const void *, const void *,
                          Handle, void *, Handle, const void *, void *, size_t, void *);

#define CHECK(call) do { int code = (call); if (code) { printf("%s: %d\n", #call, code); exit(1); } } while (0)
enum { F32 = 0, F16 = 2, BF16 = 14, SUMS_F32 = 68, DEFAULT = 1, BIAS = 4, RELU_BIAS = 6 };
#define ROOM ((size_t)32 << 20)

static uint64_t seed;
static unsigned drawn(void) { return (unsigned)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33); }
static int between(int low, int high) { return (int)exp(log(low) + drawn() / 2147483648.0 * log((high + 1.0) / low)); }

/* Numbers from about 1/4 to 4 of either sign. */
static uint16_t *matrix(size_t count, int type) {
    uint16_t *host = malloc(2 * count), *device;
    for (size_t n = 0; n < count; n++) {
        unsigned word = drawn();
        host[n] = type == F16 ? (word & 0x83ff) | (13 + (word >> 16) % 4) << 10 : (word & 0x807f) | (125 + (word >> 16) % 4) << 7;
    }
    CHECK(cudaMalloc((void **)&device, 2 * count));
    CHECK(cudaMemcpy(device, host, 2 * count, 1));
    free(host);
    return device;
}

static uint64_t digest(const void *device, size_t bytes) {
    unsigned char *host = malloc(bytes);
    uint64_t sum = 1469598103934665603u;
    CHECK(cudaMemcpy(host, device, bytes, 2));
    for (size_t n = 0; n < bytes; n++) sum = (sum ^ host[n]) * 1099511628211u;
    free(host);
    return sum;
}

static void product_of_lt(Handle lt, int type, int ta, int tb, int m, int n, int k, float alpha, float beta, int epilogue,
                          void *a, void *b, void *c, void *bias, void *room) {
    Handle description, la, lb, lc, preference;
    char found[96];
    int number;
    size_t size = ROOM;
    CHECK(cublasLtMatmulDescCreate(&description, SUMS_F32, F32));
    CHECK(cublasLtMatmulDescSetAttribute(description, 3, &ta, sizeof ta));
    CHECK(cublasLtMatmulDescSetAttribute(description, 4, &tb, sizeof tb));
    CHECK(cublasLtMatmulDescSetAttribute(description, 7, &epilogue, sizeof epilogue));
    if (epilogue != DEFAULT) CHECK(cublasLtMatmulDescSetAttribute(description, 8, &bias, sizeof bias));
    CHECK(cublasLtMatrixLayoutCreate(&la, type, ta ? k : m, ta ? m : k, ta ? k : m));
    CHECK(cublasLtMatrixLayoutCreate(&lb, type, tb ? n : k, tb ? k : n, tb ? n : k));
    CHECK(cublasLtMatrixLayoutCreate(&lc, type, m, n, m));
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, 1, &size, sizeof size));
    CHECK(cublasLtMatmulAlgoGetHeuristic(lt, description, la, lb, lc, lc, preference, 1, found, &number));
    CHECK(cublasLtMatmul(lt, description, &alpha, a, la, b, lb, &beta, c, lc, c, lc, found, room, ROOM, NULL));
}

int main(int argc, char **argv) {
    Handle blas, lt;
    void *room;
    static const float alphas[] = {1, 1, -0.6f, 1.7f}, betas[] = {0, 1, 1, 0.3f};
    static const char *names[] = {"plain", "batch", "bias", "relu"};
    int count = argc > 2 ? atoi(argv[2]) : 96;
    seed = argc > 1 ? atoi(argv[1]) : 1;
    CHECK(cublasCreate_v2(&blas));
    CHECK(cublasLtCreate(&lt));
    CHECK(cudaMalloc(&room, ROOM));
    for (int number = 0; number < count; number++) {
        int kind = number % 4, type = number / 4 % 2 ? BF16 : F16, scale = number / 8 % 4, ta = drawn() & 1, tb = drawn() & 1;
        int m = 8 * between(1, 48), n = 8 * between(1, 48), k = 8 * between(1, 300), batch = kind == 1 ? between(2, 6) : 1;
        while ((long long)m * n * k * batch > (argc > 3 ? atoi(argv[3]) : 1 << 21)) n = n / 16 * 8 + 8, m = m / 16 * 8 + 8, k = k / 16 * 8 + 8;
        float alpha = alphas[scale], beta = betas[scale];
        int lda = ta ? k : m, ldb = tb ? n : k;
        uint16_t *a = matrix((size_t)m * k * batch, type), *b = matrix((size_t)k * n * batch, type);
        uint16_t *c = matrix((size_t)m * n * batch, type), *bias = matrix(m, type);
        if (kind == 0)
            CHECK(cublasGemmEx(blas, ta, tb, m, n, k, &alpha, a, type, lda, b, type, ldb, &beta, c, type, m, SUMS_F32, -1));
        else if (kind == 1)
            CHECK(cublasGemmStridedBatchedEx(blas, ta, tb, m, n, k, &alpha, a, type, lda, (long long)m * k, b, type, ldb,
                                             (long long)k * n, &beta, c, type, m, (long long)m * n, batch, SUMS_F32, -1));
        else
            product_of_lt(lt, type, ta, tb, m, n, k, alpha, beta, kind == 2 ? BIAS : RELU_BIAS, a, b, c, bias, room);
        CHECK(cudaDeviceSynchronize());
        printf("%s %s %dx%dx%d %c%c batch %d alpha %g beta %g %016llx\n", names[kind], type == F16 ? "f16" : "bf16", m, n, k,
               "NT"[ta], "NT"[tb], batch, alpha, beta, (unsigned long long)digest(c, (size_t)2 * m * n * batch));
        cudaFree(a), cudaFree(b), cudaFree(c), cudaFree(bias);
    }
    CHECK(cublasDestroy_v2(blas));
    CHECK(cublasLtDestroy(lt));
    return 0;
}
