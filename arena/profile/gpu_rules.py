"""Turns the figures of GPU ranks into a diagnosis per rank, with the usual remedy if there is one. Pure."""

from collections.abc import Callable

import msgspec

from arena.profile.gpu_figures import GpuFigures, Least, gpu_figures
from arena.profile.rules import percent, share
from sandbox.protocol.profile import WorldProfile

LATE, EXCHANGE, BUSY, IDLE = 0.3, 0.5, 0.4, 0.3
"""Smallest shares of a call for the diagnoses: waits for a rank, in collectives, in one kernel, GPU idle."""
AFTER_SYNCS = 0.2
"""Smallest share of a call for the diagnosis that the GPU idles after the host waited for it."""
SMALL_US, MANY = 12.0, 12
"""MANY or more kernels per call, of at most SMALL_US on average, take longer to launch than to run."""
AT_MEASURED, AT_SPEED, AT_HBM = 0.85, 0.7, 0.75
"""Practical limits: shares of the measured link bandwidth, the nominal link speed, the memory bandwidth."""
TOO_MUCH, WORTH, LEAST_BYTES = 1.3, 0.25, 1 << 20
"""A call moves too many bytes if they exceed TOO_MUCH times those that it must move, exceed LEAST_BYTES, and use at
least the share WORTH of the bandwidth."""

Rule = Callable[[GpuFigures], tuple[str, str] | None]
"""Returns a diagnosis and its advice, or None if the rule does not apply."""


def gpu_ranks(profile: WorldProfile, least: Least) -> list[GpuFigures]:
    """Returns the figures of every rank, with diagnosis and advice."""
    figures = [(found, *diagnosis(found)) for found in gpu_figures(profile, least)]
    return [msgspec.structs.replace(found, diagnosis=said, advice=advice) for found, said, advice in figures]


def diagnosis(found: GpuFigures) -> tuple[str, str]:
    """Returns one sentence on what takes this rank's time, and the usual remedy or ""."""
    for rule, needs_spans in _RULES:
        said = None if needs_spans and found.unseen else rule(found)
        if said is not None:
            return said
    if found.unseen:
        return "what takes its time was not seen", ""
    return (
        (
            f"nothing stands out: {found.kernels:g} kernels, collectives {percent(found.wait_us, found.call_us)}, "
            f"the GPU idle {percent(found.idle_us, found.call_us)}"
        ),
        "",
    )


# --- rules: the first that applies is the diagnosis ----------------------------------------------------------------


def _waits(found: GpuFigures) -> tuple[str, str] | None:
    if found.late_rank is None or found.late_us < LATE * found.call_us:
        return None
    return (
        f"waits for rank {found.late_rank}: its collectives spin {share(found.late_us, found.call_us)} until that rank arrives",
        f"even out the work: rank {found.late_rank} comes late, its own lane shows with what",
    )


def _at_link(found: GpuFigures) -> tuple[str, str] | None:
    rate, share = _link(found)
    if share < (AT_MEASURED if found.least.link else AT_SPEED):
        return None
    source = "measured" if found.least.link else "by the links' speed"
    ratio = _too_much_sent(found)
    return (
        f"at the link: {rate / 1e9:,.0f} GB/s over NVLink, {100 * share:.0f} % of its peak ({source})"
        + (f"; moves {ratio:.1f}x the bytes over it that it must" if ratio else ""),
        "send each byte once"
        if ratio
        else "only fewer bytes help: a smaller type on the way, or work that hides the exchange",
    )


def _sends_too_much(found: GpuFigures) -> tuple[str, str] | None:
    ratio, (_, share) = _too_much_sent(found), _link(found)
    if ratio is None or share < WORTH:
        return None
    return (
        f"moves {ratio:.1f}x the bytes over NVLink that it must",
        "send each byte once, to those ranks alone that need it",
    )


