"""Examines a problem on the ranks of one world: the baseline must pass, and cheats must not.

Outputs are packed into slots and compared by the code that judges kernels (`sandbox.rank.outputs.comparison`).
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from msgspec import UNSET

from problems.setting import RankSetting
from sandbox.admission import cheats
from sandbox.admission.row import NOT_APPLICABLE, AdmissionRow, Tried
from sandbox.memory import slots
from sandbox.memory.slots import same_bits
from sandbox.memory.trees import NotATree, Output, flatten
from sandbox.protocol.messages import TRIALS, OutputFinding
from sandbox.protocol.verdict import Verdict
from sandbox.rank.kernel_module import overlaps
from sandbox.rank.outputs.comparison import Comparison, Expected, OracleDiffers
from sandbox.rank.problem_code import Leaves, ProblemCode

SEED, OTHER_SEED = 12345, 67890
MORE_SEEDS = range(101, 112)
"""Seeds of more iterations for nearly right outputs, tried until one is rejected. A timed run compares at least as many."""
HONEST_ITERATIONS = 4
"""Iterations in which honest variants must pass, and in which a cheat must differ from the baseline."""
CALIBRATION = range(1001, 1025)
FEW_ITERATIONS = 6
"""Most iterations with other sizes than tiny."""
AVERAGED = 3
"""Iterations whose outputs are averaged. As many are checked before a run is timed."""
FITS = 8
"""Most draws until an iteration fits beside upstream's."""

Value = TypeVar("Value")
Variant = Callable[[Leaves, Expected], Output | None]
"""Computes an output from the inputs of an iteration."""


