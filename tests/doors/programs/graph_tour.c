/* A program that makes, changes, captures and launches graphs of CUDA's runtime. argv[1] says what it tries; it prints what it saw. */
#include "registered.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
typedef struct { size_t x, y, z; } position;
typedef struct { size_t width, height, depth; } extent;
typedef struct { void *pointer; size_t pitch, width, height; } pitched;
typedef struct { const void *function; dim3 grid, block; unsigned shared; void **arguments, **extra; } kernel_params;
typedef struct { void *array; position from; pitched source; void *to_array; position at; pitched to; extent size; int kind; } box_params;
typedef struct { void *to; size_t pitch; unsigned value, element; size_t width, height; } fill_params;
typedef struct { void (*function)(void *); void *data; } host_params;
typedef struct { struct { unsigned kind, handles, where, device; char more[72]; } pool; const void *access; size_t number, size; void *address; } alloc_params;
typedef void *graph, *node, *executable, *stream, *event;
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, stream);
extern int cudaMalloc(void *, size_t), cudaFree(void *), cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t);
extern int cudaMallocAsync(void *, size_t, stream), cudaFreeAsync(void *, stream), cudaMemsetAsync(void *, int, size_t, stream);
extern int cudaMemcpyAsync(void *, const void *, size_t, int, stream), cudaDeviceSynchronize(void), cudaGetLastError(void);
extern int cudaMemcpyToSymbolAsync(const void *, const void *, size_t, size_t, int, stream);
extern int cudaStreamCreate(stream *), cudaStreamCreateWithFlags(stream *, unsigned), cudaStreamSynchronize(stream), cudaStreamQuery(stream);
extern int cudaStreamWaitEvent(stream, event, unsigned), cudaLaunchHostFunc(stream, void (*)(void *), void *);
extern int cudaEventCreate(event *), cudaEventRecord(event, stream), cudaEventQuery(event), cudaEventRecordWithFlags(event, stream, unsigned);
extern int cudaStreamBeginCapture(stream, int), cudaStreamEndCapture(stream, graph *), cudaStreamIsCapturing(stream, int *);
extern int cudaStreamGetCaptureInfo(stream, int *, unsigned long long *, graph *, const node **, const void **, size_t *);
extern int cudaStreamBeginCaptureToGraph(stream, graph, const node *, const void *, size_t, int), cudaThreadExchangeStreamCaptureMode(int *);
extern int cudaStreamUpdateCaptureDependencies(stream, node *, const void *, size_t, unsigned);
extern int cudaGraphCreate(graph *, unsigned), cudaGraphDestroy(graph), cudaGraphClone(graph *, graph), cudaGraphLaunch(executable, stream);
extern int cudaGraphInstantiate(executable *, graph, unsigned long long), cudaGraphExecDestroy(executable);
extern int cudaGraphAddKernelNode(node *, graph, const node *, size_t, const kernel_params *), cudaGraphKernelNodeGetParams(node, kernel_params *);
extern int cudaGraphKernelNodeSetParams(node, const kernel_params *), cudaGraphExecKernelNodeSetParams(executable, node, const kernel_params *);
extern int cudaGraphAddMemcpyNode(node *, graph, const node *, size_t, const box_params *), cudaGraphMemcpyNodeGetParams(node, box_params *);
extern int cudaGraphAddMemcpyNode1D(node *, graph, const node *, size_t, void *, const void *, size_t, int);
extern int cudaGraphAddMemcpyNodeFromSymbol(node *, graph, const node *, size_t, void *, const void *, size_t, size_t, int);
extern int cudaGraphExecMemcpyNodeSetParams1D(executable, node, void *, const void *, size_t, int);
extern int cudaGraphAddMemsetNode(node *, graph, const node *, size_t, const fill_params *), cudaGraphMemsetNodeGetParams(node, fill_params *);
extern int cudaGraphAddHostNode(node *, graph, const node *, size_t, const host_params *), cudaGraphAddEmptyNode(node *, graph, const node *, size_t);
extern int cudaGraphAddChildGraphNode(node *, graph, const node *, size_t, graph), cudaGraphChildGraphNodeGetGraph(node, graph *);
extern int cudaGraphAddMemAllocNode(node *, graph, const node *, size_t, alloc_params *), cudaGraphAddMemFreeNode(node *, graph, const node *, size_t, void *);
extern int cudaGraphAddEventRecordNode(node *, graph, const node *, size_t, event), cudaGraphAddNode(node *, graph, const node *, const void *, size_t, void *);
extern int cudaGraphGetNodes(graph, node *, size_t *), cudaGraphGetRootNodes(graph, node *, size_t *), cudaGraphNodeGetType(node, int *);
extern int cudaGraphGetEdges(graph, node *, node *, void *, size_t *), cudaGraphNodeGetDependencies(node, node *, void *, size_t *);
extern int cudaGraphAddDependencies(graph, const node *, const node *, const void *, size_t), cudaGraphDestroyNode(node);
extern int cudaGraphRemoveDependencies(graph, const node *, const node *, const void *, size_t), cudaGraphNodeFindInClone(node *, node, graph);
extern int cudaGraphExecUpdate(executable, graph, void *), cudaGraphNodeSetEnabled(executable, node, unsigned), cudaGraphDebugDotPrint(graph, const char *, unsigned);
extern int cudaGraphConditionalHandleCreate(void *, graph, unsigned, unsigned), cudaGraphKernelNodeSetAttribute(node, int, const void *);
extern int cudaUserObjectCreate(void *, void *, void (*)(void *), unsigned, unsigned), cudaGraphRetainUserObject(graph, void *, unsigned, unsigned);
extern const char *cudaGetErrorName(int), *cudaGetErrorString(int);

