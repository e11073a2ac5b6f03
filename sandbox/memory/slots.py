"""The layout of input and output slots: one slot holds the tensors of one iteration. Rank side (imports torch).

An arena is divided into equal slots, one per iteration of a batch. An input slot holds the drawn tensors one after
another. An output slot starts with a header in which the rank describes the result; tensors follow it, contiguous.
"""

import functools
import random
import struct
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
_drawn = random.Random().random  # a kernel may seed the module's own numbers
_CODE = {dtype: code for code, dtype in enumerate(DTYPES)}
MAX_DIMS = 8
TEXT = 1024
_HEAD = struct.Struct("<QII")  # written, leaves, length of the structure text
_LEAF = struct.Struct("<BBH4xq" + "q" * 2 * MAX_DIMS)  # dtype, dims, device, bytes, shape, strides
WRITTEN = 0x5045_4E5F_444F_4E45
POISON = 0xA5
_POISON_WORD = int.from_bytes(bytes([POISON]) * 8, "little", signed=True)
FIRST_LEAF = up(_HEAD.size + TEXT)


class DoesNotFit(ValueError):
    """An output that no slot can hold: too many tensors, too many dimensions, an unknown dtype or too many bytes."""


def bytes_of(mapping: Any) -> torch.Tensor:
    """A flat uint8 tensor over a memory mapping (no copy)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a read-only buffer is intended here
        return torch.frombuffer(mapping, dtype=torch.uint8)


def view(memory: torch.Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor at a byte offset of flat uint8 memory."""
    count = 1
    for n in shape:
        count *= n
    size = count * dtype.itemsize
    return memory[offset : offset + size].view(dtype).view(shape)


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
    return {place.name: view(memory, base + place.offset, place.shape, DTYPES[place.dtype]) for place in table}


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


