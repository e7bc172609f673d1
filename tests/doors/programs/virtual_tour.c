/* A program that reserves addresses, makes memory and maps one to the other with CUDA's driver. It prints what it saw. */
#include "registered.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t address;
typedef struct { int type, handles; struct { int type, id; } location; void *data; uint64_t flags; } properties;
typedef struct { struct { int type, id; } location; int flags; } access;
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuDeviceGetAttribute(int *, int, int);
extern int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *), cuCtxSynchronize(void);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
extern int cuMemcpyHtoD_v2(address, const void *, size_t), cuMemcpyDtoH_v2(void *, address, size_t), cuMemsetD32_v2(address, unsigned, size_t);
extern int cuMemGetInfo_v2(size_t *, size_t *), cuMemFree_v2(address), cuMemGetAddressRange_v2(address *, size_t *, address);
extern int cuMemGetAllocationGranularity(size_t *, const properties *, int), cuMemCreate(address *, size_t, const properties *, uint64_t);
extern int cuMemRelease(address), cuMemAddressReserve(address *, size_t, size_t, address, uint64_t), cuMemAddressFree(address, size_t);
extern int cuMemMap(address, size_t, size_t, address, uint64_t), cuMemUnmap(address, size_t);
extern int cuMemSetAccess(address, size_t, const access *, size_t), cuMemGetAccess(uint64_t *, const void *, address);
extern int cuMemRetainAllocationHandle(address *, void *), cuMemGetAllocationPropertiesFromHandle(properties *, address);

#define PTX HEAD ADD
#define SAY(call) printf("%d ", call)

int main(int count, char **words) {
    void *context, *module, *kernel;
    size_t piece, before, after, total, size;
    address at, one, two, again, base;
    int values[64], has, wrong = cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
    unsigned n = 5;
    uint64_t flags;
    properties device = {1, 0, {1, 0}, 0, 0}, host = {1, 0, {2, 0}, 0, 0}, other = {1, 0, {1, 7}, 0, 0}, shared = {1, 8, {1, 0}, 0, 0}, found;
    access both = {{1, 0}, 3}, look = {{1, 0}, 1}, none = {{1, 0}, 0}, odd = {{1, 0}, 2};
    void *arguments[] = {&base, &n};
    wrong |= cuModuleLoadData(&module, PTX) | cuModuleGetFunction(&kernel, module, "add") | cuDeviceGetAttribute(&has, 102, 0);
    wrong |= cuMemGetAllocationGranularity(&piece, &device, 0) | cuMemGetInfo_v2(&before, &total);
    wrong |= cuMemAddressReserve(&at, 8 * piece, 0, 0, 0) | cuMemCreate(&one, piece, &device, 0) | cuMemCreate(&two, 2 * piece, &device, 0);
    wrong |= cuMemGetInfo_v2(&after, &total);
    printf("%d %d %zu %zu %d\n", wrong, has, piece, (before - after) / piece, at % piece == 0);

    /* two neighbours are one piece of memory: fills, copies, kernels */
    wrong = cuMemMap(at, piece, 0, one, 0) | cuMemMap(at + piece, 2 * piece, 0, two, 0) | cuMemSetAccess(at, 3 * piece, &both, 1);
    wrong |= cuMemsetD32_v2(at, 7, 3 * piece / 4);
    base = at + piece - 128; /* 32 words before the border and 32 behind it */
    wrong |= cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, arguments, 0) | cuMemcpyDtoH_v2(values, base, 256);
    for (int i = 0; i < 64; i++) wrong |= values[i] != 12;
    wrong |= cuMemGetAddressRange_v2(&base, &size, at + piece) | cuMemGetAccess(&flags, &both.location, at) | (flags != 3);
    printf("%d %d %zu\n", wrong, base == at, size / piece);

    /* what is unmapped keeps its bytes, and its room until the last handle is gone */
    wrong = cuMemRetainAllocationHandle(&again, (char *)at + piece + 9) | (again != two) | cuMemRelease(two) | cuMemUnmap(at, 3 * piece);
    wrong |= cuMemGetAllocationPropertiesFromHandle(&found, two) | memcmp(&found, &device, sizeof found);
    wrong |= cuMemMap(at + 5 * piece, 2 * piece, 0, two, 0) | cuMemSetAccess(at + 5 * piece, 2 * piece, &both, 1);
    wrong |= cuMemcpyDtoH_v2(values, at + 5 * piece, 256);
    printf("%d %d %d ", wrong, values[31], values[32]);
    wrong = cuMemRelease(two) | cuMemRelease(one) | cuMemGetInfo_v2(&after, &total);
    printf("%d %zu ", wrong, (before - after) / piece);
    wrong = cuMemUnmap(at + 5 * piece, 2 * piece) | cuMemGetInfo_v2(&after, &total);
    printf("%d %zu\n", wrong, (before - after) / piece);

    /* codes */
    SAY(cuMemGetAllocationGranularity(&size, &device, 2));
    SAY(cuMemCreate(&one, piece + 4096, &device, 0));
    SAY(cuMemCreate(&one, piece, &other, 0));
    SAY(cuMemCreate(&one, piece, &host, 0));
    SAY(cuMemCreate(&one, piece, &shared, 0));
    SAY(cuMemCreate(&one, total * 2 / piece * piece, &device, 0));
    SAY(cuMemRelease(two));
    SAY(cuMemAddressReserve(&base, 100, 0, 0, 0));
    SAY(cuMemAddressReserve(&base, piece, 3, 0, 0));
    SAY(cuMemAddressFree(at, piece));
    printf("\n");
    SAY(cuMemCreate(&one, 2 * piece, &device, 0));
    SAY(cuMemMap(at + 100, piece, 0, one, 0));
    SAY(cuMemMap(at, piece, piece, one, 0));
    SAY(cuMemMap(at + 7 * piece, 2 * piece, 0, one, 0));
    SAY(cuMemMap(at, 2 * piece, 0, one, 0));
    SAY(cuMemMap(at + 4 * piece, 2 * piece, 0, one, 0)); /* allowed on a GPU, refused here */
    SAY(cuMemCreate(&two, piece, &device, 0));
    SAY(cuMemMap(at + piece, piece, 0, two, 0));
    SAY(cuMemSetAccess(at, piece, &both, 1));
    SAY(cuMemSetAccess(at, 3 * piece, &both, 1));
    SAY(cuMemSetAccess(at, 2 * piece, &odd, 1));
    SAY(cuMemUnmap(at, piece));
    SAY(cuMemAddressFree(at, 8 * piece));
    SAY(cuMemsetD32_v2(at, 1, 4)); /* no access yet */
    SAY(cuMemSetAccess(at, 2 * piece, &look, 1));
    SAY(cuMemFree_v2(at));
    SAY(cuMemSetAccess(at, 2 * piece, &none, 1));
    SAY(cuMemcpyDtoH_v2(values, at, 4));
    SAY(cuMemSetAccess(at, 2 * piece, &look, 1));
    printf("\n");
    if (count > 1) { /* the host looks */
        printf("%d\n", *(volatile int *)at);
        return 0;
    }
    base = at;
    SAY(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0) | cuCtxSynchronize()); /* writes what may be read alone */
    printf("\n");
    return 0;
}
