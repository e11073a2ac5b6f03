"""The comparison of outputs with those of the baseline and the oracle, on one rank without a process group."""

import math
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from problems.setting import RankSetting
from problems.specification import load_problem
from sandbox.admission.ranks import in_gloo_ranks
from sandbox.memory import slots
from sandbox.memory.trees import flatten
from sandbox.protocol.messages import CompareOutputs, DrawAgain, OutputFinding
from sandbox.protocol.verdict import Verdict
from sandbox.rank.outputs.checks import OwnError, UsualError, compare, limits
from sandbox.rank.outputs.comparison import Comparison, Expected, OracleDiffers, largest_of_all_ranks
from sandbox.rank.problem_code import ProblemCode
from sandbox.rank.trusted import TrustedRank

TENTHS = "def solution(x):\n    return sum(x * 0.1 for _ in range(7))\n"
"""A baseline with rounding errors."""
MOVED = "def solution(x):\n    return x.flip(0)\n"
TWO = "def solution(x):\n    return x * 0.1, (x * 100).round().int()\n"
ROWS_SORTED = """
def facts(tensors, setting, solution):
    return setting.sizes.n - 16
def canonical(outputs, setting, first):
    return outputs[outputs[:, first].argsort()]
"""
NO_SEVEN = """
def canonical(outputs, setting):
    if outputs[0, 0] == 7:
        raise ValueError("seven")
    return outputs
"""
INPUTS = """
def draw(setting):
    return {"x": setting.randn(8, setting.sizes.n)}
"""


class Compared:
    """A comparison that has the expected outputs of one iteration."""

    def __init__(self, code: ProblemCode, dtype: torch.dtype) -> None:
        self.setting = RankSetting(0, 1, SimpleNamespace(n=16), dtype, torch.device("cpu"))
        self.comparison = Comparison(code, self.setting, reduce=lambda figures: None)
        self.code = code
        self.comparison.calibrate(self.expected_of(seed) for seed in range(100, 108))
        self.expected = self.expected_of(1)
        self.comparison.note({0: self.expected})
        self.right = code.call(code.baseline, code.draw(self.setting, 1), self.setting)

    def expected_of(self, seed: int) -> Expected:
        return self.comparison.expected(self.code.draw(self.setting, seed))

    def finding(self, output: Any) -> OutputFinding:
        return self.comparison.finding(slots.packed(*flatten(output)), self.expected)


Compares = Callable[..., Compared]


@pytest.fixture
def compares(made_problem: Callable[..., Any]) -> Compares:
    """compares(baseline, extra="", check="", dtype=torch.float32): a comparison. extra: more functions of inputs.py."""

    def make(baseline: str, extra: str = "", check: str = "", dtype: torch.dtype = torch.float32) -> Compared:
        return Compared(ProblemCode(load_problem(made_problem(INPUTS + extra, baseline, check))), dtype)

    return make


@pytest.mark.parametrize("baseline", [TENTHS, TENTHS.replace("sum(", "1j * sum(")])
def test_the_baselines_own_output_passes_with_figures(compares: Compares, baseline: str) -> None:
    case = compares(baseline)
    assert case.comparison.usual[0].rms > 0
    finding = case.finding(case.right)
    (figures,) = finding.outputs
    assert (finding.verdict, finding.paper, finding.message) == (Verdict.PASS, True, "")
    assert (figures.output, figures.ok, figures.exact, figures.wrong) == ("out", True, False, 0)
    assert 0 < figures.rms == figures.baseline_rms < figures.rms_limit


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: [y], r"returned \[tensor\], expected a float32 tensor of shape"),
        (lambda y: (y, y), r"returned \(tensor, tensor\), expected a float32 tensor of shape"),
        (lambda y: None, "returned None, expected a float32 tensor of shape"),
        (lambda y: y.double(), "output out is float64, expected float32"),
        (lambda y: y[:7], r"output out has shape \[7, 16\], expected \[8, 16\]"),
        (lambda y: y.reshape(-1), r"output out has shape \[128\]"),
        (lambda y: y.t().contiguous().t(), r"output out has strides \[1, 8\]: return it contiguous"),
        (lambda y: y[:1].expand(8, 16), r"output out has strides \[0, 1\]"),
    ],
)
def test_another_structure_is_named(compares: Compares, change: Callable[[torch.Tensor], Any], words: str) -> None:
    case = compares(TENTHS)
    finding = case.finding(change(case.right))
    assert finding.verdict is Verdict.WRONG_STRUCTURE
    assert finding.outputs == []
    assert re.search(words, finding.message), finding.message


