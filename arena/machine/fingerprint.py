"""The fingerprint of a machine and its software: what measurements depend on beyond kernel and setting.

A comparison of results with different fingerprints always shows that they differ.
"""

import functools
import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from arena.machine.facts import gpu_details, installed_version
from arena.machine.gpu_software import NCCL
from sandbox.machine import nvml
from sandbox.machine.devices import kind_of


class Machine(msgspec.Struct, frozen=True):
    """A machine as recorded in results, without host name: equal hardware and software is the same machine."""

    devices: str
    """ "4 × NVIDIA H200", or the processor's name and number of cores."""
    driver: str
    """Version of the GPU driver; empty for CPU ranks."""
    torch: str
    collectives: str
    """ "NCCL 2.27.5", or "gloo" (part of torch)."""

    @property
    def digest(self) -> str:
        """A hash of all fields, 12 characters."""
        return hashlib.sha256("\n".join(msgspec.structs.astuple(self)).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return " · ".join(filter(None, (self.devices, self.driver and f"driver {self.driver}", self.software)))

    @property
    def software(self) -> str:
        """ "torch 2.9.1, NCCL 2.27.5"."""
        return f"torch {self.torch}, {self.collectives}"


@functools.cache
def this_machine(device: str) -> Machine:
    """Describes this machine for ranks on one kind of device ("cpu" or "cuda"). Does not import torch."""
    torch = installed_version("torch") or "(missing)"
    if not kind_of(device).on_gpus:
        cores = len(os.sched_getaffinity(0))
        return Machine(f"{_processor()}, {cores} cores", "", torch, "gloo")
    names = [gpu.name for gpu in gpu_details()]
    kinds = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    return Machine(", ".join(kinds) or "GPUs without NVML", _driver(), torch, f"NCCL {_nccl()}")


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return os.uname().machine


def _driver() -> str:
    try:
        version = nvml.call("nvmlSystemGetDriverVersion")
    except nvml.NvmlMissing:
        return "unknown"
    return version.decode() if isinstance(version, bytes) else str(version)


def _nccl() -> str:
    """Returns the NCCL wheel's version, or "of torch": reading a built-in NCCL's version needs torch."""
    return next((version for name in NCCL if (version := installed_version(name))), "of torch")
