"""Compares nearest neighbours, Sinkhorn-Knopp and mask suppression with their definitions on all ranks' inputs."""

import pytest
import torch

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode

NONE = torch.iinfo(torch.int64).max


@pytest.mark.parametrize(("world", "dtype"), [(1, "float32"), (3, "float32"), (3, "bfloat16")])
def test_neighbours_are_the_best_of_all_shards(gathered, world, dtype):
    ranks = gathered("dinov2_distributed_knn", world, dtype=dtype, seed=2)
    train = torch.cat([rank.tensors["train_features_rank_T"] for rank in ranks], dim=1).double()
    columns = torch.cat([rank.tensors["train_labels_rank"][0] for rank in ranks]).argsort()
    for rank in ranks:
        all_similarities = rank.tensors["test_features_rank"].double() @ train
        best = all_similarities.topk(20, dim=1).values
        similarities, labels = rank.result
        assert torch.equal(similarities, best.to(similarities.dtype))
        # In this trial every column has its own label. Labels must match the similarities beside them, once each.
        assert torch.equal(all_similarities.gather(1, columns[labels]).to(similarities.dtype), similarities)
        assert all(len(set(row)) == 20 for row in labels.tolist())
        torch.testing.assert_close(rank.oracle[0], best)


@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_only_tied_columns_may_stand_last(in_ranks, preset):
    problem = load_catalogue().find("dinov2_distributed_knn")

    def work(rank, world):
        code = ProblemCode(problem)
        setting = code.setting(problem.sizes(preset, {}), preset, torch.bfloat16, torch.device("cpu"))
        tensors = code.draw(setting, 4)
        (edges,) = facts = code.facts(tensors, setting)
        similarities, labels = code.call(code.baseline, tensors, setting)

        def settled(others):
            return code.canonical((similarities, others), setting, facts)[1]

        expected = settled(labels)
        other = labels.clone()
        for row, tied in zip(other, edges.tied.tolist(), strict=True):
            named = set(row[:-1].tolist())
            row[-1] = next(label for label in reversed(tied) if label != NONE and label not in named)
        wrong = {}
        for label in (-1, -2, -12345, NONE, NONE - 1):
            junk = labels.clone()
            junk[:, -1] = label
            wrong[label] = (settled(junk) != expected).any(dim=1).all().item()
        twice = labels.clone()
        twice[:, -2] = twice[:, -1]
        # The paper preset repeats labels, as published: another column may have the same label.
        seen = preset == "paper" or (settled(twice) != expected).any(dim=1).all().item()
        return torch.equal(settled(other), expected), (other != labels).any().item(), wrong, seen

    for right, differs, wrong, seen in in_ranks(2, work):
        assert right
        assert differs
        assert all(wrong.values()), wrong
        assert seen


@pytest.mark.parametrize("world", [1, 3])
def test_assignments_are_balanced_over_the_whole_batch(gathered, world):
    ranks = gathered("dinov2_distributed_sinkhorn_knopp", world)
    scores = torch.cat([rank.tensors["teacher_output"] for rank in ranks]).double()
    samples, prototypes = scores.shape
    q = torch.exp(scores / 0.07)
    q /= q.sum()
    for _ in range(3):
        q = q / q.sum(dim=0, keepdim=True) / prototypes
        q = q / q.sum(dim=1, keepdim=True) / samples
    expected = q * samples
    torch.testing.assert_close(expected.sum(dim=1), torch.ones(samples, dtype=torch.float64))
    counts = [rank.tensors["teacher_output"].shape[0] for rank in ranks]
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
            both, either = (int(((masks[i] > 0) & (masks[j] > 0)).sum()), int(((masks[i] > 0) | (masks[j] > 0)).sum()))
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
