/* A program that calls CUDA's runtime as code that nvcc has compiled does: it registers a fat binary, a kernel and variables before
   main. argv[1] says what it tries; it prints what it saw. */
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
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const void *, char *, const char *, int, void *, void *, void *, void *, int *);
extern void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern int cudaMalloc(void *, size_t), cudaFree(void *), cudaMallocManaged(void *, size_t, unsigned);
extern int cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t), cudaDeviceSynchronize(void);
extern int cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int), cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
extern int cudaGetLastError(void), cudaPeekAtLastError(void), cudaGetDeviceCount(int *), cudaSetDevice(int), cudaDeviceReset(void);
extern int cudaMalloc3D(pitched *, extent), cudaMemset3D(pitched, int, extent), cudaMallocArray(void *, void *, size_t, size_t, unsigned);
extern int cudaDeviceGetAttribute(int *, int, int), cudaGetDeviceProperties(void *, int), cudaPointerGetAttributes(void *, const void *);
extern const char *cudaGetErrorName(int), *cudaGetErrorString(int);

#define FOUR(x) x x x x
#define STEP "  mad.lo.u32 %v, %v, %n, %v; shr.u32 %h, %v, 3; xor.b32 %v, %v, %h;\n"
#define PTX \
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .u32 total;\n" \
    ".visible .entry add(.param .u64 at, .param .u32 n) {\n" \
    "  .reg .b64 %a; .reg .b64 %o; .reg .b32 %n; .reg .b32 %t; .reg .b32 %v; .reg .b64 %g;\n" \
    "  ld.param.u64 %a, [at]; ld.param.u32 %n, [n]; mov.u32 %t, %tid.x;\n" \
    "  mul.wide.u32 %o, %t, 4; add.u64 %a, %a, %o;\n" \
    "  ld.global.u32 %v, [%a]; add.u32 %v, %v, %n; st.global.u32 [%a], %v;\n" \
    "  mov.u64 %g, total; atom.global.add.u32 %v, [%g], %n; ret;\n}\n" \
    ".visible .entry spin() {\n L: bra L;\n}\n" \
    ".visible .entry mix(.param .u64 at, .param .u32 n) {\n" \
    "  .reg .b64 %a; .reg .b32 %n; .reg .b32 %v; .reg .b32 %h; .reg .pred %p;\n" \
    "  ld.param.u64 %a, [at]; ld.param.u32 %n, [n]; mov.u32 %v, %tid.x;\n L:\n" FOUR(FOUR(FOUR(FOUR(STEP)))) \
    "  sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0; @%p bra L; st.global.u32 [%a], %v; ret;\n}\n"

static const struct {
    uint32_t magic; uint16_t version, header; uint64_t size;
    uint16_t kind, entry_version; uint32_t entry_header; uint64_t length; uint32_t packed, zero; uint16_t minor, major; uint32_t arch;
    uint32_t name, name_size; uint64_t flags; uint64_t more; uint64_t unpacked;
    char text[(sizeof(PTX) + 7) / 8 * 8];
} fat __attribute__((aligned(8))) = {
    0xBA55ED50, 1, 16, 64 + (sizeof(PTX) + 7) / 8 * 8, 1, 0x101, 64, (sizeof(PTX) + 7) / 8 * 8, 0, 0, 0, 8, 80, 0, 0, 0x11, 0, 0, PTX,
};
static const struct { uint32_t magic, version; const void *data; void *other; } wrapper = {0x466243B1, 1, &fat, 0};
static void add(void) {}
static void spin(void) {}
static void mix(void) {}
static void stranger(void) {}
static char total[4];

__attribute__((constructor)) static void before_main(void) {
    void **handle = __cudaRegisterFatBinary((void *)&wrapper);
    __cudaRegisterFunction(handle, (void *)add, "add", "add", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, (void *)spin, "spin", "spin", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, (void *)mix, "mix", "mix", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(handle, total, total, "total", 0, 4, 0, 1);
    __cudaRegisterFatBinaryEnd(handle);
}

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
    printf("\n");
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
