// Signals and barriers between processes (sandbox/kit/symmetric_memory/host_signals.py).
#include "px_cpu.h"
PX_EXPORT unsigned px_host_barrier(const Px* px, u32 slot, u32 epoch, u32 ms) {
    return px_try_barrier(*px, slot, epoch, ms);
}
PX_EXPORT void px_host_signal(const Px* px, int peer, u32 slot, u32 value) {
    px_send(*px, peer, slot, value);
}
PX_EXPORT bool px_host_wait(const Px* px, int peer, u32 slot, u32 value, u32 ms) {
    return px_reached(px_word(px->sig[px->rank], slot, peer), value, ms);
}
