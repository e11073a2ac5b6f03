"""Judges every way to write a GPU kernel: the kit's examples, starters, upstream's form, a folder, and faults of the GPU."""

from pathlib import Path

import pytest

from arena.workspace import kernels
from arena.workspace.named_kernels import starter
from benchmarks.attacks.attack_suite import read_kernel
from benchmarks.kernels import kernel_paths
from problems.catalogue import load_catalogue
from sandbox.machine.backends import backend_names
from sandbox.protocol.verdict import Verdict

pytestmark = pytest.mark.gpu

KERNELS = Path(__file__).with_name("kernels")
ATTACKS = Path(__file__).parents[1] / "attacks" / "kernels"
PROBLEM_OF = {"allreduce": "1", "allgather": "2", "reducescatter": "7", "alltoall": "8", "gemm": "13", "matmul": "16"}
ELSEWHERE = {"cpp", *backend_names()}
"""Name suffixes of examples that have tests of their own."""
EXAMPLES = {name: path for name, path in kernel_paths().items() if name.rpartition("_")[2] not in ELSEWHERE}
HOUSE = [
    pytest.param(problem.slug, marks=() if 1 in problem.worlds else pytest.mark.peers)
    for problem in load_catalogue().problems
    if problem.house_source
]
LARGE = {"M": 4096, "N": 2048}
HOUSE_LARGE = {
    "hyena_conv1d_boundary_exchange": {"D": 512, "C": 4096},
    "physicsnemo_distributed_rfft": {"B": 8},
    "physicsnemo_distributed_irfft": {"C": 10},
}
"""Reduced production sizes of problems whose sizes have other names."""
CUDA = [read_kernel(path) for path in sorted(ATTACKS.glob("*.py")) if "# device: cuda\n" in path.read_text()]
CUDA_ATTACKS = [kernel.name for kernel in CUDA if not kernel.open]
CUDA_ATTACKS += ["t19_maps_its_peers_inputs", "t29_asks_for_more_of_its_core"]

FAULTS = {
    "illegal_address": {Verdict.DEVICE_ERROR},
    "endless_kernel": {Verdict.TIMEOUT},
    "lonely_barrier": {Verdict.DEVICE_ERROR, Verdict.TIMEOUT, Verdict.CRASH},
    "one_rank_exits": {Verdict.CRASH},
    "too_much_memory": {Verdict.OUT_OF_MEMORY},
}
PEERS = {"lonely_barrier", "one_rank_exits"}
"""Faults that need several ranks."""
FIRST_CALL_S = 10.0
"""The deadline of the first call in sandbox/worlds/deadlines.py."""


def _example(name: str) -> tuple[str, str]:
    """(problem, text) of an example."""
    return PROBLEM_OF[name.partition("_")[0]], EXAMPLES[name].read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_passes_in_tiny(passes, name):
    passes(*_example(name))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_timed_at_production_size(passes, name):
    result = passes(*_example(name), preset="production", rounds=2, **LARGE)
    assert result.contender_us.call is not None
    assert result.contender_us.device is not None


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.endswith("_cuda") and "one_shot" not in name])
def test_cuda_example_serves_float32_and_odd_sizes(passes, name):
    problem, source = _example(name)
    passes(problem, source, dtype="float32", M=5, N=7)


@pytest.mark.parametrize("slug", HOUSE)
def test_a_house_kernel_passes(judge, passes, slug):
    problem = judge.catalogue.find(slug)
    passes(slug, problem.house_source)
    named = HOUSE_LARGE.get(slug, LARGE)
    sizes = {name: size for name, size in named.items() if name in problem.presets["production"]}
    passes(slug, problem.house_source, preset="production", **sizes)


@pytest.mark.parametrize("template", ["cuda", "triton"])
def test_a_starters_own_all_reduce_passes(judge, passes, template):
    text = starter(judge.catalogue.find("1"), template)
    passes("1", text + "\n\ndef solution(tensor):\n    return all_reduce(tensor)\n", rounds=1)


@pytest.mark.timeout(300)
def test_kernel_with_upstream_extension_passes_unchanged(passes):
    passes("1", (KERNELS / "upstream_extension.py").read_text(), preset="paper", rounds=1)


def test_triton_kernel_as_upstream_has_it_passes_unchanged(passes):
    passes("1", (KERNELS / "upstream_triton.py").read_text(), preset="paper", rounds=1)


@pytest.mark.parametrize("name", CUDA_ATTACKS)
def test_an_attack_on_the_gpu_ends_as_expected(judge, name):
    kernel = read_kernel(ATTACKS / f"{name}.py")
    for _ in range(kernel.runs):
        result = judge.run(kernel.problem, kernel.source, name=f"{name}.py", rounds=3)
        assert not kernel.surprise(result), result.detail
    assert judge.honest().verdict is Verdict.PASS


@pytest.mark.peers
@pytest.mark.parametrize(("preset", "rounds"), [("tiny", 0), ("production", 3)])
def test_two_shot_all_reduce_of_several_files_passes(passes, preset, rounds):
    kernel = kernels.read_kernel(KERNELS.with_name("folders") / "two_shot")
    passes("1", kernel.text, files=kernel.files, preset=preset, rounds=rounds, dtype="bfloat16")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.peers if name in PEERS else ()) for name in FAULTS]
)
def test_fault_gets_its_verdict_and_hurts_nobody_else(judge, name):
    result = judge.run("1", (KERNELS / f"{name}.py").read_text(), name=f"{name}.py")
    assert result.verdict in FAULTS[name], f"{result.verdict}: {result.detail}"
    assert result.failure.advice
    # A rank that computes gets the limit twice, as if it tuned variants. A wait for the GPU counts as computing.
    assert result.seconds.check < 2 * FIRST_CALL_S + 3
    assert judge.seconds < 45  # includes the start of a world
    after = judge.honest()
    assert after.verdict is Verdict.PASS, after.detail


def test_an_error_in_cuda_code_names_its_line(judge):
    source = (KERNELS / "does_not_compile.py").read_text()
    result = judge.run("1", source)
    assert result.verdict is Verdict.COMPILE_ERROR, result.detail
    assert result.failure.line is not None
    assert "no_such_name" in source.splitlines()[result.failure.line - 1]
    assert "no_such_name" in result.failure.text
