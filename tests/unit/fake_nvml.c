/* A driver to test against where there is none: libnvidia-ml.so.1 with as many GPUs as FAKE_GPUS says.

   FAKE_<WHAT>_<index>, or else FAKE_<WHAT>, sets what a GPU answers; a negative number is the nvmlReturn_t to fail with. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { int index; } Device;
typedef unsigned long long u64;

static Device devices[16] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}};

static long long knob(const char *what, const Device *device, long long otherwise) {
    char name[64];
    const char *set = NULL;
    if (device) {
        snprintf(name, sizeof name, "FAKE_%s_%d", what, device->index);
        set = getenv(name);
    }
    snprintf(name, sizeof name, "FAKE_%s", what);
    if (!set) set = getenv(name);
    return set ? atoll(set) : otherwise;
}

#define ANSWER(what, device, otherwise, out) \
    long long value = knob(what, device, otherwise); \
    if (value < 0) return (int)-value; \
    *(out) = value; \
    return 0

static u64 now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int nvmlInitWithFlags(unsigned flags) { return (int)-knob("INIT", NULL, 0); }
int nvmlDeviceGetCount_v2(unsigned *count) { ANSWER("GPUS", NULL, 4, count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= (unsigned)knob("GPUS", NULL, 4)) return 2;
    *device = &devices[index];
    return (int)-knob("HANDLE", *device, 0);
}

int nvmlDeviceGetIndex(Device *device, unsigned *index) { *index = device->index; return 0; }
int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) { ANSWER("MINOR", device, device->index, minor); }

int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned size) {
    snprintf(uuid, size, "GPU-%08x-0000-1111-2222-333344445555", 0xabcd0000u + device->index);
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    *minor = 0;
    ANSWER("MAJOR", device, 9, major);
}

int nvmlDeviceGetName(Device *device, char *name, unsigned size) {
    const char *set = getenv("FAKE_NAME");
    snprintf(name, size, "%s", set ? set : "NVIDIA H200");
    return 0;
}

int nvmlDeviceGetMemoryInfo(Device *device, u64 memory[3]) {
    u64 mib = 1 << 20;
    long long used = knob("USED_MIB", device, 1024);
    if (used < 0) return (int)-used;
    memory[0] = 143771 * mib;
    memory[2] = (u64)used * mib;
    memory[1] = memory[0] - memory[2];
    return 0;
}

typedef struct { unsigned pid; u64 memory; unsigned gpu, compute; } Process;

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
    long long pid = knob("PID", device, 0);
    unsigned room = *count;
    if (pid < 0) return (int)-pid;
    *count = pid > 0;
    if (*count > room) return 7;
    if (pid) processes[0] = (Process){(unsigned)pid, 1 << 20, 0, 0};
    return 0;
}

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, u64 *errors) {
    if (type != 1 || counter != 0) return 2;
    ANSWER("ECC", device, 0, errors);
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = *uncorrected = *failed = 0;
    ANSWER("ROWS_PENDING", device, 0, pending);
}

typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    int type, result;
    union { double d; unsigned ui; u64 ull; } value;
} Field;

int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        Field *field = &fields[i];
        field->timestamp = now_us();
        field->result = 0;
        long long value = -3;
        if (field->id == 230) {
            value = knob("RECOVERY", device, 0);
            field->type = 1;
        } else if ((field->id == 138 || field->id == 139) && field->scope == 0xFFFFFFFFu) {
            value = knob(field->id == 138 ? "TX_KIB_S" : "RX_KIB_S", device, 0);
            if (value > 0) value = (long long)(value * (field->timestamp / 1e6));
            field->type = 3;
        } else if (field->id == 90 || field->id == 91) {
            value = knob(field->id == 90 ? "LINK_MBPS" : "LINK_COUNT", device, field->id == 90 ? 26562 : 18);
            field->type = 1;
        }
        if (value < 0) field->result = (int)-value;
        else if (field->type == 1) field->value.ui = (unsigned)value;
        else field->value.ull = (u64)value;
    }
    for (int i = 0; i < knob("OVERRUN", device, 0); i++) fields[count + i].timestamp = fields[count + i].latency = 739;
    return 0;
}

/* FAKE_LINKS go from every GPU to switches; FAKE_PEERED=1: to its neighbour instead (0-1, 2-3 ...). */

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;

static void place(const Device *device, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x20 + device->index;
}

