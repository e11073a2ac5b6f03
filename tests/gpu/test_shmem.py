"""Kernels with NVSHMEM: examples and starter pass; each fault gets its verdict and affects no other run."""

import os
from pathlib import Path

import pytest

import sandbox.kit
from arena.workspace.named_kernels import starter
from sandbox.machine.backends import named
from sandbox.protocol.verdict import Verdict

KIT = Path(sandbox.kit.__file__).parent
KERNELS = Path(__file__).with_name("kernels")
SHMEM = named("shmem")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.peers,
    pytest.mark.skipif(bool(SHMEM.availability().advice), reason=SHMEM.availability().found),
]
EXAMPLES = {"1": "allreduce_shmem", "2": "allgather_shmem", "8": "alltoall_shmem"}
ON_DEVICE = {Verdict.DEVICE_ERROR}
FAULTS = {
    "shmem_wrong_pe": ({Verdict.DEVICE_ERROR, Verdict.TIMEOUT}, ""),
    "shmem_wrong_pe_on_the_host": ({Verdict.CRASH}, "there is no PE 2 in a world of 2"),
    "shmem_missing_barrier": ({Verdict.TIMEOUT}, ""),
    "shmem_second_init": ({Verdict.LOAD_ERROR, Verdict.CRASH}, "initialised in this process already"),
    "shmem_torch_backend": ({Verdict.LOAD_ERROR, Verdict.CRASH}, "initialised in this process already"),
    "shmem_out_of_heap": ({Verdict.CRASH}, "symmetric memory"),
    "shmem_out_of_heap_itself": ({Verdict.CRASH}, ""),
    "shmem_signal_never_sent": (ON_DEVICE, ""),
    "shmem_without_init": (ON_DEVICE | {Verdict.CRASH}, ""),
    "shmem_free_twice": ({Verdict.CRASH}, "was freed already"),
    "shmem_free_twice_itself": ({Verdict.CRASH}, ""),
}
"""Verdicts that a kernel with a fault may get, and words of its failure. `_itself`: it calls NVSHMEM behind the kit's back."""
ITSELF = {"nvshmem.free(": "nvshmem.dll.nvshmem_free(", ".allocate(64 << 30)": ".dll.nvshmem_malloc(64 << 30)"}


def left_in_shared_folders() -> set[str]:
    """Names of NVSHMEM's files in the shared folders of this machine."""
    return {name for folder in ("/dev/shm", "/tmp") for name in os.listdir(folder) if "nvshmem" in name}


@pytest.mark.parametrize(("preset", "dtype"), [("tiny", "float32"), ("paper", "bfloat16")])
@pytest.mark.parametrize("problem", EXAMPLES)
def test_examples_pass(passes, problem, dtype, preset):
    source = (KIT / "shmem" / "examples" / f"{EXAMPLES[problem]}.py").read_text()
    result = passes(problem, source, dtype=dtype, preset=preset)
    assert SHMEM.label in result.labels


@pytest.mark.parametrize("problem", EXAMPLES)
def test_examples_serve_sizes_that_nothing_divides(passes, problem):
    sizes = {"M": 6, "N": 7} if problem == "8" else {"M": 5, "N": 7}
    passes(problem, (KIT / "shmem" / "examples" / f"{EXAMPLES[problem]}.py").read_text(), dtype="float32", **sizes)


def test_the_starter_passes_and_so_does_its_kernel(judge, passes):
    text = starter(judge.catalogue.find("1"), "shmem")
    passes("1", text)
    passes("1", f"{text}\n\ndef solution(tensor):\n    return all_reduce(tensor)\n")


@pytest.mark.parametrize("name", ["shmem_torch_ops", "shmem_triton"])
def test_nvshmem_by_torch_and_by_triton_passes(passes, name):
    passes("2", (KERNELS / f"{name}.py").read_text())


@pytest.mark.parametrize("name", FAULTS)
def test_fault_gets_its_verdict_and_hurts_nobody_else(judge, passes, name):
    before = left_in_shared_folders()
    verdicts, words = FAULTS[name]
    text = (KERNELS / f"{name.removesuffix('_itself')}.py").read_text()
    for of_kit, own in ITSELF.items() if name.endswith("_itself") else ():
        text = text.replace(of_kit, own)
    result = judge.run("1", text, name=f"{name}.py")
    told = f"{result.detail}\n{result.failure.text if result.failure else ''}"
    assert result.verdict in verdicts, f"{result.verdict}: {told}"
    assert words in told
    assert judge.seconds < 45
    passes("2", (KIT / "shmem" / "examples" / "allgather_shmem.py").read_text())
    assert left_in_shared_folders() <= before
