"""Where an iteration's tensors lie: the layout of input and output slots. Rank side (imports torch).

An arena is divided into equal slots, one per iteration of a batch. An input slot holds the drawn tensors one after another.
An output slot starts with a header in which the shim notes what was returned; tensors follow it, contiguous.
"""

import struct
import warnings
from typing import Any

import torch

from sandbox.memory import up

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)
_CODE = {dtype: code for code, dtype in enumerate(DTYPES)}
MAX_DIMS = 8
TEXT = 1024
_HEAD = struct.Struct("<QII")  # written, leaves, length of the structure text
_LEAF = struct.Struct("<BBH4xq" + "q" * 2 * MAX_DIMS)  # dtype, dims, device, bytes, shape, strides
WRITTEN = 0x5045_4E5F_444F_4E45
POISON = 0xA5
FIRST_LEAF = up(_HEAD.size + TEXT)


class DoesNotFit(ValueError):
    """An output that no slot can hold: too many tensors, too many dimensions, an unknown dtype or too many bytes."""


def bytes_of(mapping: Any) -> torch.Tensor:
    """A flat uint8 tensor over a memory mapping (no copy)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a read-only buffer is exactly what is wanted here
        return torch.frombuffer(mapping, dtype=torch.uint8)


def view(
    memory: torch.Tensor, offset: int, shape: list[int] | torch.Size, dtype: torch.dtype
) -> torch.Tensor:
    """A contiguous tensor at a byte offset of flat uint8 memory."""
    count = 1
    for n in shape:
        count *= n
    size = count * dtype.itemsize
    return memory[offset : offset + size].view(dtype).view(shape)


def lay_out(tensors: dict[str, torch.Tensor]) -> tuple[list[list[Any]], int]:
    """[[name, dtype code, shape, offset]...] for an input slot, and the slot's bytes."""
    offset = 0
    table = []
    for name, tensor in tensors.items():
        table.append([name, _CODE[tensor.dtype], list(tensor.shape), offset])
        offset = up(offset + tensor.numel() * tensor.element_size())
    return table, max(offset, 64)


def read_inputs(memory: torch.Tensor, base: int, table: list[list[Any]]) -> dict[str, torch.Tensor]:
    """The tensors of an input slot as views of its memory."""
    return {name: view(memory, base + offset, shape, DTYPES[code]) for name, code, shape, offset in table}


def header_bytes(leaves: int) -> int:
    """Bytes of the header of an output slot that may hold this many tensors."""
    return up(FIRST_LEAF + leaves * _LEAF.size)


class Slot:
    """One output slot. `pack` is on the clock: it repeats the last layout when shapes have not changed."""

    def __init__(self, memory: torch.Tensor, room: int) -> None:
        """memory: flat uint8 [slot bytes]; room: how many tensors the header can describe."""
        self.memory = memory
        self.room = room
        self._key: tuple[Any, ...] | None = None
        self._header = torch.empty(0, dtype=torch.uint8)
        self._targets: list[torch.Tensor] = []

    def pack(self, structure: str, leaves: list[tuple[str, torch.Tensor]]) -> None:
        """Copies an output into the slot. Raises DoesNotFit."""
        key = (structure, [(t.shape, t.dtype, t.stride(), t.device.type) for _, t in leaves])
        if key != self._key:
            self._plan(structure, leaves)
            self._key = key
        for target, (_, tensor) in zip(self._targets, leaves, strict=True):
            target.copy_(tensor)
        self.memory[: self._header.numel()].copy_(self._header)

    def ready(self, structure: str, leaves: list[tuple[str, torch.Tensor]]) -> None:
        """Lays the slot out for outputs like these, off the clock."""
        self._plan(structure, leaves)
        self._key = (structure, [(t.shape, t.dtype, t.stride(), t.device.type) for _, t in leaves])

    def _plan(self, structure: str, leaves: list[tuple[str, torch.Tensor]]) -> None:
        text = structure.encode("ascii", "replace")
        if len(leaves) > self.room or len(text) > TEXT:
            raise DoesNotFit(f"{len(leaves)} tensors in {structure[:200]}")
        header = bytearray(header_bytes(self.room))
        _HEAD.pack_into(header, 0, WRITTEN, len(leaves), len(text))
        header[_HEAD.size : _HEAD.size + len(text)] = text
        offset = header_bytes(self.room)
        self._targets = []
        for index, (name, tensor) in enumerate(leaves):
            if tensor.dtype not in _CODE or tensor.layout is not torch.strided or tensor.dim() > MAX_DIMS:
                raise DoesNotFit(f"output {name}: {tensor.dtype}, {tensor.layout}, {tensor.dim()} dimensions")
            size = tensor.numel() * tensor.element_size()
            if offset + size > self.memory.numel():
                raise DoesNotFit(
                    f"output {name} has shape {list(tensor.shape)}: larger than anything the baseline returns"
                )
            shape = list(tensor.shape) + [0] * (MAX_DIMS - tensor.dim())
            strides = list(tensor.stride()) + [0] * (MAX_DIMS - tensor.dim())
            device = 0 if tensor.device.type == "cpu" else 1
            _LEAF.pack_into(
                header,
                FIRST_LEAF + index * _LEAF.size,
                _CODE[tensor.dtype],
                tensor.dim(),
                device,
                size,
                *shape,
                *strides,
            )
            self._targets.append(view(self.memory, offset, tensor.shape, tensor.dtype))
            offset = up(offset + size)
        self._header = torch.frombuffer(header, dtype=torch.uint8).to(self.memory.device)


class Unpacked:
    """What a slot says was returned, read by the trusted side: every number in it may be a lie, so all are bounded."""

    def __init__(self, memory: torch.Tensor, room: int) -> None:
        """memory: flat uint8 [slot bytes], the trusted side's own copy."""
        raw = memory[: header_bytes(room)].cpu().numpy().tobytes()
        written, count, length = _HEAD.unpack_from(raw, 0)
        self.written = written == WRITTEN
        self.structure = ""
        self.tensors: list[torch.Tensor] = []
        self.strides: list[list[int]] = []
        self.devices: list[int] = []
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
            offset = up(offset + size)
