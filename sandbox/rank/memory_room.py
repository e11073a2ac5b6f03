"""Computes how many reference worlds fit into the memory of a device. All sizes are bytes."""

from problems.setting import SizesRefused

HELD = 2
"""Copies of an iteration beside the arenas: as drawn, and the private one for a kernel's first calls."""
CONTEXTS_BYTES = 12 << 30
"""Memory for the contexts and libraries of the processes that share a GPU."""
CONTEXT_BYTES, FRAGMENTED = 1 << 29, 1.25
"""What each world takes beyond `CONTEXTS_BYTES`, and the share of memory that its allocator takes for tensors. In a process on an
H100 with 3.1 GiB of tensors, the allocator had 4.2 GiB, and the driver 1.9 GiB."""
HEAP_BYTES = 6 << 30
"""Memory that a kernel's symmetric heap may take beyond what the baseline needs, before there are fewer references."""
COMPARED = 8
"""Slots that are compared at once, at the most."""
GIB = 1 << 30


def arenas_bytes(most: int, inputs: int, outputs: int) -> int:
    """Bytes of all arenas of a run: the inputs of the trusted rank and of a kernel, the outputs of the references and of a
    kernel, and the copy of a kernel's outputs.

    most: limit for the arenas of one side, but at least one slot. inputs, outputs: bytes of a slot.
    """
    slots = max(1, most // (inputs + outputs))
    return slots * (2 * inputs + 3 * outputs)


def comparing_bytes(outputs: int, at_once: int) -> int:
    """Bytes that a comparison takes: copies of a kernel's outputs, and references, whose oracle is up to four times as large.

    outputs: bytes of a slot. at_once: bytes of outputs whose references are held at once.
    """
    copies = COMPARED * outputs
    return copies + 5 * min(copies, max(at_once, outputs))


def most_references(device: int, iterations: int, call: int, oracle: int, other: int = 0) -> int:
    """The number of reference worlds that fit beside the oracle world and a kernel that needs as much memory as the baseline,
    and a heap. The first reference needs no room for the heap.

    device: its memory. iterations: bytes of all their copies. call, oracle: peak bytes of tensors in a call of the baseline and
    of the oracle, without the inputs. other: the same of whatever else the oracle world does; it only limits references
    beyond the first.

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
    each = int(FRAGMENTED * call) + CONTEXT_BYTES
    return max(1, (room - HEAP_BYTES - max(0, other - oracle)) // each - 1)
