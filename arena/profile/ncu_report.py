"""Parses ncu's CSV about the kernels of a call (`--page details --csv --print-units base`). Pure.

The text comes from the jail in which the kernel ran, so it is treated as untrusted.
"""

import csv
import io
import re

import msgspec

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
        scale = {
            "ns": 1e-3,
            "nsecond": 1e-3,
            "us": 1.0,
            "usecond": 1.0,
            "ms": 1e3,
            "msecond": 1e3,
            "s": 1e6,
            "second": 1e6,
        }
        return msgspec.structs.replace(kernel, us=value * scale.get(row.get("Metric Unit", ""), 0.0))
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
