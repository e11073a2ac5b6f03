"""The layout of input and output slots: one slot holds the tensors of one iteration. Rank side (imports torch).

An arena is divided into equal slots, one per iteration of a batch. An input slot holds the drawn tensors one after
another. An output slot starts with a header in which the rank describes the result; tensors follow it, contiguous.
"""

import functools
import itertools
import math
import operator
import random
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from sandbox.memory import gpu
from sandbox.memory.host import TensorPlace, up
from sandbox.memory.trees import Leaves, flatten, unflatten


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's elements in order, as flat uint8 [numel * element size]; a copy only if not contiguous."""
    # as_strided: a single element may be contiguous with any stride, which view() then refuses.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same bytes. NaNs with the same bits are the same, 0.0 and -0.0 are not."""
    return torch.equal(raw_bytes(a), raw_bytes(b))


DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
)
_checked_granules = set[int]()
"""Granules of GPU memory in which no arena was mapped, by number."""
CHECKED_AGAIN = 1 / 16
"""Share of results in such granules that are checked again, because a kernel could have mapped an arena there since."""
LOOKED_AT, PLACES = 1 / 8, 64
"""Share of results on CPU ranks that are looked at before they are copied, and places in each tensor."""
_drawn = random.Random().random  # a kernel may seed the module's own numbers
_CODE = {dtype: code for code, dtype in enumerate(DTYPES)}
MAX_DIMS = 8
TEXT = 1024
_HEAD = struct.Struct("<QII")  # written, leaves, length of the structure text
_LEAVES = [struct.Struct(f"<BBH4xq{n}q{8 * (MAX_DIMS - n)}x{n}q") for n in range(MAX_DIMS + 1)]
"""By number of dimensions: dtype, dims, device, bytes, shape, strides."""
_LEAF = _LEAVES[MAX_DIMS]
WRITTEN = 0x5045_4E5F_444F_4E45
POISON = 0xA5
_POISON_WORD = int.from_bytes(bytes([POISON]) * 8, "little", signed=True)
FIRST_LEAF = up(_HEAD.size + TEXT)


class DoesNotFit(ValueError):
    """An output that no slot can hold: too many tensors, too many dimensions, an unknown dtype or too many bytes."""


def bytes_of(mapping: Any) -> torch.Tensor:
    """A flat uint8 tensor over a memory mapping (no copy)."""
    return torch.frombuffer(mapping, dtype=torch.uint8)


