/* Routines of cuBLAS for packed, banded and many small matrices, on whole numbers: each result beside that of a routine for one
   full matrix, which must be the same. Systems of equations are checked by their product. Prints what differs, and a count.

     cc -std=gnu11 -DT=D cublas_storage.c -lcudart -lcublas -lm && ./a.out        T: S or D, or -DT=C -DCOMPLEX_TYPES=1, or Z */
#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cudaMallocManaged(void **, size_t, unsigned), cudaDeviceSynchronize(void), cublasCreate_v2(void **);

#define CAT(a, b, c) a##b##c
#define NAME(a, t, b) CAT(a, t, b)
#define TYPE_S float
#define TYPE_D double
#define TYPE_C float complex
#define TYPE_Z double complex
typedef NAME(TYPE_, T, ) type;
#if COMPLEX_TYPES
#define UNIT I
#else
#define UNIT 0
#endif
#define MOST 12

static uint64_t seed = 1;
static int upto(int most) { return (int)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33) % (most + 1); }
static void *blas;
static int compared, wrong;

static type *room(int count) {
    type *made;
    cudaMallocManaged((void **)&made, (count + 1) * sizeof(type), 1);
    for (int i = 0; i < count; i++) made[i] = upto(8) - 4 + UNIT * (upto(8) - 4);
    return made;
}

static type *copy(const type *of, int count) { return memcpy(room(count), of, count * sizeof(type)); }

static void same(const char *name, const type *a, const type *b, int count, double most) {
    int differ = 0;
    cudaDeviceSynchronize();
    for (int i = 0; i < count; i++) differ += !(cabs(a[i] - b[i]) <= most);
    compared++, wrong += differ != 0;
    if (differ) printf("%s: %d of %d differ\n", name, differ, count);
}

#define CALL(name, ...) ({ int NAME(cublas, T, name)(); int code = NAME(cublas, T, name)(blas, __VA_ARGS__); if (code) printf(#name " %d\n", code), wrong++; })

