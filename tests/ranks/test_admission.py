"""The admission test of problems: an honest problem is admitted, and every fault of a problem is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from waiting import PATIENCE_S

from problems.specification import ProblemError, load_problem
from sandbox.admission.admission import admit, require_code
from sandbox.admission.cheats import coarse_messages, in_blocks, no_communication
from sandbox.admission.row import CHEATS, NOT_APPLICABLE, AdmissionRow, objections
from sandbox.protocol.verdict import Verdict

Examined = Callable[..., AdmissionRow]

FIXED = """
import torch


def draw(setting):
    return {"x": torch.arange(8.0) + setting.rank}
"""
HONEST = """
import torch


def draw(setting):
    return {"x": setting.randn(8, setting.sizes.n)}
"""
ALONE = "def solution(x):\n    return x * 2\n"

ALONE_IN_THE_WORLD = {"input": Verdict.PASS, **dict.fromkeys(("silent", "int8_wire", "int16_wire"))}
"""With one rank, `input` is the answer and excused. The other cheats do not apply, because nothing is sent."""


@pytest.fixture
def examined(made_problem: Callable[..., Path]) -> Examined:
    """examined(world=2, inputs=..., baseline=..., check=...): the row of a tiny problem."""

    def examine(world: int = 2, timeout: float = PATIENCE_S, **files: str) -> AdmissionRow:
        return admit(load_problem(made_problem(**files)), world, "float32", timeout=timeout)

    return examine


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("def draw(:\n", "/inputs.py:1: invalid syntax"),
        ("def arguments(tensors, setting):\n    return {}\n", "/inputs.py defines no draw(...)"),
        ("import torch\n\nimport no_such_module\n", "/inputs.py:3: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_named(made_problem: Callable[..., Path], inputs: str, words: str) -> None:
    folder = made_problem(inputs=inputs)
    with pytest.raises(ProblemError) as refused:
        require_code(load_problem(folder))
    assert str(refused.value) == f"{folder}{words}"


@pytest.mark.parametrize("world", [1, 2])
def test_honest_problem_is_admitted_and_cheats_rejected(examined: Examined, world: int) -> None:
    row = examined(world)
    assert row.against == []
    assert (row.stem, row.world, row.dtype, row.structure) == ("901_total", world, "float32", "T")
    assert row.tried("baseline") == Verdict.PASS
    verdicts = {cheat: row.tried(cheat) for cheat in CHEATS}
    assert verdicts == {
        **dict.fromkeys(CHEATS, Verdict.WRONG_RESULT),
        "wrong_dtype": Verdict.WRONG_STRUCTURE,
        **(ALONE_IN_THE_WORLD if world == 1 else {}),
    }
    assert row.tried("rounded_once") == row.tried("other_order") == Verdict.PASS


LENIENT = {"check": "rms_floor = 0.2\nmax_floor = 0.2\n"}
PASSING: dict[str, dict[str, str]] = {
    "fp8 int8_wire bits6 drop_small": LENIENT,
    "zeros": {"baseline": "def solution(x):\n    return x * 0\n"},
    "constant": {"baseline": "def solution(x):\n    return x * 0 + 1\n"},
    "input": {"baseline": "def solution(x):\n    return x.clone()\n"},
    "other_trial": {"inputs": FIXED},
    "one_wrong": {"inputs": HONEST + "\ndef canonical(outputs, setting):\n    return outputs[:4]\n"},
    "silent": {"baseline": ALONE},
    "one_stale": {"check": "rms_floor = 90\nmax_floor = 90\n"},
    "int16_wire": {"check": "rms_floor = 1e-4\nmax_floor = 1e-3\n"},
}


@pytest.mark.parametrize("cheats", PASSING)
def test_cheats_that_pass_speak_against_admission(examined: Examined, cheats: str) -> None:
    files: dict[str, str] = {"check": "", **PASSING[cheats]}
    assert {f"{cheat} passes" for cheat in cheats.split()} <= {*examined(**files).against}


def test_what_card_excuses_does_not_speak_against_admission(made_problem: Callable[..., Path]) -> None:
    row = AdmissionRow(1, "01_total", 2, "float32", baseline=("PASS", ""), zeros=("PASS", ""), silent=("PASS", ""))
    for excuse, against in (
        ('other = "a reason"', ["zeros passes", "silent passes"]),
        ('zeros = "a reason"', ["silent passes"]),
        ('"zeros@2" = "a reason"', ["silent passes"]),
        ('"zeros@1" = "only in another world"', ["zeros passes", "silent passes"]),
        ('zeros = "a reason", "silent@2" = "another"', []),
    ):
        problem = load_problem(made_problem(check=f"excused = {{ {excuse} }}"))
        assert objections(problem, row) == against, excuse


def test_a_cheat_that_changes_nothing_does_not_apply(examined: Examined) -> None:
    signs = "import torch.distributed as d\ndef solution(x):\n    y = x.sign()\n    d.all_reduce(y)\n    return y\n"
    row = examined(baseline=signs)
    for cheat in ("int8_wire", "int16_wire", "bits6"):
        assert getattr(row, cheat) == (NOT_APPLICABLE, "it changes no output")
    assert row.tried("drop_small") == Verdict.WRONG_RESULT


def test_rounding_does_not_apply_to_integers(examined: Examined) -> None:
    whole = "import torch.distributed as dist\ndef solution(x):\n    y = (x * 1000).int()\n    dist.all_reduce(y)\n    return y\n"
    row = examined(baseline=whole, check='oracle = "baseline"')
    assert row.fp8 == (NOT_APPLICABLE, "rounding to fp8 changes nothing: no output is floating-point")
    assert row.against == []


FAULTS: dict[str, tuple[dict[str, str], str]] = {
    "draw without the generator": (
        {"inputs": HONEST.replace("setting.randn(8, setting.sizes.n)", "torch.randn(8, 64)")},
        "draw() gives different tensors for the same seed",
    ),
    "writes to an argument on the last rank": (
        {"baseline": "import torch.distributed as d\ndef solution(x):\n    x += d.get_rank()\n    return x * 2\n"},
        "baseline writes to ['x']: list them in `mutates` or clone",
    ),
    "returns an argument on the last rank": (
        {"baseline": "import torch.distributed as d\ndef solution(x):\n    return x if d.get_rank() else x * 1\n"},
        "output out aliases an argument: clone it or set check.may_alias",
    ),
    "narrows": (
        {"baseline": "def solution(x):\n    return x.float() * 2\n"},
        "output out: the oracle ran in torch.float32: the baseline narrows",
    ),
    "an oracle of another structure on the last rank": (
        {
            "inputs": HONEST + "\ndef oracle(tensors, setting, solution):\n    y = solution(tensors['x'])\n"
            "    return (y, y) if setting.rank else y\n"
        },
        "baseline returns T, the oracle (T,T)",
    ),
    "an output that no slot holds": (
        {"baseline": "def solution(x):\n    return (x * 2).reshape(1, 1, 1, 1, 1, 1, 1, 8, 64)\n"},
        "baseline: ('WRONG_STRUCTURE', 'rank 0: output out: ",
    ),
    "exact, though correct kernels differ": (
        {"baseline": "def solution(x):\n    return sum(x * 0.1 for _ in range(7))\n", "check": 'exact = ["*"]'},
        "rounded_once: ('WRONG_RESULT', 'rank 0: out: ",
    ),
    "refused sizes": (
        {
            "inputs": "from problems.setting import SizesRefused\n\ndef draw(setting):\n"
            "    raise SizesRefused('n must be odd')\n"
        },
        "inputs.py refuses the sizes: n must be odd",
    ),
    "an exception": ({"baseline": "def solution(x):\n    return x.no_such\n"}, "AttributeError: "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_problem_is_named(examined: Examined, fault: str) -> None:
    files, words = FAULTS[fault]
    against = examined(**files).against
    assert any(text.startswith(words) for text in against), against


def test_uncounted_outputs_do_not_count_as_wrong(examined: Examined) -> None:
    beside = "\ndef canonical(outputs, setting):\n    return outputs[1]\n"
    two = (
        "import torch.distributed as dist\n\ndef solution(x):\n"
        "    y = x[0].clone()\n    dist.all_reduce(y)\n    return x * 2, y\n"
    )
    assert examined(inputs=HONEST + beside, baseline=two).against == []


def test_messages_are_coarse_and_arrive(in_ranks: Callable[..., list[Any]]) -> None:
    def work(rank: int, world: int) -> list[bool]:
        own = torch.randn(64, generator=torch.Generator().manual_seed(rank))
        other = torch.randn(64, generator=torch.Generator().manual_seed(1 - rank))
        change = in_blocks(8)
        group = dist.group.WORLD
        received = torch.empty(64)
        with coarse_messages(change):
            dist.all_reduce(total := own.clone())
            dist.all_gather(parts := [torch.empty(64), torch.empty(64)], own)
            dist.all_to_all_single(swapped := torch.empty(64), own)
            messages = [dist.P2POp(dist.isend, own, 1 - rank, group), dist.P2POp(dist.irecv, received, 1 - rank, group)]
            for each in dist.batch_isend_irecv(messages):
                each.wait()
            dist.all_gather(uneven := [torch.empty(10), torch.empty(20)], own[: 10 + 10 * rank].clone())
            dist.broadcast(sent := own.clone(), src=0)
        first = own if rank == 0 else other
        coarse = change(other[: 20 - 10 * rank])
        return [
            torch.allclose(total, change(own) + change(other)),
            parts[1 - rank].equal(change(other)),
            swapped[32:].equal(change(other)[32 * rank :][:32]) or rank == 1,
            received.equal(change(other)),
            uneven[1 - rank].equal(coarse),
            sent.equal(change(first)),
            not change(own).equal(own),
        ]

    assert in_ranks(2, work) == [[True] * 7] * 2


def test_nobody_communicates_in_a_world_without_communication(in_ranks: Callable[..., list[Any]]) -> None:
    def work(rank: int, world: int) -> list[float]:
        own = torch.tensor([float(rank + 1)])
        with no_communication():
            dist.all_reduce(alone := own.clone())
            dist.all_gather(parts := [torch.full((1,), 9.0) for _ in range(world)], own)
            dist.broadcast(received := own.clone(), src=0)
            dist.reduce_scatter_tensor(scattered := torch.full((1,), 9.0), own.repeat(world))
        dist.all_reduce(together := own.clone())
        return [float(t) for t in (alone, parts[0], received, scattered, together)]

    assert in_ranks(2, work) == [[1.0, 1.0, 1.0, 1.0, 3.0], [2.0, 2.0, 0.0, 2.0, 3.0]]
