"""Reports of Nsight Compute: ncu's CSV about the kernels of a call (`--page details --csv --print-units base`), and its text.

The CSV comes from the jail in which the kernel ran, so it is treated as untrusted. Pure.
"""

import csv
import io
import re
from collections.abc import Sequence

import msgspec

from arena.profile.gpu_rules import short_name
from arena.profile.rules import percent
from arena.words.untrusted_text import printable

_LINK = re.compile(r" ?\(https?://[^)]*\)")


class NcuRule(msgspec.Struct, frozen=True):
    """One of ncu's rules that applies to a kernel."""

    name: str
    kind: str
    """OPT: a possible gain; WRN: a warning; INF: an explanation."""
    words: str
    speedup: float = 0.0
    """ncu's estimate of the gain in percent; 0: no estimate."""
    scope: str = ""
    """ "global": gain of the kernel's time; "local": gain of the rule's own metric; empty without an estimate."""


class NcuKernel(msgspec.Struct, frozen=True):
    """One launch. Throughputs and occupancy are percentages of the peak, or None if ncu has no value."""

    name: str
    us: float
    compute: float | None = None
    memory: float | None = None
    occupancy: float | None = None
    stall: str = ""
    """Warp cycles per issued instruction, with the unit."""
    rules: list[NcuRule] = []


class NcuProfiled(msgspec.Struct, frozen=True, tag="ncu_profiled"):
    """The end: Nsight Compute has profiled rank 0."""

    kernels: list[NcuKernel]
    mode: str
    """ncu's replay mode: "kernel" or "application"."""
    seconds: float
    refused: dict[str, str]
    """By mode tried before: why it gave no report."""
    file: str


_FIELDS = {"Compute (SM) Throughput": "compute", "Memory Throughput": "memory", "Achieved Occupancy": "occupancy"}
_STALL = "Warp Cycles Per Issued Instruction"


def ncu_kernels(text: str) -> list[NcuKernel]:
    """Returns the launches in order. Skips rows that are not from ncu."""
    start = text.find('"ID"')
    rows = csv.DictReader(io.StringIO(text[max(start, 0) :]))
    found: dict[str, NcuKernel] = {}
    try:
        for row in rows:
            if (at := row.get("ID")) is None or not row.get("Kernel Name"):
                continue
            kernel = found.get(at) or NcuKernel(printable(row["Kernel Name"])[:200], 0.0)
            found[at] = _with(kernel, {name: value or "" for name, value in row.items() if isinstance(name, str)})
    except csv.Error:
        pass  # what was read so far is shown
    return list(found.values())


def _with(kernel: NcuKernel, row: dict[str, str]) -> NcuKernel:
    if name := row.get("Rule Name"):
        words = _LINK.sub("", row.get("Rule Description", ""))
        rule = NcuRule(
            printable(name)[:60],
            printable(row.get("Rule Type", ""))[:10],
            printable(" ".join(words.split()))[:2000],
            _number(row.get("Estimated Speedup", "")) or 0.0,
            printable(row.get("Estimated Speedup Type", ""))[:10],
        )
        return msgspec.structs.replace(kernel, rules=[*kernel.rules, rule])
    metric, value = row.get("Metric Name", ""), _number(row.get("Metric Value", ""))
    if value is None:
        return kernel
    if metric == "Duration":
        scale = {"n": 1e-3, "u": 1.0, "m": 1e3, "s": 1e6}  # of units such as "ns" and "nsecond"
        return msgspec.structs.replace(kernel, us=value * scale.get(row.get("Metric Unit", "")[:1], 0.0))
    if metric == _STALL:
        return msgspec.structs.replace(kernel, stall=f"{value:.1f} cycles")
    # "Memory Throughput" is a percentage in one section and bytes per second in another.
    if metric in _FIELDS and row.get("Metric Unit") == "%":
        return msgspec.structs.replace(kernel, **{_FIELDS[metric]: value})
    return kernel


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


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
        f"{short_name(each.name)}: {each.us:,.1f} µs ({percent(each.us, total)} of the profiled time), compute "
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
