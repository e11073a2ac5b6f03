"""The comparison of a solution's outputs with the baseline's and the oracle's, on one rank.

The judge (`sandbox.rank.trusted`) and the admission test of problems (`sandbox.admission`) use this code and no other.
`calibrate` measures the baseline's usual error once, before anything is compared. Limits depend on it and on the
iteration that is compared, never on earlier comparisons. Then a comparison has three steps: `expected` runs the
baseline and the oracle on the inputs of an iteration, `note` measures the baseline's own error there, and `finding`
compares the outputs of a solution with the expected ones.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from problems.setting import RankSetting
from sandbox.memory import slots
from sandbox.memory.trees import Output, flatten, unflatten
from sandbox.protocol.events import OutputError
from sandbox.protocol.messages import OutputFinding
from sandbox.protocol.verdict import Verdict
from sandbox.rank.outputs.checks import Limits, OwnError, UsualError, compare, errors, limits, paper_rule
from sandbox.rank.outputs.nearness import FAR, distance, distance_of_slots, same_layout
from sandbox.rank.problem_code import Leaves, ProblemCode

CALIBRATED = 8
"""Iterations from which the baseline's usual errors are calibrated."""
FEW = 64
"""The error of an output with fewer elements depends so much on chance that its calibration takes more iterations."""


@dataclass(frozen=True)
class Expected:
    """The expected outputs of one iteration."""

    plain: Output
    """The baseline's outputs as it returned them: the structure, shapes, dtypes and strides that are expected."""
    baseline: Output
    """The baseline's outputs in canonical order."""
    oracle: Output
    """The exact outputs in canonical order, on the devices of the baseline's."""
    facts: tuple[Any, ...] = ()
    """What the canonical order depends on in addition to the outputs."""


class OracleDiffers(ValueError):
    """The oracle's outputs have another structure or other shapes than the baseline's."""


def largest_of_all_ranks(figures: torch.Tensor) -> None:
    """Replaces each figure by the largest of all ranks (collective)."""
    dist.all_reduce(figures, op=dist.ReduceOp.MAX)


