"""A problem's Python: drawing inputs, assembling arguments, running the baseline and the oracle. Rank side (imports torch)."""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from problems.formula import evaluate
from problems.setting import RankSetting
from problems.specification import Problem, ProblemError
from sandbox.protocol.messages import TRIALS

_WORDS = 624
"""32-bit words in the state of the Mersenne Twister, which torch uses on CPUs."""
_FIRST_WORD = 24
"""Bytes before these words in `Generator.get_state()`: the seed, a counter, a flag and a position. Each word takes 8 bytes."""


def seeded(seed: int, device: torch.device) -> torch.Generator:
    """A generator on the device for a seed of 0 to 2^63 - 1.

    On CPUs `manual_seed` uses only the lower 32 bits of a seed, which a kernel could find by trying all of them. So the whole
    state is set here from a hash of the seed. On GPUs `manual_seed` uses all 64 bits.
    """
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    if device.type == "cpu":
        state = generator.get_state()
        digest = bytearray(hashlib.shake_256(seed.to_bytes(8, "little")).digest(4 * _WORDS))
        words = torch.zeros(_WORDS, 2, dtype=torch.int32)
        words[:, 0] = torch.frombuffer(digest, dtype=torch.int32)
        end = _FIRST_WORD + 8 * _WORDS
        state[_FIRST_WORD:end] = words.view(-1).view(torch.uint8)
        generator.set_state(state)
    return generator


