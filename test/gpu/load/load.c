// A program that keeps a GPU busy, for machines that have a driver and nothing else: it loads libcuda.so.1 itself and
// needs no toolkit. usage: load MEMORY_MIB SECONDS DUTY [MORE_MIB]
//
// It prints a line for everything that a test wants to know: how many devices it sees, which one it uses, what memory
// it got or was refused, and how long the GPU worked for it.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int result;
typedef uint64_t address;

// The least that CUDA's driver API needs; the names are those of its symbols.
static result (*cu_init)(unsigned);
static result (*device_count)(int *);
static result (*device_get)(int *, int);
static result (*device_uuid)(unsigned char[16], int);
static result (*device_attribute)(int *, int, int);
static result (*context_create)(void **, unsigned, int);
static result (*context_destroy)(void *);
static result (*context_synchronize)(void);
static result (*memory_allocate)(address *, size_t);
static result (*module_load)(void **, const void *);
static result (*module_function)(void **, void *, const char *);
static result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

enum { multiprocessors = 16, blocks_each = 8, threads = 256, out_of_memory = 2, window_us = 100000 };

static const char kernel[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry spin(.param .u64 turns, .param .u64 out) {\n"
    ".reg .pred %p<2>; .reg .u64 %d<4>; .reg .f32 %f<2>;\n"
    "ld.param.u64 %d1, [turns]; ld.param.u64 %d2, [out]; cvta.to.global.u64 %d2, %d2;\n"
    "mov.u64 %d3, 0; mov.f32 %f1, 0f3F800000;\n"
    "again: fma.rn.f32 %f1, %f1, 0f3F7FFFFF, 0f3A83126F; add.u64 %d3, %d3, 1;\n"
    "setp.lt.u64 %p1, %d3, %d1; @%p1 bra again;\n"
    "st.global.f32 [%d2], %f1; ret;\n}\n";

static void must(result r, const char *what) {
    if (r == 0) return;
    printf("failed %s %d\n", what, r);
    exit(3);
}

static void *find(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (symbol) return symbol;
    printf("failed find %s\n", name);
    exit(3);
}

static void open_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("failed load %s\n", dlerror());
        exit(3);
    }
    cu_init = find(library, "cuInit");
    device_count = find(library, "cuDeviceGetCount");
    device_get = find(library, "cuDeviceGet");
    device_uuid = find(library, "cuDeviceGetUuid");
    device_attribute = find(library, "cuDeviceGetAttribute");
    context_create = find(library, "cuCtxCreate_v2");
    context_destroy = find(library, "cuCtxDestroy_v2");
    context_synchronize = find(library, "cuCtxSynchronize");
    memory_allocate = find(library, "cuMemAlloc_v2");
    module_load = find(library, "cuModuleLoadData");
    module_function = find(library, "cuModuleGetFunction");
    launch = find(library, "cuLaunchKernel");
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void rest(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    if (seconds > 0) nanosleep(&t, NULL);
}

static address allocate(long mib) {
    address at = 0;
    if (mib <= 0) return at;
    result r = memory_allocate(&at, (size_t)mib << 20);
    if (r == 0)
        printf("allocated %ld\n", mib);
    else if (r == out_of_memory)
        printf("refused %ld\n", mib);
    else
        must(r, "allocate");
    return at;
}

static double spin(void *function, int device, address out, uint64_t turns) {
    int processors = 0;
    must(device_attribute(&processors, multiprocessors, device), "attribute");
    void *parameters[] = {&turns, &out};
    double began = now();
    must(launch(function, (unsigned)(processors * blocks_each), 1, 1, threads, 1, 1, 0, NULL, parameters, NULL), "launch");
    must(context_synchronize(), "synchronize");
    return now() - began;
}

// work keeps the GPU busy for a part of the time, in short kernels.
static double work(int device, address out, double seconds, double duty) {
    void *module, *function;
    must(module_load(&module, kernel), "load the kernel");
    must(module_function(&function, module, "spin"), "find the kernel");
    uint64_t turns = 1000;
    while (spin(function, device, out, turns) < 0.01 && turns < (uint64_t)1 << 32) turns *= 2;
    double worked = 0, end = now() + seconds;
    while (now() < end) {
        double window = now() + window_us / 1e6, busy = 0;
        while (busy < duty * window_us / 1e6 && now() < window) busy += spin(function, device, out, turns);
        worked += busy;
        rest(window - now());
    }
    return worked;
}

int main(int count, char **words) {
    if (count < 4) {
        fprintf(stderr, "usage: load MEMORY_MIB SECONDS DUTY [MORE_MIB]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_driver();
    int devices = 0, device;
    result r = cu_init(0);
    if (r == 0) r = device_count(&devices);
    printf("devices %d\n", r == 0 ? devices : 0);
    if (r != 0 || devices == 0) return 0;
    must(device_get(&device, 0), "device");
    unsigned char id[16];
    must(device_uuid(id, device), "uuid");
    printf("uuid ");
    for (int i = 0; i < 16; i++) printf("%02x", id[i]);
    printf("\n");
    void *context;
    must(context_create(&context, 0, device), "context");
    address out = 0;
    must(memory_allocate(&out, 4096), "allocate");
    allocate(atol(words[1]));
    if (count > 4) allocate(atol(words[4]));
    printf("worked %.3f\n", work(device, out, atof(words[2]), atof(words[3])));
    must(context_destroy(context), "end");
    return 0;
}
