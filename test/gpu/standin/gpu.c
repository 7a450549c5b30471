// A stand-in for the two libraries of NVIDIA's driver, libnvidia-ml.so.1 and libcuda.so.1, so that what a machine with
// GPUs is asked can be tried on one without. All processes share one file, which $STANDIN_GPUS names: how many GPUs
// there are, their power limits and energy, and which process uses what. It knows what the agent and load.c call.
//
// A GPU draws 50 W, and 200 W more while a kernel runs on it, up to its power limit. A kernel is sleep. Memory is
// counted; beyond that of the GPU, or of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT while an MPS daemon runs, it is refused.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "nvml.h"

#define SHOWN __attribute__((visibility("default")))

enum { most_gpus = 4, most_processes = 64, idle_watts = 50, busy_watts = 200, least_mw = 100000, usual_mw = 300000 };
#define MEMORY ((unsigned long long)16 << 30)
#define CONTEXT ((unsigned long long)300 << 20)

struct card {
    unsigned limit_mw;
    double joules, before_joules;
    long long at_us, before_us;
};

struct process {
    int pid, gpu, mps, running;
    unsigned long long memory;
    long long busy_us;
};

struct state {
    int gpus;
    struct card cards[most_gpus];
    struct process processes[most_processes];
};

static struct state *shared;
static int file = -1;

static long long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

// lock opens the file, and holds it; the first to come sets the machine up.
static int lock(void) {
    if (file < 0) {
        const char *path = getenv("STANDIN_GPUS");
        if (!path || (file = open(path, O_RDWR | O_CLOEXEC)) < 0) return 0;
        flock(file, LOCK_EX);
        if (lseek(file, 0, SEEK_END) < (off_t)sizeof *shared && ftruncate(file, sizeof *shared) != 0) return 0;
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared == MAP_FAILED) return 0;
        if (shared->gpus == 0) {
            const char *count = getenv("STANDIN_GPU_COUNT");
            shared->gpus = count ? atoi(count) : 2;
            for (int i = 0; i < most_gpus; i++) shared->cards[i].limit_mw = usual_mw, shared->cards[i].at_us = now_us();
        }
        return 1;
    }
    return flock(file, LOCK_EX) == 0;
}

static void unlock(void) { flock(file, LOCK_UN); }

// settle adds the energy up to now, and forgets processes that have ended.
static void settle(void) {
    long long now = now_us();
    for (int i = 0; i < shared->gpus; i++) {
        struct card *c = &shared->cards[i];
        int busy = 0;
        for (int k = 0; k < most_processes; k++) {
            struct process *p = &shared->processes[k];
            if (p->pid && kill(p->pid, 0) != 0 && errno == ESRCH) memset(p, 0, sizeof *p);
            if (p->pid && p->gpu == i && p->running) busy = 1;
        }
        double watts = idle_watts + (busy ? busy_watts : 0), most = c->limit_mw / 1000.0;
        c->joules += (watts < most ? watts : most) * (now - c->at_us) / 1e6;
        c->at_us = now;
    }
}

static int mps_runs(void) {
    const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[4096];
    snprintf(path, sizeof path, "%s/control", dir ? dir : "/nonexistent");
    return access(path, F_OK) == 0;
}

static void uuid_of(int gpu, unsigned char id[16]) {
    for (int i = 0; i < 16; i++) id[i] = (unsigned char)(0x10 * (gpu + 1) + i);
}

/* NVML */

// The header is that of NVIDIA's Go binding, in which a handle is a struct of one pointer.
static int index_of(nvmlDevice_t device) { return (int)(((char *)device.handle - (char *)shared->cards) / (long)sizeof(struct card)); }