@dataclass(eq=False)
class Comparison:
    """Compares outputs of one problem in one setting."""

    code: ProblemCode
    setting: RankSetting
    reduce: Callable[[torch.Tensor], None] = largest_of_all_ranks
    """Replaces the numbers of a tensor by the largest of all ranks, in place."""
    usual: list[UsualError] = field(default_factory=list)
    """The baseline's error per output, as the calibration measured it."""
    own: dict[int, list[OwnError]] = field(default_factory=dict)
    """By slot: the baseline's error per output in its present iteration, the largest of all ranks."""

    def expected(self, tensors: Leaves, plain: Output | None = None) -> Expected:
        """Computes the baseline's and the oracle's outputs on these inputs (collective).

        plain: the outputs that the baseline returned, if it has run already.

        Raises:
            OracleDiffers: a fault of the problem, which need not occur on the other ranks.
        """
        if plain is None:
            plain = flatten(self.code.call(self.code.baseline, tensors, self.setting))
        facts = self.code.facts(tensors, self.setting)
        baseline = self.in_order(plain, facts)
        oracle = self.code.oracle(tensors, self.setting)
        structure, exact = flatten(self.code.canonical(oracle, self.setting, facts))
        if structure != baseline[0]:
            raise OracleDiffers(f"baseline returns {baseline[0]}, the oracle {structure}")
        for (name, b), (_, o) in zip(baseline[1], exact, strict=True):
            if b.shape != o.shape:
                raise OracleDiffers(f"output {name}: baseline {tuple(b.shape)}, oracle {tuple(o.shape)}")
        placed = [(name, o.to(b.device)) for (name, o), (_, b) in zip(exact, baseline[1], strict=True)]
        return Expected(plain, baseline, (structure, placed), facts)

    def calibrate(self, expected_outputs: Iterable[Expected]) -> None:
        """Measures the baseline's usual errors (collective).

        expected_outputs: of fresh iterations, the same ones on every rank. It takes the first CALIBRATED, or all of them if
        an output has less than FEW elements.
        """
        found: list[list[OwnError]] = []
        for expected in expected_outputs:
            found.append(_own_errors(expected))
            few = any(_has_error(b) and b.numel() < FEW for _, b in expected.baseline[1])
            if len(found) == CALIBRATED and not self.any_rank(few):
                break
        by_iteration = self.largest(found)
        self.usual = [UsualError.of(each) for each in zip(*by_iteration, strict=True)]

    def any_rank(self, found: bool) -> bool:
        """Whether any rank has found something (collective)."""
        said = torch.tensor([int(found)], device=self.setting.device)
        self.reduce(said)
        return bool(said)

    def new_iterations(self) -> None:
        """Forgets the noted errors, because the slots hold other iterations from now on."""
        self.own.clear()

    def note(self, expected_outputs: Mapping[int, Expected]) -> None:
        """Measures the baseline's errors in these iterations (collective).

        expected_outputs: by slot, the same slots on every rank. A slot that was noted before keeps its errors until
        `new_iterations`, so that the limits are the same when its outputs are compared a second time.
        """
        fresh = {slot: expected for slot, expected in expected_outputs.items() if slot not in self.own}
        found = self.largest([_own_errors(expected) for expected in fresh.values()])
        self.own.update(zip(fresh, found, strict=True))

    def largest(self, found: list[list[OwnError]]) -> list[list[OwnError]]:
        """Errors by iteration and output: the largest of all ranks, which may have different numbers of outputs."""
        if not found:
            return []
        count = torch.tensor([max(map(len, found))], device=self.setting.device)
        self.reduce(count)
        figures = torch.zeros((len(found), int(count), 2), dtype=torch.float64, device=self.setting.device)
        for i, iteration in enumerate(found):
            for j, error in enumerate(iteration):
                figures[i, j, 0], figures[i, j, 1] = error.rms, error.max
        self.reduce(figures)
        return [[OwnError(rms, largest) for rms, largest in iteration] for iteration in figures.tolist()]

    def finding(self, got: slots.Unpacked, expected: Expected, slot: int = 0) -> OutputFinding:
        """Compares a solution's outputs with the expected ones; returns what is wrong, and figures per output.

        slot: the number under which the expected outputs were noted. Calls no collectives.
        """
        wrong = structure_fault(got, expected.plain)
        if wrong is not None:
            return wrong
        try:
            ordered = self.in_order((got.structure, named(got.structure, got.tensors)), expected.facts)
        except Exception as error:
            return OutputFinding(Verdict.WRONG_RESULT, f"the outputs do not belong together: {error}")
        structure = expected.baseline[0]
        if ordered[0] != structure:
            return OutputFinding(Verdict.WRONG_STRUCTURE, f"{ordered[0][:200]} after ordering, not {structure[:200]}")
        return self.in_detail(ordered, expected, slot)

    def in_detail(self, ordered: Output, expected: Expected, slot: int) -> OutputFinding:
        """Compares outputs in canonical order whose structure is right. Returns as `finding`. Calls no collectives."""
        baseline, oracle = expected.baseline, expected.oracle
        figures: list[OutputError] = []
        worst = Verdict.PASS
        paper = True
        own_errors = self.own[slot]
        for i, ((name, y), (_, b), (_, o)) in enumerate(zip(ordered[1], baseline[1], oracle[1], strict=True)):
            if y.shape != b.shape:
                return OutputFinding(
                    Verdict.WRONG_STRUCTURE,
                    f"output {name} has {list(y.shape)} after ordering, not {list(b.shape)}",
                    name,
                )
            here = y.to(b.device)
            own = own_errors[i]
            usual = self.usual[i] if i < len(self.usual) else UsualError()
            figure, verdict = compare(name, here, b, o, own, self.held(name, b, usual, own))
            figures.append(figure)
            paper &= paper_rule(here, b)
            if worst is Verdict.PASS:
                worst = verdict
        return OutputFinding(worst, outputs=figures, paper=paper)

    def distance(
        self,
        theirs: torch.Tensor,
        baseline: torch.Tensor,
        chosen: Sequence[int],
        size: int,
        room: int,
        inputs_of: Callable[[int], Leaves],
    ) -> torch.Tensor:
        """The distance of outputs from the baseline's in the same slots, float64 [slots] (collective).

        It is equal on all ranks. Above 1 an output may be wrong, and `finding` decides. Arguments as
        `sandbox.rank.outputs.nearness.distance_of_slots`; inputs_of: the iteration in a slot.
        """
        if self.free_order:
            each = []
            for n in chosen:
                place = slice(n * size, (n + 1) * size)
                mine, its = slots.Unpacked(theirs[place], room), slots.Unpacked(baseline[place], room)
                each.append(self._distance_in_order(mine, its, self.code.facts(inputs_of(n), self.setting)))
            found = torch.tensor(each, dtype=torch.float64, device=self.setting.device)
        else:
            found = distance_of_slots(
                theirs, baseline, chosen, size, room, lambda plain: self.beside(named(plain.structure, plain.tensors))
            ).to(self.setting.device)
        self.reduce(found)
        return found

    def distance_of(self, got: slots.Unpacked, plain: Output, tensors: Leaves) -> float:
        """The same distance for one iteration, on this rank alone.

        plain: the baseline's outputs. tensors: the inputs.
        """
        return self._distance_in_order(got, slots.packed(*plain), self.code.facts(tensors, self.setting))

    def _distance_in_order(self, got: slots.Unpacked, baseline: slots.Unpacked, facts: tuple[Any, ...]) -> float:
        if not same_layout(got, baseline):
            return FAR  # also in what the order leaves out
        try:
            (y, mine), (b, its) = (
                self.in_order((each.structure, named(each.structure, each.tensors)), facts) for each in (got, baseline)
            )
        except Exception:
            return FAR  # outputs that do not belong together
        held = self.beside(its)
        if y != b or len(held) < len(its):
            return FAR
        worst = 0.0
        for (_, one), (_, other), limit in zip(mine, its, held, strict=True):
            if one.dtype != other.dtype or one.shape != other.shape:
                return FAR
            if one.numel():
                here = one.to(other.device).reshape(1, -1)
                worst = max(worst, float(distance(here, other.reshape(1, -1), limit, one.shape)))
        return worst

    @property
    def free_order(self) -> bool:
        """Whether the problem leaves the order of its outputs free."""
        return getattr(self.code.inputs, "canonical", None) is not None

    def beside(self, baseline: list[tuple[str, torch.Tensor]]) -> list[Limits]:
        """The limits of the difference from these baseline outputs, for outputs whose usual errors are known."""
        found = []
        for (name, tensor), usual in zip(baseline, self.usual, strict=False):
            own = OwnError(usual.rms, usual.max)
            found.append(self.held(name, tensor, usual, own).beside(own))
        return found

    def in_order(self, output: Output, facts: tuple[Any, ...]) -> Output:
        """The outputs in canonical order if the problem leaves the order free; else as they are."""
        if not self.free_order:
            return output
        tree = unflatten(output[0], [tensor for _, tensor in output[1]])
        return flatten(self.code.canonical(tree, self.setting, facts))

    def held(self, name: str, tensor: torch.Tensor, usual: UsualError, own: OwnError) -> Limits:
        """The limits of one output."""
        check = self.code.problem.check
        exact = "*" in check.exact or name in check.exact
        floors = check.floor(_plain(self.setting.dtype))
        if check.by_iteration:
            usual = UsualError(own.rms, 0.0, own.max)
        held = limits(tensor, self.setting.dtype, usual, own, *floors, exact)
        if held.exact or not 0 <= check.along < tensor.dim() or not tensor.numel():
            return held
        one = limits(tensor.select(check.along, 0), self.setting.dtype, usual, own, *floors, exact)
        return replace(held, along=check.along, slice_rms=one.rms)


