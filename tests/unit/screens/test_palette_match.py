"""How well a query matches a name and its description."""

import pytest

from problems.catalogue import load_catalogue
from screens.palette import fit


@pytest.mark.parametrize(
    "better_first",
    [
        ("run", "run", "run baseline", "baseline_run_x", "prune"),
        ("reduce", "reduce", "4 reduce", "reducescatter", "7 reducescatter", "allreduce"),
        ("gemm all", "gemm all", "gemm allreduce", "allgather gemm"),
    ],
)
def test_the_closer_a_name_is_the_more_it_scores(better_first: tuple[str, ...]) -> None:
    query, *names = better_first
    scores = [fit(query, name).score for name in names]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)
    assert min(scores) > 0


@pytest.mark.parametrize(
    ("query", "name", "sentence"),
    [
        ("theme", "copy path", "Copy the path of the kernel's file: any editor may edit it, every save is judged."),
        ("theme", "25 importance_sampling_loss", "Importance-sampled policy-gradient loss with LM head, with metrics"),
        ("x", "next", "Next view"),
        ("", "next", ""),
    ],
)  # fmt: skip
def test_letters_here_and_there_in_a_text_are_no_fit(query: str, name: str, sentence: str) -> None:
    assert fit(query, name, sentence).score == 0


def test_a_name_comes_before_a_sentence_and_letters_in_order_are_found_in_names_alone() -> None:
    in_name, in_sentence = fit("head", "head_parallel"), fit("head", "55 ring", "head-parallel projections")
    assert in_name.score > in_sentence.score > 0
    assert not in_sentence.in_name
    assert fit("gar", "13 gemm_ar").score > 0
    assert fit("gar", "13", "gemm ar").score == 0


def test_few_problems_fit_a_word_that_is_in_none_of_their_names() -> None:
    problems = load_catalogue().problems
    fitting = [p.slug for p in problems if fit("theme", f"{p.id} {p.slug}", p.title).score > 0]
    assert fitting == []