SHOWN nvmlReturn_t nvmlInit_v2(void) {
    if (!lock()) return NVML_ERROR_DRIVER_NOT_LOADED;
    unlock();
    return NVML_SUCCESS;
}
SHOWN nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
SHOWN const char *nvmlErrorString(nvmlReturn_t r) { return r == NVML_SUCCESS ? "Success" : "error of the stand-in"; }
SHOWN nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned n) { return snprintf(text, n, "0.0-standin"), NVML_SUCCESS; }
SHOWN nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) { return *n = (unsigned)shared->gpus, NVML_SUCCESS; }
SHOWN nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *d) {
    if (i >= (unsigned)shared->gpus) return NVML_ERROR_INVALID_ARGUMENT;
    return d->handle = (void *)&shared->cards[i], NVML_SUCCESS;
}
SHOWN nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *text, unsigned n) {
    unsigned char id[16];
    char hex[40], *to = hex;
    uuid_of(index_of(d), id);
    for (int i = 0; i < 16; i++) to += sprintf(to, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
    return snprintf(text, n, "GPU-%s", hex), NVML_SUCCESS;
}
SHOWN nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *text, unsigned n) { return snprintf(text, n, "Stand-in"), NVML_SUCCESS; }
SHOWN nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned *n) { return *n = (unsigned)index_of(d), NVML_SUCCESS; }
SHOWN nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t s, unsigned *t) { return *t = 40, NVML_SUCCESS; }
SHOWN nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *v) { return NVML_ERROR_NOT_SUPPORTED; }
SHOWN nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *now, unsigned *next) { return NVML_ERROR_NOT_SUPPORTED; }
SHOWN nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *r) { return *r = 0, NVML_SUCCESS; }
SHOWN nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) { return u->gpu = 0, u->memory = 0, NVML_SUCCESS; }

SHOWN nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
    lock();
    settle();
    memset(m, 0, sizeof *m);
    for (int k = 0; k < most_processes; k++)
        if (shared->processes[k].pid && shared->processes[k].gpu == index_of(d)) m->used += shared->processes[k].memory;
    unlock();
    m->total = MEMORY;
    m->free = MEMORY - m->used;
    return NVML_SUCCESS;
}

SHOWN nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *mj) {
    lock();
    settle();
    *mj = (unsigned long long)(shared->cards[index_of(d)].joules * 1000);
    unlock();
    return NVML_SUCCESS;
}

// The power is the mean of the last moments, as that of newer GPUs is.
SHOWN nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *mw) {
    lock();
    settle();
    struct card *c = &shared->cards[index_of(d)];
    long long span = c->at_us - c->before_us;
    static unsigned last[most_gpus];
    if (span >= 50000) {
        last[index_of(d)] = (unsigned)((c->joules - c->before_joules) * 1e9 / span);
        if (!c->before_us) last[index_of(d)] = idle_watts * 1000;
        c->before_joules = c->joules;
        c->before_us = c->at_us;
    }
    *mw = last[index_of(d)];
    unlock();
    return NVML_SUCCESS;
}

SHOWN nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t d, unsigned *mw) {
    lock();
    *mw = shared->cards[index_of(d)].limit_mw;
    unlock();
    return NVML_SUCCESS;
}
SHOWN nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *mw) { return nvmlDeviceGetPowerManagementLimit(d, mw); }
SHOWN nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t d, unsigned *mw) { return *mw = usual_mw, NVML_SUCCESS; }
SHOWN nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t d, unsigned *least, unsigned *most) {
    return *least = least_mw, *most = usual_mw, NVML_SUCCESS;
}
SHOWN nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t d, unsigned mw) {
    if (mw < least_mw || mw > usual_mw) return NVML_ERROR_INVALID_ARGUMENT;
    lock();
    settle();
    shared->cards[index_of(d)].limit_mw = mw;
    unlock();
    return NVML_SUCCESS;
}

static nvmlReturn_t processes(nvmlDevice_t d, int mps, unsigned *n, nvmlProcessInfo_t *out) {
    unsigned found = 0;
    lock();
    settle();
    for (int k = 0; k < most_processes; k++) {
        struct process *p = &shared->processes[k];
        if (!p->pid || p->gpu != index_of(d) || p->mps != mps) continue;
        if (found < *n) out[found] = (nvmlProcessInfo_t){.pid = (unsigned)p->pid, .usedGpuMemory = p->memory};
        found++;
    }
    unlock();
    nvmlReturn_t r = found > *n ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *n = found;
    return r;
}
SHOWN nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *out) { return processes(d, 0, n, out); }
SHOWN nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *n, nvmlProcessInfo_t *out) { return processes(d, 1, n, out); }

