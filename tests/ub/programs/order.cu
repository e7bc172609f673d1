// What nothing orders: two streams, memory that is freed, the host, and a dependent launch.
// nvcc -g
#include <cstdio>

__global__ void fill(float *out, float value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }

__global__ void twice(const float *in, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2 * in[i]; //~ dependent-launch-early
}

int main() {
    float *a, *b, *managed, *pinned, *p;
    const size_t size = 256 * sizeof(float);
    cudaMalloc(&a, size);
    cudaMalloc(&b, size);
    cudaMallocManaged(&managed, size);
    cudaMallocHost(&pinned, size);
    cudaStream_t s, t;
    cudaStreamCreate(&s);
    cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking);
    cudaEvent_t e;
    cudaEventCreate(&e);

    fill<<<1, 256, 0, s>>>(a, 1);
    twice<<<1, 256, 0, t>>>(a, b); //~ stream-race
    cudaEventRecord(e, t);
    cudaStreamWaitEvent(s, e, 0);
    fill<<<1, 256, 0, s>>>(a, 2); // an event lies between
    cudaMemset(b, 0, size);       // which waits for s, and so for t
    twice<<<1, 256, 0, t>>>(b, b); //~ stream-race
    cudaDeviceSynchronize();

    cudaMallocAsync(&p, size, s);
    fill<<<1, 256, 0, s>>>(p, 1);
    cudaFreeAsync(p, t); //~ stream-freed-in-use
    cudaDeviceSynchronize();

    fill<<<1, 256>>>(managed, 3);
    printf("%g\n", managed[5]); //~ host-read-early
    cudaDeviceSynchronize();
    printf("%g\n", managed[6]);

    pinned[0] = 1;
    cudaMemcpyAsync(a, pinned, size, cudaMemcpyHostToDevice, s);
    float read = pinned[1];
    pinned[0] = 2; //~ host-write-early
    cudaStreamSynchronize(s);
    pinned[0] = read;

    cudaGraph_t graph;
    cudaGraphExec_t run;
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    fill<<<1, 256, 0, s>>>(a, 4);
    cudaEventRecord(e, s);
    cudaStreamWaitEvent(t, e, 0);
    twice<<<1, 256, 0, t>>>(a, b);
    cudaMemcpyAsync(pinned, a, size, cudaMemcpyDeviceToHost, s);
    cudaEventRecord(e, t);
    cudaStreamWaitEvent(s, e, 0);
    cudaStreamEndCapture(s, &graph);
    cudaGraphInstantiate(&run, graph, 0);
    cudaGraphLaunch(run, s);
    cudaGraphLaunch(run, s);
    twice<<<1, 256, 0, t>>>(b, a); //~ stream-race
    cudaDeviceSynchronize();

    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = 1;
    config.blockDim = 256;
    config.stream = s;
    config.attrs = attribute;
    config.numAttrs = 1;
    fill<<<1, 256, 0, s>>>(a, 5);
    cudaLaunchKernelEx(&config, twice, (const float *)a, b);
    puts(cudaGetErrorName(cudaDeviceSynchronize()));
}
