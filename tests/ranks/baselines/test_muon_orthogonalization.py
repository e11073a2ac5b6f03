"""Compares Muon's orthogonalisation with its polynomial applied to singular values."""

import inspect

import pytest
import torch

from problems.catalogue import load_catalogue
from sandbox.rank.problem_code import ProblemCode

STEPS = {"quintic": 5, "simple": 3, "polar_express": 8, "aol": 4}


def coefficients():
    """The baseline's table of (a, b, g)."""
    solution = ProblemCode(load_catalogue().find("tp_muon_orthogonalization")).baseline
    return inspect.unwrap(solution).__globals__["COEFFICIENTS"]


def orthogonalised(x, triples, steps):
    """X = U S V^T: each step maps every singular value s to a s + b s^3 + g s^5."""
    u, s, v = torch.linalg.svd(x.double(), full_matrices=False)
    s = s / s.square().sum().sqrt()
    for step in range(steps):
        a, b, g = triples[step % len(triples)]
        s = a * s + b * s**3 + g * s**5
    return u @ torch.diag(s) @ v


@pytest.mark.parametrize(("world", "seed"), [(1, 1), (3, 3)])
def test_muon_acts_on_singular_values_alone(gathered, world, seed):
    ranks = gathered("tp_muon_orthogonalization", world, dtype="bfloat16", seed=seed)
    whole = torch.cat([rank.tensors["x"] for rank in ranks], dim=1)
    expected = orthogonalised(whole, coefficients()["quintic"], 5)
    for rank, part in zip(ranks, expected.chunk(world, dim=1), strict=True):
        torch.testing.assert_close(rank.oracle, part, rtol=1e-6, atol=1e-8)
        assert rank.result.dtype == torch.bfloat16
        torch.testing.assert_close(rank.result.double(), part, rtol=1e-2, atol=1e-4)


def test_muon_with_rows_sharded_and_all_coefficients(in_ranks):
    x = torch.randn(24, 36, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def work(rank, world):
        solution = ProblemCode(load_catalogue().find("tp_muon_orthogonalization")).baseline
        by_columns, by_rows = x.chunk(world, dim=1)[rank], x.t().contiguous().chunk(world, dim=0)[rank]
        return [
            (solution(by_columns, steps, kind, 1), solution(by_rows, steps, kind, 0)) for kind, steps in STEPS.items()
        ]

    table = coefficients()
    ranks = in_ranks(2, work)
    for index, (kind, steps) in enumerate(STEPS.items()):
        expected = orthogonalised(x, table[kind], steps)
        for rank, result in enumerate(ranks):
            torch.testing.assert_close(result[index][0], expected.chunk(2, dim=1)[rank])
            torch.testing.assert_close(result[index][1], expected.t().chunk(2, dim=0)[rank])


def test_muon_refuses_what_it_cannot_do(in_ranks):
    def work(rank, world):
        solution = ProblemCode(load_catalogue().find("tp_muon_orthogonalization")).baseline
        refused = []
        for arguments in [
            (torch.ones(4), 5),
            (torch.ones(4, 4), 4),
            (torch.ones(4, 4), 5, "cubic"),
            (torch.ones(4, 4), 5, "quintic", 2),
        ]:
            try:
                solution(*arguments)
            except AssertionError as error:
                refused.append(str(error))
        return refused

    assert len(in_ranks(1, work)[0]) == 4
