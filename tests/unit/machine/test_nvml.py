"""Queries of NVML through the real pynvml, with the fake driver."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from waiting import PATIENCE_S

from sandbox.machine.nvml import Gpu, visible

GPUS = [Gpu(n, n, f"GPU-{name}-0000", "NVIDIA H200", 143771) for n, name in enumerate(("aa01", "aa02", "bb03"))]
Ask = Callable[..., str]


@pytest.fixture
def ask(with_driver: Callable[..., "subprocess.CompletedProcess[str]"]) -> Ask:
    """ask(expression): evaluates it with sandbox.machine.nvml and the fake driver; returns what is printed."""

    def run(expression: str, **knobs: object) -> str:
        program = f"from sandbox.machine.nvml import *; import sys; print({expression}); print('torch' in sys.modules)"
        done = with_driver(program, **knobs)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
        answer, torch = done.stdout.splitlines()
        assert torch == "False"
        return answer

    return run


def test_the_gpus_are_listed_in_the_drivers_order(ask: Ask) -> None:
    assert ask("[(g.index, g.minor, g.name, g.memory_mib) for g in gpus()]", GPUS=2, MINOR_0=5) == (
        "[(0, 5, 'NVIDIA H200', 143771), (1, 1, 'NVIDIA H200', 143771)]"
    )
    assert ask("gpus()[1].uuid") == "GPU-abcd0001-0000-1111-2222-333344445555"


def test_kernels_are_built_for_architectures_of_gpus(
    with_driver: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    program = "from sandbox.machine.nvshmem_package import architectures; print(architectures())"
    done = with_driver(program, GPUS=3)
    assert done.stdout.strip() == "['sm_90']", done.stderr
    assert with_driver(program, GPUS=3, MAJOR_1=10).stdout.strip() == "['sm_100', 'sm_90']"
    assert with_driver(program, INIT=-9).stdout.strip() == "[]"


def test_what_container_may_not_use_is_left_out(ask: Ask) -> None:
    """The driver counts all four GPUs but refuses a handle for one of them."""
    assert ask("[g.index for g in gpus()]", HANDLE_1=-4) == "[0, 2, 3]"


def test_driver_may_write_behind_a_field(with_driver: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    program = """from sandbox.machine.nvml import ALL_LINKS, field, gpus
kept, gpu = [bytes(9) for _ in range(20000)], gpus()[0]
del kept[::7]  # what a read allocates has kept objects behind it
read = [(field(gpu, 138, ALL_LINKS), bytes(9)) for _ in range(300)]
print({type(each) for each in kept})"""
    assert with_driver(program, OVERRUN=15).stdout == "{<class 'bytes'>}\n"


def test_a_lost_gpu_is_named(ask: Ask) -> None:
    assert ask("gpus()", HANDLE_2=-15) == (
        "sandbox.machine.nvml.NvmlMissing: nvmlDeviceGetHandleByIndex(2): GPU is lost"
    )
    lost = "recovery(Gpu(2, 2, 'GPU-x', 'NVIDIA H200', 1))"
    assert ask(lost, HANDLE_2=-15) == "the driver has lost it"
    assert ask(lost, ECC_2=-15) == "the driver has lost it"
    assert ask(lost, ECC_2=-16) == "the driver asks for a reset of the GPU"
    assert ask(lost, ECC_2=-999) == "sandbox.machine.nvml.NvmlMissing: nvmlDeviceGetTotalEccErrors: Unknown Error"


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({}, ""),
        ({"RECOVERY": 1}, "the driver asks for a reset of the GPU"),
        ({"RECOVERY": 99}, "the driver asks for recovery action 99"),
        (
            {"RECOVERY": 2, "ROWS_PENDING": 1},
            "the driver asks for a reboot of the machine; memory rows wait for a reset to be remapped",
        ),
        ({"RECOVERY": -2, "ECC": -4}, ""),  # an older driver; a user without permission
    ],
)
def test_health_in_words(ask: Ask, knobs: dict[str, int], words: str) -> None:
    assert ask("recovery(gpus()[0])", **knobs) == words


def test_who_else_is_there(ask: Ask) -> None:
    assert ask("[compute_pids(g) for g in gpus()]", GPUS=2, PID_1=4711) == "[set(), {4711}]"
    assert ask("compute_pids(gpus()[0])", PID=-4) == "set()"
    assert ask("[memory_used_mib(g) for g in gpus()]", GPUS=2, USED_MIB_1=60000) == "[1024, 60000]"


def test_a_driver_that_does_not_come_up(ask: Ask) -> None:
    assert ask("gpus()", INIT=-9) == "sandbox.machine.nvml.NvmlMissing: nvmlInit: Driver Not Loaded"
    assert ask("gpus()", INIT=-18).startswith("sandbox.machine.nvml.NvmlMissing: nvmlInit: RM has detected an NVML/RM")
    assert ask("gpus()", GPUS=-999) == "sandbox.machine.nvml.NvmlMissing: nvmlDeviceGetCount: Unknown Error"


def test_no_library_and_no_package() -> None:
    program = (
        "import ctypes, sys; from sandbox.machine import nvml\n"
        "def refuse(name, *rest): raise OSError(name)\n"
        "{}\n"
        "try: nvml.gpus()\n"
        "except nvml.NvmlMissing as missing: print(missing)\n"
    )
    # pynvml reads ctypes.CDLL when it is imported; `refuse` does what dlopen does without a driver.
    for lack, said in (
        ("ctypes.CDLL = refuse", "nvmlInit: NVML Shared Library Not Found\n"),
        ("sys.modules['pynvml'] = None", "the package nvidia-ml-py is not installed (pip install nvidia-ml-py)\n"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program.format(lack)], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert done.stdout == said


@pytest.mark.parametrize(
    ("allowed", "seen"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("0,-1,2", [0]),
        ("0,3,1", [0]),
        ("0,,1", [0]),
        ("1,1", []),
        ("1st,2nd", [1, 2]),
        ("-1", []),
        ("no", []),
        ("GPU-bb,GPU-aa01", [2, 0]),
        ("GPU-bb,GPU-aa,GPU-aa01", [2]),
        ("GPU-bb,0", [2]),
        ("0,GPU-bb", [0]),
        ("GPU-bb,GPU-bb03", []),
        ("MIG-GPU-aa01/1/0", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(allowed: str | None, seen: list[int]) -> None:
    assert [gpu.index for gpu in visible(GPUS, allowed)] == seen


def test_visible_is_of_places_where_driver_hides_gpu() -> None:
    """CUDA numbers the GPUs it can use: with GPU 0 hidden from this container, CUDA's 0 is the driver's 1."""
    assert [gpu.index for gpu in visible(GPUS[1:], "1,0")] == [2, 1]
