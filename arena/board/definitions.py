"""The definitions of all scores.

Every interval here is a 95 % interval over problems: how much the score would change with other similar problems.
The uncertainty of a single speedup is in its own 99 % interval.

Sources
    pass@k          Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, equation 1
    fast_p          Ouyang et al., "KernelBench: Can LLMs Write Efficient GPU Kernels?", arXiv 2502.10517, section 3.3
    Wilson          Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22 (1927) 209-212
    geometric mean  Fleming and Wallace, "How Not to Lie with Statistics", CACM 29 (1986) 218-221: why ratios need it
    bound           Williams et al., "Roofline: An Insightful Visual Performance Model", CACM 52 (2009) 65-76
    t quantile      Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5
"""

import functools
import math
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from arena.players.attempts import pass_at

Z = 1.959963984540054
"""The normal distribution's quantile at 97.5 %."""
BOUND_WORDS = """\
of bound: bound / kernel's time, geometric mean of solved problems; the bound is the least time of a call on the machine.
gap closed: (baseline - kernel) / (baseline - bound), mean of solved problems; 0 %: not faster, 100 %: at the bound.
no roofline: correct kernels left out of both (`pkb-arena calibrate`)."""
"""Explains both scores against the hardware to readers of a board. `against_bound` computes them."""


class Score(msgspec.Struct, frozen=True):
    """A score with its 95 % interval."""

    value: float
    low: float
    high: float
    problems: int
    """Number of problems in the score."""


def share(values: Sequence[float]) -> Score | None:
    """Returns the mean of numbers from 0 to 1, one per problem, with Wilson's interval; None without a problem.

    For numbers that are 0 or 1, it is Wilson's score interval of a binomial share. Numbers in between vary less than
    zeros and ones with the same mean, so the interval is rather too wide. At 0 and at 1 it still has a width, which a
    normal interval has not.
    """
    n = len(values)
    if not n:
        return None
    p = math.fsum(values) / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(max(p * (1 - p), 0.0) / n + Z * Z / (4 * n * n))
    return Score(p, min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)), n)


def pass_at_k(k: int, counts: Iterable[tuple[int, int]]) -> Score | None:
    """Returns pass@k: the chance that at least one of k attempts is good, averaged over problems.

    counts: (attempts, good ones) of each problem. Each problem gives the unbiased estimate
    1 - C(n - c, k) / C(n, k); problems with fewer than k attempts are left out.
    The caller defines "good": correct (pass@k), or correct and more than p times as fast as the baseline (fast_p@k).
    """
    return share([pass_at(k, n, c) for n, c in counts if n >= k])


def is_fast(speedup: float | None, passed: bool, p: float) -> bool:
    """Whether fast_p counts a kernel: correct, and by the median more than p times as fast as the baseline.

    p = 0 only requires a correct kernel. The definition is strict (>): p = 1 requires more than the baseline's speed.
    """
    return passed and (p <= 0 or (speedup is not None and speedup > p))


def geometric_mean(ratios: Sequence[float]) -> Score | None:
    """Returns exp(mean of logs) of positive numbers, one per problem; None without one.

    The interval is Student's on the logs. For a single number it is not known, and reaches from 0 to infinity.
    """
    logs = [math.log(ratio) for ratio in ratios if ratio > 0 and math.isfinite(ratio)]
    n = len(logs)
    if not n:
        return None
    mean = math.fsum(logs) / n
    if n == 1:
        return Score(math.exp(mean), 0.0, math.inf, 1)
    variance = math.fsum((value - mean) ** 2 for value in logs) / (n - 1)
    half = t_quantile(n - 1) * math.sqrt(variance / n)
    return Score(math.exp(mean), math.exp(mean - half), math.exp(min(mean + half, 700.0)), n)


class AgainstBound(msgspec.Struct, frozen=True):
    """The scores of correct kernels against the roofline's bound, as BOUND_WORDS explains them."""

    percent: Score | None
    """100 x bound / kernel's time."""
    gap_closed: Score | None
    """From 0 to 1; over the problems whose baseline does not reach the bound itself (`RunRecord.gap_closed`)."""
    no_roofline: int


def against_bound(problems: Iterable[Sequence[tuple[float | None, float | None]]], no_roofline: int) -> AgainstBound:
    """Returns the scores against the bound. A problem counts with the mean of its kernels.

    problems: for each problem, (percent of bound, share of the gap closed) of each correct kernel.
    """
    held = [list(kernels) for kernels in problems]
    percents = [geometric_mean([percent for percent, _ in kernels if percent]) for kernels in held]
    gaps = [[gap for _, gap in kernels if gap is not None] for kernels in held]
    return AgainstBound(
        percent=_within_bound(geometric_mean([mean.value for mean in percents if mean is not None])),
        gap_closed=share([math.fsum(gap) / len(gap) for gap in gaps if gap]),
        no_roofline=no_roofline,
    )


def _within_bound(percent: Score | None) -> Score | None:
    """Ends the interval at the bound, because no kernel is faster. A mean of few problems has a wide interval."""
    if percent is None:
        return None
    return msgspec.structs.replace(percent, high=max(percent.value, min(percent.high, 100.0)))


def t_quantile(freedom: int) -> float:
    """Returns Student's quantile at 97.5 %: exact for 1 and 2 degrees of freedom, within 1 % for more."""
    if freedom == 1:
        return math.tan(0.475 * math.pi)
    if freedom == 2:
        return 0.95 / math.sqrt(2 * 0.975 * 0.025)
    z, n = Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


FACTORS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""The values of p in fast_p."""
FIRST = ("you", "house")
PRINTED_PROBLEMS = 87
"""Number of problems behind the printed totals. The printed categories add up to 86."""
_PUBLISHED = Path(__file__).with_name("published.toml")

Tally = tuple[int, int, int]
"""Of one player in some problems: the number of solved problems, of those with a faster kernel, and of all."""


class PublishedModel(msgspec.Struct, frozen=True):
    """A model's published results."""

    name: str
    printed: dict[str, int]
    """Totals as they were printed: `solved_1` and `faster_1` with one attempt, `solved` and `faster` of the best of three.

    The sums of the rows differ from them by up to 3. A model that improved its kernels by their verdicts has the first two.
    """
    solved: list[int] = []
    """By category, in the order of `Published.problems`; best of three attempts."""
    faster: list[int] = []
    curve: dict[str, float] = {}
    """fast_p of one attempt over all problems, by p; "0": correct at any speed."""


class Published(msgspec.Struct, frozen=True):
    """Results that others have published for the same problems, from another machine."""

    source: str
    problems: dict[str, int]
    """Number of problems by category, as the source counts them."""
    model: list[PublishedModel]
    agent: list[PublishedModel] = []
    """Models that improved their kernels by their verdicts: only `printed`, of one attempt."""

    def tally(self, model: PublishedModel, category: str) -> Tally:
        """Returns a model's counts in one category; the printed totals if `category` is empty."""
        if not category:
            return model.printed["solved"], model.printed["faster"], PRINTED_PROBLEMS
        at = list(self.problems).index(category)
        return model.solved[at], model.faster[at], self.problems[category]


@functools.cache
def read_published() -> Published:
    """Reads the published results that come with the arena."""
    return msgspec.convert(tomllib.loads(_PUBLISHED.read_text(encoding="utf-8")), Published)


def order_of(players: Sequence[str]) -> list[str]:
    """Sorts players: `you` and `house` first, then the others by name."""
    return [*(name for name in FIRST if name in players), *sorted(set(players) - set(FIRST))]