def everyone(value: Value) -> list[Value]:
    """The values of all ranks, by rank (collective)."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def anyone(text: str | None) -> str | None:
    """The first text of any rank, the same on every rank (collective)."""
    return next((said for said in everyone(text) if said), None)


class Examination:
    """The examination of one problem in one setting, on one rank. Every rank takes the same steps."""

    def __init__(self, code: ProblemCode, setting: RankSetting, preset: str) -> None:
        """preset: one of SETTINGS."""
        self.code = code
        self.setting = setting
        self.check = code.problem.check
        self.comparison = Comparison(code, setting)
        upstream = setting.distribution == "upstream"
        self.meaningful = setting.replace(distribution="meaningful", beside_upstream=True) if upstream else None
        """If inputs are upstream's: the setting of every second iteration. A run has such ones, too."""
        self.beside = Comparison(code, setting) if upstream else self.comparison
        """For these."""
        self.iterations: list[tuple[Leaves, Expected]] = []
        """The iterations for nearly right outputs, drawn when first needed."""
        self.most = 1 + len(MORE_SEEDS) if preset == "tiny" else FEW_ITERATIONS
        """Most iterations in which a cheat is tried."""
        self.misfits: set[int] = set()
        """Iterations that are upstream's because no meaningful one looked like these."""
        self.row = AdmissionRow()

    def run(self) -> AdmissionRow:
        """Examines the problem; returns the row, the same on every rank except times and `dead` (collective)."""
        tensors = self.draw()
        plain = self.run_baseline(tensors)
        expected = self.expected(tensors, plain)
        if expected is None:
            return self.row
        self.row.baseline = self.judged(plain, expected)
        self.iterations = [(tensors, expected)]
        for name, tried in (self.tried() | self.nearly_right()).items():
            setattr(self.row, name, tried)
        return self.row

    def draw(self) -> Leaves:
        """Draws the inputs. Notes a problem if the same seed gives other inputs."""
        tensors = self.code.draw(self.setting, SEED)
        again = self.code.draw(self.setting, SEED)
        if anyone("differs" if any(not same_bits(tensors[k], again[k]) for k in tensors) else None):
            self.row.problem = "draw() gives different tensors for the same seed"
        return tensors

    def run_baseline(self, tensors: Leaves) -> Output:
        """Runs the baseline; returns its outputs. Notes its time, the inputs that it writes to, and aliased outputs."""
        before = {name: t.clone() for name, t in tensors.items()}
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            returned = self.code.call(self.code.baseline, tensors, self.setting)
            seconds.append(time.perf_counter() - started)
        self.row.first_ms, self.row.call_ms = (round(each * 1e3, 2) for each in seconds)
        written = [name for name in tensors if not same_bits(tensors[name], before[name])]
        self.row.mutated = list(dict.fromkeys(name for each in everyone(written) for name in each))
        if not self.check.may_alias:
            result = returned["returned"] if self.code.problem.written else returned
            given = tensors.values()
            alias = (name for name, t in flatten(result)[1] if t.numel() and any(overlaps(t, each) for each in given))
            self.row.alias = anyone(next(alias, None)) or UNSET
        return flatten(returned)

    def expected(self, tensors: Leaves, plain: Output) -> Expected | None:
        """The outputs of baseline and oracle, with calibrated limits; None if they do not match."""
        expected = differs = None
        try:
            expected = self.comparison.expected(tensors, plain)
        except OracleDiffers as error:
            differs = str(error)
        if (differs := anyone(differs)) is not None:
            self.row.problem = differs
        if differs is not None or expected is None:
            return None
        self.row.structure = expected.baseline[0]
        if self.check.oracle == "float64" and not hasattr(self.code.inputs, "oracle"):
            self.row.narrow = anyone(_narrow(expected)) or UNSET
        self.comparison.calibrate(self.comparison.expected(self.code.draw(self.setting, s)) for s in CALIBRATION)
        if self.meaningful is not None:
            drawn = (self.code.draw(self.meaningful, s) for s in CALIBRATION)
            self.beside.calibrate(map(self.beside.expected, drawn))
        self.comparison.note({0: expected})
        self.row.own_rms = max((own.rms for own in self.comparison.own[0]), default=0.0)
        self.row.own_max = max((own.max for own in self.comparison.own[0]), default=0.0)
        # Only rank 0's value is kept: with many ranks and tiny sizes a rank may have zeros. Upstream's inputs may give any.
        self.row.dead = [] if self.meaningful else cheats.without_variance(expected.baseline)
        return expected

    def tried(self) -> dict[str, Tried]:
        """Tries every cheat in one iteration, and if inputs are upstream's in a meaningful one, too. Returns verdicts by name."""
        other = self.code.draw(self.setting, OTHER_SEED)
        another_answer = flatten(self.code.call(self.code.baseline, other, self.setting))
        wrong: dict[str, Variant] = {
            "zeros": lambda _, expected: cheats.changed(expected.plain, torch.zeros_like),
            "constant": lambda _, expected: cheats.changed(expected.plain, torch.ones_like),
            "input": lambda tensors, expected: cheats.returns_input(expected.plain, tensors),
            "other_trial": lambda *_: another_answer,
            "fp8": lambda _, expected: cheats.changed(expected.plain, cheats.eight_bits),
            "wrong_dtype": lambda _, expected: cheats.changed(expected.plain, cheats.other_dtype),
            "one_wrong": lambda _, expected: cheats.one_wrong(
                expected.plain, lambda found: self.counts(found, expected)
            ),
        }
        if self.setting.world > 1:
            wrong["silent"] = lambda tensors, _: self.computed(tensors, cheats.no_communication())
        found: dict[str, Tried] = {}
        for name, cheat in wrong.items():
            for slot in (0, 1) if self.meaningful else (0,):
                tensors, expected = self.iteration(slot)
                cheated = cheat(tensors, expected)
                found[name] = self.judged(cheated, expected, slot)
                if name == "fp8" and cheated is not None and not any(everyone(_differ(cheated, expected.plain))):
                    found[name] = (NOT_APPLICABLE, "rounding to fp8 changes nothing: no output is floating-point")
                if found[name][0] != Verdict.PASS:
                    break
        return found

    def nearly_right(self) -> dict[str, Tried]:
        """Tries cheats of reduced precision and honest variants in several iterations."""
        wrong: dict[str, Variant] = {
            "bits6": lambda given, _: self.changed_inputs(given, cheats.significant(6)),
            "drop_small": lambda given, _: self.changed_inputs(given, cheats.without_small),
        }
        honest: dict[str, Variant] = {
            "rounded_once": self.exact,
            "other_order": lambda given, _: self.computed(given, cheats.OtherOrder()),  # type: ignore[no-untyped-call]
        }
        if self.setting.world > 1:
            wrong["int8_wire"] = lambda given, _: self.computed(given, cheats.coarse_messages(cheats.in_blocks(8)))
            if self.setting.dtype == torch.float32:
                wrong["int16_wire"] = lambda given, _: self.computed(
                    given, cheats.coarse_messages(cheats.in_blocks(16))
                )
        if self.setting.dtype in cheats.SHORT:
            honest["float32"] = self.wider
        return {
            "one_stale": self.one_stale(),
            "zero_input": self.zero_input(),
            "average": self.average(),
            **{name: self.cheated(cheat) for name, cheat in wrong.items()},
            **{name: self.cheated(variant, most=HONEST_ITERATIONS) for name, variant in honest.items()},
        }

    def iteration(self, slot: int) -> tuple[Leaves, Expected]:
        """The inputs of an iteration and its expected outputs (collective)."""
        while len(self.iterations) <= slot:
            drawn = self.drawn(len(self.iterations))
            comparison = self.comparison_of(len(self.iterations))
            expected = comparison.expected(drawn)
            comparison.note({len(self.iterations): expected})
            self.iterations.append((drawn, expected))
        return self.iterations[slot]

    def drawn(self, slot: int) -> Leaves:
        """The inputs of an iteration. If those of the run are upstream's, a meaningful one must look like them (collective)."""
        tensors = self.code.draw(self.setting, MORE_SEEDS[slot - 1])
        if self.comparison_of(slot) is self.comparison or self.meaningful is None:
            return tensors
        for number in range(FITS):  # seeds of the same trial
            found = self.code.draw(self.meaningful, MORE_SEEDS[slot - 1] + (1 + number) * TRIALS)
            fits = slots.lay_out(found)[0] == slots.lay_out(tensors)[0] and all(
                self.code.is_withheld(name) or same_bits(found[name], tensors[name]) for name in found
            )
            if all(everyone(fits)):
                return found
        self.misfits.add(slot)
        return tensors

    def comparison_of(self, slot: int) -> Comparison:
        """The comparison for an iteration."""
        return self.beside if slot % 2 and slot not in self.misfits else self.comparison

    def zero_input(self) -> Tried:
        """The cheat that takes one input for zeros, and those of equal shape and dtype as they are (collective)."""
        seen: Tried = NOT_APPLICABLE, "no floating-point input changes an output"
        for name, tensor in self.iterations[0][0].items():
            if not tensor.dtype.is_floating_point or not self.code.is_withheld(name):
                continue

            def without(given: Leaves, _: Expected, name: str = name) -> Output | None:
                return self.computed({**given, name: torch.zeros_like(given[name])}) if name in given else None

            verdict, text = self.cheated(without, rounding=False)
            if verdict == Verdict.PASS:
                return verdict, f"{name}: {text}"
            if verdict != NOT_APPLICABLE:
                seen = verdict, f"{name}: {text}"
        return seen

    def average(self) -> Tried:
        """The cheat that returns the average of the outputs of other iterations (collective)."""
        others = [self.iteration(slot)[1].plain for slot in range(AVERAGED)]

        def averaged(_: Leaves, expected: Expected) -> Output | None:
            tensors = []
            for place, (name, own) in enumerate(expected.plain[1]):
                same = [other[1][place][1] for other in others if place < len(other[1])]
                same = [each for each in same if each.shape == own.shape and each.dtype == own.dtype]
                fits = len(same) == len(others) and own.dtype.is_floating_point and own.element_size() > 1
                tensors.append(
                    (name, torch.stack([each.double() for each in same]).mean(0).to(own.dtype) if fits else own)
                )
            return expected.plain[0], tensors

        return self.cheated(averaged, rounding=False)

    def one_stale(self) -> Tried:
        """The cheat that returns one output of the iteration before. Some iteration must reject each output (collective)."""
        names = [name for name, _ in self.iteration(0)[1].baseline[1]]
        seen: Tried = NOT_APPLICABLE, "no output differs between iterations"
        for place in range(min(everyone(len(names)))):
            text = f"output {names[place]} of another iteration"
            verdict = self.stale_in_some(place)
            if verdict == Verdict.PASS:
                return verdict.value, text
            if verdict is not None:
                seen = verdict.value, text
        return seen

    def stale_in_some(self, place: int) -> Verdict | None:
        """The first rejection of an output of the iteration before; None if iterations do not differ (collective)."""
        found: Verdict | None = None
        for slot in range(1, self.most):
            judged = [verdict for verdict in everyone(self.stale(place, slot)) if verdict]
            failed = [verdict for verdict in judged if verdict is not Verdict.PASS]
            if failed:
                return failed[0]
            if judged:
                found = Verdict.PASS
            elif slot >= HONEST_ITERATIONS and found is None:
                break
        return found

    def stale(self, place: int, slot: int) -> Verdict | None:
        """The verdict on outputs with one of the iteration before; None if they are equal or have other shapes."""
        other, expected = (self.iteration(each)[1] for each in (slot - 1, slot))
        tensors, others = list(expected.baseline[1]), other.baseline[1]
        if place >= len(others) or others[place][1].shape != tensors[place][1].shape:
            return None
        if same_bits(others[place][1], tensors[place][1]):
            return None
        tensors[place] = (tensors[place][0], others[place][1])
        return self.comparison_of(slot).in_detail((expected.baseline[0], tensors), expected, slot).verdict

    def cheated(self, cheat: Variant, rounding: bool = True, most: int | None = None) -> Tried:
        """The first rejection of a cheat, else its distance from a limit. Not applicable if it changes nothing (collective).

        rounding: it is not applicable either if it loses no more than the baseline's own rounding. most: iterations, at most
        HONEST_ITERATIONS for an honest variant, which is always applicable.
        """
        worst, differs, loses = 0.0, False, False
        for slot in range(self.most if most is None else most):
            if slot == HONEST_ITERATIONS and not any(everyone(differs)):
                return NOT_APPLICABLE, "it changes no output"
            if slot == HONEST_ITERATIONS and rounding and not any(everyone(loses)):
                return NOT_APPLICABLE, "it loses no more than the baseline's own rounding"
            given, expected = self.iteration(slot)
            output = cheat(given, expected)
            verdict, seen = self.judged(output, expected, slot)
            if verdict != Verdict.PASS:
                return verdict, seen
            assert output is not None
            figures = self.finding(output, expected, slot).outputs
            worst = max([worst, *(f.rms / f.rms_limit for f in figures if f.rms_limit)])
            differs |= _differ(output, expected.plain)
            loses |= any(f.rms > f.baseline_rms for f in figures)
        return Verdict.PASS.value, f"at most {max(everyone(worst)):.2f} of the limit"

    def computed(
        self, tensors: Leaves, while_active: AbstractContextManager[Any] | None = None, wider: bool = False
    ) -> Output | None:
        """The baseline's output on these inputs, or None if it fails (collective)."""
        setting = self.setting.replace(dtype=torch.float32) if wider else self.setting
        found: Output | None = None
        with while_active or nullcontext(), suppress(Exception):
            found = flatten(self.code.call(self.code.baseline, tensors, setting))
        dist.barrier()
        return found

    def changed_inputs(self, tensors: Leaves, change: cheats.Change) -> Output | None:
        """The baseline's output on inputs that are all changed, or None if it fails (collective)."""
        return self.computed({name: change(tensor) for name, tensor in tensors.items()})

    def exact(self, tensors: Leaves, expected: Expected) -> Output | None:
        """The oracle's output, rounded once."""
        return cheats.as_returned(flatten(self.code.oracle(tensors, self.setting)), expected.plain)

    def wider(self, tensors: Leaves, expected: Expected) -> Output | None:
        """The baseline in float32, its outputs rounded at the end."""
        found = self.computed(cheats.widened(tensors), wider=True)
        return None if found is None else cheats.as_returned(found, expected.plain)

    def counts(self, output: Output, expected: Expected) -> bool:
        """Whether an output differs from the baseline's in what is compared on this rank."""
        try:
            ordered = self.comparison.in_order(output, expected.facts)
        except Exception:
            return True
        return ordered[0] != expected.baseline[0] or _differ(ordered, expected.baseline)

    def judged(self, output: Output | None, expected: Expected, slot: int = 0) -> Tried:
        """(verdict, reason) of the first rank that rejects an output (collective)."""
        finding = self.finding(output, expected, slot)
        seen = everyone((finding.verdict.value, _in_words(finding)))
        failed = [(v, f"rank {r}: {words}") for r, (v, words) in enumerate(seen) if v != Verdict.PASS]
        return failed[0] if failed else (Verdict.PASS.value, "")

    def finding(self, output: Output | None, expected: Expected, slot: int = 0) -> OutputFinding:
        """The comparison of an output on this rank."""
        if output is None:
            return OutputFinding(Verdict.WRONG_STRUCTURE, "nothing was returned")
        try:
            return self.comparison_of(slot).finding(slots.packed(*output), expected, slot)
        except (slots.DoesNotFit, NotATree) as error:
            return OutputFinding(Verdict.WRONG_STRUCTURE, str(error))


def _differ(a: Output, b: Output) -> bool:
    return any(not same_bits(x, y) for (_, x), (_, y) in zip(a[1], b[1], strict=True))


def _narrow(expected: Expected) -> str | None:
    for (name, b), (_, o) in zip(expected.baseline[1], expected.oracle[1], strict=True):
        if b.dtype.is_floating_point and o.dtype != torch.float64:
            return f"output {name}: the oracle ran in {o.dtype}"
    return None


def _in_words(finding: OutputFinding) -> str:
    bad = next((figures for figures in finding.outputs if not figures.ok), None)
    if bad is None:
        return finding.message
    rms = f"rms {bad.rms:.2e} of {bad.rms_limit:.2e}"
    return f"{bad.output}: {rms}, max {bad.max:.2e} of {bad.max_limit:.2e}"