// Each caller gets what every process worked since its last call, as one sample.
SHOWN nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *out, unsigned *n, unsigned long long since) {
    static struct { int pid; long long busy_us, at_us; } seen[most_processes];
    if (!out) return *n = most_processes, NVML_ERROR_INSUFFICIENT_SIZE;
    unsigned found = 0;
    lock();
    settle();
    long long now = now_us();
    for (int k = 0; k < most_processes; k++) {
        struct process *p = &shared->processes[k];
        if (!p->pid || p->gpu != index_of(d)) continue;
        long long span = now - seen[k].at_us, busy = p->busy_us - seen[k].busy_us;
        int known = seen[k].pid == p->pid;
        seen[k].pid = p->pid, seen[k].busy_us = p->busy_us, seen[k].at_us = now;
        if (!known || span <= 0 || busy <= 0 || found == *n) continue;
        unsigned part = (unsigned)(busy * 100 / span);
        out[found++] = (nvmlProcessUtilizationSample_t){.pid = (unsigned)p->pid, .timeStamp = (unsigned long long)now, .smUtil = part < 100 ? part : 100};
    }
    unlock();
    *n = found;
    return found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* CUDA */

static int visible[most_gpus], visible_count;
static struct process *self;

SHOWN int cuInit(unsigned flags) {
    if (!lock()) return 100;
    unlock();
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; !text && i < shared->gpus; i++) visible[visible_count++] = i;
    for (char *at = text && *text ? strdup(text) : NULL, *rest; at && (at = strtok_r(at, ",", &rest)); at = NULL)
        for (char *word = at; word; word = strtok_r(NULL, ",", &rest))
            if (atoi(word) < shared->gpus && visible_count < most_gpus) visible[visible_count++] = atoi(word);
    return visible_count ? 0 : 100;
}
SHOWN int cuDeviceGetCount(int *n) { return *n = visible_count, 0; }
SHOWN int cuDeviceGet(int *device, int i) { return i < visible_count ? (*device = visible[i], 0) : 101; }
SHOWN int cuDeviceGetUuid(unsigned char id[16], int device) { return uuid_of(device, id), 0; }
SHOWN int cuDeviceGetAttribute(int *value, int attribute, int device) { return *value = 8, 0; }
SHOWN int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    lock();
    settle();
    for (int k = 0; k < most_processes && !self; k++)
        if (!shared->processes[k].pid) self = &shared->processes[k];
    if (self) *self = (struct process){.pid = getpid(), .gpu = device, .mps = mps_runs(), .memory = CONTEXT};
    unlock();
    return *context = self, self ? 0 : 2;
}
SHOWN int cuCtxDestroy_v2(void *context) {
    lock();
    settle();
    memset(context, 0, sizeof *self);
    unlock();
    return 0;
}
SHOWN int cuCtxSynchronize(void) { return 0; }
SHOWN int cuMemAlloc_v2(unsigned long long *at, size_t bytes) {
    static unsigned long long own;
    unsigned long long used = 0, most = 0;
    const char *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    if (limit && mps_runs() && sscanf(limit, "0=%lluM", &most) == 1) most <<= 20;
    lock();
    settle();
    for (int k = 0; k < most_processes; k++)
        if (shared->processes[k].pid && shared->processes[k].gpu == self->gpu) used += shared->processes[k].memory;
    int fits = used + bytes <= MEMORY && (!most || own + bytes <= most);
    if (fits) self->memory += bytes, own += bytes;
    unlock();
    *at = 4096;
    return fits ? 0 : 2;
}
SHOWN int cuModuleLoadData(void **module, const void *image) { return *module = self, 0; }
SHOWN int cuModuleGetFunction(void **function, void *module, const char *name) { return *function = self, 0; }
SHOWN int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned m, void *s, void **parameters, void **e) {
    long long ns = *(long long *)parameters[0] * 100;
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    lock();
    settle();
    self->running = 1;
    unlock();
    long long began = now_us();
    nanosleep(&t, NULL);
    lock();
    settle();
    self->running = 0;
    self->busy_us += now_us() - began;
    unlock();
    return 0;
}
