/* A program that loads a library of kernels with CUDA's runtime (without DRIVER) or its driver (with it), launches a kernel of it, and
   asks for what hints and attributes have left. The driver's part is linked with -lcuda alone. */
#include "registered.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PTX HEAD ".visible .global .align 4 .u32 total = 11;\n" ADD
static int values[32];

#ifdef DRIVER
typedef uint64_t address;
extern int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
extern int cuModuleGetGlobal_v2(address *, size_t *, void *, const char *), cuModuleUnload(void *);
extern int cuMemAlloc_v2(address *, size_t), cuMemFree_v2(address), cuMemcpyHtoDAsync_v2(address, const void *, size_t, void *);
extern int cuMemcpyDtoHAsync_v2(void *, address, size_t, void *), cuMemsetD32Async(address, unsigned, size_t, void *);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
extern int cuStreamCreate(void **, unsigned), cuStreamSynchronize(void *), cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **);
extern int cuGraphInstantiateWithFlags(void **, void *, unsigned long long), cuGraphLaunch(void *, void *), cuGraphExecDestroy(void *), cuGraphDestroy(void *);
extern int cuGraphGetNodes(void *, void **, size_t *), cuGraphMemcpyNodeGetParams(void *, void *), cuGraphMemcpyNodeSetParams(void *, const void *);
extern int cuGetErrorName(int, const char **), cuCtxSynchronize(void), cuMemcpy3D_v2(const void *), cuMemsetD8_v2(address, unsigned char, size_t);
extern int cuGetProcAddress_v2(const char *, void *, int, uint64_t, int *);

int main(void) {
    void *context, *module, *kernel, *on, *graph, *run, *nodes[4];
    address at, total, pitched;
    size_t size, number = 4;
    int device, eleven = 0, wrong = cuInit(0) | cuDeviceGet(&device, 0) | cuDevicePrimaryCtxRetain(&context, device) | cuCtxSetCurrent(context), found;
    int (*asked)(address *, size_t) = 0;
    unsigned n = 5;
    const char *name;
    uint64_t box[25];
    void *arguments[] = {&at, &n};
    wrong |= cuModuleLoadData(&module, PTX) | cuModuleGetFunction(&kernel, module, "add") | cuModuleGetGlobal_v2(&total, &size, module, "total");
    wrong |= cuMemAlloc_v2(&at, sizeof values) | cuStreamCreate(&on, 1);
    wrong |= cuStreamBeginCapture_v2(on, 0) | cuMemsetD32Async(at, 2, 32, on) | cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, on, arguments, 0);
    wrong |= cuMemcpyDtoHAsync_v2(values, at, sizeof values, on) | cuMemcpyDtoHAsync_v2(&eleven, total, 4, on) | cuStreamEndCapture(on, &graph);
    wrong |= cuGraphGetNodes(graph, nodes, &number) | cuGraphInstantiateWithFlags(&run, graph, 0);
    printf("%d %d %d", wrong, (int)number, values[31]);
    wrong |= cuGraphLaunch(run, on) | cuStreamSynchronize(on);
    printf(" %d %d\n", values[31], eleven);
    wrong |= cuGraphMemcpyNodeGetParams(nodes[3], box) | cuGraphMemcpyNodeSetParams(nodes[3], box);
    printf("%d %d %d\n", wrong, box[6] == total && box[22] == 4, (int)box[4]);
    memset(box, 0, sizeof box); /* lines 1 and 2 of planes 0 and 1: 4 bytes each, from byte 4 */
    wrong |= cuMemAlloc_v2(&pitched, 64 * 3 * 2) | cuMemsetD8_v2(pitched, 7, 64 * 3 * 2);
    memset(values, 0, sizeof values);
    box[0] = 4, box[1] = 1, box[4] = 2, box[6] = pitched, box[9] = 64, box[10] = 3;
    box[15] = 1, box[16] = (uint64_t)values, box[20] = 8, box[21] = 4, box[22] = 4, box[23] = 2, box[24] = 2;
    wrong |= cuMemcpy3D_v2(box);
    printf("%d %x %x %x %x %x\n", wrong, values[0], values[1], values[2], values[8], values[10]);
    wrong |= cuGetProcAddress_v2("cuMemAlloc", &asked, 12000, 0, &found) | found | asked(&at, 4);
    found = cuMemsetD32Async(1, 0, 1, on), cuGetErrorName(found, &name);
    printf("%d %s\n", found, name);
    wrong |= cuGraphExecDestroy(run) | cuGraphDestroy(graph) | cuMemFree_v2(at) | cuModuleUnload(module) | cuCtxSynchronize();
    printf("%d\n", wrong);
    return wrong;
}
#else
typedef struct { unsigned x, y, z; } dim3;
typedef struct { int type, number; } location;
static uint64_t attribute[8];
extern int cudaLibraryLoadData(void **, const void *, void *, void *, unsigned, void *, void *, unsigned), cudaLibraryUnload(void *);
extern int cudaLibraryGetKernel(void **, void *, const char *), cudaLibraryGetGlobal(void **, size_t *, void *, const char *);
extern int cudaLibraryGetKernelCount(unsigned *, void *), cudaLibraryEnumerateKernels(void **, unsigned, void *), cudaFuncGetName(const char **, const void *);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *), cudaMemcpy(void *, const void *, size_t, int);
extern int cudaMallocManaged(void *, size_t, unsigned), cudaMemAdvise(const void *, size_t, int, location);
extern int cudaMemPrefetchAsync(const void *, size_t, location, unsigned, void *), cudaMemRangeGetAttribute(void *, size_t, int, const void *, size_t);
extern int cudaStreamCreate(void **), cudaStreamSetAttribute(void *, int, const void *), cudaStreamGetAttribute(void *, int, void *), cudaStreamCopyAttributes(void *, void *);
extern int cudaMemcpyBatchAsync(void *const *, const void *const *, const size_t *, size_t, void *, size_t *, size_t, void *);
extern int cudaLogsCurrent(void *, unsigned), cudaGetLastError(void), cudaDeviceSynchronize(void);

