"""How figures are written: fixed widths, and always a sign and a word beside a colour."""

from sandbox.events import Interval
from sandbox.verdict import Verdict

_SHORT = {
    Verdict.PASS: "✓ PASS",
    Verdict.WRONG_RESULT: "✗ WRONG",
    Verdict.HARNESS_ERROR: "! HARNESS ERROR",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SHADES = "·░▒▓█"


def verdict_words(verdict: Verdict) -> str:
    """The verdict with its sign: "✓ PASS", "✗ WRONG", "✗ COMPILE ERROR"."""
    return _SHORT.get(verdict, f"✗ {verdict.value.replace('_', ' ')}")


def verdict_style(verdict: Verdict) -> str:
    """Name of the theme colour for a verdict."""
    if verdict is Verdict.PASS:
        return "success"
    return "warning" if verdict is Verdict.HARNESS_ERROR else "error"


def outcome_of(interval: Interval) -> str:
    """ "faster", "slower" or "even", by whether the interval excludes 1."""
    if interval.low > 1.0:
        return "faster"
    return "slower" if interval.high < 1.0 else "even"


def outcome_sign(outcome: str) -> str:
    """The sign that stands beside a speedup."""
    return {"faster": "▲", "slower": "▼", "too noisy": "~"}.get(outcome, "≈")


def outcome_style(outcome: str) -> str:
    """Name of the theme colour for an outcome."""
    return {"faster": "success", "slower": "error"}.get(outcome, "foreground")


def factor(value: float) -> str:
    """A speedup with three significant places or so: "1.42", "0.88", "12.3", "157"."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def speedup_words(interval: Interval, outcome: str = "") -> str:
    """ "▲ 1.42×" with the sign of the outcome (by the interval when none is given)."""
    return f"{outcome_sign(outcome or outcome_of(interval))} {factor(interval.median)}×"


def interval_words(interval: Interval) -> str:
    """ "[1.39, 1.45]"."""
    return f"[{factor(interval.low)}, {factor(interval.high)}]"


def microseconds(value: float | None, width: int = 9) -> str:
    """Microseconds, right-aligned; "–" when unknown."""
    if value is None:
        return f"{'–':>{width}}"
    return f"{value:>{width},.0f}" if value >= 10_000 else f"{value:>{width},.1f}"


def seconds(value: float) -> str:
    """Seconds of a phase: "0.01", "0.25", "12.3"."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def amount(value: float, unit: str, base: int = 1000) -> str:
    """A count with a metric prefix: amount(3.1e6, "B") = "3.1 MB"."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < base or prefix == "T":
            break
        value /= base
    text = f"{value:.0f}" if prefix == "" or value >= 99.5 else f"{value:.1f}"
    return f"{text} {prefix}{unit}"


def meter(share: float, width: int) -> str:
    """A bar of `width` cells filled to `share` (0..1, clipped) in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0.0:
        eighths = max(1, eighths)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def shade(share: float) -> str:
    """One cell of an error map: "·" for none, then darker with the share of wrong elements."""
    if share <= 0.0:
        return _SHADES[0]
    return _SHADES[1 + min(3, int(share * 4))]


def index_words(index: list[int] | None) -> str:
    """ "[0, 17]", or "scalar" for the empty index."""
    return "–" if index is None else str(index) if index else "scalar"
