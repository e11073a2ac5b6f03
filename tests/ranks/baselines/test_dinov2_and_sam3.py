"""Nearest neighbours, Sinkhorn-Knopp and mask suppression against their definitions, from all ranks' inputs."""

import pytest
import torch


@pytest.mark.parametrize(("world", "dtype"), [(1, "float32"), (3, "float32"), (3, "bfloat16")])
def test_neighbours_are_the_best_of_all_shards(gathered, world, dtype):
    ranks = gathered("dinov2_distributed_knn", world, dtype=dtype, seed=2)
    train = torch.cat([rank.tensors["train_T"] for rank in ranks], dim=1).double()
    for rank in ranks:
        all_similarities = rank.tensors["test"].double() @ train
        best = all_similarities.topk(20, dim=1).values
        similarities, labels = rank.result
        assert torch.equal(similarities, best.to(similarities.dtype))
        # Labels are global columns in this trial: each must have the similarity it stands beside, and occur once.
        assert torch.equal(all_similarities.gather(1, labels).to(similarities.dtype), similarities)
        assert all(len(set(row)) == 20 for row in labels.tolist())
        torch.testing.assert_close(rank.oracle[0], best)


@pytest.mark.parametrize("world", [1, 3])
def test_assignments_are_balanced_over_the_whole_batch(gathered, world):
    ranks = gathered("dinov2_distributed_sinkhorn_knopp", world)
    scores = torch.cat([rank.tensors["scores"] for rank in ranks]).double()
    samples, prototypes = scores.shape
    q = torch.exp(scores / 0.07)
    q /= q.sum()
    for _ in range(3):
        q = q / q.sum(dim=0, keepdim=True) / prototypes
        q = q / q.sum(dim=1, keepdim=True) / samples
    expected = q * samples
    torch.testing.assert_close(expected.sum(dim=1), torch.ones(samples, dtype=torch.float64))
    counts = [rank.tensors["scores"].shape[0] for rank in ranks]
    for rank, part in zip(ranks, expected.split(counts), strict=True):
        torch.testing.assert_close(rank.result.double(), part, rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(rank.oracle, part)


@pytest.mark.parametrize("seed", [2, 5])
def test_of_two_overlapping_objects_the_recently_occluded_goes(gathered, seed):
    ranks = gathered("sam3_allgather_iou_suppression", 3, seed=seed, n=6)
    counts = ranks[0].tensors["counts"].tolist()
    masks = torch.cat([rank.tensors["masks"][:count] for rank, count in zip(ranks, counts, strict=True)])
    scores = torch.cat([rank.tensors["scores"][:count] for rank, count in zip(ranks, counts, strict=True)])
    last = ranks[0].tensors["occluded"].tolist()
    reverse = bool(ranks[0].tensors["reverse"])
    gone = [False] * len(masks)
    for i in range(len(masks)):
        for j in range(i + 1, len(masks)):
            both, either = (
                int(((masks[i] > 0) & (masks[j] > 0)).sum()),
                int(((masks[i] > 0) | (masks[j] > 0)).sum()),
            )
            if both / max(either, 1) < 0.6999:
                continue
            a, b = last[i], last[j]
            gone[i] |= (a < b if reverse else a > b) and b > -1
            gone[j] |= (b < a if reverse else b > a) and a > -1
    assert any(gone), "the inputs suppress nothing"
    expected = masks.clone()
    expected[torch.tensor(gone)] = -10.0
    for rank in ranks:
        assert torch.equal(rank.result[0], expected)
        assert torch.equal(rank.result[1], scores)
        assert rank.result[2].tolist() == gone
        assert rank.oracle[2].tolist() == gone
