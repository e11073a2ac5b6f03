import triton
import triton.language as tl


@triton.jit
def load_part(parts, offsets, mask):
    return tl.load(parts + offsets, mask=mask, other=0.0).to(tl.float32)
