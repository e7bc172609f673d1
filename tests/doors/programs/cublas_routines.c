/* Every routine of cuBLAS that is modelled, on small whole numbers, whose sums are exact in any order: a digest for each.

     cc -std=gnu11 -DT=S cublas_routines.c -lcudart -lcublas && ./a.out        T: S or D, or -DT=C -DCOMPLEX_TYPES=1, or Z

   On a machine with a GPU it prints that GPU's digests. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cudaMalloc(void **, size_t), cudaMemcpy(void *, const void *, size_t, int), cudaDeviceSynchronize(void);
extern int cublasCreate_v2(void **), cublasSetPointerMode_v2(void *, int);

#define CAT(a, b, c) a##b##c
#define NAME(a, t, b) CAT(a, t, b)
#define WORDS_S 1
#define WORDS_D 1
#define WORDS_C 2
#define WORDS_Z 2
#define REAL_S float
#define REAL_C float
#define REAL_D double
#define REAL_Z double
#define PART_S s
#define PART_D d
#define PART_C c
#define PART_Z z
#define SUM_S S
#define SUM_D D
#define SUM_C Sc
#define SUM_Z Dz
#define HALF_C Cs
#define HALF_Z Zd
typedef NAME(REAL_, T, ) real;
#define WORDS NAME(WORDS_, T, )
#define COMPLEX (WORDS == 2)
#define SIZE (WORDS * sizeof(real))
#define BLAS(name) NAME(cublas, T, name)
#define ROOM 4096 /* elements of each of four arrays */

static uint64_t seed = 1;
static int upto(int most) { return (int)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33) % (most + 1); }
static void *blas;
static real *device[4], host[4][ROOM * 2];

static void fill(void) {
    for (int n = 0; n < 4; n++) {
        for (int i = 0; i < ROOM * WORDS; i++) host[n][i] = upto(8) - 4;
        cudaMemcpy(device[n], host[n], ROOM * SIZE, 1);
    }
}

/* A triangular matrix whose solutions are exact: a diagonal of 1 or 2. */
static void diagonal(int n, int step) {
    for (int i = 0; i < n; i++) {
        host[0][(i + i * step) * WORDS] = 1 + upto(1);
        if (COMPLEX) host[0][(i + i * step) * WORDS + 1] = 0;
    }
    cudaMemcpy(device[0], host[0], ROOM * SIZE, 1);
}

static void say(const char *name, int code) {
    uint64_t sum = 1469598103934665603u;
    cudaDeviceSynchronize();
    for (int n = 0; n < 4; n++) {
        cudaMemcpy(host[n], device[n], ROOM * SIZE, 2);
        for (int i = 0; i < ROOM * WORDS; i++) {
            real value = host[n][i] + 0; /* one zero */
            for (size_t b = 0; b < sizeof value; b++) sum = (sum ^ ((unsigned char *)&value)[b]) * 1099511628211u;
        }
    }
    printf("%s %d %016llx\n", name, code, (unsigned long long)sum);
}

#define CALL(name, ...) do { int NAME(cublas, T, name)(); say(#name, BLAS(name)(blas, __VA_ARGS__)); } while (0)
#define CALL_OF(prefix, name, ...) do { int NAME(cublas, prefix, name)(); say(#name, NAME(cublas, prefix, name)(blas, __VA_ARGS__)); } while (0)
#define AMAX NAME(PART_, T, )
#define CALL_I(name, ...) do { int NAME(cublasI, AMAX, name)(); say(#name, NAME(cublasI, AMAX, name)(blas, __VA_ARGS__)); } while (0)

