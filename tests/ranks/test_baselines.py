"""Baselines on inputs that no setting draws, and what inputs cover. `test_house_kernels` compares them with house kernels."""

from types import SimpleNamespace

import pytest
import torch

from problems.catalogue import load_catalogue
from problems.setting import RankSetting
from problems.shared.ring import draw_mode
from problems.shared.truncated_sampling import draw_chunk
from sandbox.rank.problem_code import ProblemCode

pytestmark = pytest.mark.problems


@pytest.mark.parametrize("slug", ["allgather", "broadcast", "scatter", "gather", "alltoall"])
def test_copies_are_judged_bit_for_bit(slug):
    assert load_catalogue().find(slug).check.exact == ["*"]


NONE = torch.iinfo(torch.int64).max


@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_only_tied_columns_may_stand_last(in_ranks, preset):
    problem = load_catalogue().find("dinov2_distributed_knn")

    def work(rank, world):
        code = ProblemCode(problem)
        setting = code.setting(problem.sizes(preset, {}), preset, "bfloat16", torch.device("cpu"))
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


def test_ties_go_to_the_positive(in_ranks):
    def work(rank, world):
        solution = ProblemCode(load_catalogue().find("gnn_negative_scoring")).baseline
        pos = torch.tensor([1.0, 2.0])
        neg = torch.tensor([[1.0, 1.0, 3.0], [2.0, 0.0, 2.0]])
        return solution(pos[: 2 - rank], neg[: 2 - rank])

    for result in in_ranks(2, work):
        assert result.tolist() == [2, 1, 2]


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


def test_embedding_lookup_serves_rank_that_asks_for_nothing(in_ranks):
    solution = ProblemCode(load_catalogue().find("embedding_lookup")).baseline

    def work(rank, world):
        shard = torch.arange(4.0).view(4, 1) + 4 * rank
        wanted = torch.tensor([5, 0, 5]) if rank == 0 else torch.tensor([], dtype=torch.int64)
        return solution(wanted, shard)

    asked, idle = in_ranks(2, work)
    assert asked.flatten().tolist() == [0.0, 5.0, 5.0]
    assert idle.shape == (0, 1)


def test_modes_cover_masks_and_scales():
    meaningful = RankSetting(0, 1, SimpleNamespace(), torch.float32, torch.device("cpu"))
    modes = {tuple(draw_mode(meaningful.replace(trial=trial)).tolist()) for trial in range(12)}
    assert modes == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_chunks_may_end_short_or_exceed_sequence():
    setting = RankSetting(0, 2, SimpleNamespace(S=16, chunk=4), torch.float32, torch.device("cpu"))
    sizes = {int(draw_chunk(setting.replace(trial=trial))) for trial in range(3)}
    assert sizes == {4, 10, 18}


def test_positions_of_ranks_follow_one_another(in_ranks):
    problem = load_catalogue().find("rope_allgather")

    def work(rank, world):
        code, sizes = ProblemCode(problem), {"M": 64, "N": 512, "dim": 16}
        setting = code.setting(problem.sizes("tiny", sizes), "tiny", "float32", torch.device("cpu"))
        tensors = code.draw(setting, 2)
        return torch.complex(tensors["cos_local"], tensors["sin_local"]).angle()

    steps = torch.cat(in_ranks(2, work), dim=1).double().diff(dim=1)[0, :, 0].remainder(2 * torch.pi)
    torch.testing.assert_close(steps, torch.ones_like(steps), rtol=1e-4, atol=1e-4)
