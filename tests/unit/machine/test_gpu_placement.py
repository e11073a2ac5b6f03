"""Which GPUs a world gets, and whether they are sound for the next one, with the fake driver."""

import subprocess
from collections.abc import Callable

import pytest

Ask = Callable[..., str]


@pytest.fixture
def ask(with_driver: Callable[..., "subprocess.CompletedProcess[str]"]) -> Ask:
    """ask(expression): evaluates it with both modules in a process with the fake driver; returns what is printed."""

    def run(expression: str, visible: str | None = None, **knobs: object) -> str:
        modules = "from sandbox.machine.placement import *; from sandbox.machine.devices import *"
        program = f"{modules}; cuda = KINDS['cuda']; print({expression})"
        environment = {"CUDA_VISIBLE_DEVICES": visible} if visible is not None else {}
        done = with_driver(program, environment, **knobs)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_world_gets_first_gpus_left_to_it(ask):
    assert ask("[gpu.minor for gpu in rank_gpus(2)]") == "[0, 1]"
    assert ask("[gpu.minor for gpu in rank_gpus(2)]", visible="3,1,0") == "[3, 1]"
    assert ask("[gpu.minor for gpu in rank_gpus(8)]", GPUS=3) == "[0, 1, 2]"
    assert ask("cuda.device_files(rank_gpus(1))[0]", visible="1", MINOR_1=6) == "/dev/nvidia6"


def test_inside_names_cannot_be_mixed_up_by_order(ask):
    inside = ask("cuda.environment(rank_gpus(2))['CUDA_VISIBLE_DEVICES']", visible="2,3")
    assert inside == ",".join(f"GPU-abcd000{n}-0000-1111-2222-333344445555" for n in (2, 3))


def test_gpu_numbers_stay_without_driver(ask):
    assert ask("[(gpu.minor, gpu.uuid) for gpu in rank_gpus(2)]", visible="2,3", INIT=-9) == "[(2, ''), (3, '')]"
    assert ask("'CUDA_VISIBLE_DEVICES' in cuda.environment(rank_gpus(1))", INIT=-9) == "False"


def test_worlds_on_different_gpus_never_meet_on_core(ask):
    sixteen = "(setattr(os, 'sched_getaffinity', lambda _: set(range(16))), [gpu.cores for gpu in rank_gpus(4)])[1]"
    assert ask(sixteen, visible="2,3", GPUS=4) == "[(8, 9, 10, 11), (12, 13, 14, 15)]"
    assert ask(sixteen, visible="1", GPUS=8) == "[(2, 3)]"
    sides = {"GPUS": 4, "CORES": 0x0F, "CORES_2": 0xF0, "CORES_3": 0xF0}
    assert ask(sixteen, **sides) == "[(0, 1), (2, 3), (4, 5), (6, 7)]"
    assert ask(sixteen, GPUS=2, CORES=0xF0000) == "[(0, 1, 2, 3), (4, 5, 6, 7)]"  # none of these may be used


def test_ranks_share_cores_where_gpus_outnumber_them(ask):
    one = "(setattr(os, 'sched_getaffinity', lambda _: {5}), [cores_of(r, 2, rank_gpus(2)) for r in range(2)])[1]"
    assert ask(one, GPUS=4) == "[[5], [5]]"


def test_killed_world_must_be_gone_from_its_gpus(ask):
    health = "cuda.gpu_fault(rank_gpus(2), {4711}, 0.05)"
    assert ask(health) == ""
    assert ask(health, PID_1=4711) == "a killed kernel still holds GPU 1 after 0 s"
    assert ask(health, PID_1=4712) == ""
    assert ask(health, PID_3=4711) == ""


def test_only_other_programs_are_others(ask):
    others = "(setattr(os, 'getpid', lambda: 4711), cuda.used_by_others(rank_gpus(2)))[1]"
    assert ask(others, PID=4711, PID_1=4712) == "True"
    assert ask(others, PID=4711, PID_1=4711, PID_3=4712) == "False"  # the last one is no GPU of the world
    assert ask(others, PID=4712, PID_1=4713) == "False"  # the driver's numbers are those of another namespace
    assert ask(others, INIT=-9) == "False"


def test_a_gpu_that_is_not_sound_is_named(ask):
    health = "cuda.gpu_fault(rank_gpus(2), set(), 0.05)"
    assert ask(health, RECOVERY_1=1) == "GPU 1: the driver asks for a reset of the GPU"
    assert ask(health, ECC_0=3) == "GPU 0: uncorrectable memory errors: 3"
    assert "GPU is lost" in ask("cuda.gpu_fault([RankGpu(1)], set(), 0.05)", HANDLE_1=-15)
    assert ask(health, INIT=-9) == ""
