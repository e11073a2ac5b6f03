"""Flattened results hold no memory once they are unreferenced: on GPUs a result may take gigabytes."""

import gc
import weakref

import torch

from sandbox.memory.trees import flatten, unflatten


def test_memory_is_free_without_a_collection_of_garbage():
    gc.disable()
    try:
        value = (torch.zeros(3), {"a": [torch.zeros(2), None, 4]})
        structure, leaves = flatten(value)
        again = unflatten(structure, [tensor for _, tensor in leaves])
        storages = [weakref.ref(tensor.untyped_storage()) for _, tensor in leaves]
        held = [weakref.ref(tensor) for _, tensor in leaves]
        assert all(reference() is not None for reference in held)
        del value, leaves, again
        assert [reference() for reference in held] == [None] * 3
        assert [reference() for reference in storages] == [None] * 3
    finally:
        gc.enable()


def test_numbers_are_on_the_cpu_whatever_device_a_kernel_made_the_default():
    with torch.device("meta"):
        leaves = flatten((1, 2.5, torch.Size((3, 4))))[1]
    assert {tensor.device.type for _, tensor in leaves} == {"cpu"}