Leaves = dict[str, torch.Tensor]
_WIDER = {
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


def load_file(path: Path, name: str) -> ModuleType:
    """Imports one Python file as a module of this name."""
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def leave_groups() -> None:
    """Destroys all process groups but the world, on all ranks: those of a setting, and those that a baseline has made.

    Each holds connections and GPU memory until then. Torch lists them in the order in which they were made.
    """
    groups: Any = dist.distributed_c10d._world.pg_map
    for group in list(groups):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


class ProblemCode:
    """inputs.py of a problem and, on trusted ranks, its baseline.

    inputs.py defines
        draw(setting) -> dict[str, Tensor]               tensors of one iteration; on trusted ranks only
    and may define
        arguments(tensors, setting) -> dict              arguments of solution by name that are neither drawn nor in problem.toml,
                                                         on both sides of the jail
        layout(world) -> dict[str, list[list[int]]]      named process groups, each a partition (or part) of the ranks
        canonical(outputs, setting) -> outputs           brings outputs into one order, if the order is free
        facts(tensors, setting, solution) -> Any         the third argument of canonical: facts of the inputs
        oracle(tensors, setting, solution) -> outputs    the exact result, if float64 inputs do not give it
        capacity(setting) -> int                         as `capacity` in problem.toml, if no formula gives it
        READ_BY_ARGUMENTS: tuple of names                more tensors whose values `arguments` reads, such as flags. Those of
                                                         parameters without "Tensor" in their annotation are passed as numbers
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.inputs = load_file(problem.folder / "inputs.py", f"problem_inputs_{problem.slug}")
        self._baseline: Callable[..., Any] | None = None
        self._defaults = {
            name: ast.literal_eval(default) for name, default in problem.parameters if default is not None
        }
        if unknown := problem.arguments.keys() - {name for name, _ in problem.parameters}:
            raise ProblemError(f"{problem.folder}: solution of baseline.py has no argument {min(unknown)}")
        if read := [name for name in problem.mutates if not self.is_withheld(name)]:
            raise ProblemError(f"{problem.folder}: {read[0]} is in `mutates`, so `arguments` may not read its values")
        self._given: tuple[Any, dict[str, Any]] = (None, {})
        """Sizes, and the arguments of problem.toml with them."""

    def forget(self) -> None:
        """Drops the problem's modules. What they hold, such as groups, is freed with its last user."""
        for part in ("inputs", "baseline"):
            sys.modules.pop(f"problem_{part}_{self.problem.slug}", None)

    def is_withheld(self, name: str) -> bool:
        """Whether an input is completed only right before the GO. True for all but those whose values arguments depend on."""
        return name not in self.problem.plain_parameters and name not in vars(self.inputs).get("READ_BY_ARGUMENTS", ())

    @property
    def baseline(self) -> Callable[..., Any]:
        """The baseline's solution."""
        if self._baseline is None:
            module = load_file(self.problem.folder / "baseline.py", f"problem_baseline_{self.problem.slug}")
            self._baseline = module.solution
        return self._baseline

    def setting(self, sizes: Mapping[str, int], preset: str, dtype: str, device: torch.device) -> RankSetting:
        """This rank's setting; makes the problem's process groups (collective: all ranks, same order)."""
        rank, world = dist.get_rank(), dist.get_world_size()
        names = self.problem.names(dict(sizes), world, dtype)
        groups: dict[str, dist.ProcessGroup | None] = {"world": dist.group.WORLD}
        layout = getattr(self.inputs, "layout", None)
        for group, parts in (layout(world) if layout else {}).items():
            groups[group] = None
            for ranks in parts:
                made = dist.new_group(ranks)
                if rank in ranks:
                    groups[group] = made
        return RankSetting(
            rank=rank,
            world=world,
            sizes=SimpleNamespace(**names),
            dtype=getattr(torch, dtype),
            device=device,
            distribution="upstream" if preset == "paper" else "meaningful",
            groups=groups,
        )

    def draw(self, setting: RankSetting, seed: int, own_seed: int | None = None) -> Leaves:
        """One iteration's tensors from a secret seed (the same on all ranks; each rank derives its own stream).

        own_seed: the seed of this rank's own stream, instead of `seed`.
        """
        of_rank = seed if own_seed is None else own_seed
        own = seeded((of_rank * 1_000_003 + setting.rank * 7919 + 17) % (1 << 63), setting.device)
        shared = seeded(seed % (1 << 63), setting.device)
        drawing = setting.replace(own=own, shared=shared, trial=seed % TRIALS)
        tensors: Leaves = self.inputs.draw(drawing)
        return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}

    def arguments(self, tensors: Leaves, setting: RankSetting) -> tuple[Any, ...]:
        """The positional arguments of solution, made of these tensors without copying them.

        They are those of problem.toml, the drawn tensors of the same names, what `arguments` of inputs.py returns, and defaults.
        """
        if self._given[0] is not setting.sizes:
            self._given = (
                setting.sizes,
                {
                    name: setting.groups[value] if name.endswith("group") else evaluate(value, vars(setting.sizes))
                    for name, value in self.problem.arguments.items()
                },
            )
        hook = vars(self.inputs).get("arguments")  # getattr takes 5 us if there is none
        drawn = {name: t if self.is_withheld(name) else t.tolist() for name, t in tensors.items()}
        values = self._defaults | self._given[1] | drawn | (hook(tensors, setting) if hook else {})
        try:
            return tuple(values[name] for name, _ in self.problem.parameters)
        except KeyError as error:
            raise ProblemError(
                f"{self.problem.folder}: solution's argument {error} is neither drawn nor in problem.toml"
            ) from None

    def facts(self, tensors: Leaves, setting: RankSetting) -> tuple[Any, ...]:
        """The facts of these inputs that `canonical` needs (collective)."""
        hook = getattr(self.inputs, "facts", None)
        return (hook(tensors, setting, self.baseline),) if hook else ()

    def canonical(self, outputs: Any, setting: RankSetting, facts: tuple[Any, ...] = ()) -> Any:
        """Outputs in one order if the problem leaves the order free. facts: those of the inputs of these outputs."""
        hook = getattr(self.inputs, "canonical", None)
        return hook(outputs, setting, *facts) if hook else outputs

    def capacity(self, setting: RankSetting) -> int | None:
        """The most bytes that outputs may need, or None if every call returns the same shapes."""
        if hook := getattr(self.inputs, "capacity", None):
            return int(hook(setting))
        formula = self.problem.capacity
        return int(evaluate(formula, vars(setting.sizes))) if formula else None

    def with_copies(self, tensors: Leaves) -> Leaves:
        """These tensors, with private copies of those that a solution may write to."""
        return {name: tensor.clone() if name in self.problem.mutates else tensor for name, tensor in tensors.items()}

    def call(self, solution: Callable[..., Any], tensors: Leaves, setting: RankSetting) -> Any:
        """Calls solution on private copies of the inputs that it may write to. Returns as `with_mutated`."""
        given = self.with_copies(tensors)
        with torch.enable_grad():
            result = solution(*self.arguments(given, setting))
        return with_mutated(result, given, self.problem.written)

    def oracle(self, tensors: Leaves, setting: RankSetting) -> Any:
        """The exact result, in the shape of `call`'s (collective)."""
        if hook := getattr(self.inputs, "oracle", None):
            return hook(self.with_copies(tensors), setting, self.baseline)
        if self.problem.check.oracle == "baseline":
            return self.call(self.baseline, tensors, setting)
        widened = {name: t.to(_WIDER.get(t.dtype, t.dtype)) for name, t in tensors.items()}
        return self.call(self.baseline, widened, setting.replace(dtype=torch.float64))


def with_mutated(result: Any, tensors: Leaves, written: list[str]) -> Any:
    """The outputs to judge: the result, then the final values of these tensors, which a solution writes."""
    if not written:
        return result
    return {"returned": result, "written": {name: tensors[name] for name in written}}
