"""The roofline: the lower bound of a call's time on this machine, and the resource that sets it."""

from pathlib import Path

import msgspec

from problems.specification import load_problem
from sandbox.machine.devices import kind_of
from sandbox.protocol.events import Setting


class Peaks(msgspec.Struct, frozen=True):
    """The peaks of one rank from a calibration of this machine. Zeros: not measured."""

    flops: float = 0.0
    """Floating-point operations a second in the run dtype."""
    local: float = 0.0
    """Bytes a second of its own memory, read plus written."""
    link: float = 0.0
    """Bytes a second to or from its peers, one direction."""
    device: str = "cpu"

    @classmethod
    def of(cls, peaks: dict[str, float], setting: Setting) -> "Peaks":
        """The peaks of a calibration for a setting. Half-precision dtypes share one figure."""
        dtype = "bfloat16" if setting.dtype in ("bfloat16", "float16") else "float32"
        link = peaks.get("link", 0.0) or peaks.get("local", 0.0)  # one rank has no link
        return cls(peaks.get(f"flops.{dtype}", 0.0), peaks.get("local", 0.0), link, setting.device)

    @property
    def known(self) -> bool:
        """Whether this machine was calibrated."""
        return self.flops > 0 and self.local > 0 and self.link > 0

    def impossible(self) -> "Peaks":
        """Peaks that no machine of this kind reaches. A call that is faster than they allow has skipped work."""
        if self.known:
            return Peaks(self.flops * 4, self.local * 16, self.link * 8, self.device)
        return Peaks(*kind_of(self.device).out_of_reach, self.device)


def bound_us(setting: Setting, peaks: Peaks) -> tuple[float, str]:
    """max(FLOPs/peak, local bytes/bandwidth, max(sent, received)/link) per rank, in microseconds, and its limiter."""
    problem = load_problem(Path(setting.problem_dir))
    cost = problem.cost(setting.sizes, setting.world, setting.dtype)
    terms = {
        "compute": cost.flops / peaks.flops,
        "memory": cost.local_bytes / peaks.local,
        "link": max(cost.sent_bytes, cost.received_bytes) / peaks.link,
    }
    limiter = max(terms, key=lambda name: terms[name])
    return terms[limiter] * 1e6, limiter
