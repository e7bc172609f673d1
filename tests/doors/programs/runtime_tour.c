/* A program that calls CUDA's runtime as code that nvcc has compiled does: it registers a fat binary, a kernel and variables before
   main. argv[1] says what it tries; it prints what it saw. */
#include "registered.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct { unsigned x, y, z; } dim3;
typedef struct { size_t width, height, depth; } extent;
typedef struct { void *pointer; size_t pitch, width, height; } pitched;
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern int cudaMalloc(void *, size_t), cudaFree(void *), cudaMallocManaged(void *, size_t, unsigned);
extern int cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t), cudaDeviceSynchronize(void);
extern int cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int), cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
extern int cudaGetLastError(void), cudaPeekAtLastError(void), cudaGetDeviceCount(int *), cudaSetDevice(int), cudaDeviceReset(void);
extern int cudaMalloc3D(pitched *, extent), cudaMemset3D(pitched, int, extent), cudaMallocArray(void *, void *, size_t, size_t, unsigned);
extern int cudaDeviceGetAttribute(int *, int, int), cudaGetDeviceProperties(void *, int), cudaPointerGetAttributes(void *, const void *);
extern int cudaMemPoolCreate(void *, void *), cudaMemPoolGetAccess(int *, void *, void *), cudaMemPoolSetAccess(void *, void *, size_t);
extern int cudaMallocFromPoolAsync(void *, size_t, void *, void *), cudaMemPoolGetAttribute(void *, int, void *), cudaFreeAsync(void *, void *);
extern int cudaGetDriverEntryPoint(const char *, void *, unsigned long, int *);
extern const char *cudaGetErrorName(int), *cudaGetErrorString(int);
typedef struct { int x, y, z, w, kind; } channel;
extern channel cudaCreateChannelDesc(int, int, int, int, int);

#define FOUR(x) x x x x
#define STEP "  mad.lo.u32 %v, %v, %n, %v; shr.u32 %h, %v, 3; xor.b32 %v, %v, %h;\n"
#define SPIN_AND_MIX \
    ".visible .entry spin() {\n L: bra L;\n}\n" \
    ".visible .entry mix(.param .u64 at, .param .u32 n) {\n" \
    "  .reg .b64 %a; .reg .b32 %n; .reg .b32 %v; .reg .b32 %h; .reg .pred %p;\n" \
    "  ld.param.u64 %a, [at]; ld.param.u32 %n, [n]; mov.u32 %v, %tid.x;\n L:\n" FOUR(FOUR(FOUR(FOUR(STEP)))) \
    "  sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0; @%p bra L; st.global.u32 [%a], %v; ret;\n}\n"

static void add(void) {}
static void spin(void) {}
static void mix(void) {}
static void stranger(void) {}
REGISTERED(HEAD TOTAL ADD_TO_TOTAL SPIN_AND_MIX, KERNEL(add) KERNEL(spin) KERNEL(mix))

static int launch(const void *kernel, void *at, unsigned n, unsigned threads) {
    void *arguments[] = {&at, &n};
    return cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){threads, 1, 1}, arguments, 0, 0);
}

int add_to(void *at, unsigned n, unsigned threads) { /* for programs that load this file as a library */
    int wrong = launch((void *)add, at, n, threads);
    return wrong ? wrong : cudaDeviceSynchronize();
}

static void *in_thread(void *at) {
    for (int n = 0; n < 20; n++)
        if (launch((void *)add, at, 1, 32)) return (void *)1;
    return (void *)(intptr_t)cudaDeviceSynchronize();
}

static int run(void) {
    int values[32], *at, sum, wrong = 0;
    for (int n = 0; n < 32; n++) values[n] = n;
    wrong |= cudaMalloc(&at, sizeof values) | cudaMemcpy(at, values, sizeof values, 1);
    wrong |= launch((void *)add, at, 5, 32) | cudaGetLastError() | cudaMemcpy(values, at, sizeof values, 2);
    for (int n = 0; n < 32; n++) wrong |= values[n] != n + 5;
    wrong |= cudaMemcpyFromSymbol(&sum, total, 4, 0, 2);
    printf("%d %d\n", wrong, sum);
    return wrong | cudaFree(at);
}

#define SAY(call) printf("%d ", call) /* one by one: the order of arguments of one printf is the compiler's */
static int errors(void) {
    int *at, x = 0;
    SAY(launch((void *)stranger, 0, 1, 32));
    printf("%s ", cudaGetErrorName(cudaPeekAtLastError()));
    printf("%s ", cudaGetErrorString(cudaGetLastError()));
    SAY(cudaGetLastError());
    SAY(cudaMallocArray(&x, 0, 1, 1, 0));
    SAY(cudaMalloc(&at, (size_t)1 << 50));
    SAY(cudaSetDevice(1));
    SAY(launch((void *)add, at, 1, 2000));
    printf("\n");
    cudaGetLastError();
    SAY(launch((void *)add, 0, 1, 32));
    SAY(cudaGetLastError());
    SAY(cudaDeviceSynchronize());
    SAY(cudaGetLastError());
    SAY(cudaGetLastError());
    SAY(cudaMalloc(&at, 4));
    SAY(cudaDeviceReset());
    SAY(cudaGetLastError());
    SAY(cudaMalloc(&at, 4));
    printf("\n");
    return 0;
}

