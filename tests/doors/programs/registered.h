/* Kernels in PTX, and what code that nvcc has compiled does before main: it registers a fat binary, kernels and a variable. */
#include <stddef.h>
#include <stdint.h>

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
#define TOTAL ".visible .global .align 4 .u32 total;\n"
#define ELEMENT_BY_ELEMENT(name, operation, behind) /* a kernel that changes each of its threads' words by `n` */ \
    ".visible .entry " name "(.param .u64 at, .param .u32 n) {\n" \
    "  .reg .b64 %a; .reg .b64 %o; .reg .b32 %n; .reg .b32 %t; .reg .b32 %v; .reg .b64 %g;\n" \
    "  ld.param.u64 %a, [at]; ld.param.u32 %n, [n]; mov.u32 %t, %tid.x;\n" \
    "  mul.wide.u32 %o, %t, 4; add.u64 %a, %a, %o;\n" \
    "  ld.global.u32 %v, [%a]; " operation " %v, %v, %n; st.global.u32 [%a], %v;\n" behind "  ret;\n}\n"
#define ADD ELEMENT_BY_ELEMENT("add", "add.u32", "")
#define ADD_TO_TOTAL ELEMENT_BY_ELEMENT("add", "add.u32", "  mov.u64 %g, total; atom.global.add.u32 %v, [%g], %n;\n")

extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const void *, char *, const char *, int, void *, void *, void *, void *, int *);
extern void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);

#define KERNEL(name) __cudaRegisterFunction(handle, (void *)name, #name, #name, -1, 0, 0, 0, 0, 0);
#define REGISTERED(text_, kernels) /* the PTX; KERNEL(name) for each kernel in it */ \
    static const struct { \
        uint32_t magic; uint16_t version, header; uint64_t size; \
        uint16_t kind, entry_version; uint32_t entry_header; uint64_t length; uint32_t packed, zero; uint16_t minor, major; \
        uint32_t arch, name, name_size; uint64_t flags, more, unpacked; \
        char text[(sizeof(text_) + 7) / 8 * 8]; \
    } fat __attribute__((aligned(8))) = { \
        0xBA55ED50, 1, 16, 64 + sizeof fat.text, 1, 0x101, 64, sizeof fat.text, 0, 0, 0, 8, 80, 0, 0, 0x11, 0, 0, text_, \
    }; \
    static const struct { uint32_t magic, version; const void *data; void *other; } wrapper = {0x466243B1, 1, &fat, 0}; \
    static char total[4]; \
    __attribute__((constructor)) static void before_main(void) { \
        void **handle = __cudaRegisterFatBinary((void *)&wrapper); \
        kernels \
        __cudaRegisterVar(handle, total, total, "total", 0, 4, 0, 1); \
        __cudaRegisterFatBinaryEnd(handle); \
    }
