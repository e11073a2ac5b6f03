"""Measured times of transfers between ranks, by each way to move data."""

import msgspec


class PairTimes(msgspec.Struct, frozen=True):
    """Times of one transfer between two ranks, with all other ranks idle."""

    ranks: tuple[int, int]
    us: dict[str, list[float]]
    """Microseconds by way and then by size, in the order of `Transfers.sizes`."""


class Transfers(msgspec.Struct, frozen=True):
    """Times of every way between every two ranks. A transfer ends when the receiver has its signal."""

    sizes: list[int]
    """Bytes, in ascending order."""
    pairs: list[PairTimes]
    absent: dict[str, str] = {}
    """Ways that this machine does not have, with the reason."""

    @property
    def ways(self) -> list[str]:
        """The ways that were measured, in the order of measuring."""
        return list(self.pairs[0].us) if self.pairs else []

    def us(self, way: str) -> list[float]:
        """Microseconds by size between the slowest two ranks."""
        return [max(times) for times in zip(*(pair.us[way] for pair in self.pairs), strict=True)]

    def beside(self, other: "Transfers") -> "Transfers":
        """These ways and those of `other` between the same ranks."""
        more = {pair.ranks: pair.us for pair in other.pairs}
        pairs = [PairTimes(pair.ranks, pair.us | more.get(pair.ranks, {})) for pair in self.pairs]
        return Transfers(self.sizes, pairs, self.absent | other.absent)


def joined(measured: list[Transfers]) -> Transfers:
    """Joins the measurements of all ranks, each of its own pairs."""
    pairs = sorted((pair for each in measured for pair in each.pairs), key=lambda pair: pair.ranks)
    return Transfers(measured[0].sizes, pairs, measured[0].absent)


def gigabytes_per_second(nbytes: int, us: float) -> float:
    """The bandwidth in 10^9 bytes per second."""
    return nbytes / us / 1e3
