"""What fits the memory of a device: iterations, as often as they are held, and the worlds that share it."""

from problems.setting import SizesRefused

HELD = 4
"""Times that an iteration lies in a device's memory: as drawn, in the trusted rank's arena, in a kernel's, and in the private
copies that a kernel's first calls work on."""
CONTEXTS_BYTES = 12 << 30
"""Of the processes that share a GPU: their contexts, and what libraries allocate."""
GIB = 1 << 30


def most_references(device: int, slot: int, call: int, oracle: int) -> int:
    """How many worlds may run the baseline beside the trusted world and a kernel that takes as much memory as the baseline.

    All in bytes. device: its memory; slot: an iteration in both arenas; call, oracle: the most that tensors take in a call of the
    baseline and in the oracle's.

    Raises:
        SizesRefused: not even one; it says how much there is and how much is needed.
    """
    room = device - HELD * slot - oracle - CONTEXTS_BYTES
    if room < 2 * call:
        needed = device - room + 2 * call
        raise SizesRefused(
            f"one iteration takes {slot / GIB:.1f} GiB a rank and is held {HELD} times, the baseline's call takes "
            f"{call / GIB:.1f} GiB in each of two worlds and its oracle {oracle / GIB:.1f} GiB, which is {needed / GIB:.0f} GiB "
            f"with the processes' own memory; this rank's device has {device / GIB:.0f} GiB"
        )
    return room // max(call, 1) - 1
