"""Calls a solution under a profile, with inputs that are ready before each call."""

from collections.abc import Callable
from typing import Any

import torch

from problems.setting import RankSetting
from sandbox.rank.problem_code import Leaves, ProblemCode

CACHED_BYTES, MOST_SETS = 256 << 20, 8
"""Bytes of inputs that exceed a GPU's cache, and most sets of inputs."""


class ProfiledCalls:
    """Makes calls one after the other, with arguments that are assembled before."""

    def __init__(
        self, code: ProblemCode, setting: RankSetting, solution: Callable[..., Any], seed: int, *, rotate: bool
    ) -> None:
        """rotate: alternate between several sets of inputs, so that no cache holds them."""
        self._code = code
        self._setting = setting
        self._solution = solution
        first = code.draw(setting, seed)
        size = sum(tensor.numel() * tensor.element_size() for tensor in first.values())
        count = min(MOST_SETS, -(-CACHED_BYTES // max(size, 1))) if rotate else 1
        self._sets: list[Leaves] = [first, *(code.draw(setting, seed + more) for more in range(1, count))]
        self._kept = [None if code.problem.mutates else self._arguments(drawn) for drawn in self._sets]
        self._turn = 0

    def make(self, count: int) -> None:
        """Makes `count` calls. Arguments that solution may write to are copied before each call."""
        for _ in range(count):
            self.prepared()()

    def prepared(self) -> Callable[[], Any]:
        """The next call, with its arguments."""
        self._turn = (self._turn + 1) % len(self._sets)
        arguments = self._kept[self._turn] or self._arguments(self._sets[self._turn])
        grad = getattr(self._code.inputs, "GRAD", True)

        def call() -> Any:
            with torch.set_grad_enabled(grad):
                return self._solution(*arguments)

        return call

    def _arguments(self, drawn: Leaves) -> tuple[Any, ...]:
        return self._code.arguments(self._code.with_copies(drawn), self._setting)
