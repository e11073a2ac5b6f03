"""Inputs of problem 85: unsorted shards of unequal sizes, some of them awkward."""

import torch

from problems.setting import RankSetting

READ_BY_ARGUMENTS = ("count",)


def draw(setting: RankSetting) -> dict[str, torch.Tensor]:
    """keys [keys] of the run dtype and count [1] int64: how many of them this rank really has.

    Upstream: integers in [-50, 50) minus rank * count; in every fourth trial the odd ranks have none.
    Otherwise N(0, 1), the same on all ranks, with sizes that fall with the rank; by trial also few distinct
    keys, an empty rank, or shards that are sorted already (in reverse on odd ranks) and hold both infinities.
    """
    n, world, rank, trial = setting.sizes.keys, setting.world, setting.rank, setting.trial
    if setting.distribution == "upstream":
        count = 0 if trial % 4 == 3 and rank % 2 else n
        keys = setting.randint(-50, 50, (n,)).to(setting.dtype) - rank * max(1, count)
    else:
        count = n - rank % 3 * (n // 8) - rank
        keys = setting.randn(n)
        if trial % 8 == 2:
            keys = (keys * 2).round()
        elif trial % 8 == 4:
            keys[0], keys[-1] = float("inf"), float("-inf")
            keys = keys.sort(descending=bool(rank % 2)).values
        elif trial % 8 == 6 and world > 1 and rank == trial % world:
            count = 0
    return {"keys": keys, "count": torch.tensor([count], device=setting.device)}


def arguments(tensors: dict[str, torch.Tensor], setting: RankSetting) -> dict[str, torch.Tensor]:
    """The keys that there are."""
    return {"local_shard": tensors["keys"][: int(tensors["count"])]}