static void add(void) {}
static void scale(void) {}
REGISTERED(HEAD TOTAL ADD_TO_TOTAL ELEMENT_BY_ELEMENT("scale", "mul.lo.u32", ""), KERNEL(add) KERNEL(scale))

#define SAY(call) printf("%d ", call) /* one by one: the order of arguments of one printf is the compiler's */
#define COUNT(array) (sizeof array / sizeof *array)
static int values[32], calls;
static void count(void *data) { calls += *(int *)data; }
static void destroyed(void *data) { printf("destroyed %s\n", (char *)data); }

static int launch(const void *kernel, void *at, unsigned n, stream on) {
    void *arguments[] = {&at, &n};
    return cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){32, 1, 1}, arguments, 0, on);
}

static kernel_params params(const void *kernel, void **at, unsigned *n, void **arguments) {
    arguments[0] = at, arguments[1] = n;
    return (kernel_params){kernel, {1, 1, 1}, {32, 1, 1}, 0, arguments, 0};
}

/* Nodes of every kind, made out of order: fill with 3, add 4, times 5, to the host; a host function; the sum of what was added. */
static int nodes(void) {
    graph g, inner, copy;
    executable run, run2;
    node fill, more, times, back, call, sum, empty, child, found, list[10];
    int *at, one = 1, added = -1, type, wrong = 0;
    unsigned four = 4, five = 5, six = 6;
    void *arguments[2], *user;
    size_t number = COUNT(list);
    kernel_params kernel, seen;
    fill_params filling, seen_fill;
    box_params box = {0}, seen_box;
    host_params host = {count, &one};
    wrong |= cudaMalloc(&at, sizeof values) | cudaGraphCreate(&g, 0) | cudaGraphCreate(&inner, 0);
    kernel = params(add, (void **)&at, &four, arguments);
    wrong |= cudaGraphAddKernelNode(&more, g, 0, 0, &kernel);
    kernel = params(scale, (void **)&at, &five, arguments);
    wrong |= cudaGraphAddKernelNode(&times, inner, 0, 0, &kernel);
    wrong |= cudaGraphAddChildGraphNode(&child, g, &more, 1, inner);
    filling = (fill_params){at, 0, 3, 4, 32, 1};
    wrong |= cudaGraphAddMemsetNode(&fill, g, 0, 0, &filling);
    wrong |= cudaGraphAddDependencies(g, &fill, &more, 0, 1);
    wrong |= cudaGraphAddEmptyNode(&empty, g, &child, 1);
    box.source = (pitched){at, sizeof values, sizeof values, 1}, box.to = (pitched){values, sizeof values, sizeof values, 1};
    box.size = (extent){sizeof values, 1, 1}, box.kind = 2;
    wrong |= cudaGraphAddMemcpyNode(&back, g, &empty, 1, &box);
    wrong |= cudaGraphAddHostNode(&call, g, &back, 1, &host);
    wrong |= cudaGraphAddMemcpyNodeFromSymbol(&sum, g, &back, 1, &added, total, 4, 0, 2);
    wrong |= cudaUserObjectCreate(&user, "the user's", destroyed, 1, 1) | cudaGraphRetainUserObject(g, user, 1, 1);
    four = five = 1000; /* values of parameters are those of the time when the node was made */
    wrong |= cudaGraphInstantiate(&run, g, 0) | cudaGraphLaunch(run, 0) | cudaGraphLaunch(run, 0) | cudaDeviceSynchronize();
    printf("%d %d %d %d\n", wrong, values[31], calls, added);

    wrong |= cudaGraphGetNodes(g, list, &number);
    printf("%d", (int)number);
    for (size_t n = 0; n < number; n++) wrong |= cudaGraphNodeGetType(list[n], &type), printf(" %d", type);
    wrong |= cudaGraphGetEdges(g, 0, 0, 0, &number);
    printf(" edges %d", (int)number);
    wrong |= cudaGraphGetRootNodes(g, list, &number);
    printf(" roots %d %d", (int)number, list[0] == fill);
    wrong |= cudaGraphNodeGetDependencies(back, list, 0, &number);
    printf(" %d %d\n", (int)number, list[0] == empty);

    wrong |= cudaGraphKernelNodeGetParams(more, &seen) | cudaGraphMemsetNodeGetParams(fill, &seen_fill) | cudaGraphMemcpyNodeGetParams(back, &seen_box);
    printf("%d %d %d %d %d\n", *(unsigned *)seen.arguments[1], *(int **)seen.arguments[0] == at, seen.block.x, (int)seen_fill.width,
           seen_box.source.pointer == at && seen_box.to.pointer == values && seen_box.kind == 2 && seen_box.size.width == sizeof values);

    kernel = params(add, (void **)&at, &six, arguments); /* in the copy of a node that runs; the graph stays */
    wrong |= cudaGraphExecKernelNodeSetParams(run, more, &kernel) | cudaGraphLaunch(run, 0);
    printf("%d", values[0]);
    wrong |= cudaGraphNodeSetEnabled(run, more, 0) | cudaGraphLaunch(run, 0);
    printf(" %d", values[0]);
    wrong |= cudaGraphClone(&copy, g) | cudaGraphNodeFindInClone(&found, more, copy) | cudaGraphKernelNodeSetParams(found, &kernel);
    wrong |= cudaGraphInstantiate(&run2, copy, 0) | cudaGraphLaunch(run2, 0);
    printf(" %d", values[0]);
    struct { int result; node at, from; } update;
    wrong |= cudaGraphExecUpdate(run2, g, &update) | update.result | cudaGraphLaunch(run2, 0);
    printf(" %d\n", values[0]);
    wrong |= cudaGraphDestroyNode(sum);
    SAY(cudaGraphExecUpdate(run2, g, &update));
    SAY(update.result);
    SAY(cudaGraphAddDependencies(g, &back, &fill, 0, 1)); /* a circle */
    SAY(cudaGraphInstantiate(&run2, g, 0));
    SAY(cudaGraphRemoveDependencies(g, &back, &fill, 0, 1));
    SAY(cudaGraphRemoveDependencies(g, &back, &fill, 0, 1));
    SAY(cudaGraphKernelNodeSetParams(fill, &kernel));
    SAY(cudaGraphConditionalHandleCreate(list, g, 0, 0));
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    wrong |= cudaGraphDestroy(copy) | cudaGraphExecDestroy(run) | cudaGraphExecDestroy(run2);
    SAY(cudaGraphDestroy(g));
    SAY(cudaGraphDestroy(g));
    printf("%d\n", wrong);
    return wrong;
}