def _memory(found: GpuFigures) -> tuple[str, str] | None:
    dram, moved = found.counted.dram, found.dram_bytes
    if dram is None or moved is None:
        return None
    ratio = moved / found.least.local if found.least.local else 0.0
    too_much = ratio > TOO_MUCH and moved > LEAST_BYTES and dram >= WORTH
    advice = "fuse passes over the same tensor: read it once, write each result once"
    if dram >= AT_HBM:
        return (
            f"at HBM: {100 * dram:.0f} % of its bandwidth"
            + (f"; moves {ratio:.1f}x the bytes that it must" if too_much else ""),
            advice if too_much else "only fewer bytes help: a smaller type, or results that never leave the chip",
        )
    if too_much:
        return (f"moves {ratio:.1f}x the bytes through HBM that it must ({100 * dram:.0f} % of its bandwidth)", advice)
    return None


def _host(found: GpuFigures) -> tuple[str, str] | None:
    if found.syncs < 1 or found.after_sync_us < AFTER_SYNCS * found.call_us:
        return None
    noun = "synchronisation" if found.syncs == 1 else "synchronisations"
    return (
        f"host-bound: {found.syncs:g} {noun} a call, behind which the GPU idles {share(found.after_sync_us, found.call_us)}",
        "keep values on the GPU: no .item(), .cpu() or synchronize() between kernels",
    )


def _launches(found: GpuFigures) -> tuple[str, str] | None:
    if found.kernels < MANY or found.kernel_us > SMALL_US or found.idle_us < IDLE * found.call_us:
        return None
    return (
        (
            f"launch-bound: {found.kernels:g} kernels a call, each of {found.kernel_us:.1f} µs; "
            f"gaps between them {share(found.idle_us, found.call_us)}"
        ),
        "fuse the kernels, or capture the call once and replay it as a CUDA graph",
    )


def _exchanges(found: GpuFigures) -> tuple[str, str] | None:
    if found.wait_us < EXCHANGE * found.call_us:
        return None
    noun = "collective" if found.waits == 1 else "collectives"
    return (
        f"exchanges: {share(found.wait_us, found.call_us)} in {found.waits:g} {noun}",
        "fewer bytes or fewer steps, or compute meanwhile on another stream",
    )


def _idles(found: GpuFigures) -> tuple[str, str] | None:
    if found.idle_us < EXCHANGE * found.call_us:
        return None
    return (
        f"the GPU idles: {share(found.idle_us, found.call_us)} pass before and between {found.kernels:g} kernels",
        "the host is slow to launch: less Python in a call, nothing allocated or compiled in it",
    )


def _computes(found: GpuFigures) -> tuple[str, str] | None:
    if found.call_us <= 0 or found.largest_us < BUSY * found.call_us:
        return None
    tensor = found.counted.tensor
    at_work = f"; tensor cores busy {100 * tensor:.0f} % of the time" if tensor is not None else ""
    return (f"computes: {found.largest} takes {share(found.largest_us, found.call_us)}{at_work}", "")


_RULES: tuple[tuple[Rule, bool], ...] = (
    (_waits, True),
    (_at_link, False),
    (_memory, False),
    (_sends_too_much, False),
    (_host, True),
    (_launches, True),
    (_exchanges, True),
    (_idles, True),
    (_computes, True),
)
"""The rules in order of priority, and whether each needs spans."""


def _link(found: GpuFigures) -> tuple[float, float]:
    """Returns bytes/s over NVLink in the busier direction and their share of the peak; zeros if unknown."""
    rates = [found.rate(amount) for amount in (found.counted.sent, found.counted.received)]
    rate = max((rate for rate in rates if rate is not None), default=0.0)
    return (rate, rate / found.link_peak) if found.link_peak else (0.0, 0.0)


def _too_much_sent(found: GpuFigures) -> float | None:
    """Returns the ratio of moved bytes over NVLink to necessary bytes; None if it is not too high."""
    ratios = [
        moved / must
        for moved, must in ((found.counted.sent, found.least.sent), (found.counted.received, found.least.received))
        if moved is not None and must > 0 and moved > LEAST_BYTES
    ]
    return max((ratio for ratio in ratios if ratio > TOO_MUCH), default=None)
