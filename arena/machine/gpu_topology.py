"""NVLink connections between the GPUs, as the driver reports them. NvmlMissing is raised if it does not answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sandbox.machine.nvml import Gpu, ask, handle

_MOST_LINKS = 36
_FABRIC_COMPLETED = 3
_TO_GPU, _TO_SWITCH = 0, 2
_READ, _WRITE, _NVLINK = 0, 1, 2
"""nvmlGpuP2PCapsIndex_t. (By mistake, pynvml's constant for the first is a tuple.)"""
_P2P_WORDS = {
    0: "",
    1: "the chipset does not support it",
    2: "a GPU does not support it",
    3: "they hang on different I/O hubs",
    4: "it is turned off in the driver",
    5: "not supported",
}


@dataclass(frozen=True)
class Links:
    """The NVLinks of one GPU that are up."""

    to_switch: int
    to_gpus: dict[str, int]
    """Links by the PCI address of the GPU at the other end."""
    unknown: int
    """Links that are up, but whose other end the driver does not report."""

    @property
    def up(self) -> int:
        """Number of all links that are up."""
        return self.to_switch + sum(self.to_gpus.values()) + self.unknown


@dataclass(frozen=True)
class GpuPair:
    """The connection between two GPUs."""

    first: Gpu
    second: Gpu
    links: int
    """Number of NVLinks between them. Through switches: the smaller of the two GPUs' link counts."""
    no_p2p: str
    """Why they cannot access each other's memory; "" if they can, "unknown" if the driver does not report it."""


@dataclass(frozen=True)
class Topology:
    """The connections between the GPUs of a list."""

    links: list[Links]
    pairs: list[GpuPair]

    @property
    def switched(self) -> bool:
        """True if every GPU has links to switches."""
        return all(links.to_switch for links in self.links)

    def by_links(self) -> dict[int, list[GpuPair]]:
        """Groups all pairs by the number of NVLinks between them, highest number first."""
        numbers = sorted({pair.links for pair in self.pairs}, reverse=True)
        return {number: [pair for pair in self.pairs if pair.links == number] for number in numbers}

    def without_p2p(self) -> dict[str, list[GpuPair]]:
        """Groups the pairs that cannot access each other's memory by the reason."""
        reasons = dict.fromkeys(pair.no_p2p for pair in self.pairs if pair.no_p2p)
        return {reason: [pair for pair in self.pairs if pair.no_p2p == reason] for reason in reasons}


def topology(gpus: Sequence[Gpu]) -> Topology:
    """Reads the connections from the driver. Takes milliseconds; up to 1 s for eight GPUs."""
    links = [_links(handle(gpu.index)) for gpu in gpus]
    addresses = [_address(ask("nvmlDeviceGetPciInfo", handle(gpu.index))) for gpu in gpus]
    pairs = []
    for first, second in combinations(range(len(gpus)), 2):
        one, other = handle(gpus[first].index), handle(gpus[second].index)
        direct = links[first].to_gpus.get(addresses[second], 0)
        switched = min(links[first].to_switch, links[second].to_switch)
        number = direct or switched
        says = ask("nvmlDeviceGetP2PStatus", one, other, _NVLINK)
        if says == 0 and not number:
            # A virtual machine hides the other ends of links, but the driver still reports that the two are linked.
            number = min(links[first].up, links[second].up)
        elif says not in (None, 0):
            number = 0
        pairs.append(GpuPair(gpus[first], gpus[second], number, _no_p2p(one, other)))
    return Topology(links, pairs)


def fabric_is_up(gpu: Gpu) -> bool | None:
    """Returns whether the GPU has joined an NVLink fabric, which multicast needs; None: not reported."""
    import pynvml

    info = pynvml.c_nvmlGpuFabricInfoV_t()
    if ask("nvmlDeviceGetGpuFabricInfoV", handle(gpu.index), pynvml.byref(info)) is None:
        return None
    return bool(info.state == _FABRIC_COMPLETED and info.status == 0)


def _links(device: Any) -> Links:
    to_switch = unknown = 0
    to_gpus: dict[str, int] = {}
    for link in range(_MOST_LINKS):
        if not ask("nvmlDeviceGetNvLinkState", device, link):
            continue
        kind = ask("nvmlDeviceGetNvLinkRemoteDeviceType", device, link)
        address = _address(ask("nvmlDeviceGetNvLinkRemotePciInfo", device, link))
        if kind == _TO_SWITCH:
            to_switch += 1
        elif kind == _TO_GPU and address:
            to_gpus[address] = to_gpus.get(address, 0) + 1
        else:
            unknown += 1
    return Links(to_switch, to_gpus, unknown)


def _address(pci: Any) -> str:
    """Formats a PCI address as domain:bus:device, without the function; "" for None."""
    return f"{pci.domain:x}:{pci.bus:x}:{pci.device:x}" if pci is not None else ""


def _no_p2p(one: Any, other: Any) -> str:
    for capability in (_READ, _WRITE):
        status = ask("nvmlDeviceGetP2PStatus", one, other, capability)
        if status != 0:
            return "unknown" if status is None else _P2P_WORDS.get(status, "unknown")
    return ""