int main(void) {
    void *library, *kernel, *all[2], *total, *on, *a, *b;
    size_t size;
    unsigned number, n = 3;
    const char *name;
    int *at, asked[6], uses[2], wrong = 0, pair[2] = {0, 0};
    wrong |= cudaLibraryLoadData(&library, PTX, 0, 0, 0, 0, 0, 0) | cudaLibraryGetKernel(&kernel, library, "add");
    wrong |= cudaLibraryGetGlobal(&total, &size, library, "total") | cudaLibraryGetKernelCount(&number, library);
    wrong |= cudaLibraryEnumerateKernels(all, 1, library) | cudaFuncGetName(&name, all[0]) | cudaMallocManaged(&at, sizeof values, 1);
    printf("%d %d %d %s %d %d\n", wrong, (int)size, number, name, all[0] == kernel, at[7]);
    void *arguments[] = {&at, &n};
    wrong |= cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, arguments, 0, 0) | cudaDeviceSynchronize();
    const void *from[] = {total, at + 7};
    void *to[] = {pair, pair + 1};
    size_t sizes[] = {4, 4}, first = 0;
    attribute[0] = 1; /* sources are read in the order of the stream */
    wrong |= cudaStreamCreate(&on) | cudaMemcpyBatchAsync(to, from, sizes, 2, attribute, &first, 1, on) | cudaDeviceSynchronize();
    printf("%d %d %d\n", wrong, pair[0], pair[1]);
    wrong |= cudaMemAdvise(at, 128, 1, (location){1, 0}) | cudaMemAdvise(at, 128, 3, (location){2, 0}) | cudaMemAdvise(at, 128, 5, (location){1, 0});
    wrong |= cudaMemPrefetchAsync(at, 128, (location){1, 0}, 0, 0);
    for (int which = 1; which < 5; which++) wrong |= cudaMemRangeGetAttribute(asked + which, 4, which, at, 128);
    wrong |= cudaMemRangeGetAttribute(uses, 8, 3, at, 128);
    printf("%d %d %d %d %d %d\n", wrong, asked[1], asked[2], asked[3], asked[4], uses[1]);
    wrong |= cudaStreamCreate(&a) | cudaStreamCreate(&b);
    attribute[0] = 2;
    wrong |= cudaStreamSetAttribute(a, 3, attribute) | cudaStreamCopyAttributes(b, a);
    attribute[0] = 0;
    wrong |= cudaStreamGetAttribute(b, 3, attribute);
    printf("%d %d\n", wrong, (int)attribute[0]);
    wrong |= cudaLibraryUnload(library);
    printf("%d %d\n", wrong, cudaLogsCurrent(&a, 0));
    return wrong;
}
#endif
