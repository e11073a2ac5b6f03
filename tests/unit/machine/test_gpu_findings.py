"""The doctor on a machine with GPUs: the fake driver, and packages that consist of metadata alone."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import os, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {'textual', 'torch', 'cupy'}: raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())

from importlib import metadata
site = os.environ['PYTHONPATH'].partition(':')[0]
def distribution(name, anywhere=metadata.distribution):
    if not name.startswith(('torch', 'triton', 'cupy', 'nvidia-nccl')): return anywhere(name)
    for found in metadata.distributions(name=name, path=[site]): return found
    raise metadata.PackageNotFoundError(name)
metadata.distribution = distribution

import arena.machine.doctor, arena.machine.facts
arena.machine.facts.device_files = lambda: 8
arena.machine.doctor.torch_fault = lambda: ''  # importing this machine's torch takes seconds
from arena.cli import main
main(['doctor', '--json'])
"""
"""A program in which Textual is not installed; torch and CuPy are, but must not be imported. The packages for kernels
are the test's own, first in PYTHONPATH, and not those of this machine."""
Doctor = Callable[..., dict[str, dict[str, str]]]


def package(site: Path, name: str, version: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def toolkit(folder: Path, release: str) -> Path:
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.48'\n", encoding="utf-8")
    nvcc.chmod(0o755)
    return folder


@pytest.fixture
def doctor(with_driver: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path) -> Doctor:
    """doctor(packages=None, ...): findings by name. By default, torch for CUDA 13.0 and its packages are installed."""

    def run(
        packages: Mapping[str, str] | None = None,
        nvcc: str = "13.0",
        environment: Mapping[str, str] | None = None,
        **knobs: object,
    ) -> dict[str, dict[str, str]]:
        site = tmp_path / "site"
        there = {"torch": "2.11.0+cu130", "nvidia-nccl-cu13": "2.28.9", "cupy-cuda13x": "14.2.0", "triton": "3.6.0"}
        for name, version in (there if packages is None else packages).items():
            package(site, name, version)
        (site / "torch").mkdir()
        (site / "torch" / "version.py").write_text("__version__ = '2.11.0'\ncuda: Optional[str] = '13.0'\n")
        installed = {
            "CUDA_HOME": str(toolkit(tmp_path / "cuda", nvcc)),
            "PYTHONPATH": f"{site}:{os.environ['PYTHONPATH']}",
        }
        done = with_driver(PROGRAM, {**(environment or {}), **installed}, **knobs)
        assert done.stdout, done.stderr
        return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}

    return run


PID = os.getpid()
NAMES = ("GPUs", "NVML", "driver", "NVLink", "P2P", "multicast", "GPU health", "GPU processes", "persistence")
NAMES += ("NCCL", "CuPy", "nvcc", "Triton")
"""The findings that say the same everywhere; their advice, too."""
OLD = {"torch": "2.11.0", "cupy-cuda12x": "13.6.0", "nvidia-nccl-cu12": "2.27.3"}
POOR = {"PEERED": 1, "P2P_READ_3": 1, "FABRIC_1": 1, "ECC_2": 7, "PID_0": PID, "PID_1": 4_000_000_000}
POOR |= {"USED_MIB_3": 60000, "PERSISTENCE_1": 0, "CUDA": 12080}
BARE = {"LINKS": -3, "P2P_NVLINK": 5, "FABRIC": -3, "CUDA": -3}
TWO = {"CUDA_VISIBLE_DEVICES": "GPU-abcd0005,GPU-abcd0002", "NCCL_NVLS_ENABLE": "0"}
MACHINES: dict[str, dict[str, Any]] = {
    "as it should be": {"GPUS": 8},
    "in a poor state": {"GPUS": 4, **POOR, "nvcc": "12.8", "packages": OLD},
    "without NVLink and packages": {"GPUS": 2, **BARE, "packages": {"torch": "2.11.0"}},
    # the links are up, and the driver reports that pairs are linked, but not by what
    "virtual, with the far ends hidden": {"GPUS": 4, "REMOTE": -3},
    "virtual, with unlike links": {"GPUS": 2, "LINKS_1": 9, "REMOTE": -3},
    "two visible devices, without multicast": {"GPUS": 8, "environment": TWO, "ECC_5": 1, "ECC_0": 1},
    "no driver": {"INIT": -9},
    "a lost GPU": {"HANDLE_1": -15},
    "no visible GPU": {"environment": {"CUDA_VISIBLE_DEVICES": ""}},
    "one GPU, and nvcc without a version": {"GPUS": 1, "nvcc": ""},
}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_with_gpus_has_its_findings(doctor: Doctor, tmp_path: Path, snapshot: object, machine: str) -> None:
    findings = doctor(**MACHINES[machine])
    told = (findings[name] for name in NAMES if name in findings)
    rows = (
        f"{each['state']:8} {each['name']:14} {each['found']}{each['advice'] and '  → '}{each['advice']}"
        for each in told
    )
    assert re.sub(rf"\S+ \({PID}\)", "a process", "\n".join(rows).replace(str(tmp_path), "")) == snapshot
