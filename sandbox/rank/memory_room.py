"""Computes how many reference worlds fit into the memory of a device. All sizes are bytes."""

import re

from problems.setting import SizesRefused

HELD = 2
"""Copies of an iteration in addition to the arenas: as drawn, and the private one for a kernel's first calls."""
CONTEXTS_BYTES = 12 << 30
"""Memory for the contexts and libraries of the processes that share a GPU."""
CONTEXT_BYTES, FRAGMENTED = 1 << 29, 1.25
"""What each world takes beyond `CONTEXTS_BYTES`, and the factor by which its allocator takes more memory than its
tensors. In a process on an H100 with 3.1 GiB of tensors, the allocator had 4.2 GiB, and the driver 1.9 GiB."""
HEAP_BYTES = 6 << 30
"""Memory that is reserved for a kernel's symmetric heap, in addition to what the baseline needs."""
COMPARED = 8
"""Most slots that are compared at once."""
GIB = 1 << 30
_LACKS = re.compile(
    r"out of memory|can't allocate memory|Storage size calculation overflowed|Overflow when unpacking long"
)
"""Found in exceptions of torch for tensors that are larger than the memory."""


def lack_of_memory(error: Exception) -> str:
    """The first line of an exception of torch that says that memory does not suffice; empty for others."""
    return str(error).strip().partition("\n")[0] if _LACKS.search(str(error)) else ""


def arenas_bytes(most: int, inputs: int, outputs: int) -> int:
    """Bytes of all arenas of a run.

    They are the inputs of the trusted rank and of a kernel, the outputs of the references and of a kernel, and the copy
    of a kernel's outputs. most: limit for the arenas of one side, but at least one slot. inputs, outputs:
    bytes of a slot.
    """
    slots = max(1, most // (inputs + outputs))
    return slots * (2 * inputs + 3 * outputs)


def comparing_bytes(outputs: int, at_once: int) -> int:
    """Bytes that a comparison takes: copies of a kernel's outputs, and the expected outputs.

    Those are the baseline's outputs and the oracle's, which are up to four times as large.

    outputs: bytes of a slot. at_once: bytes of outputs that are compared at once.
    """
    copies = COMPARED * outputs
    return copies + 5 * min(copies, max(at_once, outputs))


def most_references(device: int, iterations: int, call: int, oracle: int, other: int = 0) -> int:
    """The number of reference worlds that fit in addition to the oracle world and a kernel.

    The kernel may need as much memory as the baseline, and a heap. The first reference requires no room for the heap.
    device: its memory. iterations: bytes of all their copies. call, oracle: peak bytes of tensors in a call of the baseline and
    of the oracle, without the inputs. other: the peak bytes of the oracle world's other work; it only limits references
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