static int kinds(void) {
    pitched box;
    extent size = {100, 3, 2};
    unsigned char line[100];
    struct { int type, device; void *there, *host; char more[64]; } known;
    int *managed, *device, wrong = cudaMalloc3D(&box, size) | cudaMemset3D(box, 7, size);
    wrong |= cudaMemcpy(line, (char *)box.pointer + 5 * box.pitch, 100, 2);
    for (int n = 0; n < 100; n++) wrong |= line[n] != 7;
    wrong |= cudaMallocManaged(&managed, 128, 1) | cudaMalloc(&device, 128);
    for (int n = 0; n < 32; n++) managed[n] = n;
    wrong |= launch((void *)add, managed, 1, 32) | cudaDeviceSynchronize();
    for (int n = 0; n < 32; n++) wrong |= managed[n] != n + 1;
    printf("%d", wrong);
    void *places[] = {device + 1, managed, line};
    for (int n = 0; n < 3; n++) {
        cudaPointerGetAttributes(&known, places[n]);
        printf(" %d/%d/%d", known.type, known.there == places[n], known.host == places[n]);
    }
    channel made = cudaCreateChannelDesc(32, 8, 0, -1, 2);
    printf(" %d,%d,%d,%d,%d\n", made.x, made.y, made.z, made.w, made.kind);
    return wrong;
}

static int (*look_up)(const char *, void *, int, unsigned long, int *);
static void __attribute__((destructor)) late(void) { /* as CCCL's list of devices does, when Python's part of the program is over */
    int (*release)(int) = 0, status = 9, code = look_up ? look_up("cuDevicePrimaryCtxRelease", &release, 13000, 0, &status) : 0;
    if (look_up) printf("%d %d %d\n", code, status, release(0));
}

static int pools(void) { /* memory of the host out of a pool */
    struct { int kind, handles, where, number; char more[72]; } host = {1, 0, 2, 0, {0}};
    struct { int where, number, access; } device = {1, 0, 3};
    int *at, access, before, wrong;
    size_t used, reserved;
    void *pool;
    wrong = cudaMemPoolCreate(&pool, &host) | cudaMemPoolGetAccess(&before, pool, &device) | cudaMemPoolSetAccess(pool, &device, 1);
    wrong |= cudaMallocFromPoolAsync(&at, 128, pool, 0) | cudaMemPoolGetAccess(&access, pool, &device);
    for (int n = 0; n < 32; n++) at[n] = n;
    wrong |= launch((void *)add, at, 1, 32) | cudaDeviceSynchronize();
    for (int n = 0; n < 32; n++) wrong |= at[n] != n + 1;
    wrong |= cudaMemPoolGetAttribute(pool, 7, &used) | cudaMemPoolGetAttribute(pool, 5, &reserved) | cudaFreeAsync(at, 0);
    printf("%d %d %d %zu %zu ", wrong, before, access, used, reserved);
    cudaMemPoolGetAttribute(pool, 7, &used);
    printf("%zu %d\n", used, cudaGetDriverEntryPoint("cuGetProcAddress", &look_up, 0, &access));
    return wrong;
}

static int threads(void) {
    pthread_t all[4];
    int *at, values[32];
    void *wrong = 0, *one;
    if (cudaMalloc(&at, sizeof values) || cudaMemset(at, 0, sizeof values)) return 1;
    for (int n = 0; n < 4; n++) pthread_create(&all[n], 0, in_thread, at);
    for (int n = 0; n < 4; n++) { pthread_join(all[n], &one); wrong = one ? one : wrong; }
    cudaMemcpyFromSymbol(values, total, 4, 0, 2);
    printf("%d %d\n", (int)(intptr_t)wrong, values[0]);
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "nothing")) return 0;
    if (!strcmp(what, "run")) return run();
    if (!strcmp(what, "errors")) return errors();
    if (!strcmp(what, "kinds")) return kinds();
    if (!strcmp(what, "pools")) return pools();
    if (!strcmp(what, "threads")) return threads();
    int *at;
    if (!strcmp(what, "mix")) { /* for some milliseconds: the kernel's better code may be in work at the end */
        struct timespec begin, now;
        int (*first)(unsigned) = count > 3 ? (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit") : 0;
        if ((first && first(0)) || cudaMalloc(&at, 4) || launch((void *)mix, at, 1, 32)) return 1;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do { launch((void *)mix, at, 100, 128); clock_gettime(CLOCK_MONOTONIC, &now); }
        while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < atoi(words[2]));
        return 0;
    }
    if (!strcmp(what, "own")) { /* memory of the host, for a kernel */
        int values[32];
        return launch((void *)add, !strcmp(words[2], "stack") ? values : malloc(128), 1, 32) || cudaDeviceSynchronize() != 700;
    }
    if (!strcmp(what, "host")) { cudaMalloc(&at, 400); printf("%d\n", at[3]); }
    if (!strcmp(what, "fork")) {
        cudaMalloc(&at, 400);
        if (!fork()) exit(cudaMalloc(&at, 4));
        int status;
        wait(&status);
        printf("%d %d\n", WEXITSTATUS(status), cudaMalloc(&at, 4));
        return 0;
    }
    if (!strcmp(what, "spin")) { printf("begin\n"); fflush(stdout); launch((void *)spin, 0, 0, 32); }
    if (!strcmp(what, "exit")) {
        pthread_t one;
        cudaMalloc(&at, 128);
        pthread_create(&one, 0, in_thread, at);
        usleep(1000 * (count > 2 ? atoi(words[2]) : 5));
        exit(3);
    }
    return 1;
}
