// Signals and barriers as kernels that the host launches (sandbox/kit/symmetric_memory/device_heap.py).
extern "C" __global__ void px_device_barrier(Px px, u32 slot, u32 epoch, u32 timeout_ms) {
    px_barrier(px, slot, epoch, timeout_ms);
}
extern "C" __global__ void px_device_signal(Px px, int peer, u32 slot, u32 value) {
    px_signal(px, peer, slot, value);
}
extern "C" __global__ void px_device_wait(Px px, int peer, u32 slot, u32 value, u32 timeout_ms) {
    px_until(px_word(px.sig[px.rank], slot, peer), value, timeout_ms);
}
