"""Arenas in host memory: a mapping has the file's bytes, keeps no descriptor open, and ends with its last tensor."""

import fcntl
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from sandbox.memory import host
from sandbox.memory.slots import bytes_of

SIZE = 8 * host.PAGE


def open_arenas() -> int:
    return sum("pkb-input" in os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink())


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:pkb-input")


def test_mapped_arena_has_no_shareable_descriptor():
    fd, written = host.input_arena(SIZE)
    written[:3] = b"abc"
    before = open_arenas()
    seen = bytes_of(host.map_input(fd))
    assert open_arenas() == before
    assert seen[:4].tolist() == [*b"abc", 0]
    assert seen.numel() == SIZE
    os.close(fd)
    empty = os.memfd_create("empty")
    with pytest.raises(OSError, match="cannot map an arena of 0 bytes: Invalid argument"):
        host.map_output(empty)
    os.close(empty)


@pytest.mark.parametrize(("make", "written"), [(host.input_arena, False), (host.output_arena, True)])
def test_nobody_resizes_an_arena_or_writes_inputs(make: Any, written: bool) -> None:
    fd, _ = make(SIZE)
    refused = [lambda: os.ftruncate(fd, 0), lambda: os.ftruncate(fd, 2 * SIZE)]
    refused.append(lambda: fcntl.fcntl(fd, host.F_ADD_SEALS, host.F_SEAL_GROW))
    (refused.append if not written else lambda write: write())(lambda: os.pwrite(fd, b"x", 0))
    for change in refused:
        with pytest.raises(PermissionError):
            change()
    os.close(fd)


def test_mapping_lives_as_long_as_tensor_over_it():
    fd, written = host.input_arena(SIZE)
    written[5:6] = b"x"
    before = mappings()
    part = bytes_of(host.map_input(fd))[5:6]
    os.close(fd)
    assert mappings() > before
    assert part.tolist() == [ord("x")]
    del part
    assert mappings() == before


def test_mapping_outlives_objects_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Mock()
    monkeypatch.setattr(host, "weakref", ends)
    fd, _ = host.input_arena(SIZE)
    host.map_input(fd)
    os.close(fd)
    assert ends.finalize.return_value.atexit is False  # a tensor over it may be used later


def test_an_output_arena_is_shared_and_writable():
    fd, read = host.output_arena(SIZE)
    memory = bytes_of(host.map_output(fd))
    memory[7] = 9
    assert read[7] == 9
    assert torch.equal(memory[:7], torch.zeros(7, dtype=torch.uint8))
    os.close(fd)
