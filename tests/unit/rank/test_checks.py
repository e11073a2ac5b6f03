"""The comparison rules: which differences an honest kernel may have, and which no kernel may."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.protocol.verdict import Verdict
from sandbox.rank.outputs import checks
from sandbox.rank.outputs.checks import Limits, OwnError, UsualError, compare, errors, limits, paper_rule


def judged(got, baseline, oracle, exact=False):
    own = errors(baseline, oracle)
    held = limits(got, got.dtype, UsualError.of([own]), own, 0.0, 0.0, exact)
    return compare("out", got, baseline, oracle, own, held)


@pytest.fixture
def summed():
    """The sum of four bf16 tensors: rounded after every addition, rounded once, and exact."""
    parts = [torch.randn(64, 64, generator=torch.Generator().manual_seed(i)).bfloat16() for i in range(4)]
    baseline = parts[0].clone()
    for part in parts[1:]:
        baseline += part
    oracle = sum(part.double() for part in parts)
    return baseline, oracle.to(torch.bfloat16), oracle


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("wrong", [{}, {5: 9.0}, {3: float("nan"), 200: 9.0}])
def test_large_outputs_are_compared_in_parts(dtype, wrong, monkeypatch):
    oracle = torch.randn(7, 61, generator=torch.Generator().manual_seed(0), dtype=torch.complex128)
    oracle = oracle if dtype.is_complex else oracle.real.contiguous()
    got = (oracle * (1 + torch.finfo(dtype).eps / 8)).to(dtype)
    for place, value in wrong.items():
        got.view(-1)[place] = value
    whole = judged(got, oracle.to(dtype), oracle)
    monkeypatch.setattr(checks, "AT_ONCE", 50)
    parts = judged(got, oracle.to(dtype), oracle)
    for field in ("ok", "wrong", "first_wrong", "where", "expected", "got"):
        assert getattr(parts[0], field) == getattr(whole[0], field)
    assert (parts[1], parts[0].rms, parts[0].max) == (
        whole[1],
        pytest.approx(whole[0].rms),
        pytest.approx(whole[0].max),
    )
    assert parts[0].first_wrong == (list(divmod(min(wrong), 61)) if wrong else None)


def test_eight_bits_are_not_enough(summed):
    baseline, once, oracle = summed
    scale = once.float().abs().max() / 448
    coarse = ((once.float() / scale).to(torch.float8_e4m3fn).float() * scale).bfloat16()
    assert judged(coarse, baseline, oracle)[1] is Verdict.WRONG_RESULT


def test_infinities_must_be_where_the_baseline_has_them():
    baseline = torch.tensor([1.0, float("inf"), float("nan")])
    oracle = baseline.double()
    assert judged(baseline.clone(), baseline, oracle)[1] is Verdict.PASS
    assert judged(torch.tensor([1.0, float("-inf"), float("nan")]), baseline, oracle)[1] is Verdict.NONFINITE
    assert judged(torch.tensor([1.0, 2.0, float("nan")]), baseline, oracle)[1] is Verdict.NONFINITE
    finite, beyond = torch.tensor([1.0, 65504.0]).half(), torch.tensor([1.0, 70000.0]).double()
    assert judged(beyond.half(), finite, beyond)[1] is Verdict.PASS  # the oracle rounds to infinity, too


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("moved", [False, True])
def test_shown_element_is_not_finite(dtype, moved):
    baseline = torch.linspace(1, 2, 32).view(8, 4).to(dtype)
    oracle = baseline.to(torch.complex128 if dtype.is_complex else torch.float64) + 1e-4
    got = baseline * 2
    got[5, 2] = float("inf")
    figures, verdict = judged(got, baseline, oracle, exact=moved)
    assert verdict is Verdict.NONFINITE
    assert (figures.first_wrong, figures.wrong) == ([5, 2], 32)
    assert "inf" in figures.got
    assert figures.expected == checks._show(baseline if moved else oracle, (5, 2))


def test_pure_data_movement_is_exact():
    baseline = torch.linspace(0, 1, 32).bfloat16()
    off = baseline.clone()
    off[7] = torch.nextafter(off[7].float(), torch.tensor(9.0)).bfloat16() + 0.01
    assert judged(baseline.clone(), baseline, baseline.double())[1] is Verdict.PASS
    assert judged(off, baseline, baseline.double())[1] is Verdict.WRONG_RESULT
    assert limits(baseline, baseline.dtype, UsualError(), OwnError(), 0.0, 0.0, exact=False) == Limits(0.0, 0.0, True)


def test_integers_beyond_float_precision_are_told_apart():
    baseline = torch.tensor([2**24, 5000, 2**53])
    figures, verdict = judged(baseline + torch.tensor([1, 0, 0]), baseline, baseline)
    assert (verdict, figures.where, figures.rms, figures.max_limit) == (Verdict.WRONG_RESULT, [1.0, 0.0, 0.0], 0.0, 0.0)
    assert judged(baseline + torch.tensor([0, 0, 1]), baseline, baseline)[1] is Verdict.WRONG_RESULT
    figures, verdict = judged(baseline.clone(), baseline, baseline)
    assert (verdict, figures.rms, figures.max, figures.wrong) == (Verdict.PASS, 0.0, 0.0, 0)


def test_the_imaginary_part_counts():
    oracle = torch.randn(16, dtype=torch.complex128)
    baseline = oracle.to(torch.complex64)
    junk = torch.complex(baseline.real, torch.zeros(16))
    assert judged(junk, baseline, oracle)[1] is Verdict.WRONG_RESULT
    assert paper_rule(junk, baseline), "upstream's rule drops the imaginary part"
    near, far = torch.tensor([100.0]), torch.tensor([101.012])
    assert [paper_rule(near, far), paper_rule(far, near)] == [True, False], "its tolerance is relative to the baseline"


def test_opposed_errors_are_not_near_the_baseline():
    held = Limits(3.0, 1.0, False, along=1, slice_rms=3.0).beside(OwnError(4.0, 1.0))
    assert (held.rms, held.max, held.along, held.slice_rms) == (5.0, 3.0, 1, 5.0)


@pytest.mark.parametrize("beside", [(), (math.nan, math.nan), (1.0, math.inf), (math.inf, 1.0)])
@pytest.mark.parametrize("scale", [1.0, 0.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.complex64])
def test_errors_follow_their_definition(dtype, scale, beside):
    """beside: an element of got and of the oracle that does not count."""
    generator = torch.Generator().manual_seed(1)
    oracle = scale * torch.randn(
        500, dtype=torch.complex128 if dtype.is_complex else torch.float64, generator=generator
    )
    got = (oracle + 1e-3 * torch.randn(500, generator=generator)).to(dtype)
    y, o = (torch.view_as_real(each) if each.is_complex() else each for each in (got.to(oracle.dtype), oracle))
    expected = OwnError(math.inf, math.inf)
    if scale:
        largest = ((y - o).abs() / (o.abs() + o.square().mean().sqrt())).max()
        expected = OwnError(pytest.approx(float((y - o).norm() / o.norm())), pytest.approx(float(largest)))
    odd = [torch.tensor([complex(each, each) if dtype.is_complex else each]) for each in beside]
    got, oracle = torch.cat([got, *odd[:1]]).to(got.dtype), torch.cat([oracle, *odd[1:]]).to(oracle.dtype)
    assert errors(got, oracle) == expected
    assert errors(oracle, oracle) == OwnError(0.0, 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_only_slices_beyond_their_limit_are_wrong(dtype):
    oracle = 4 * torch.ones(6, 50, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    got = oracle.to(dtype)
    got[4] += 0.08
    held = Limits(1.0, 1.0, False, along=0, slice_rms=0.01)
    figures, verdict = compare("out", got, oracle.to(dtype), oracle, OwnError(), held)
    assert (verdict, figures.first_wrong, figures.wrong) == (Verdict.WRONG_RESULT, [4, 0], 50)
    assert compare("out", got, oracle.to(dtype), oracle, OwnError(), replace(held, slice_rms=0.03))[1] is Verdict.PASS


@pytest.mark.parametrize("moved", [0, 1])
def test_values_of_eight_bits_are_compared_like_others(moved):
    oracle = torch.linspace(1, 2, 40, dtype=torch.float64)
    baseline = oracle.to(torch.float8_e4m3fn)
    got = (oracle + moved * torch.eye(40, dtype=torch.float64)[7]).to(torch.float8_e4m3fn)
    own = errors(baseline, oracle)
    held = limits(baseline, torch.bfloat16, UsualError(own.rms, 0.0, own.max), own, 0.0, 0.0, False)
    figure, verdict = compare("out", got, baseline, oracle, own, held)
    assert (verdict is Verdict.PASS, figure.wrong) == (not moved, moved)


def test_empty_outputs_are_equal():
    empty = torch.empty(0, 4)
    assert judged(empty, empty.clone(), empty.double())[1] is Verdict.PASS


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 300), st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
def test_correct_rounding_passes_and_the_negative_fails(seed, count, dtype):
    oracle = torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    baseline = (oracle * (1 + torch.finfo(dtype).eps / 2)).to(dtype)
    assert judged(oracle.to(dtype), baseline, oracle)[1] is Verdict.PASS
    assert judged(-oracle.to(dtype), baseline, oracle)[1] is Verdict.WRONG_RESULT


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("count", [1, 48, 100_000])
def test_limits_never_go_below_the_baselines_own_error(dtype, count):
    own = OwnError(1e-3, 1e-2)
    for usual in (UsualError(), UsualError(1e-6, 0.1, 1e-5), UsualError(1e-3, 0.5, 1e-2)):
        held = limits(torch.empty(count), dtype, usual, own, 0.0, 0.0, exact=False)
        assert held.rms > 1e-3
        assert held.max > 1e-2


def test_more_elements_closer_limit_to_usual_error():
    def room(count, spread=0.0, dtype=torch.bfloat16):
        usual = UsualError(6e-3, spread, 1e-2)
        return limits(torch.empty(count, dtype=dtype), dtype, usual, OwnError(), 0.0, 0.0, False).rms / 6e-3

    assert 1.2 < room(1_000_000) < room(10_000) < 1.3
    assert room(200) < room(24) < room(1) < 6
    assert room(1_000_000, spread=0.2) == pytest.approx(1.2 * 2)


@pytest.mark.parametrize(
    ("dtype", "spread", "factor", "ulps"),
    [(torch.bfloat16, 0.0, 1.2, 0.25), (torch.float32, 0.0, 2.5, 4), (torch.float32, 0.2, 3.2, 4)],
)
def test_order_of_summation_is_free(dtype, spread, factor, ulps):
    usual = 10 * torch.finfo(dtype).eps
    many = torch.empty(100_000_000, dtype=dtype, device="meta")
    held = limits(many, dtype, UsualError(usual, spread, usual), OwnError(), 0.0, 0.0, False)
    assert held.rms == pytest.approx(factor * usual, rel=1e-2)
    least = limits(many, dtype, UsualError(usual / 1000, spread, 0.0), OwnError(), 0.0, 0.0, False)
    assert least.rms == ulps * torch.finfo(dtype).eps


def test_float32_output_of_bfloat16_run_has_bfloat16_limits():
    usual = UsualError(1e-3, 0.0, 1e-3)
    held = limits(torch.empty(1_000_000), torch.bfloat16, usual, OwnError(), 0.0, 0.0, False)
    assert 1.2e-3 < held.rms < 1.3e-3
    coarse = UsualError(1e-3, 0.0, 0.5)  # of the largest error, not more than 1.5 times as much is allowed
    assert limits(torch.empty(1_000_000), torch.bfloat16, coarse, OwnError(), 0.0, 0.0, False).max == 0.75


def test_the_usual_error_is_that_of_all_iterations():
    usual = UsualError.of([OwnError(1, 5.0), OwnError(3, 4.0), OwnError(5, 2.0), OwnError(float("inf"), float("inf"))])
    assert usual.rms == pytest.approx((35 / 3) ** 0.5)
    assert usual.spread == pytest.approx(2 / 3)
    assert usual.max == 5.0
    assert UsualError.of([OwnError()] * 3) == UsualError()
    assert UsualError.of([]) == UsualError.of([OwnError(float("inf"), float("inf"))]) == UsualError()


def test_few_iterations_allow_the_baseline_error_tenfold():
    """The case of problem 25 on inputs whose ratios nearly all underflow: in some iterations, one decides the loss."""
    one = torch.empty(())

    def limit(spread, own):
        usual = UsualError(0.0245, spread, 0.35)
        return limits(one, torch.bfloat16, usual, OwnError(own, own / 2), 0.0, 0.0, False).rms

    assert limit(spread=4.4, own=0.705) > 0.996  # the error of logits of 8 bits, and of sums in another order
    assert limit(spread=4.4, own=0.03) < 1  # zeros fail in all other iterations
    assert limit(spread=0.75, own=0.705) < 0.85  # with a smaller spread, the limit is not raised so far


@pytest.mark.parametrize("change", [0.5, -0.5])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("odd", [False, True])
def test_one_element_too_far_off_is_wrong(change: float, sign: int, odd: bool) -> None:
    oracle = sign * torch.ones(4000, dtype=torch.float64)
    baseline = (oracle * (1 + 1e-7)).float()
    got = baseline.clone()
    got[5] += change
    if odd:  # then every element is looked at, and not only the largest error
        oracle[9] = baseline[9] = got[9] = math.inf
    assert errors(got, oracle).max == pytest.approx(0.25, rel=1e-3)
    held = limits(got, torch.float32, UsualError(0.1, 0.0, 1e-3), OwnError(0.1, 1e-3), 0.0, 0.05, False)
    figures, verdict = compare("out", got, baseline, oracle, OwnError(), replace(held, max=0.05))
    assert (verdict, figures.wrong, figures.first_wrong) == (Verdict.WRONG_RESULT, 1, [5])
