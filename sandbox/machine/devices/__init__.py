"""The kinds of device for ranks, by the value of `--device`."""

from sandbox.machine.devices.cpu import Cpu
from sandbox.machine.devices.cuda import Cuda
from sandbox.machine.devices.kind import DeviceKind

KINDS: dict[str, DeviceKind] = {kind.name: kind for kind in (Cpu(), Cuda())}


def kind_of(name: str) -> DeviceKind:
    """The kind of this name. Raises KeyError for a name that is not in KINDS."""
    return KINDS[name]