def test_strides_like_the_baselines_are_accepted(compares: Compares) -> None:
    case = compares("def solution(x):\n    return (x * 0.1).t()\n")
    assert not case.right.is_contiguous()
    assert case.finding(case.right).verdict is Verdict.PASS
    assert case.finding(case.right.contiguous()).verdict is Verdict.PASS


def test_an_output_on_the_wrong_device_is_named(compares: Compares) -> None:
    case = compares(TENTHS)
    got = slots.packed(*flatten(case.right))
    got.devices[0] = 1
    finding = case.comparison.finding(got, case.expected)
    assert (finding.verdict, finding.output) == (Verdict.WRONG_STRUCTURE, "out")
    assert "wrong device" in finding.message


@pytest.mark.parametrize(("byte", "words"), [(slots.POISON, "never arrived"), (None, "never writes")])
def test_slot_without_output_is_fault_of_protocol(compares: Compares, byte: int | None, words: str) -> None:
    case = compares(TENTHS)
    memory = torch.full((slots.header_bytes(4),), byte or 0xFF, dtype=torch.uint8)
    if byte is None:  # marked as written, but with more tensors than fit
        memory[:8] = torch.tensor([slots.WRITTEN]).view(torch.uint8)
    finding = case.comparison.finding(slots.Unpacked(memory, 4), case.expected)
    assert finding.verdict is Verdict.PROTOCOL
    assert words in finding.message


def test_the_card_can_ask_for_exactness(compares: Compares) -> None:
    for check, exact in (('exact = ["0"]', True), ('exact = ["*"]', True), ('exact = ["1"]', False)):
        case = compares("def solution(x):\n    return x * 0.1, x\n", check=check)
        tenth, x = case.right
        close = torch.nextafter(tenth, torch.tensor(9.0))
        expected = Verdict.WRONG_RESULT if exact else Verdict.PASS
        assert case.finding((close, x)).verdict is expected


def test_cards_floor_of_run_dtype_widens_limits(compares: Compares) -> None:
    check = "floors = { float32 = [0.5, 0.5] }"
    assert compares(TENTHS, check=check).finding(compares(TENTHS).right * 1.1).verdict is Verdict.PASS
    assert compares(TENTHS).finding(compares(TENTHS).right * 1.1).verdict is Verdict.WRONG_RESULT


def test_limits_follow_iteration_where_card_says_so(compares: Compares) -> None:
    usual, own = UsualError(5e-2, 0.3, 0.1), OwnError(5e-3, 1e-2)
    held = [
        compares(TENTHS, check=check, dtype=torch.bfloat16).comparison.held("out", torch.ones(4096), usual, own)
        for check in ("", "by_iteration = true")
    ]
    assert 5e-2 < held[0].rms < 0.2
    alike = limits(torch.ones(4096), torch.bfloat16, UsualError(5e-3, 0.0, 1e-2), own, 0.0, 0.0, False)
    assert 6e-3 < held[1].rms == alike.rms < 1e-2


