"""Compares jagged exchange and distributed sort with their definitions, on one process from all ranks' inputs."""

import pytest
import torch

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode


def segments(lengths, data, strides):
    """Per feature: its lengths and its part of the data."""
    parts = lengths.split(strides)
    return list(zip(parts, data.split([int(part.sum()) for part in parts]), strict=True))


@pytest.mark.parametrize(("variant", "world"), [(1, 3), (2, 4), (3, 3)])
def test_features_meet_at_their_owner_in_sender_order(in_ranks, variant, world):
    problem = load_catalogue().find("torchrec_kjt_all2all")

    def work(rank, world):
        code = ProblemCode(problem)
        sizes = problem.sizes("tiny", {"variant": variant})
        setting = code.setting(sizes, "tiny", torch.int64, torch.device("cpu"))
        given = list(code.arguments(code.draw(setting, 5), setting))
        result = code.baseline(*given)
        given[4] = None
        return given, result

    ranks = in_ranks(world, work)
    stagger = 2 if variant == 2 else 1
    order = [x + world // stagger * y for x in range(world // stagger) for y in range(stagger)]
    first = 0
    for owner, (given, result) in enumerate(ranks):
        owned = range(first, first + given[2][owner])
        first += given[2][owner]
        wanted = {"lengths": [], "values": [], "weights": []}
        strides = torch.zeros(len(owned), world, dtype=torch.int64)
        for row, feature in enumerate(owned):
            for column, source in enumerate(order):
                lengths, values, splits, batch, _, *rest = ranks[source][0]
                per_key = rest[1] if variant == 3 else [batch] * sum(splits)
                strides[row, column] = per_key[feature]
                wanted["lengths"].append(segments(lengths, values, per_key)[feature][0])
                wanted["values"].append(segments(lengths, values, per_key)[feature][1])
                if variant == 2:
                    wanted["weights"].append(segments(lengths, rest[0], per_key)[feature][1])
        for name, pieces in wanted.items():
            if pieces:
                assert torch.equal(result[name], torch.cat(pieces))
        if not len(owned):
            assert not result["lengths"].numel()
            assert not result["values"].numel()
        assert ("weights" in result) == (variant == 2)
        if variant == 3:
            assert torch.equal(result["stride_per_key_per_rank"], strides)
            assert "stride" not in result
        else:
            batches = [given[3] for given, _ in ranks]
            assert result["stride_per_rank"].tolist() == batches
            assert result["stride"].shape == ()
            assert int(result["stride"]) == sum(batches)


@pytest.mark.parametrize("seed", [2, 6])
def test_sorted_blocks_are_the_sorted_whole(gathered, seed):
    ranks = gathered("distributed_sample_sort", 3, dtype="bfloat16", seed=seed)
    everything = torch.cat([rank.tensors["keys"][: int(rank.tensors["count"])] for rank in ranks]).sort().values
    sizes = [everything.numel() // 3 + (r < everything.numel() % 3) for r in range(3)]
    for rank, expected in zip(ranks, everything.split(sizes), strict=True):
        assert torch.equal(rank.result, expected)


SHARDS = {
    "all equal": [[1.0] * 9, [1.0] * 4, [1.0] * 1],
    "one rank has everything": [[], [5.0, 1.0, 4.0, 2.0, 3.0, 0.0, -1.0], []],
    "nothing at all": [[], [], []],
    "fewer keys than ranks": [[2.0], [], [1.0]],
    "infinities": [[float("inf")] * 3, [0.0, float("-inf")], [float("inf"), 1.0]],
    "disjoint and reversed": [[30.0, 31.0, 32.0], [20.0, 21.0, 22.0], [10.0, 11.0, 12.0]],
}


def test_awkward_shards_are_sorted_and_shared_out_evenly(in_ranks):
    def work(rank, world):
        solution = ProblemCode(load_catalogue().find("distributed_sample_sort")).baseline
        return [solution(torch.tensor(shards[rank])) for shards in SHARDS.values()]

    results = in_ranks(3, work)
    for case, (name, shards) in enumerate(SHARDS.items()):
        blocks = [rank[case] for rank in results]
        assert torch.cat(blocks).tolist() == sorted(key for shard in shards for key in shard), name
        total = sum(map(len, shards))
        assert [block.numel() for block in blocks] == [total // 3 + (r < total % 3) for r in range(3)], name