int main(void) {
    cublasCreate_v2(&blas);
    for (int round = 0; round < 24; round++) {
        int n = 1 + upto(MOST - 1), k = upto(n - 1), fill = upto(1), ta = upto(COMPLEX_TYPES + 1), unit = upto(1), x_step = 1 + upto(1), y_step = upto(1) ? 1 : -2, lda = n + upto(2), ldb = k + 1 + upto(2), vector = 2 * n, whole = lda * n, at = 0, above = upto(n - 1);
        type *a = room(whole), *band = room(ldb * n), *packed = room(n * n), *x = room(vector), *y = room(vector), *z = copy(y, vector), alpha = upto(3) - 1, beta = upto(2) - 1;
        type *general = room((k + above + 1) * n), *wide = copy(a, whole);
        double factor = upto(3) - 1;
        for (int j = 0; j < n; j++) {
            a[j + j * lda] = 1 + upto(1);
            for (int i = 0; i < n; i++) {
                type *of = &a[i + j * lda], *to = &wide[i + j * lda];
                if (abs(i - j) > k) *of = 0;
                if (i - j > k || j - i > above) *to = 0;
                else general[above + i - j + j * (k + above + 1)] = *to;
                if (fill ? i <= j : i >= j) {
                    packed[at++] = *of;
                    if (abs(i - j) <= k) band[(fill ? k : 0) + i - j + j * ldb] = *of;
                }
            }
        }
#if COMPLEX_TYPES
        CALL(hemv_v2, fill, n, &alpha, a, lda, x, x_step, &beta, y, y_step);
        type *w = copy(z, vector);
        CALL(hbmv_v2, fill, n, k, &alpha, band, ldb, x, x_step, &beta, w, y_step), same("hbmv", y, w, vector, 0);
        CALL(hpmv_v2, fill, n, &alpha, packed, x, x_step, &beta, z, y_step), same("hpmv", y, z, vector, 0);
        type *one = copy(a, whole), *two = copy(a, whole), *three = copy(a, whole), *half = copy(packed, at);
        NAME(TYPE_, T, ) *scale = malloc(16);
        if (sizeof(type) == 8) *(float *)scale = factor; else *(double *)scale = factor;
        float real_one = 1;
        double double_one = 1;
        void *ones = sizeof(type) == 8 ? (void *)&real_one : (void *)&double_one;
        type full = factor + 2 * I, unity = 1;
        CALL(her_v2, fill, n, scale, x, 1, one, lda), CALL(herk_v2, fill, 0, n, 1, scale, x, n, ones, two, lda);
        same("her", one, two, whole, 0);
        CALL(hpr_v2, fill, n, scale, x, 1, half);
        CALL(her2_v2, fill, n, &full, x, 1, z, 1, one, lda), CALL(her2k_v2, fill, 0, n, 1, &full, x, n, z, n, ones, two, lda);
        same("her2", one, two, whole, 0);
        CALL(hpr2_v2, fill, n, &full, x, 1, z, 1, half);
        type *five = copy(a, whole), *six = copy(a, whole);
        CALL(syr_v2, fill, n, &full, x, 1, five, lda), CALL(syrk_v2, fill, 0, n, 1, &full, x, n, &unity, six, lda);
        same("syr", five, six, whole, 0);
#else
        CALL(symv_v2, fill, n, &alpha, a, lda, x, x_step, &beta, y, y_step);
        type *w = copy(z, vector);
        CALL(sbmv_v2, fill, n, k, &alpha, band, ldb, x, x_step, &beta, w, y_step), same("sbmv", y, w, vector, 0);
        CALL(spmv_v2, fill, n, &alpha, packed, x, x_step, &beta, z, y_step), same("spmv", y, z, vector, 0);
        type *one = copy(a, whole), *two = copy(a, whole), *half = copy(packed, at), full = factor, unity = 1;
        CALL(syr_v2, fill, n, &full, x, 1, one, lda), CALL(syrk_v2, fill, 0, n, 1, &full, x, n, &unity, two, lda);
        same("syr", one, two, whole, 0);
        CALL(spr_v2, fill, n, &full, x, 1, half);
        CALL(syr2_v2, fill, n, &full, x, 1, z, 1, one, lda), CALL(syr2k_v2, fill, 0, n, 1, &full, x, n, z, n, &unity, two, lda);
        same("syr2", one, two, whole, 0);
        CALL(spr2_v2, fill, n, &full, x, 1, z, 1, half);
        for (int flag = -2; flag < 2; flag++) {
            type h[5] = {flag, 2, -3, 5, 7}, *p = copy(x, n), *q = copy(z, n), *r = copy(x, n), *s = copy(z, n);
            type m[4] = {flag == 0 || flag == -2 ? 1 : 2, flag == -2 ? 0 : flag == 1 ? -1 : -3, flag == -2 ? 0 : flag == 1 ? 1 : 5, flag == 0 || flag == -2 ? 1 : 7};
            CALL(rotm_v2, n, p, 1, q, 1, h);
            for (int i = 0; i < n; i++) r[i] = m[0] * x[i] + m[2] * z[i], s[i] = m[1] * x[i] + m[3] * z[i];
            same("rotm", p, r, n, 0), same("rotm", q, s, n, 0);
        }
#endif
        at = 0;
        for (int j = 0; j < n; j++)
            for (int i = 0; i < n; i++) if (fill ? i <= j : i >= j) packed[n * n - 1] = half[at++], same("packed ranks", &packed[n * n - 1], &one[i + j * lda], 1, 0);
        at = 0;
        for (int j = 0; j < n; j++)
            for (int i = 0; i < n; i++) if (fill ? i <= j : i >= j) packed[at++] = a[i + j * lda];
        y = copy(x, vector), z = copy(x, vector), w = copy(x, vector);
        CALL(gemv_v2, ta, n, n, &alpha, wide, lda, x, x_step, &beta, y, y_step);
        CALL(gbmv_v2, ta, n, n, k, above, &alpha, general, k + above + 1, x, x_step, &beta, z, y_step), same("gbmv", y, z, vector, 0);
        for (int solve = 0; solve < 2; solve++) {
            y = copy(x, vector), z = copy(x, vector), w = copy(x, vector);
            if (solve) {
                CALL(trsv_v2, fill, ta, unit, n, a, lda, y, y_step), CALL(tbsv_v2, fill, ta, unit, n, k, band, ldb, z, y_step), CALL(tpsv_v2, fill, ta, unit, n, packed, w, y_step);
            } else {
                CALL(trmv_v2, fill, ta, unit, n, a, lda, y, y_step), CALL(tbmv_v2, fill, ta, unit, n, k, band, ldb, z, y_step), CALL(tpmv_v2, fill, ta, unit, n, packed, w, y_step);
            }
            same("tb", y, z, vector, 0), same("tp", y, w, vector, 0);
        }
        /* many small matrices: triangles, factors, solutions, inverses, with rows swapped and without */
        type **list, *columns = room(3 * n), *result = copy(columns, 3 * n), *square = room(n * n), *inverse = room(n * n), *factors, zero = 0;
        int *swaps, told = -1, pivots = upto(1);
        cudaMallocManaged((void **)&list, 4 * sizeof *list, 1), cudaMallocManaged((void **)&swaps, (n + 2) * sizeof *swaps, 1);
        for (int i = 0; i < n; i++) square[i + i * n] += pivots ? 0 : 40;
        factors = copy(square, n * n);
        list[0] = a, list[1] = result;
        CALL(trsm_v2, 0, fill, ta, unit, n, 3, &unity, a, lda, columns, n), CALL(trsmBatched, 0, fill, ta, unit, n, 3, &unity, list, lda, list + 1, n, 1);
        same("trsmBatched", columns, result, 3 * n, 0);
        list[0] = factors, list[2] = inverse;
        type *product = room(3 * n), *unit_matrix = room(n * n), *identity = room(n * n);
        columns = room(3 * n), list[1] = copy(columns, 3 * n);
        CALL(getrfBatched, n, list, n, pivots ? swaps : NULL, swaps + n, 1);
        cudaDeviceSynchronize();
        if (swaps[n]) continue; /* no inverse */
        double close = sizeof(type) == sizeof(float) || sizeof(type) == sizeof(float complex) && COMPLEX_TYPES ? 0.02 : 1e-8;
        CALL(getrsBatched, ta, n, 3, list, n, pivots ? swaps : NULL, list + 1, n, &told, 1);
        CALL(gemm_v2, ta, 0, n, 3, n, &unity, square, n, list[1], n, &zero, product, n);
        same("getrsBatched", columns, product, 3 * n, close), wrong += told != 0;
        for (int i = 0; i < n * n; i++) identity[i] = i % (n + 1) == 0;
        for (int two_steps = 0; two_steps < 2; two_steps++) {
            if (two_steps) CALL(getriBatched, n, list, n, pivots ? swaps : NULL, list + 2, n, swaps + n + 1, 1);
            else list[3] = square, CALL(matinvBatched, n, list + 3, n, list + 2, n, swaps + n + 1, 1);
            CALL(gemm_v2, 0, 0, n, n, n, &unity, square, n, inverse, n, &zero, unit_matrix, n);
            same("inverses", identity, unit_matrix, n * n, close), wrong += swaps[n + 1] != 0;
        }
#if !COMPLEX_TYPES
        int tas[2] = {0, 1}, tbs[2] = {1, 0}, m2[2] = {n, 2}, n2[2] = {1, n}, k2[2] = {3, n}, ld[2] = {MOST, MOST}, groups[2] = {1, 2};
        type alphas[2] = {1, 2}, betas[2] = {0, 1}, **as, **bs, **cs, *plain[3];
        cudaMallocManaged((void **)&as, 24, 1), cudaMallocManaged((void **)&bs, 24, 1), cudaMallocManaged((void **)&cs, 24, 1);
        for (int i = 0; i < 3; i++) as[i] = room(MOST * MOST), bs[i] = room(MOST * MOST), cs[i] = room(MOST * MOST), plain[i] = copy(cs[i], MOST * MOST);
        CALL(gemmGroupedBatched, tas, tbs, m2, n2, k2, alphas, as, ld, bs, ld, betas, cs, ld, 2, groups);
        for (int i = 0; i < 3; i++) {
            int g = i > 0;
            CALL(gemm_v2, tas[g], tbs[g], m2[g], n2[g], k2[g], &alphas[g], as[i], MOST, bs[i], MOST, &betas[g], plain[i], MOST);
            same("gemmGroupedBatched", cs[i], plain[i], MOST * MOST, 0);
        }
#endif
    }
    printf("%d wrong%s\n", wrong, compared > 500 ? "" : ", too few were compared");
    return 0;
}
