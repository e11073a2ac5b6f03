"""What fits the memory of a device: iterations, as often as they are held, and the worlds that share it. All in bytes."""

from problems.setting import SizesRefused

HELD = 2
"""Times that an iteration lies in a device's memory beside the arenas: as drawn, and in the private copies that a kernel's first
calls work on."""
CONTEXTS_BYTES = 12 << 30
"""Of the processes that share a GPU: their contexts, and what libraries allocate."""
GIB = 1 << 30


def arenas_bytes(most: int, inputs: int, outputs: int) -> int:
    """What all arenas of a run take: the trusted rank's inputs and a kernel's, and the references' outputs and a kernel's, which
    are taken from it into a third.

    most: of one side's arenas together, if that is one slot at least; inputs, outputs: of a slot.
    """
    slots = max(1, most // (inputs + outputs))
    return slots * (2 * inputs + 3 * outputs)


def most_references(device: int, iterations: int, call: int, oracle: int) -> int:
    """How many worlds may run the baseline beside the trusted world and a kernel that takes as much memory as the baseline.

    device: its memory; iterations: what they take in all places where they lie; call, oracle: the most that tensors take in a
    call of the baseline and in the oracle's, beside the inputs.

    Raises:
        SizesRefused: not even one; it says how much there is and how much is needed.
    """
    room = device - iterations - oracle - CONTEXTS_BYTES
    if room < 2 * call:
        needed = device - room + 2 * call
        raise SizesRefused(
            f"iterations take {iterations / GIB:.1f} GiB a rank, the baseline's call {call / GIB:.1f} GiB in each of two worlds "
            f"and its oracle {oracle / GIB:.1f} GiB, which is {needed / GIB:.0f} GiB with the processes' own memory; this rank's "
            f"device has {device / GIB:.0f} GiB"
        )
    return room // max(call, 1) - 1
