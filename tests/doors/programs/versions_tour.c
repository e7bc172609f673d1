/* A program that has the runtimes of CUDA 12 and 13 at once. It prints each one's version and the size of its cudaDeviceProp. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    const char *names[] = {"libcudart.so.12", "libcudart.so.13"};
    for (int n = 0; n < 4; n++) {
        void *library = dlopen(names[n & 1], RTLD_NOW);
        int version = 0, size = 0;
        unsigned char properties[4096];
        memset(properties, 0xA5, sizeof properties);
        ((int (*)(int *))dlsym(library, "cudaRuntimeGetVersion"))(&version);
        ((int (*)(void *, int))dlsym(library, n & 1 ? "cudaGetDeviceProperties" : "cudaGetDeviceProperties_v2"))(properties, 0);
        for (size = sizeof properties; properties[size - 1] == 0xA5;) size--;
        printf("%d %d\n", version / 1000, size);
    }
    return 0;
}