/* A fork and a join of two streams, and what is recorded: kernels, copies, fills, calls, allocations. */
static int capture(void) {
    stream a, b;
    event forked, joined;
    graph g;
    executable run;
    const node *tips;
    int *at, *other, *own, one = 1, status, wrong = 0, sums[32];
    unsigned long long id = 0;
    size_t number;
    wrong |= cudaStreamCreate(&a) | cudaStreamCreateWithFlags(&b, 1) | cudaEventCreate(&forked) | cudaEventCreate(&joined);
    wrong |= cudaMalloc(&at, sizeof values) | cudaMalloc(&other, sizeof values);
    wrong |= cudaStreamBeginCapture(a, 0);
    wrong |= cudaMemsetAsync(at, 0, sizeof values, a) | cudaEventRecord(forked, a) | cudaStreamWaitEvent(b, forked, 0);
    wrong |= cudaStreamIsCapturing(b, &status);
    printf("%d", status);
    wrong |= launch(add, at, 7, a) | cudaMemsetAsync(other, 0, sizeof values, b) | launch(add, other, 2, b) | launch(scale, other, 3, b);
    wrong |= cudaEventRecord(joined, b) | cudaStreamWaitEvent(a, joined, 0);
    wrong |= cudaStreamGetCaptureInfo(a, &status, &id, &g, &tips, 0, &number);
    printf(" %d %d %d", status, id != 0, (int)number);
    wrong |= cudaMallocAsync(&own, sizeof values, a) | cudaMemcpyAsync(own, other, sizeof values, 3, a) | launch(add, own, 1, a);
    wrong |= cudaMemcpyAsync(sums, own, sizeof values, 2, a) | cudaFreeAsync(own, a);
    wrong |= cudaMemcpyAsync(values, at, sizeof values, 2, a) | cudaLaunchHostFunc(a, count, &one);
    wrong |= cudaStreamEndCapture(a, &g) | cudaGraphGetNodes(g, 0, &number);
    printf(" %d\n", (int)number);
    values[0] = -1;
    wrong |= cudaMemset(at, 1, sizeof values); /* not captured, and nothing has run yet */
    printf("%d %d", values[0], calls);
    wrong |= cudaGraphInstantiate(&run, g, 0);
    for (int n = 0; n < 3; n++) wrong |= cudaGraphLaunch(run, a);
    wrong |= cudaStreamSynchronize(a);
    printf(" %d %d %d\n", values[31], sums[31], calls);
    SAY(cudaStreamBeginCapture(b, 2)); SAY(cudaGraphLaunch(run, b)); SAY(cudaStreamEndCapture(b, &g)); /* a launch is not captured */
    wrong |= cudaStreamBeginCapture(b, 2) | launch(scale, at, 2, b) | cudaStreamEndCapture(b, &g);
    wrong |= cudaGraphInstantiate(&run, g, 0) | cudaGraphLaunch(run, 0) | cudaMemcpy(sums, at, sizeof sums, 2);
    printf("%d %d\n", sums[3], wrong);
    return wrong;
}

