/* A program some of whose work is refused: a kernel reads a texture. argv[1] says what it does then; argv[2] is its exit code. */
#include "registered.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *), cudaDeviceSynchronize(void);
extern int cudaMalloc(void *, size_t), cudaMemset(void *, int, size_t), cudaMemcpy(void *, const void *, size_t, int);
extern int cudaGetLastError(void), cudaPeekAtLastError(void), cudaMallocArray(void *, void *, size_t, size_t, unsigned);
extern int cudaMemcpyToArray(void *, size_t, size_t, const void *, size_t, int), cudaDeviceReset(void);
extern int cudaGraphCreate(void *, unsigned), cudaGraphInstantiate(void *, void *, unsigned long long), cudaGraphLaunch(void *, void *);
extern const char *cudaGetErrorName(int);

#define READS \
    ".visible .entry reads(.param .u64 at, .param .u32 n) {\n" \
    "  .reg .b64 %a; .reg .b32 %n; .reg .f32 %f<5>;\n" \
    "  ld.param.u64 %a, [at]; ld.param.u32 %n, [n];\n" \
    "  tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%a, {%n}];\n  st.global.f32 [%a], %f1; ret;\n}\n"

static void add(void) {}
static void reads(void) {}
REGISTERED(HEAD TOTAL ADD READS, KERNEL(add) KERNEL(reads))

static int *at;
static int launch(const void *kernel) {
    unsigned n = 1;
    void *arguments[] = {&at, &n};
    return cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, 0);
}
static void last(void) { printf("flushed"); } /* not by itself: the end of the process does it */

int main(int count, char **words) {
    const char *what = words[1];
    int value = -1;
    void *graph = 0, *made = 0;
    atexit(last); /* before the first call of the runtime */
    cudaMalloc(&at, 4);
    cudaMemset(at, 0, 4);
    launch((void *)add);
    if (!strcmp(what, "passes")) { launch((void *)reads); launch((void *)add); }
    if (!strcmp(what, "waits")) { launch((void *)reads); printf("%s ", cudaGetErrorName(cudaDeviceSynchronize())); }
    if (!strcmp(what, "asks")) { launch((void *)reads); printf("%d ", cudaGetLastError()); }
    if (!strcmp(what, "peeks")) { launch((void *)reads); printf("%d ", cudaPeekAtLastError()); }
    if (!strcmp(what, "resets")) { launch((void *)reads); cudaDeviceReset(); }
    if (!strcmp(what, "prepares")) printf("%d ", cudaMallocArray(&made, 0, 1, 1, 0));
    if (!strcmp(what, "copies")) cudaMemcpyToArray(0, 0, 0, at, 4, 3);
    if (!strcmp(what, "graphs")) { cudaGraphCreate(&graph, 0); cudaGraphInstantiate(&made, graph, 4); cudaGraphLaunch(made, 0); }
    if (!strcmp(what, "sizes")) { /* the launch is wrong by itself */
        cudaMallocArray(&made, 0, 1, 1, 0);
        cudaLaunchKernel((void *)add, (dim3){0, 0, 0}, (dim3){1, 1, 1}, 0, 0, 0);
    }
    printf("%d ", launch((void *)add));
    cudaMemcpy(&value, at, 4, 2);
    printf("%d ", value);
    return count > 2 ? atoi(words[2]) : 0;
}
