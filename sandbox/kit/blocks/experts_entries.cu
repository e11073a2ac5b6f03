extern "C" __global__ void __launch_bounds__(512) route_tokens(Px px, const TYPE* logits, const TYPE* x, TYPE* arrived, float* weights,
        i64 tokens, i64 width, int experts, int top_k) {
    route<TYPE>(px, logits, x, arrived, weights, tokens, width, experts, top_k);
}
extern "C" __global__ void __launch_bounds__(512) activate_gate(TYPE* gate, const TYPE* up, i64 n) { activate<TYPE>(gate, up, n); }
extern "C" __global__ void __launch_bounds__(512) combine_owners(Px px, TYPE* y, const float* weights, const i64* places, TYPE* out,
        i64 tokens, i64 width, int pulled) {
    combine<TYPE>(px, y, weights, places, out, tokens, width, pulled);
}
