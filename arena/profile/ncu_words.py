"""Formats a report of Nsight Compute in a few lines: replay mode, longest kernels, main rules. Pure."""

import re
from collections.abc import Sequence

from arena.profile.gpu_rules import short_name
from arena.profile.ncu_report import NcuKernel
from arena.profile.profile_process import NcuProfiled

RULES, KERNELS = 3, 4
"""Most rules and kernels that are shown."""
RULE_CHARACTERS = 260
GAIN = "OPT"
"""The type of rules that are shown: a possible gain. Other types: warnings about counters, information."""
_HOW = {
    "kernel": "every launch was repeated within the process",
    "application": "the whole world was started again for every pass",
}
_WHY = {"kernel": " A launch that waits for other ranks cannot be repeated on one."}


def how_lines(found: NcuProfiled) -> list[str]:
    """Returns how the report was made, and why other replay modes gave none."""
    how = _HOW.get(found.mode, found.mode)
    lines = [f"Nsight Compute on rank 0, {found.mode} replay: {how}, {found.seconds:.0f} s. Clocks were not locked."]
    return lines + [f"{mode} replay gave no report: {why}.{_WHY.get(mode, '')}" for mode, why in found.refused.items()]


def ncu_text(found: NcuProfiled) -> list[str]:
    """Returns the whole report as lines. The last line names the file."""
    return [*how_lines(found), *kernel_lines(found.kernels), *rule_lines(found.kernels), f"report: {found.file}"]


def kernel_lines(kernels: Sequence[NcuKernel]) -> list[str]:
    """Returns one line for each of the longest kernels."""
    total = sum(each.us for each in kernels)
    longest = sorted(kernels, key=lambda each: -each.us)[:KERNELS]
    lines = [
        f"{short_name(each.name)}: {each.us:,.1f} µs ({_share(each.us, total)} of the profiled time), compute "
        f"{_percent(each.compute)}, memory {_percent(each.memory)}, occupancy {_percent(each.occupancy)}"
        + (f", {each.stall} per issued instruction and warp" if each.stall else "")
        for each in longest
    ]
    if len(kernels) > len(longest):
        lines.append(f"and {len(kernels) - len(longest)} shorter launches")
    return lines


def rule_lines(kernels: Sequence[NcuKernel]) -> list[str]:
    """Returns ncu's rules with the largest estimated gains of the call, "global" ones first, each once."""
    total = sum(each.us for each in kernels)
    found: dict[str, tuple[tuple[bool, float, float], str]] = {}
    for kernel in kernels:
        for rule in kernel.rules:
            if rule.kind != GAIN:
                continue
            gain = rule.speedup * (kernel.us / total if total else 1.0)
            rank = (rule.scope != "global", -gain, -kernel.us)
            scope = "" if rule.scope == "global" else f" {rule.scope}"
            estimate = f" (estimated{scope} gain {rule.speedup:.0f} %)" if rule.speedup else ""
            words = f"{short_name(kernel.name)}: {_first_sentences(rule.words)}{estimate}"
            if rule.name not in found or rank < found[rule.name][0]:
                found[rule.name] = (rank, words)
    return [f"→ {words}" for _, words in sorted(found.values())][:RULES]


def _first_sentences(words: str) -> str:
    """Returns the sentences that fit into RULE_CHARACTERS, at least the first, cut at twice that length."""
    sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", words)
    taken = sentences[0]
    for sentence in sentences[1:]:
        if len(taken) + 1 + len(sentence) > RULE_CHARACTERS:
            break
        taken += f" {sentence}"
    return taken if len(taken) <= 2 * RULE_CHARACTERS else f"{taken[: 2 * RULE_CHARACTERS]}…"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _share(us: float, total: float) -> str:
    return f"{100 * us / total:.0f} %" if total else "-"