int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) { place(device, pci); return 0; }

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *up) {
    long long links = knob("LINKS", device, 18);
    if (links < 0) return (int)-links;
    if (link >= 18) return 2;
    *up = link < links;
    return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Device *device, unsigned link, unsigned *type) {
    *type = knob("PEERED", device, 0) ? 0 : 2;
    return (int)-knob("REMOTE", device, 0);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, unsigned link, Pci *pci) {
    if (!knob("PEERED", device, 0)) return 3;
    place(&devices[device->index ^ 1], pci);
    return (int)-knob("REMOTE", device, 0);
}

int nvmlDeviceGetP2PStatus(Device *one, Device *other, int capability, int *status) {
    const char *names[] = {"P2P_READ", "P2P_WRITE", "P2P_NVLINK"};
    const Device *second = one->index > other->index ? one : other;
    int unlinked = capability == 2 && knob("PEERED", one, 0) && (one->index ^ 1) != other->index;
    if (capability > 2) return 2;
    ANSWER(names[capability], second, unlinked ? 5 : 0, status);
}

typedef struct { unsigned version; char uuid[16]; int status; unsigned clique, state, health; } Fabric;

int nvmlDeviceGetGpuFabricInfoV(Device *device, Fabric *fabric) {
    if (fabric->version != 0x02000024) return 25;
    fabric->status = 0;
    ANSWER("FABRIC", device, 3, &fabric->state);
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) { snprintf(version, size, "580.159.04"); return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { ANSWER("CUDA", NULL, 13000, version); }
int nvmlDeviceGetCpuAffinity(Device *device, unsigned words, unsigned long *cores) {
    memset(cores, 0, words * sizeof *cores);
    ANSWER("CORES", device, -3, cores);
}

int nvmlDeviceGetPersistenceMode(Device *device, int *on) { ANSWER("PERSISTENCE", device, 1, on); }

/* What a strip of live figures reads. */

int nvmlDeviceGetUtilizationRates(Device *device, unsigned busy[2]) { busy[1] = 0; ANSWER("BUSY", device, 61, &busy[0]); }
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) { ANSWER("POWER", device, 652300, milliwatts); }

/* FAKE_MILLIWATTS since 1970; the counter steps every FAKE_STEP_MS. */
int nvmlDeviceGetTotalEnergyConsumption(Device *device, u64 *millijoules) {
    u64 step = (u64)knob("STEP_MS", device, 20) * 1000;
    long long milliwatts = knob("MILLIWATTS", device, 400000);
    if (milliwatts < 0) return (int)-milliwatts;
    *millijoules = (u64)((now_us() / step * step) / 1e6 * milliwatts);
    return 0;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) { ANSWER("CELSIUS", device, 65, celsius); }
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, u64 *reasons) { ANSWER("REASONS", device, 1, reasons); }

int nvmlDeviceGetClockInfo(Device *device, int clock, unsigned *mhz) {
    if (clock != 1) return 2;
    ANSWER("MHZ", device, 1980, mhz);
}

int nvmlDeviceGetMaxClockInfo(Device *device, int clock, unsigned *mhz) {
    if (clock != 2) return 2;
    ANSWER("MEMORY_MHZ", device, 3201, mhz);
}

int nvmlDeviceGetMemoryBusWidth(Device *device, unsigned *bits) { ANSWER("MEMORY_BITS", device, 6144, bits); }

/* The performance monitor: a sample holds its GPU, and FAKE_METRIC_<number> is a metric between any two of one GPU. */

typedef struct { Device *device; } Sample;
typedef struct { unsigned version, supported; } Support;
typedef struct { unsigned id; int result; double value; const char *words[3]; } Metric;
typedef struct { unsigned version, count; Sample *first, *second; Metric metrics[]; } Metrics;

int nvmlGpmQueryDeviceSupport(Device *device, Support *support) {
    if (support->version != 1) return 25;
    ANSWER("GPM", device, 1, &support->supported);
}

int nvmlGpmSampleAlloc(Sample **sample) { *sample = calloc(1, sizeof **sample); return 0; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return 0; }

int nvmlGpmSampleGet(Device *device, Sample *sample) {
    sample->device = device;
    return (int)-knob("SAMPLE", device, 0);
}

int nvmlGpmMetricsGet(Metrics *metrics) {
    if (metrics->version != 1) return 25;
    if (metrics->first->device != metrics->second->device) return 2;
    for (unsigned i = 0; i < metrics->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "METRIC_%u", metrics->metrics[i].id);
        long long value = knob(name, metrics->first->device, 50);
        metrics->metrics[i].result = value < 0 ? (int)-value : 0;
        metrics->metrics[i].value = (double)value;
    }
    return 0;
}
