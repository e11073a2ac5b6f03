// Issues a recorded call (sandbox/kit/recorded.py). gcc compiles it without CUDA's headers: the driver's functions come as addresses.
#include <cstdint>
typedef uint32_t u32;
typedef uint64_t u64;

// The word at `place`, a parameter of a step, is the address of an argument plus `offset`.
struct Patch { u64 *place, offset; u32 argument, step; };
enum Kind : u32 { WAIT, RECORD, LAUNCH, LAUNCH_PACKED, COPY, COPY_ROWS, FILL, SET_LAUNCH, SET, LAUNCH_GRAPH };
// One call of the driver. at: an event, a graph's node, or the configuration of a launch of `with`. given: the parameters.
// conditional: the call is made only if a parameter has changed.
struct Step { void *call, *at, *with; u64* given; u32 kind, stream, conditional, changed; };
struct Call {
    Step* steps;
    Patch* patches;
    u64* addresses;  // of the arguments when the call was recorded
    u32* moves;      // for each argument: whether its moves have been compared
    void** streams;  // the first is the caller's
    u32 step_count, patch_count, argument_count, unused;
};

static int issue(const Step& step, void* stream, void* context) {
    u64* given = step.given;
    switch (step.kind) {
    case WAIT: return ((int (*)(void*, void*, u32))step.call)(stream, step.at, 0);
    case RECORD: return ((int (*)(void*, void*))step.call)(step.at, stream);
    case LAUNCH:
    case LAUNCH_PACKED: {
        ((void**)step.at)[4] = stream;  // CUlaunchConfig.hStream
        u64* packed = step.kind == LAUNCH_PACKED ? given : nullptr;
        return ((int (*)(void*, void*, u64*, u64*))step.call)(step.at, step.with, packed ? nullptr : given, packed);
    }
    case COPY:  // CUDA_MEMCPY3D: dstDevice, srcDevice, WidthInBytes
        return ((int (*)(u64, u64, u64, void*))step.call)(given[17], given[6], given[22], stream);
    case COPY_ROWS: return ((int (*)(u64*, void*))step.call)(given, stream);
    case FILL: return ((int (*)(u64, u32, u64, void*))step.call)(given[0], (u32)given[2], given[3], stream);
    case SET_LAUNCH: return ((int (*)(void*, void*, u64*))step.call)(step.with, step.at, given);
    case SET: return ((int (*)(void*, void*, u64*, void*))step.call)(step.with, step.at, given, context);
    case LAUNCH_GRAPH: return ((int (*)(void*, void*))step.call)(step.with, stream);
    }
    return 1;
}

// Makes the call with its arguments at `now`. Returns the driver's status, or -1 before any change if an argument has moved whose
// moves have not been compared.
extern "C" __attribute__((visibility("default"))) int px_issue(Call* call, const u64* now, void* stream) {
    for (u32 a = 0; a < call->argument_count; ++a)
        if (now[a] != call->addresses[a] && !call->moves[a]) return -1;
    for (u32 p = 0; p < call->patch_count; ++p) {
        const Patch& patch = call->patches[p];
        const u64 word = now[patch.argument] + patch.offset;
        if (*patch.place == word) continue;
        *patch.place = word;
        call->steps[patch.step].changed = 1;
    }
    call->streams[0] = stream;
    void* context = call->steps[call->step_count - 1].at;
    for (u32 s = 0; s < call->step_count; ++s) {
        Step& step = call->steps[s];
        if (step.conditional && !step.changed) continue;
        if (const int status = issue(step, call->streams[step.stream], context)) return status;
        step.changed = 0;
    }
    return 0;
}
