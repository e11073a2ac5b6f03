"""Compares the Kalman filter step with its formulas, computed on one process from all ranks' inputs."""

import pytest
import torch


@pytest.mark.parametrize("world", [1, 3])
def test_kalman_step_is_the_formula(gathered, world):
    ranks = gathered("deepmd_kalman_filter_optimizer", world, dtype="float64")
    blocks = range(ranks[0].sizes.L)
    lam = ranks[0].tensors["kalman_lambda"].item()
    total = sum(
        lam + (rank.tensors[f"H{i}"].T @ rank.tensors[f"P{i}"] @ rank.tensors[f"H{i}"]).item()
        for rank in ranks
        for i in blocks
    )
    weights = [
        rank.tensors[f"w{i}"] + rank.tensors["error"] / total * (rank.tensors[f"P{i}"] @ rank.tensors[f"H{i}"])
        for rank in ranks
        for i in blocks
    ]
    for rank in ranks:
        got_weights, got_blocks, got_lambda = rank.result
        assert len({tuple(w.shape) for w in got_weights}) == len(blocks)
        for got, expected in zip(got_weights, weights, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-13)
        for i in blocks:
            gain = rank.tensors[f"P{i}"] @ rank.tensors[f"H{i}"]
            expected = (rank.tensors[f"P{i}"] - gain @ gain.T / total) / lam
            torch.testing.assert_close(got_blocks[i], expected, rtol=1e-13, atol=1e-13)
        assert got_lambda.item() == pytest.approx(0.9987 * lam + 1 - 0.9987, abs=1e-15)


def test_step_moves_weights_enough_to_see_wrong_gain(gathered):
    ranks = gathered("deepmd_kalman_filter_optimizer", 2, dtype="float64")
    for rank in ranks:
        before = rank.tensors["w0"]
        after = rank.result[0][rank.rank * rank.sizes.L]
        assert (after - before).norm() > 1e-3 * before.norm()