def named(structure: str, tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """Tensors with their paths in the structure."""
    return [(name, t) for (name, _), t in zip(flatten(unflatten(structure, tensors))[1], tensors, strict=True)]


def structure_words(structure: str) -> str:
    """A structure text in readable form: "a tensor", "(tensor, None)"."""
    if structure == "T":
        return "a tensor"
    return re.sub(r"(?<![^(\[{,:])T(?![^)\]},])", "tensor", structure[:200]).replace(",", ", ")


def structure_fault(got: slots.Unpacked, plain: Output) -> OutputFinding | None:
    """What is wrong with the containers, shapes, dtypes, devices and strides; None if nothing is wrong."""
    if not got.written:
        return OutputFinding(Verdict.PROTOCOL, "an iteration's output never arrived")
    if not got.sound:
        return OutputFinding(Verdict.PROTOCOL, "an output slot holds what the harness never writes")
    if got.structure != plain[0]:
        returned, expected = structure_words(got.structure), structure_words(plain[0])
        if plain[0] == "T":
            (_, tensor), *_ = plain[1]
            expected = f"a {_plain(tensor.dtype)} tensor of shape {list(tensor.shape)}"
        return OutputFinding(Verdict.WRONG_STRUCTURE, f"returned {returned}, expected {expected}")
    if len(got.tensors) != len(plain[1]):
        return OutputFinding(Verdict.PROTOCOL, "an output slot holds what the harness never writes")
    for i, (name, b) in enumerate(plain[1]):
        y = got.tensors[i]
        fault = None
        if y.dtype != b.dtype:
            fault = f"is {_plain(y.dtype)}, expected {_plain(b.dtype)}"
        elif y.shape != b.shape:
            fault = f"has shape {list(y.shape)}, expected {list(b.shape)}"
        elif got.devices[i] != (0 if b.device.type == "cpu" else 1):
            fault = "is on the wrong device"
        elif not got.is_dense(i) and got.strides[i] != list(b.stride()):
            fault = f"has strides {got.strides[i]}: return it contiguous"
        if fault:
            return OutputFinding(Verdict.WRONG_STRUCTURE, f"output {name} {fault}", name)
    return None


def _own_errors(expected: Expected) -> list[OwnError]:
    return [
        errors(b, o) if _has_error(b) else OwnError()
        for (_, b), (_, o) in zip(expected.baseline[1], expected.oracle[1], strict=True)
    ]


def _has_error(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
