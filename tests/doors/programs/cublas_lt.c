/* cublasLt: a product of FP8 with scales, saturation and its largest result, GELU with its argument kept, and a change of layout,
   each compared with what the program computes itself. Prints a line for each. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern int cudaMalloc(void **, size_t), cudaMemcpy(void *, const void *, size_t, int);
typedef void *Handle;
extern int cublasLtCreate(Handle *), cublasLtMatmulDescCreate(Handle *, int, int), cublasLtMatmulDescSetAttribute(Handle, int, const void *, size_t);
extern int cublasLtMatmulDescGetAttribute(Handle, int, void *, size_t, size_t *), cublasLtMatrixTransformDescCreate(Handle *, int);
extern int cublasLtMatrixLayoutCreate(Handle *, int, uint64_t, uint64_t, int64_t), cublasLtMatrixLayoutSetAttribute(Handle, int, const void *, size_t);
extern int cublasLtMatmul(Handle, Handle, const void *, const void *, Handle, const void *, Handle, const void *, const void *, Handle, void *, Handle, const void *, void *, size_t, void *);
extern int cublasLtMatrixTransform(Handle, Handle, const void *, const void *, Handle, const void *, const void *, Handle, void *, Handle, void *);

enum { P = 16, F32 = 0, BF16 = 14, E4M3 = 28, SUMS_F32 = 68, GELU_AUX = 32 | 128, BY_ROWS = 1 };
static float value(int code) { return (code & 128 ? -1 : 1) * ldexpf(1 + (code & 7) / 8.f, (code >> 3 & 15) - 7); }
static void *device(const void *from, size_t size) { void *p; cudaMalloc(&p, size); cudaMemcpy(p, from, size, 1); return p; }

int main(void) {
    uint8_t a[P * P], d[P * P];
    float one = 1, zero = 0, scales[4] = {0.5f, 2, 40, 0}, sums[P][P], most = 0, found, aux[P * P], out[P * P], x[6] = {1, 2, 3, 4, 5, 6}, y[6];
    Handle lt, product, eight, wide, single, change, rows, columns;
    int turned = 1, epilogue = GELU_AUX, by_rows = BY_ROWS, kept = 0, wrong = 0;
    size_t size;
    int64_t step = P;
    for (int i = 0; i < P * P; i++) a[i] = (i * 37 % 2) << 7 | (5 + i * 11 % 4) << 3 | i * 7 % 8;
    for (int i = 0; i < P; i++)
        for (int j = 0; j < P; j++) {
            sums[i][j] = 0;
            for (int k = 0; k < P; k++) sums[i][j] += value(a[k + i * P]) * value(a[k + j * P]);
            most = fmaxf(most, fabsf(sums[i][j]));
        }
    void *on = device(a, sizeof a), *to = device(a, sizeof a), *s = device(scales, sizeof scales), *f = device(out, sizeof out), *kept_at = device(aux, sizeof aux);
    cublasLtCreate(&lt);
    cublasLtMatrixLayoutCreate(&eight, E4M3, P, P, P), cublasLtMatrixLayoutCreate(&wide, BF16, P, P, P), cublasLtMatrixLayoutCreate(&single, F32, P, P, P);
    cublasLtMatmulDescCreate(&product, SUMS_F32, F32);
    cublasLtMatmulDescSetAttribute(product, 3, &turned, 4), cublasLtMatmulDescGetAttribute(product, 3, &kept, 4, &size);
    for (int n = 0; n < 4; n++) {
        void *at = (float *)s + n;
        cublasLtMatmulDescSetAttribute(product, (int[]){17, 18, 20, 21}[n], &at, sizeof at);
    }
    int code = cublasLtMatmul(lt, product, &one, on, eight, on, eight, &zero, to, wide, to, eight, 0, 0, 0, 0);
    cudaMemcpy(d, to, sizeof d, 2), cudaMemcpy(&found, (float *)s + 3, 4, 2);
    for (int i = 0; i < P; i++)
        for (int j = 0; j < P; j++) {
            float want = fminf(fmaxf(sums[i][j] * 40, -448), 448);
            wrong += fabsf(value(d[i + j * P]) - want) > fabsf(want) / 16 + 0.02f;
        }
    printf("fp8: %d, %d wrong, largest %s, %d %d\n", code, wrong, found == most ? "right" : "wrong", kept, (int)size);

    cublasLtMatmulDescCreate(&product, SUMS_F32, F32);
    cublasLtMatmulDescSetAttribute(product, 3, &turned, 4), cublasLtMatmulDescSetAttribute(product, 7, &epilogue, 4);
    cublasLtMatmulDescSetAttribute(product, 11, &kept_at, 8), cublasLtMatmulDescSetAttribute(product, 12, &step, 8);
    code = cublasLtMatmul(lt, product, &one, on, eight, on, eight, &zero, f, single, f, single, 0, 0, 0, 0);
    cudaMemcpy(out, f, sizeof out, 2), cudaMemcpy(aux, kept_at, sizeof aux, 2);
    wrong = 0;
    for (int i = 0; i < P; i++)
        for (int j = 0; j < P; j++) {
            float v = sums[i][j], want = 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
            wrong += aux[i + j * P] != v || fabsf(out[i + j * P] - want) > 1e-5f * (1 + fabsf(want));
        }
    printf("gelu: %d, %d wrong\n", code, wrong);

    cublasLtMatrixTransformDescCreate(&change, F32);
    cublasLtMatrixLayoutCreate(&rows, F32, 2, 3, 3), cublasLtMatrixLayoutSetAttribute(rows, 1, &by_rows, 4), cublasLtMatrixLayoutCreate(&columns, F32, 2, 3, 2);
    void *from = device(x, sizeof x), *into = device(y, sizeof y);
    code = cublasLtMatrixTransform(lt, change, &one, from, rows, &zero, 0, 0, into, columns, 0);
    cudaMemcpy(y, into, sizeof y, 2);
    printf("layout: %d, %g %g %g %g %g %g\n", code, y[0], y[1], y[2], y[3], y[4], y[5]);
    return 0;
}