static void *elsewhere(void *s) {
    graph g;
    return (void *)(intptr_t)cudaStreamEndCapture((stream)s, &g);
}

/* What is not allowed while a stream is captured. Each line begins a capture and ends it. */
static int errors(void) {
    stream a, b, quiet;
    event outside, inside;
    graph g;
    int *at, mode = 2, status;
    void *code;
    pthread_t thread;
    cudaStreamCreate(&a), cudaStreamCreate(&b), cudaStreamCreateWithFlags(&quiet, 1);
    cudaEventCreate(&outside), cudaEventCreate(&inside), cudaEventRecord(outside, b), cudaMalloc(&at, 128);
    SAY(cudaStreamBeginCapture(0, 0)); SAY(cudaStreamEndCapture(a, &g)); SAY(cudaStreamBeginCapture(a, 0)); SAY(cudaStreamBeginCapture(a, 0));
    SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(cudaMemset(at, 0, 128)); SAY(launch(add, at, 1, a)); SAY(cudaStreamIsCapturing(a, &status));
    SAY(status); SAY(cudaStreamEndCapture(a, &g)); SAY(g == 0); SAY(launch(add, at, 1, a)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(launch(add, at, 1, 0)); SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(quiet, 0)); SAY(launch(add, at, 1, 0)); SAY(cudaStreamEndCapture(quiet, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(cudaMalloc(&at, 128)); SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 2)); SAY(cudaMalloc(&at, 128)); SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 1)); SAY(cudaThreadExchangeStreamCaptureMode(&mode)); SAY(cudaMalloc(&at, 128));
    SAY(cudaThreadExchangeStreamCaptureMode(&mode)); SAY(mode); SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(cudaStreamSynchronize(a)); SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 2)); SAY(cudaDeviceSynchronize()); SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(cudaStreamWaitEvent(a, outside, 0)); SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(cudaEventRecord(inside, a)); SAY(cudaEventQuery(inside)); SAY(cudaStreamEndCapture(a, &g));
    SAY(cudaEventRecord(inside, b)); SAY(cudaEventQuery(inside)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(launch(add, at, 1, a)); SAY(cudaEventRecord(inside, a)); SAY(cudaStreamWaitEvent(b, inside, 0));
    SAY(launch(add, at, 1, b)); SAY(cudaStreamEndCapture(a, &g)); SAY(launch(add, at, 1, b)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(cudaEventRecord(inside, a)); SAY(cudaStreamBeginCapture(b, 0)); SAY(cudaStreamWaitEvent(b, inside, 0));
    SAY(cudaStreamEndCapture(a, &g)); SAY(cudaStreamEndCapture(b, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); SAY(cudaEventRecord(inside, a)); SAY(cudaStreamWaitEvent(b, inside, 0)); SAY(cudaStreamEndCapture(b, &g));
    SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    SAY(cudaStreamBeginCapture(a, 0)); pthread_create(&thread, 0, elsewhere, a), pthread_join(thread, &code); SAY((int)(intptr_t)code);
    SAY(cudaStreamEndCapture(a, &g)); printf("\n");
    for (int n = 900; n < 909; n++) printf("%s: %s\n", cudaGetErrorName(n), cudaGetErrorString(n));
    return 0;
}

/* Allocations in a graph, a fault of a kernel in it, and a capture that goes on in a graph that is there. */
static int memory(void) {
    graph g;
    executable run, other;
    node made, fill, back, freed;
    stream a;
    alloc_params asked = {0};
    fill_params filling;
    int wrong = 0;
    asked.pool.kind = 1, asked.pool.where = 1, asked.size = sizeof values;
    wrong |= cudaGraphCreate(&g, 0) | cudaGraphAddMemAllocNode(&made, g, 0, 0, &asked);
    filling = (fill_params){asked.address, 0, 9, 4, 32, 1};
    wrong |= cudaGraphAddMemsetNode(&fill, g, &made, 1, &filling);
    wrong |= cudaGraphAddMemcpyNode1D(&back, g, &fill, 1, values, asked.address, sizeof values, 2);
    SAY(cudaMemset(asked.address, 0, 4)); /* it is nobody's yet */
    wrong |= cudaGraphInstantiate(&run, g, 0) | cudaGraphLaunch(run, 0);
    SAY(values[5]);
    SAY(cudaMemset(asked.address, 0, 4));
    SAY(cudaGraphLaunch(run, 0)); /* what it has allocated was not freed */
    SAY(cudaFree(asked.address));
    SAY(cudaGraphLaunch(run, 0));
    SAY(cudaFreeAsync(asked.address, 0));
    SAY(cudaGraphInstantiate(&other, g, 1)); /* it has an executable already */
    wrong |= cudaGraphExecDestroy(run) | cudaGraphInstantiate(&run, g, 1) | cudaGraphLaunch(run, 0);
    SAY(cudaGraphLaunch(run, 0)); /* it frees by itself */
    wrong |= cudaFree(asked.address);
    wrong |= cudaGraphAddMemFreeNode(&freed, g, &back, 1, asked.address);
    wrong |= cudaStreamCreate(&a) | cudaStreamBeginCaptureToGraph(a, g, &fill, 0, 1, 0) | launch(add, asked.address, 4, a);
    wrong |= cudaMemcpyAsync(values, asked.address, sizeof values, 2, a) | cudaStreamEndCapture(a, &g);
    wrong |= cudaGraphExecDestroy(run) | cudaGraphInstantiate(&run, g, 0);
    SAY(cudaGraphLaunch(run, 0)); /* the free came first */
    printf("%d\n", wrong);
    cudaGetLastError();
    SAY(cudaDeviceSynchronize());
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    return wrong;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "nodes")) return nodes();
    if (!strcmp(what, "capture")) return capture();
    if (!strcmp(what, "errors")) return errors();
    if (!strcmp(what, "memory")) return memory();
    return 1;
}