def view(memory: torch.Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor at a byte offset of flat uint8 memory."""
    size = math.prod(shape) * dtype.itemsize
    return memory[offset : offset + size].view(dtype).view(shape)


_Place = tuple[torch.dtype, Sequence[int], tuple[int, ...], int]
"""The place of a contiguous tensor in memory: dtype, shape, strides, and offset in bytes."""


def _views(memory: torch.Tensor, places: Sequence[_Place]) -> list[torch.Tensor]:
    """The tensors at these places of flat uint8 memory, as `view` with fewer operations. Some problems' timed calls need them."""
    typed = {dtype: memory.view(dtype) for dtype in {place[0] for place in places}}
    return [
        typed[dtype].as_strided(shape, strides, typed[dtype].storage_offset() + offset // dtype.itemsize)
        for dtype, shape, strides, offset in places
    ]


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(itertools.accumulate(shape[:0:-1], operator.mul, initial=1))[::-1][: len(shape)]


def lay_out(tensors: dict[str, torch.Tensor]) -> tuple[list[TensorPlace], int]:
    """The places of the tensors in an input slot, and the slot's size in bytes."""
    offset = 0
    table = []
    for name, tensor in tensors.items():
        table.append(TensorPlace(name, _CODE[tensor.dtype], tuple(tensor.shape), offset))
        offset = up(offset + tensor.numel() * tensor.element_size())
    return table, max(offset, 64)


def read_inputs(memory: torch.Tensor, base: int, table: list[TensorPlace]) -> dict[str, torch.Tensor]:
    """The tensors of an input slot as views of its memory."""
    places = [(DTYPES[place.dtype], place.shape, _row_major(place.shape), base + place.offset) for place in table]
    return dict(zip((place.name for place in table), _views(memory, places), strict=True))


def header_bytes(leaves: int) -> int:
    """Bytes of the header of an output slot that may hold this many tensors."""
    return up(FIRST_LEAF + leaves * _LEAF.size)


def is_poisoned(memory: torch.Tensor) -> bool:
    """Whether every byte is poison. memory: flat uint8, at least one word of 8 bytes and nothing but whole words."""
    # One pass over words, without an allocation of the arena's size.
    low, high = memory.view(torch.int64).aminmax()
    return int(low) == int(high) == _POISON_WORD


def overwritten(memory: torch.Tensor, slot_bytes: int, header: int) -> list[bool]:
    """By slot, whether a byte after the header is no longer poison. memory: flat uint8; all sizes are whole words."""
    words = memory.view(torch.int64).view(-1, slot_bytes // 8)[:, header // 8 :]
    return (words != _POISON_WORD).any(dim=1).tolist()


def same_outputs(mine: torch.Tensor, its: torch.Tensor) -> bool:
    """Whether an output was written to each of these slots, and two arenas hold the same bits there. uint8 [slots, bytes]."""
    words, others = mine.view(torch.int64), its.view(torch.int64)
    return torch.equal(words, others) and bool((words[:, 0] == WRITTEN).all())


_TENSOR, _NUMBER = object(), object()
"""What stands for a tensor and for a number in a mould. A number matches no value."""


class Outline:
    """The layout of outputs of one shape in a slot: the header that describes them, and each tensor's place."""

    def __init__(self, structure: str, leaves: Leaves, room: int, size: int) -> None:
        """room: tensors that a header can describe; size: bytes of a slot.

        Raises:
            DoesNotFit: no slot can hold such outputs.
        """
        self.structure, self.mould = structure, _mould(structure)
        self.names = [name for name, _ in leaves]
        self._expected = [(tensor.shape, tensor.dtype, tensor.stride(), tensor.device) for _, tensor in leaves]
        text = structure.encode("ascii", "replace")
        if len(leaves) > room or len(text) > TEXT:
            raise DoesNotFit(f"{len(leaves)} tensors and numbers in {structure[:60]}")
        header = bytearray(header_bytes(room))
        _HEAD.pack_into(header, 0, WRITTEN, len(leaves), len(text))
        header[_HEAD.size : _HEAD.size + len(text)] = text
        offset, at = header_bytes(room), FIRST_LEAF
        self.places: list[_Place] = []
        for (name, tensor), (shape, dtype, stride, _) in zip(leaves, self._expected, strict=True):
            if dtype not in _CODE or tensor.layout is not torch.strided or len(shape) > MAX_DIMS:
                raise DoesNotFit(f"output {name}: {dtype}, {tensor.layout}, {len(shape)} dimensions")
            bytes_ = tensor.nbytes
            if offset + bytes_ > size:
                raise DoesNotFit(f"output {name} has shape {list(shape)}: larger than anything the baseline returns")
            place = 0 if tensor.is_cpu else 1
            _LEAVES[len(shape)].pack_into(header, at, _CODE[dtype], len(shape), place, bytes_, *shape, *stride)
            strides = stride if tensor.is_contiguous() else _row_major(shape)
            self.places.append((dtype, shape, strides, offset))
            offset, at = up(offset + bytes_), at + _LEAF.size
        self.header = torch.frombuffer(header, dtype=torch.uint8)

    def fits(self, tensors: list[torch.Tensor]) -> bool:
        """Whether these are such tensors, as many as expected."""
        for tensor, expected in zip(tensors, self._expected):  # noqa: B905 (between calls of kernels a keyword costs 2 us)
            if (tensor.shape, tensor.dtype, tensor.stride(), tensor.device) != expected:
                return False
        return True


@functools.lru_cache(maxsize=16)
def _mould(structure: str) -> Any:
    """The containers of outputs of a structure, with _TENSOR in place of each tensor."""
    return unflatten(structure, itertools.repeat(_TENSOR), lambda _: _NUMBER)


def _pour(value: Any, mould: Any, found: list[torch.Tensor]) -> bool:
    """Appends a value's tensors in the order of `flatten`; returns False for another structure, or a tensor of a subclass."""
    if mould is _TENSOR:
        found.append(value)
        return type(value) is torch.Tensor
    kind = type(mould)
    if type(value) is not kind or mould is _NUMBER:
        return False
    if mould is None:
        return True
    if len(value) != len(mould):
        return False
    for name in mould if kind is dict else range(len(mould)):
        if (kind is dict and name not in value) or not _pour(value[name], mould[name], found):
            return False
    return True


def copy_all(targets: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    """Copies each tensor to its target, in one launch if they are of one type and contiguous."""
    if len(tensors) == 1:
        targets[0].copy_(tensors[0].detach() if tensors[0].requires_grad else tensors[0])
    elif tensors:
        torch._foreach_copy_(targets, [tensor.detach() if tensor.requires_grad else tensor for tensor in tensors])


def copy_as_returned(targets: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    """Copies like `copy_all`, but some elements are those at the beginning, because a thread may complete a tensor meanwhile."""
    steps = [max(1, tensor.numel() // PLACES) for tensor in tensors]
    some = [slice(int(_drawn() * step), None, step) for step in steps]
    early = [tensor.detach().flatten()[part].clone() for tensor, part in zip(tensors, some, strict=True)]
    copy_all(targets, tensors)
    for target, part, found in zip(targets, some, early, strict=True):
        target.view(-1)[part] = found


def _span_of(memory: torch.Tensor) -> tuple[int, int]:
    """The addresses of the first byte of a tensor's storage and of the byte after its last."""
    storage = memory.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


class Slot:
    """One output slot."""

    def __init__(self, memory: torch.Tensor, room: int) -> None:
        """memory: flat uint8 [slot bytes]; room: how many tensors the header can describe."""
        self.memory = memory
        self.room = room
        self.outline: Outline | None = None
        """The layout that `put` and `pack` expect."""
        self._header = memory[: header_bytes(room)]
        self.targets: list[torch.Tensor] = []
        """The targets of the tensors of such an output, as views of the slot's memory."""
        self._refused = [(*_span_of(memory), "an output lies in the judge's own memory of outputs")]
        """Memory in which no result may lie, as first address, end and reason."""
        self._low, self._high, _ = self._refused[0]

    def refuse_inputs(self, memory: torch.Tensor) -> None:
        """Refuses results that lie in the input arena. memory: flat uint8 of the arena, or a part of it."""
        self._refused.append((*_span_of(memory), "an output shares memory with an argument; return a fresh tensor"))
        self._low, self._high = min(first for first, *_ in self._refused), max(end for _, end, _ in self._refused)

    def tensors_of(self, result: Any) -> list[torch.Tensor] | None:
        """The tensors of a call's result, in the order of `targets`; None if the slot has another layout.

        Raises:
            DoesNotFit: one of them lies in an arena.
        """
        outline = self.outline
        found: list[torch.Tensor] = []
        if outline is None or not _pour(result, outline.mould, found) or not outline.fits(found):
            return None
        self._refuse_arenas(found)
        return found

    def _refuse_arenas(self, tensors: Iterable[torch.Tensor]) -> None:
        """Raises DoesNotFit for a tensor in an arena.

        A result in the output arena would need no copy, but the time of the copy is subtracted. A result in the input
        arena is an argument, while the baseline returns fresh memory. On GPUs an arena may be mapped again elsewhere.
        """
        for tensor in tensors:
            address = tensor.data_ptr()
            for first, end, reason in self._refused if self._low <= address < self._high else ():
                if first <= address < end:
                    raise DoesNotFit(reason)
            if tensor.is_cuda and (address // gpu.GRANULE not in _checked_granules or _drawn() < CHECKED_AGAIN):
                found = gpu.allocation(address)
                for first, _, reason in self._refused:
                    if found and gpu.allocation(first) == found:
                        raise DoesNotFit(reason)
                _checked_granules.add(address // gpu.GRANULE)

    def put(self, result: Any) -> None:
        """Copies a call's result into the slot, with few launches if it has the expected layout. This is timed.

        Raises:
            NotATree, DoesNotFit: no slot can hold it.
        """
        outline = self.outline
        found: list[torch.Tensor] = []
        if outline is None or not _pour(result, outline.mould, found):
            self.pack(*flatten(result))
        elif outline.fits(found):
            self._refuse_arenas(found)
            early = found and found[0].is_cpu and _drawn() < LOOKED_AT
            (copy_as_returned if early else copy_all)(self.targets, found)
        else:
            self.pack(outline.structure, [*zip(outline.names, found, strict=True)])

    def pack(self, structure: str, leaves: Leaves) -> None:
        """Copies an output into the slot, and the header if the slot has another layout. Raises DoesNotFit."""
        outline, tensors = self.outline, [tensor for _, tensor in leaves]
        if outline is None or outline.structure != structure or not outline.fits(tensors):
            if any(tensor.is_meta for tensor in tensors):
                raise DoesNotFit("a tensor on the device meta, which has no memory")
            outline = Outline(structure, leaves, self.room, self.memory.numel())
            self.lay_out(outline)
            # Without waiting for the GPU: the driver takes the header at once, and the next call's work need not wait.
            self._header.copy_(outline.header, non_blocking=True)
        self._refuse_arenas(tensors)
        copy_all(self.targets, tensors)

    def lay_out(self, outline: Outline) -> None:
        """Makes `put` and `pack` expect outputs like these. The header must be written by `write_headers`."""
        self.outline = outline
        self.targets = _views(self.memory, outline.places)


def write_headers(arena: torch.Tensor, slot_bytes: int, first: int, count: int, outline: Outline) -> None:
    """Writes the headers of neighbouring slots in one go. arena: flat uint8, slots from its start on."""
    slots = arena[first * slot_bytes : (first + count) * slot_bytes].view(count, slot_bytes)
    slots[:, : outline.header.numel()].copy_(outline.header.to(arena.device))


def packed(structure: str, leaves: Leaves) -> "Unpacked":
    """An output as the trusted side reads it, from a slot of exactly its size, which is made here. Raises DoesNotFit."""
    sizes = (up(tensor.numel() * tensor.element_size()) for _, tensor in leaves)
    device = leaves[0][1].device if leaves else None
    memory = torch.zeros(header_bytes(len(leaves)) + sum(sizes), dtype=torch.uint8, device=device)
    Slot(memory, len(leaves)).pack(structure, leaves)
    return Unpacked(memory, len(leaves))


class Unpacked:
    """An output slot, read by the trusted side. Every number in it is untrusted, so all are bounded."""

    def __init__(self, memory: torch.Tensor, room: int) -> None:
        """memory: flat uint8 [slot bytes], the trusted side's own copy."""
        raw = memory[: header_bytes(room)].cpu().numpy().tobytes()
        written, count, length = _HEAD.unpack_from(raw, 0)
        self.written = written == WRITTEN
        self.structure = ""
        self.tensors: list[torch.Tensor] = []
        self.strides: list[list[int]] = []
        self.devices: list[int] = []
        self.offsets: list[int] = []
        """The offset of each tensor in the slot, in bytes."""
        self.sound = self.written and count <= room and length <= TEXT
        if not self.sound:
            return
        self.structure = raw[_HEAD.size : _HEAD.size + length].decode("ascii", "replace")
        offset = header_bytes(room)
        for index in range(count):
            code, dims, device, size, *numbers = _LEAF.unpack_from(raw, FIRST_LEAF + index * _LEAF.size)
            shape = numbers[:dims]
            elements = math.prod(max(n, 0) for n in shape)
            fits = code < len(DTYPES) and dims <= MAX_DIMS and all(0 <= n < 1 << 40 for n in shape)
            if not fits or elements * DTYPES[code].itemsize != size or offset + size > memory.numel():
                self.sound = False
                return
            self.tensors.append(view(memory, offset, shape, DTYPES[code]))
            self.strides.append(numbers[MAX_DIMS : MAX_DIMS + dims])
            self.devices.append(device)
            self.offsets.append(offset)
            offset = up(offset + size)

    def is_dense(self, index: int) -> bool:
        """Whether an output was returned contiguous, by the strides that were noted."""
        shape = self.tensors[index].shape
        if 0 in shape:
            return True
        step = 1
        for n, stride in zip(reversed(shape), reversed(self.strides[index]), strict=True):
            if n != 1 and stride != step:
                return False
            step *= n
        return True