def test_each_index_has_own_limit_where_card_asks(compares: Compares) -> None:
    oracle = torch.randn(32, 512, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    one_row = oracle.to(torch.bfloat16)
    one_row[3] += 5e-3 * one_row[4]
    verdicts = []
    for check in ("", "along = 0"):
        comparison = compares(TENTHS, check=check, dtype=torch.bfloat16).comparison
        held = comparison.held("out", one_row, UsualError(1.7e-3, 0.0, 4e-3), OwnError())
        figures, verdict = compare("out", one_row, one_row, oracle, OwnError(), held)
        verdicts.append(verdict)
    assert verdicts == [Verdict.PASS, Verdict.WRONG_RESULT]
    assert held.slice_rms > held.rms  # fewer elements have more room for chance
    assert (figures.first_wrong, figures.wrong) == ([3, 0], 512)
    for without in (torch.tensor(1.0), torch.ones(0, 3)):  # no such dimension, no elements
        assert comparison.held("out", without, UsualError(), OwnError(1.0, 1.0)).along == -1


def test_integers_are_exact_beside_a_floating_output(compares: Compares) -> None:
    case = compares(TWO)
    tenth, whole = case.right
    assert case.finding(case.right).verdict is Verdict.PASS
    finding = case.finding((tenth, whole + 1))
    assert finding.verdict is Verdict.WRONG_RESULT
    assert [figures.ok for figures in finding.outputs] == [True, False]
    assert [figures.exact for figures in finding.outputs] == [False, True]


def test_order_is_free_where_problem_says_so(compares: Compares) -> None:
    case = compares(TENTHS, ROWS_SORTED)
    assert case.finding(case.right.flip(0)).verdict is Verdict.PASS
    assert compares(TENTHS).finding(case.right.flip(0)).verdict is Verdict.WRONG_RESULT
    case.right[3] = case.right[4]
    assert case.finding(case.right).verdict is Verdict.WRONG_RESULT


def test_outputs_without_canonical_order_are_wrong(compares: Compares) -> None:
    case = compares(TENTHS, NO_SEVEN)
    case.right[0, 0] = 7
    finding = case.finding(case.right)
    assert (finding.verdict, finding.message) == (Verdict.WRONG_RESULT, "the outputs do not belong together: seven")


def test_structure_changed_by_ordering_is_kernel_fault(compares: Compares) -> None:
    splits = "def canonical(outputs, setting):\n    return outputs if outputs[0, 0] != 7 else (outputs, outputs)\n"
    drops = "def canonical(outputs, setting):\n    return outputs if outputs[0, 0] != 7 else outputs[1:]\n"
    for extra, words in ((splits, "(T,T) after ordering, not T"), (drops, "[7, 16] after ordering")):
        case = compares(TENTHS, extra)
        plain = flatten(case.right.clone())
        case.right[0, 0] = 7
        assert math.isinf(case.comparison.distance_of(slots.packed(*flatten(case.right)), plain, {}))
        finding = case.finding(case.right)
        assert finding.verdict is Verdict.WRONG_STRUCTURE
        assert words in finding.message


def test_papers_rule_is_told_apart_from_verdict(compares: Compares) -> None:
    small = compares("def solution(x):\n    return x * 1e-4\n")
    zeros = small.finding(torch.zeros_like(small.right))
    assert (zeros.verdict, zeros.paper) == (Verdict.WRONG_RESULT, True)
    wide = compares("def solution(x):\n    return x * 1e4\n", check="rms_floor = 0.5\nmax_floor = 0.5")
    coarse = wide.finding(wide.right * 1.1)
    assert (coarse.verdict, coarse.paper) == (Verdict.PASS, False)
    # In units of the baseline's size, not of the kernel's.
    assert wide.comparison.distance_of(slots.packed(*flatten(wide.right * 1.8)), flatten(wide.right), {}) > 1


def test_oracle_of_another_shape_is_fault_of_problem(compares: Compares) -> None:
    narrow = "import torch\ndef solution(x):\n    return x * 0.1 if x.dtype == torch.float32 else {}\n"
    for odd, words in (("x[:3]", r"\(8, 16\), oracle \(3, 16\)"), ("(x, x)", r"returns T, the oracle \(T,T\)")):
        with pytest.raises(OracleDiffers, match=words):
            compares(narrow.format(odd))


def test_card_says_what_the_oracle_is(compares: Compares) -> None:
    hook = "def oracle(tensors, setting, solution):\n    return (tensors['x'] + 1).double()\n"
    found = []
    for check, extra in (("", ""), ('oracle = "baseline"', ""), ('oracle = "baseline"', hook)):
        case = compares(TENTHS, extra, check)
        x = case.code.draw(case.setting, 1)["x"]
        exact = case.code.oracle({"x": x}, case.setting)
        found.append((exact.dtype, torch.equal(exact, case.right), torch.equal(exact, (x + 1).double())))
    assert found == [(torch.float64, False, False), (torch.float32, True, False), (torch.float64, False, True)]


def test_limits_do_not_depend_on_earlier_comparisons(compares: Compares) -> None:
    case = compares(TENTHS, dtype=torch.bfloat16)
    first = case.finding(case.right)
    case.comparison.new_iterations()
    wild = flatten(case.right.double() * 3)
    case.comparison.note({slot: case.expected_of(slot) for slot in range(1, 50)})
    case.comparison.note({50: Expected(case.expected.plain, case.expected.baseline, wild)})
    case.comparison.new_iterations()
    case.comparison.note({0: case.expected})
    assert case.finding(case.right) == first


def test_comparing_same_slots_again_has_same_limits(compares: Compares) -> None:
    case = compares(TENTHS, dtype=torch.bfloat16)
    coarse = case.right * 1.01
    first = case.finding(coarse)
    assert first.verdict is Verdict.WRONG_RESULT
    wider = Expected(case.expected.plain, case.expected.baseline, flatten(case.right.double() * 2))
    case.comparison.note({0: wider})  # as from a baseline whose outputs vary
    assert case.finding(coarse) == first
    case.comparison.new_iterations()
    case.comparison.note({0: wider})
    assert case.comparison.own[0][0].rms > 10 * first.outputs[0].baseline_rms


@pytest.mark.parametrize(("returned", "taken"), [("x * 0.1", 8), ("x[:3] * 0.1", 20), ("(x * 0.1, x[:3] * 0.1)", 20)])
def test_small_outputs_take_more_iterations_to_calibrate(compares: Compares, returned: str, taken: int) -> None:
    case = compares(f"def solution(x):\n    return {returned}\n")
    drawn: list[int] = []

    def expected_outputs() -> Iterator[Expected]:
        for seed in range(20):
            drawn.append(seed)
            yield case.expected_of(seed)

    case.comparison.calibrate(expected_outputs())
    assert len(drawn) == taken


def test_largest_error_of_all_ranks_counts(compares: Compares) -> None:
    case = compares(TENTHS)

    def another_rank(figures: torch.Tensor) -> None:
        if figures.dim() == 1:
            figures.clamp_(min=2)
        else:
            theirs = torch.tensor([[[0.0, 0.25], [0.5, 0.5]]], dtype=torch.float64)
            figures.copy_(torch.maximum(figures, theirs))

    mine = case.comparison.own[0][0]
    case.comparison.reduce = another_rank
    case.comparison.new_iterations()
    case.comparison.note({0: case.expected})
    assert case.comparison.own[0] == [OwnError(mine.rms, 0.25), OwnError(0.5, 0.5)]
    assert case.finding(case.right).verdict is Verdict.PASS


def test_outputs_of_slots_match_baseline_in_canonical_order(compares: Compares) -> None:
    judge, size = compares(MOVED, ROWS_SORTED), slots.header_bytes(1) + 512
    comparison, plain = judge.comparison, flatten(judge.right)
    theirs, its = (torch.zeros(3 * size, dtype=torch.uint8) for _ in range(2))
    for n, output in enumerate((judge.right, judge.right.flip(0), judge.right + 1e-3)):
        slots.Slot(theirs[n * size : (n + 1) * size], 1).pack(*flatten(output))
        slots.Slot(its[n * size : (n + 1) * size], 1).pack(*plain)
    found = comparison.distance(theirs, its, range(3), size, 1, lambda slot: {}).tolist()
    assert comparison.free_order
    assert found[:2] == [0.0, 0.0]
    assert found[2] > 1
    got = [slots.Unpacked(theirs[n * size : (n + 1) * size], 1) for n in range(3)]
    assert [comparison.distance_of(each, plain, {}) for each in got] == found
    comparison.usual.clear()
    assert comparison.distance_of(got[0], plain, {}) == math.inf


def test_distance_allows_errors_of_both(compares: Compares) -> None:
    comparison, output = compares(TENTHS).comparison, torch.ones(4096)
    comparison.usual = [UsualError(1e-3, 0.0, 1e-1)]
    own = OwnError(1e-3, 1e-1)
    assert comparison.beside([("out", output)]) == [
        comparison.held("out", output, comparison.usual[0], own).beside(own)
    ]


def test_inexact_output_may_be_near_baseline_only(compares: Compares) -> None:
    judge = compares(TENTHS)
    plain = flatten(judge.right)
    once = judge.code.call(lambda x: (x.double() * 0.7).float(), judge.code.draw(judge.setting, 1), judge.setting)
    assert judge.comparison.distance_of(slots.packed(*flatten(once)), plain, {}) <= 1
    assert judge.comparison.distance_of(slots.packed(*flatten(once * 1.001)), plain, {}) > 1


@pytest.mark.parametrize("wrong", [0, 1])
def test_every_output_counts_in_canonical_order(compares: Compares, wrong: int) -> None:
    case = compares(
        "def solution(x):\n    return x * 0.1, x * 0.3\n", "def canonical(outputs, setting):\n    return outputs\n"
    )
    theirs = [output.clone() for output in case.right]
    theirs[wrong] += 1
    got = slots.packed(*flatten(tuple(theirs)))
    assert case.comparison.distance_of(got, flatten(case.right), {}) > 1


def others_say(value: float) -> Callable[[torch.Tensor], None]:
    """A reduction with ranks whose figures are all this large."""

    def reduce(figures: torch.Tensor) -> None:
        figures.clamp_(min=value)

    return reduce


@pytest.mark.parametrize("extra", ["", ROWS_SORTED], ids=["fast", "in order"])
def test_a_distance_is_the_largest_of_all_ranks(compares: Compares, extra: str) -> None:
    case = compares(TENTHS, extra)
    structure, leaves = flatten(case.right)
    size = slots.header_bytes(1) + 1024
    arena = torch.zeros(size, dtype=torch.uint8)
    slots.Slot(arena, 1).pack(structure, leaves)
    zeros = arena.clone()
    zeros[slots.header_bytes(1) :] = 0
    far = case.comparison.distance(zeros, arena, [0], size, 1, lambda slot: {})  # in units of the baseline's size
    assert 1 < float(far) < math.inf
    case.comparison.reduce = others_say(7.0)
    assert case.comparison.distance(arena, arena, [0], size, 1, lambda slot: {}).tolist() == [7.0]


def test_ranks_reduce_to_the_largest() -> None:
    def work(rank: int, world: int) -> list[float]:
        figures = torch.tensor([rank, -rank], dtype=torch.float64)
        largest_of_all_ranks(figures)
        return figures.tolist()

    assert in_gloo_ranks(2, work, 60) == [[1.0, 0.0]] * 2


def test_all_ranks_calibrate_equally_many_iterations(compares: Compares) -> None:
    case = compares(TENTHS)
    case.comparison.reduce = others_say(1)  # another rank has a small output
    drawn: list[int] = []
    case.comparison.calibrate(drawn.append(seed) or case.expected_of(seed) for seed in range(20))
    assert len(drawn) == 20
    assert case.comparison.usual == [UsualError(1.0, 0.0, 1.0)]


class AwayFromBaseline(TrustedRank):
    """A trusted rank that finds every output near, beside ranks that find all far. A slot's number is its output's size."""

    def __init__(self) -> None:
        self.rank = 0
        memory = torch.zeros(slots.header_bytes(1) + 64, dtype=torch.uint8)
        near = SimpleNamespace(distance_of=lambda *_: 0.5, reduce=others_say(7.0), any_rank=lambda found: found)
        self.comparison, self.comparison_of = near, lambda slot: near  # type: ignore[assignment,method-assign]
        self.device = SimpleNamespace(torch_device=torch.device("cpu"))  # type: ignore[assignment]
        self.arenas = SimpleNamespace(  # type: ignore[assignment]
            sides={0: SimpleNamespace(due=memory, farthest=-1.0)},
            room=1,
            slot_of=lambda *_: memory,
            inputs_of=lambda slot: {},
        )
        self.plain = lambda slot: flatten(torch.zeros(slot))  # type: ignore[method-assign]
        self.reply = lambda order, contents, fds=(): None  # type: ignore[method-assign]


def test_all_ranks_choose_the_same_outputs_to_compare() -> None:
    rank = AwayFromBaseline()
    assert sorted(rank.doubtful(CompareOutputs([], 0, None, [3, 5]))) == [3, 5]
    assert rank.doubtful(CompareOutputs([1, 2], 0)) == [1, 2]
    rank.arenas.sides[2], rank.arenas.out_bytes = SimpleNamespace(outputs=None), 64
    distances = {1: 0.0, 2: 0.5, 3: 0.5, 4: 1.5}
    rank.comparison.distance = lambda theirs, baseline, some, *_: torch.tensor([distances[n] for n in some])  # type: ignore[method-assign]
    rank.arenas.sides[0].farthest = -1.0
    assert rank.doubtful(CompareOutputs([1, 2], 0, 2, [3, 4])) == [2, 4]


def test_later_outputs_farther_than_before_are_compared() -> None:
    rank = AwayFromBaseline()
    rank.arenas.sides[2], rank.arenas.out_bytes = SimpleNamespace(outputs=None), 64
    rank.comparison.distance = lambda theirs, baseline, some, *_: torch.tensor([n / 100 for n in some])  # type: ignore[method-assign]
    found = [rank.doubtful(CompareOutputs([], 0, 2, [20, 30]))]  # nothing is known yet
    found += [rank.doubtful(CompareOutputs(slots, 0, 2, others)) for slots, others in (([30], [32]), ([], [70, 40]))]
    assert found == [[], [30], [70]]
    assert rank.doubtful(CompareOutputs([], 0, 2, [70, 75])) == []
    rank.drawn_from = {n: (n, None) for n in range(101, 141)}  # type: ignore[misc]
    assert rank.doubtful(CompareOutputs([], 0, 2, [*range(101, 141)])) == [140, 139, 138, 137, 101, 102, 103, 104]


def test_two_kernels_share_what_the_oracle_computed() -> None:
    rank, computed = AwayFromBaseline(), []
    state = {"drawn_again": {}, "drawn_from": {5: (1, None)}, "kept": {}, "findings": lambda *_: []}
    vars(rank).update(state, doubtful=lambda order: order.slots, expected=lambda slot, _: computed.append(slot))
    vars(rank.arenas).update(
        out_bytes=64, poison=lambda side: None, sides=dict.fromkeys(range(3), rank.arenas.sides[0])
    )
    vars(rank.device).update(synchronize=lambda: None, free_blocks=lambda most: None)
    for number, (side, some) in enumerate([(1, [3]), (0, [3, 5]), (1, [3, 5]), (0, [5]), (2, []), (1, [3])]):
        if number == 2:
            rank.replace(DrawAgain(5, 1, alone=0, replace=True))
        rank.judge(CompareOutputs(some, side, 2), [])
    assert computed == [3, 5, 3, 5, 3]


def test_layout_counts_in_what_canonical_order_leaves_out(compares: Compares) -> None:
    drops = "def canonical(outputs, setting):\n    return outputs[0]\n"
    case = compares("def solution(x):\n    return x * 0.1, x * 0.3\n", drops)
    first, other = case.right
    others = (other + 1, other.double(), other[:0], other[:1].expand_as(other))
    each = [slots.packed(*flatten((first, other))) for other in others]
    assert [case.comparison.distance_of(got, flatten(case.right), {}) for got in each] == [0, *[math.inf] * 3]
