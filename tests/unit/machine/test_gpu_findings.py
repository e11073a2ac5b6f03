"""The doctor on a machine with GPUs: the fake driver, and packages that consist of metadata alone."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

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


def lines(findings: dict[str, dict[str, str]], *names: str) -> list[str]:
    return [f"{findings[name]['state']}: {findings[name]['found']}" for name in names]


def test_a_machine_as_it_should_be(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor(GPUS=8)
    names = ("GPUs", "driver", "NVLink", "P2P", "multicast", "GPU health", "GPU processes", "persistence")
    assert lines(found, *names) == [
        "ok: 8 x NVIDIA H200 (140 GiB)",
        "ok: 580.159.04, up to CUDA 13.0; torch is for CUDA 13.0",
        "ok: all to all, NV18 through switches; 18 links up on each GPU",
        "ok: every GPU reads and writes every other's memory",
        "ok: the GPUs are part of an NVLink fabric that is up",
        "ok: no uncorrectable memory error, and the driver asks for nothing",
        "ok: none but our own: the GPUs are free",
        "ok: the driver stays loaded",
    ]
    assert lines(found, "NCCL", "CuPy", "nvcc", "Triton") == [
        "ok: nvidia-nccl-cu13 2.28.9",
        "ok: cupy-cuda13x 14.2.0",
        f"ok: 13.0 at {tmp_path}/cuda/bin/nvcc",
        "ok: 3.6.0",
    ]


def test_a_machine_in_a_poor_state(doctor: Doctor) -> None:
    found = doctor(
        GPUS=4,
        PEERED=1,
        P2P_READ_3=1,
        FABRIC_1=1,
        ECC_2=7,
        PID_0=os.getpid(),
        PID_1=4_000_000_000,
        USED_MIB_3=60000,
        PERSISTENCE_1=0,
        CUDA=12080,
        nvcc="12.8",
        packages={"torch": "2.11.0", "cupy-cuda12x": "13.6.0", "nvidia-nccl-cu12": "2.27.3"},
    )
    names = ("NVLink", "P2P", "multicast", "GPU health", "persistence", "NCCL", "CuPy", "Triton", "driver")
    assert lines(found, *names) == [
        "limited: NV18, but none between 0-2, 0-3, 1-2, 1-3",
        "limited: not between 0-3, 1-3, 2-3 (the chipset does not support it)",
        "limited: the GPUs are part of no NVLink fabric that is up",
        "limited: GPU 2: uncorrectable memory errors: 7",
        "limited: off on GPU 1",
        "limited: nvidia-nccl-cu12 2.27.3, but torch is for CUDA 13",
        "limited: cupy-cuda12x 13.6.0, but torch is for CUDA 13",
        "limited: not installed",
        "limited: 580.159.04, up to CUDA 12.8; torch is for CUDA 13.0",
    ]
    assert found["nvcc"]["found"].endswith("but torch is for CUDA 13")
    others = found["GPU processes"]["found"]
    assert f"({os.getpid()}); GPU 1: 4000000000; " in others
    assert "GPU 3: 60000 MiB are taken by hidden processes (other containers or users)" in others
    assert all(finding["advice"] for finding in found.values() if finding["state"] != "ok")


def test_without_nvlink_and_without_packages(doctor: Doctor) -> None:
    found = doctor(GPUS=2, LINKS=-3, P2P_NVLINK=5, FABRIC=-3, CUDA=-3, packages={"torch": "2.11.0"})
    assert lines(found, "NVLink", "multicast", "driver", "NCCL") == [
        "limited: none between the 2 GPUs; links up on each: 0 0",
        "limited: the driver does not say whether the GPUs are part of an NVLink fabric",
        "ok: 580.159.04",
        "limited: no nvidia-nccl package: its version is not known",
    ]


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"GPUS": 4}, "ok: all to all, NV18; 18 links up on each GPU"),
        ({"GPUS": 2, "LINKS_1": 9}, "limited: between all pairs, but not alike: NV9; links up on each: 18 9"),
    ],
)
def test_in_virtual_machine_that_hides_far_ends(doctor: Doctor, knobs: dict[str, int], words: str) -> None:
    """The links are up, and the driver reports that pairs are linked, but not by what."""
    assert lines(doctor(REMOTE=-3, **knobs), "NVLink") == [words]


def test_visible_devices_and_multicast_turned_off(doctor: Doctor) -> None:
    found = doctor(
        GPUS=8,
        environment={"CUDA_VISIBLE_DEVICES": "GPU-abcd0005,GPU-abcd0002", "NCCL_NVLS_ENABLE": "0"},
        ECC_5=1,
        ECC_0=1,
    )
    assert lines(found, "GPUs", "multicast", "GPU health") == [
        "ok: 2 x NVIDIA H200 (140 GiB)",
        "limited: turned off: NCCL_NVLS_ENABLE=0",
        "limited: GPU 5: uncorrectable memory errors: 1",
    ]


def test_one_gpu_has_nothing_to_be_linked_to(doctor: Doctor) -> None:
    found = doctor(GPUS=1)
    assert not {"NVLink", "P2P"} & set(found)


@pytest.mark.parametrize(
    ("knobs", "words"),
    [({"INIT": -9}, "nvmlInit: Driver Not Loaded"), ({"HANDLE_1": -15}, "nvmlDeviceGetHandleByIndex(1): GPU is lost")],
)
def test_a_driver_that_does_not_answer(doctor: Doctor, knobs: dict[str, int], words: str) -> None:
    found = doctor(**knobs)
    assert lines(found, "GPUs", "NVML", "nvcc")[:2] == ["ok: 8 x unknown", f"limited: {words}"]
