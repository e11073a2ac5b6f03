"""Text of figures: fixed widths, and always a sign and a word beside a colour."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from arena.records.run_record import OtherSize
from arena.setting_choice import sizes_words
from arena.words.headline import SIGNS, TOO_NOISY, WHERE, brief_words, by_clock, factor
from arena.words.headline import verdict_words as verdict_words
from arena.words.untrusted_text import printable
from sandbox.protocol.events import Failure, Interval, Setting
from sandbox.protocol.verdict import Verdict
from sandbox.timing.conclusion import ends
from sandbox.timing.interval import outcome

if TYPE_CHECKING:
    from arena.records.ranking import Standing
    from arena.records.run_record import RunRecord
    from arena.runs.run_state import RunState

CLEAR = ("faster", "slower")
"""The outcomes whose figure is drawn large: its interval excludes 1."""
_LEAST, _MOST = 0.01, 1000.0
"""Limits of an interval as shown if it is too noisy: in the first rounds it can span ten decades."""
_KEPT, _LOST = 0.75, 6
"""Least share that stays of a text that is cut after a whole word or before a parenthesis, and most cells that it loses."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def verdict_style(verdict: Verdict) -> str:
    """Name of the theme colour for a verdict."""
    if verdict is Verdict.PASS:
        return "success"
    return "warning" if verdict is Verdict.HARNESS_ERROR else "error"


def verdict_part(verdict: Verdict, weight: str = "") -> tuple[str, str]:
    """Returns (the verdict with its sign, its style) for `Content.assemble`. weight: "bold", or nothing."""
    return verdict_words(verdict), f"${verdict_style(verdict)} {weight}".rstrip()


def outcome_sign(said: str) -> str:
    """The sign that stands beside a speedup."""
    return SIGNS.get(said, "≈")


def outcome_style(said: str) -> str:
    """Name of the theme colour for an outcome."""
    return {"faster": "success", "slower": "error"}.get(said, "foreground")


def end_factor(value: float) -> str:
    """An end of an interval: "0.49", or "<0.01" and ">1000" beyond the limits."""
    limited = min(max(value, _LEAST), _MOST)
    return f"{'<' * (value < _LEAST)}{'>' * (value > _MOST)}{factor(limited)}"


def speedup_words(interval: Interval, said: str = "") -> str:
    """ "▲ 1.42×", with the sign of the outcome `said` or else of the interval's; "~ 0.49–2.10×" if too noisy."""
    said = said or outcome(interval)
    range_ = f"{end_factor(interval.low)}–{end_factor(interval.high)}"
    return f"{outcome_sign(said)} {range_ if said == TOO_NOISY else factor(interval.median)}×"


def measured_words(interval: Interval, said: str, clock: str = "") -> str:
    """ "▲ 1.42× [1.39, 1.45] end-to-end": the speedup with its interval and its clock, if the clock is known."""
    said = said or outcome(interval)
    ends_ = "" if said == TOO_NOISY else interval_words(interval)
    return " ".join(filter(None, [speedup_words(interval, said), ends_, WHERE.get(clock, "")]))


def measured_part(interval: Interval, said: str = "", clock: str = "", weight: str = "") -> tuple[str, str]:
    """Returns (`measured_words`, the style of the outcome) for `Content.assemble`. weight: "bold", or nothing."""
    said = said or outcome(interval)
    return measured_words(interval, said, clock), f"${outcome_style(said)} {weight}".rstrip()


def interval_words(interval: Interval) -> str:
    """ "[1.39, 1.45]", with more decimals if two would not show on which side of 1 it lies."""
    return ends(interval) if interval.high < 9.995 else f"[{factor(interval.low)}, {factor(interval.high)}]"


def standing_words(standing: Standing | None) -> tuple[str, str]:
    """(words, theme colour) of a player's best result with a problem."""
    if standing is None:
        return "–", "muted"
    if standing.best is not None:
        return standing.words, outcome_style(standing.best.outcome)
    voided = standing.last.voided and not standing.solved
    return standing.words, "success" if standing.solved else "muted" if voided else verdict_style(standing.last.verdict)


HELD = {"all": "success", "some": "warning", "none": "error"}
"""Theme colours for how many of the other sizes a faster kernel is faster at."""


def holds_words(standing: Standing | None) -> tuple[str, str]:
    """(words, theme colour): a faster kernel is faster at "all", "some" or "none" of the other sizes; "" if unknown."""
    held = standing.holds if standing is not None else ""
    return held, HELD.get(held, "muted")


RESULT_COLUMNS = 20
"""Width of a result at other sizes, so that the settings behind the results are aligned."""


