"""Newton-Schulz orthogonalisation of a matrix that is sharded along one dimension."""

import torch
import torch.distributed as dist

COEFFICIENTS = {
    "simple": [(3.4445, -4.7750, 2.0315)],
    "quintic": [
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ],
    "polar_express": [
        (8.2051, -22.9019, 16.4607),
        (4.0664, -2.8612, 0.5184),
        (3.9096, -2.8234, 0.5250),
        (3.2856, -2.4647, 0.5074),
        (2.2779, -1.6447, 0.4162),
        (1.8726, -1.2307, 0.3585),
        (1.8564, -1.2132, 0.3568),
        (1.8750, -1.2500, 0.3750),
    ],
    "aol": [(4.0098, -7.0585, 2.4635), (3.4585, -5.5479, 2.5959), (2.7573, -3.2939, 1.4254), (2.7215, -3.0494, 1.3169)],
}


@torch.no_grad()
def solution(
    x: torch.Tensor,
    steps: int = 5,
    coefficient_type: str = "quintic",
    partition_dim: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """x [m, c/W] (partition_dim 1) or [c/W, m] (0) -> the same shape and dtype.

    X, the shards joined along partition_dim (as m x c), is divided by its Frobenius norm; then each step
    makes it a X + (b A + g A A) X with A = X X^T, where (a, b, g) cycle through the coefficients. Products in
    float32 or wider. AssertionError for an unknown coefficient_type, an x that is not a matrix, another
    partition_dim, or a number of steps that is not a multiple of the number of coefficients.
    """
    assert x.dim() == 2, f"x must be a matrix, not of {x.dim()} dimensions"
    assert partition_dim in (0, 1), f"partition_dim must be 0 or 1, not {partition_dim}"
    assert coefficient_type in COEFFICIENTS, f"coefficient_type must be one of {', '.join(COEFFICIENTS)}"
    coefficients = COEFFICIENTS[coefficient_type]
    assert steps % len(coefficients) == 0, f"{steps} steps are not a multiple of {len(coefficients)} coefficients"

    shard = x.to(torch.promote_types(x.dtype, torch.float32))
    if partition_dim == 0:
        shard = shard.t()
    square = shard.square().sum()
    dist.all_reduce(square, group=group)
    shard = shard / square.sqrt().clamp(min=1e-7)
    for step in range(steps):
        a, b, g = coefficients[step % len(coefficients)]
        gram = shard @ shard.t()
        dist.all_reduce(gram, group=group)
        update = torch.addmm(gram, gram, gram, beta=b, alpha=g)
        shard = torch.addmm(shard, update, shard, beta=a)
    if partition_dim == 0:
        shard = shard.t()
    return shard.to(x.dtype).contiguous()