class Outline:
    """The layout of outputs of one shape in a slot: the header that describes them, and each tensor's place."""

    def __init__(self, structure: str, leaves: Leaves, room: int, size: int) -> None:
        """room: tensors that a header can describe; size: bytes of a slot.

        Raises:
            DoesNotFit: no slot can hold such outputs.
        """
        self.key = _key(structure, leaves)
        text = structure.encode("ascii", "replace")
        if len(leaves) > room or len(text) > TEXT:
            raise DoesNotFit(f"{len(leaves)} tensors and numbers in {structure[:60]}")
        header = bytearray(header_bytes(room))
        _HEAD.pack_into(header, 0, WRITTEN, len(leaves), len(text))
        header[_HEAD.size : _HEAD.size + len(text)] = text
        offset = header_bytes(room)
        self._places: list[tuple[int, torch.Size, torch.dtype]] = []
        for index, (name, tensor) in enumerate(leaves):
            if tensor.dtype not in _CODE or tensor.layout is not torch.strided or tensor.dim() > MAX_DIMS:
                raise DoesNotFit(f"output {name}: {tensor.dtype}, {tensor.layout}, {tensor.dim()} dimensions")
            bytes_ = tensor.numel() * tensor.element_size()
            if offset + bytes_ > size:
                raise DoesNotFit(
                    f"output {name} has shape {list(tensor.shape)}: larger than anything the baseline returns"
                )
            shape = list(tensor.shape) + [0] * (MAX_DIMS - tensor.dim())
            strides = list(tensor.stride()) + [0] * (MAX_DIMS - tensor.dim())
            _LEAF.pack_into(
                header,
                FIRST_LEAF + index * _LEAF.size,
                _CODE[tensor.dtype],
                tensor.dim(),
                0 if tensor.device.type == "cpu" else 1,
                bytes_,
                *shape,
                *strides,
            )
            self._places.append((offset, tensor.shape, tensor.dtype))
            offset = up(offset + bytes_)
        self.header = torch.frombuffer(header, dtype=torch.uint8)

    @functools.cached_property
    def mould(self) -> Any:
        """The containers of such outputs, with the expected properties of each tensor in its place. In place of a
        number is an object that matches no value.
        """
        return unflatten(*self.key, lambda _: _NOTHING)

    def targets(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of a slot, as views of its memory."""
        return [view(memory, offset, shape, dtype) for offset, shape, dtype in self._places]


_NOTHING = object()
"""Matches no value."""


class _Expected(NamedTuple):
    """A tensor of an output."""

    shape: torch.Size
    dtype: torch.dtype
    stride: tuple[int, ...]
    device: torch.device

    def fits(self, value: Any) -> bool:
        """Whether a value is such a tensor, and of no subclass."""
        return (
            type(value) is torch.Tensor
            and value.shape == self.shape
            and value.dtype is self.dtype
            and value.stride() == self.stride
            and value.device == self.device
        )


def _pour(value: Any, mould: Any, found: list[torch.Tensor]) -> bool:
    """Appends the tensors of a value in the order of `flatten`; returns False if it differs from the mould."""
    kind = type(mould)
    if kind is _Expected:
        found.append(value)
        fits: bool = mould.fits(value)
        return fits
    if type(value) is not kind:
        return False
    if mould is None:
        return True
    if len(value) != len(mould):
        return False
    if kind is dict:
        return all(name in value and _pour(value[name], part, found) for name, part in mould.items())
    return all(_pour(item, part, found) for item, part in zip(value, mould, strict=True))


def _key(structure: str, leaves: Leaves) -> tuple[str, list[_Expected]]:
    return structure, [_Expected(t.shape, t.dtype, t.stride(), t.device) for _, t in leaves]


def copy_all(targets: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    """Copies each tensor to its target, in one launch if they are of one type and contiguous."""
    plain = [tensor.detach() if tensor.requires_grad else tensor for tensor in tensors]
    if len(plain) == 1:
        targets[0].copy_(plain[0])
    elif plain:
        torch._foreach_copy_(targets, plain)


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
        self.targets: list[torch.Tensor] = []
        """The targets of the tensors of such an output, as views of the slot's memory."""
        self._refused = [(*_span_of(memory), "an output lies in the judge's own memory of outputs")]
        """Memory in which no result may lie, as first address, end and reason."""

    def refuse_inputs(self, memory: torch.Tensor) -> None:
        """Refuses results that lie in the input arena. memory: flat uint8 of the arena, or a part of it."""
        self._refused.append((*_span_of(memory), "an output shares memory with an argument; return a fresh tensor"))

    def tensors_of(self, result: Any) -> list[torch.Tensor] | None:
        """The tensors of a call's result, in the order of `targets`; None if the slot has another layout.

        Raises:
            DoesNotFit: one of them lies in an arena.
        """
        found: list[torch.Tensor] = []
        if self.outline is None or not _pour(result, self.outline.mould, found):
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
            for first, end, reason in self._refused:
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
        found = self.tensors_of(result)
        if found is None:
            self.pack(*flatten(result))
        else:
            copy_all(self.targets, found)

    def pack(self, structure: str, leaves: Leaves) -> None:
        """Copies an output into the slot, and the header if the slot has another layout. Raises DoesNotFit."""
        if self.outline is None or self.outline.key != _key(structure, leaves):
            outline = Outline(structure, leaves, self.room, self.memory.numel())
            self.lay_out(outline)
            # Without waiting for the GPU: the driver takes the header at once, and the next call's work need not wait.
            self.memory[: outline.header.numel()].copy_(outline.header, non_blocking=True)
        self._refuse_arenas(tensor for _, tensor in leaves)
        copy_all(self.targets, [tensor for _, tensor in leaves])

    def lay_out(self, outline: Outline) -> None:
        """Makes `put` and `pack` expect outputs like these. The header must be written by `write_headers`."""
        self.outline = outline
        self.targets = outline.targets(self.memory)


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
            shape = numbers[: min(dims, MAX_DIMS)]
            elements = 1
            for n in shape:
                elements *= max(n, 0)
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