def setting_words(setting: Setting) -> str:
    """ "tiny · bfloat16 · W=2 · cpu"."""
    return f"{setting.preset} · {setting.dtype} · W={setting.world} · {setting.device}"


def size_words(setting: Setting | OtherSize) -> str:
    """ "W=2 float32 M=512 N=96": sizes are last, because there may be many."""
    return sizes_words(f"W={setting.world} {setting.dtype}", setting.sizes)


def other_size_result(other: OtherSize, columns: int = RESULT_COLUMNS) -> Content:
    """ "▲ 1.31× faster", padded to `columns`."""
    if not other.passed:
        words, colour = verdict_words(Verdict(other.verdict)), verdict_style(Verdict(other.verdict))
    elif (speedup := by_clock(other.speedup, other.clock)) is None:
        words, colour = "✓ pass", "success"
    else:
        words = f"{outcome_sign(other.outcome)} {brief_words(speedup.median, other.outcome)}"
        colour = outcome_style(other.outcome)
    return Content.styled(f"{words:<{columns}}", f"${colour}")


def best_words(best: RunRecord | None) -> tuple[str, str]:
    """(words, theme colour) of a result that was timed; names the clock if it is device time."""
    if best is None or best.interval is None:
        return "–", "muted"
    on_device = " device" if best.clock == "device" else ""
    return speedup_words(best.interval, best.outcome) + on_device, outcome_style(best.outcome)


def result_part(record: RunRecord) -> tuple[str, str]:
    """(words, theme colour) of what a run's timing says: "▲ 1.42×", or "~ too noisy" without a speedup; "" if untimed."""
    unknown = f"{outcome_sign(record.outcome)} {record.outcome}" if record.outcome else ""
    words = speedup_words(record.interval, record.outcome) if record.interval else unknown
    return words, outcome_style(record.outcome)


def microseconds(value: float | None) -> str:
    """Microseconds in 9 columns, right-aligned; "–" when unknown."""
    if value is None:
        return f"{'–':>9}"
    return f"{value:>9,.0f}" if value >= 10_000 else f"{value:>9,.1f}"


def seconds(value: float) -> str:
    """Seconds of a phase: "0.01", "0.25", "12.3"."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def clock(seconds: float) -> str:
    """Minutes and seconds: "2:05"."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def amount(value: float, unit: str) -> str:
    """A count with a metric prefix: amount(3.1e6, "B") = "3.1 MB"."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 1000 or prefix == "T":
            break
        value /= 1000
    text = f"{value:.0f}" if prefix == "" or value >= 99.5 else f"{value:.1f}"
    return f"{text} {prefix}{unit}"


def meter(share: float, width: int) -> str:
    """A bar of `width` cells filled to `share` (0..1, clipped) in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0.0:
        eighths = max(1, eighths)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def index_words(index: list[int] | None) -> str:
    """ "[0, 17]", or "scalar" for the empty index."""
    return "–" if index is None else str(index) if index else "scalar"


def place_words(failure: Failure) -> str:
    """Where a kernel failed: "in check · rank 2 · output 0 · line 12"."""
    place = [f"in {failure.phase}"]
    if failure.rank is not None:
        place.append(f"rank {failure.rank}")
    if failure.output and f"output {failure.output}" not in failure.message:
        place.append(f"output {printable(failure.output)}")
    if failure.line is not None:
        place.append(f"line {failure.line}")
    return " · ".join(place)


def cut(text: str, width: int) -> str:
    """A text in at most `width` cells. An ellipsis ends a longer one, after a whole word unless that is far back."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    kept = set_cell_size(text, width - 1)
    whole = kept if text[len(kept)] == " " else kept.rpartition(" ")[0]
    at = whole.rfind("(")
    for shorter in (whole, whole[:at] if at > 0 and ")" not in whole[at:] else whole):
        if len(shorter) >= max(_KEPT * len(kept), len(kept) - _LOST):
            kept = shorter
    return f"{kept.rstrip(' (+,:;·-')}…"


def age_words(created: float) -> str:
    """When a run was: "14:02" today, else "28 Nov 14:02"."""
    today = time.localtime(created)[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if today else "%d %b %H:%M", time.localtime(created))


def so_far_words(state: RunState) -> str:
    """How far the timing of a cancelled run came: ", cancelled at 1.42× [1.1, 1.9]"."""
    if (headline := state.headline) is None:
        return ", cancelled"
    return f", cancelled at {speedup_words(headline.speedup, headline.outcome)[2:]} {headline.where}".rstrip()
