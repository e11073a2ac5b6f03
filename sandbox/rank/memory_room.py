"""Computes how many reference worlds fit into the memory of a device. All sizes are bytes."""

from problems.setting import SizesRefused

HELD = 2
"""Copies of an iteration beside the arenas: as drawn, and the private one for a kernel's first calls."""
CONTEXTS_BYTES = 12 << 30
"""Memory for the contexts and libraries of the processes that share a GPU."""
HEAP_BYTES = 6 << 30
"""Memory that a kernel's symmetric heap may take beyond what the baseline needs, before there are fewer references."""
GIB = 1 << 30


def arenas_bytes(most: int, inputs: int, outputs: int) -> int:
    """Bytes of all arenas of a run: the inputs of the trusted rank and of a kernel, the outputs of the references and of a
    kernel, and the copy of a kernel's outputs.

    most: limit for the arenas of one side, but at least one slot. inputs, outputs: bytes of a slot.
    """
    slots = max(1, most // (inputs + outputs))
    return slots * (2 * inputs + 3 * outputs)


def most_references(device: int, iterations: int, call: int, oracle: int) -> int:
    """The number of reference worlds that fit beside the oracle world and a kernel that needs as much memory as the baseline,
    and a heap. The first reference needs no room for the heap.

    device: its memory. iterations: bytes of all their copies. call, oracle: peak bytes of tensors in a call of the baseline and
    of the oracle, without the inputs.

    Raises:
        SizesRefused: not even one fits; the message has the sizes.
    """
    room = device - iterations - oracle - CONTEXTS_BYTES
    if room < 2 * call:
        needed = device - room + 2 * call
        raise SizesRefused(
            f"iterations take {iterations / GIB:.1f} GiB per rank, the baseline takes {call / GIB:.1f} GiB in each of two worlds"
            f", the oracle {oracle / GIB:.1f} GiB: {needed / GIB:.0f} GiB with the memory of the processes, but this rank's "
            f"device has {device / GIB:.0f} GiB"
        )
    return max(1, (room - HEAP_BYTES) // max(call, 1) - 1)