int main(void) {
    real alpha[2], beta[2];
    real *a, *b, *c, *d;
    cublasCreate_v2(&blas);
    for (int n = 0; n < 4; n++) cudaMalloc((void **)&device[n], ROOM * SIZE);
    a = device[0], b = device[1], c = device[2], d = device[3];
    for (int round = 0; round < 12; round++) {
        int m = upto(20), n = upto(20), k = upto(20), lda = 21 + upto(9), ldb = 21 + upto(9), ldc = 21 + upto(9), x = 1 + upto(2), y = upto(1) ? 1 : -2;
        int ta = upto(COMPLEX ? 2 : 1), tb = upto(COMPLEX ? 2 : 1), fill_mode = upto(1), side = upto(1), unit = upto(1), t = upto(1), h = t * 2;
            for (int i = 0; i < 2; i++) alpha[i] = upto(4) - 2, beta[i] = upto(2) - 1;
        fill();
        /* results in the device's memory: alpha and beta, too */
        cublasSetPointerMode_v2(blas, 1);
        CALL_I(amax_v2, m, a, x, d);
        CALL_I(amin_v2, m, b, x, d);
        CALL_OF(NAME(SUM_, T, ), asum_v2, m, a, x, d);
        cudaMemcpy(device[3], alpha, SIZE, 1);
        CALL(scal_v2, n, d, a, x);
        CALL(axpy_v2, n, d, a, x, b, y);
        fill();
        cublasSetPointerMode_v2(blas, 0);
        CALL(copy_v2, m, a, x, b, y);
        CALL(swap_v2, m, b, y, c, x);
        CALL(axpy_v2, m, alpha, a, y, c, x);
        CALL(scal_v2, m, beta, c, x);
#if COMPLEX_TYPES
        CALL_OF(NAME(HALF_, T, ), scal_v2, m, alpha, c, x);
        { real out[2]; CALL(dotu_v2, m, a, x, b, y, out); printf("%g %g\n", (double)out[0], (double)out[1]); }
        { real out[2]; CALL(dotc_v2, m, a, x, b, y, out); printf("%g %g\n", (double)out[0], (double)out[1]); }
        CALL(gerc_v2, m, n, alpha, a, x, b, y, c, ldc);
        CALL(geru_v2, m, n, alpha, a, x, b, y, c, ldc);
        CALL(hemv_v2, fill_mode, n, alpha, a, lda, b, x, beta, c, y);
        fill();
        CALL(hemm_v2, side, fill_mode, m, n, alpha, a, lda, b, ldb, beta, c, ldc);
        CALL(herk_v2, fill_mode, h, n, k, alpha, a, lda, beta, d, ldc);
        fill();
        CALL(her2k_v2, fill_mode, h, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#else
        { real out; CALL(dot_v2, m, a, x, b, y, &out); printf("%g\n", (double)out); }
        CALL(rot_v2, m, a, x, b, y, alpha, beta);
        CALL(ger_v2, m, n, alpha, a, x, b, y, c, ldc);
#endif
        { int out; CALL_I(amax_v2, m, a, x, &out); printf("%d\n", out); }
        fill();
        CALL(gemv_v2, ta, m, n, alpha, a, lda, b, x, beta, c, y);
        CALL(symv_v2, fill_mode, n, alpha, a, lda, b, y, beta, d, x);
        fill();
        CALL(trmv_v2, fill_mode, ta, unit, n, a, lda, b, y);
        fill();
        CALL(gemm_v2, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
        CALL(symm_v2, side, fill_mode, m, n, alpha, a, lda, b, ldb, beta, d, ldc);
        fill();
        CALL(syrk_v2, fill_mode, t, n, k, alpha, a, lda, beta, c, ldc);
        CALL(syr2k_v2, fill_mode, t, n, k, alpha, a, lda, b, ldb, beta, d, ldc);
        fill();
        CALL(trmm_v2, side, fill_mode, ta, unit, m, n, alpha, a, lda, b, ldb, c, ldc);
        CALL(geam, ta, tb, m, n, alpha, a, lda, beta, b, ldb, d, ldc);
        fill();
        CALL(dgmm, side, m, n, a, lda, b, x, c, ldc);
        { int few = upto(4); fill(); diagonal(few, lda); CALL(trsv_v2, fill_mode, ta, unit, few, a, lda, b, y);
          if (side) n = few; else m = few;
          fill(); diagonal(few, lda); CALL(trsm_v2, side, fill_mode, ta, unit, m, n, alpha, a, lda, b, ldb); }
        fill();
        int batch = upto(3), size = 12;
        CALL(gemmStridedBatched, ta, tb, 5, 4, 6, alpha, a, size, (long long)size * size, b, size, (long long)size * size, beta, c, size, (long long)size * size, batch);
        void *lists[3][3], *on_device;
        for (int i = 0; i < 3; i++) lists[0][i] = a + i * 150 * WORDS, lists[1][i] = b + (2 - i) * 150 * WORDS, lists[2][i] = c + i * 150 * WORDS;
        cudaMalloc(&on_device, sizeof lists);
        cudaMemcpy(on_device, lists, sizeof lists, 1);
        CALL(gemmBatched, ta, tb, 5, 4, 6, alpha, on_device, size, (void **)on_device + 3, size, beta, (void **)on_device + 6, size, batch);
    }
    CALL(gemm_v2, 0, 0, 8, 0, 1, alpha, a, 8, b, 8, beta, c, 8);
    return 0;
}
