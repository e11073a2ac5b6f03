"""Trusted ranks redraw the iteration of a slot: for all ranks, or for one rank whose peers keep their inputs."""

import itertools
from types import SimpleNamespace

import torch
from opened_problems import PROBLEMS, opened

from problems.setting import RankSetting
from sandbox.memory import slots
from sandbox.protocol.messages import Draw, DrawAgain
from sandbox.rank.devices.device import Device
from sandbox.rank.problem_code import Leaves, ProblemCode
from sandbox.rank.trusted import TrustedRank

SEED, OTHER = 4242, 777


class OneSlot:
    """The part of a rank's arenas that drawing uses: its own inputs in one slot."""

    in_bytes, used, own = 1 << 30, 1, torch.empty(0)

    def __init__(self) -> None:
        self.tables: dict[int, object] = {}
        self.inputs: Leaves = {}

    def begin(self, count: int) -> None:
        pass

    def fill(self, slot: int, table: object, tensors: Leaves, *_: object) -> None:
        self.tables[slot] = table
        self.inputs = {name: tensor.clone() for name, tensor in tensors.items()}

    def touched(self, *_: object) -> list[int]:
        return []

    def inputs_of(self, slot: int) -> Leaves:
        return self.inputs


class Drawing(TrustedRank):
    """A trusted rank in this process, which has drawn one iteration."""

    def __init__(self, code: ProblemCode, setting: RankSetting) -> None:
        self.rank, self.code, self.setting = setting.rank, code, setting
        self.device = Device()
        self.arenas = OneSlot()  # type: ignore[assignment]
        self.comparison = SimpleNamespace(new_iterations=lambda: None)  # type: ignore[assignment]
        self.constant, self.meaningful = False, SimpleNamespace(new_iterations=lambda: None)  # type: ignore[assignment]
        self.said: list[object] = []
        self.reply = lambda order, contents, fds=(): self.said.append(contents)  # type: ignore[method-assign]
        self.draw(Draw([SEED], timed=False, sides=[]), [])

    def fits(self, order: DrawAgain) -> bool:
        self.draw_again(order, [])
        return bool(self.said[-1])

    @property
    def values(self) -> list[torch.Tensor]:
        return [tensor.clone() for tensor in self.arenas.inputs_of(0).values()]


def two_ranks(slug: str) -> list[Drawing]:
    found = opened(next(problem for problem in PROBLEMS if problem.slug == slug), "bfloat16")
    assert found is not None
    code, setting, _ = found
    return [Drawing(code, setting.replace(rank=rank)) for rank in range(2)]


def same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, some, others))


def test_only_inputs_of_one_rank_are_drawn_anew() -> None:
    ranks = two_ranks("allreduce")
    before = [rank.values for rank in ranks]
    assert all(rank.fits(DrawAgain(0, OTHER, alone=1)) for rank in ranks)
    assert all(same(rank.values, old) for rank, old in zip(ranks, before, strict=True))
    for rank in ranks:
        rank.fits(DrawAgain(0, OTHER, alone=1, replace=True))
    assert [same(rank.values, old) for rank, old in zip(ranks, before, strict=True)] == [True, False]


def test_slot_is_redrawn_alone_once() -> None:
    for rank in two_ranks("allreduce"):
        rank.fits(DrawAgain(0, OTHER, alone=0))
        rank.fits(DrawAgain(0, OTHER, alone=0, replace=True))
        assert not rank.fits(DrawAgain(0, OTHER + 1, alone=0))
        assert rank.fits(DrawAgain(0, OTHER + 2))
        rank.fits(DrawAgain(0, OTHER + 2, replace=True))
        assert rank.fits(DrawAgain(0, OTHER + 3, alone=0))


def test_inputs_that_ranks_share_do_not_fit_alone() -> None:
    ranks = two_ranks("physicsnemo_distributed_rfft")
    fits = [rank.fits(DrawAgain(0, OTHER, alone=1)) for rank in ranks]
    assert fits == [True, False]  # rank 1's inputs do not change, but must


def test_inputs_with_other_shapes_do_not_fit() -> None:
    for rank in two_ranks("allreduce"):
        rank.arenas.tables[0] = slots.lay_out({"tensor": torch.zeros(3)})[0]
        assert not rank.fits(DrawAgain(0, OTHER))
        assert not rank.fits(DrawAgain(0, OTHER, alone=rank.rank))


def test_timed_inputs_differ_where_upstreams_are_constant() -> None:
    first, _ = two_ranks("allreduce")
    rank = Drawing(first.code, first.setting.replace(distribution="upstream"))
    found = []
    for constant, timed, seed in ((True, False, SEED), (False, True, OTHER), (True, True, SEED), (True, True, OTHER)):
        rank.constant = constant
        rank.draw(Draw([seed], timed=timed, sides=[]), [])
        found.append(rank.values)
    assert [same(*pair) for pair in itertools.pairwise(found)] == [True, False, False]
    assert rank.comparison_of(0) is rank.meaningful


def test_large_inputs_that_upstream_never_changes() -> None:
    found = {}
    for slug in ("allreduce", "ddp", "gemm_allreduce"):
        rank, _ = two_ranks(slug)
        upstream = rank.setting.replace(distribution="upstream")
        found[slug] = rank.changing(rank.setting, [SEED, OTHER])[0] - rank.changing(upstream, [SEED, OTHER])[0]
    assert found["allreduce"] == {"tensor"}
    assert {"exp_avg_W1", "exp_avg_sq_W2"} <= found["ddp"]
    assert not found["gemm_allreduce"]
