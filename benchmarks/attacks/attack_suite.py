"""The attack suite: kernels that cheat the judge or harm this machine, with the verdict that each must get.

The name of a kernel file begins with its attack: `a03_` is A3 of the catalogue, `honest` a twin, anything else a plain mistake.
A header of comments:

    # expect: WRONG_RESULT        the verdict; several with ` | ` between them if each is right [PASS for a twin]
    # problem: allgather          [allreduce]
    # preset: paper               of the problem, if it is not the command's [tiny]
    # twin: honest_ties           the honest kernel, or `baseline`, that does the same correctly; it must pass [honest]
    # device: cuda                only if it needs a GPU; cpu: only if it cannot use one
    # runs: 2                     judged this often in a row, each with this verdict [1]
    # calls: 2                    fewest calls of a batch in which it can cheat; on a busy machine batches are shorter [1]
    # at_least_us: 3000           the least time per call that the referee may measure
    # not_faster: yes            whatever its verdict, it must not be called faster than the baseline
    # label: calls the baseline   the label that its verdict must have
    # open: why                   the judge does not catch it yet; the reason is shown, and it counts as not as expected
    # like: honest_ties           if it has no solution: the kernel whose text follows [honest; x for x_on_gpus]
    # change: a = b -> a = c      in that text

An attack that expects PASS is harmless as long as it fails. If it succeeds, it raises or returns a wrong output.
"""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from arena.errors import UsageError
from arena.words.table import markdown_table
from sandbox.protocol.events import Result
from sandbox.protocol.verdict import Verdict

TWIN = "twin"
JAIL = "jail"
MOST_TRIES = 10
"""Runs of a kernel until one has batches in which it can cheat."""
_FIELD = re.compile(r"^# ([a-z_]+): (.+)$", re.MULTILINE)
_NUMBERED = re.compile(r"([aht])(\d\d)_")


class Attack(msgspec.Struct, frozen=True):
    """A row of the catalogue."""

    id: str
    what: str
    stopped_by: str
    needs: str = ""
    """A requirement that not every machine meets: a GPU, or a jail because it would do harm without one; else empty."""


BACKEND_SETUPS = {
    "nccl": "import torch\nfrom sandbox.kit import nccl\nnccl.window(4096, torch.uint8, tag='suite')",
    "shmem": "import torch\nfrom sandbox.kit import shmem\nshmem.empty((4096,), torch.uint8, tag='suite')",
}
"""Lines that set up a backend in a world. Its communicator, heap, descriptors, sockets and threads exist afterwards."""


class AttackKernel(msgspec.Struct, frozen=True):
    """One kernel file of the suite."""

    name: str
    attack: str
    expect: tuple[Verdict, ...]
    problem: str
    source: str
    preset: str = ""
    """The preset that it needs; empty: any."""
    twin: str = ""
    device: str = ""
    """The device that it needs; empty: any."""
    runs: int = 1
    calls: int = 1
    """Fewest calls of a batch in which it can cheat."""
    at_least_us: float = 0.0
    not_faster: bool = False
    label: str = ""
    open: str = ""

    def had_no_chance(self, result: Result) -> bool:
        """Whether it passed in a run whose batches were too short for it to cheat, or too disturbed for any claim."""
        too_noisy = result.outcome == "too noisy" and Verdict.PASS not in self.expect
        short = any(batches.calls < self.calls for batches in result.samples.call)
        return result.verdict is Verdict.PASS and (too_noisy or short)

    def surprise(self, result: Result) -> str:
        """The difference between a result and what is expected, in a line; empty if there is none."""
        if result.verdict not in self.expect:
            found = f"{result.verdict.value}: {result.detail or result.told}"
            return f"not caught: {self.open}" if self.open else found
        if self.at_least_us and result.verdict is Verdict.PASS:
            seen = result.contender_us.call if result.contender_us else None
            if seen is None or seen < self.at_least_us:
                return f"timed at {seen} us a call, which cannot be less than {self.at_least_us:.0f}"
        if self.not_faster and result.outcome == "faster":
            return f"called faster: {result.told}"
        if self.label and self.label not in result.labels:
            return f"not labelled {self.label!r}"
        return ""


def read_catalogue(folder: Path) -> list[Attack]:
    """Reads catalogue.toml of a suite.

    Raises:
        UsageError: it is missing.
    """
    path = folder / "catalogue.toml"
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(
            f"there is no attack suite at {folder}",
            "run this in a checkout of pkb-arena: the suite is part of its tests",
        ) from None
    return [msgspec.convert({"id": name, **row}, Attack) for name, row in rows.items()]


def harmful(catalogue: Iterable[Attack]) -> set[str]:
    """Ids of the attacks that are not run without a jail."""
    return {attack.id for attack in catalogue if attack.needs == JAIL}


def read_kernels(folder: Path) -> list[AttackKernel]:
    """The kernels of a suite, by name.

    Raises:
        UsageError: a kernel's header names no verdict, or has an unknown field.
    """
    return [read_kernel(path) for path in sorted((folder / "kernels").glob("*.py"))]


def read_kernel(path: Path) -> AttackKernel:
    """Reads one kernel file. Raises UsageError."""
    source = path.read_text(encoding="utf-8")
    fields = dict(_FIELD.findall(source.partition('"""')[0]))
    known = {*AttackKernel.__struct_fields__, "like", "change"} - {"name", "attack", "source"}
    if unknown := fields.keys() - known:
        raise UsageError(f"{path}: unknown `# {min(unknown)}:`", f"choose from {', '.join(sorted(known))}")
    attack = TWIN if path.stem.startswith("honest") else "-"
    if numbered := _NUMBERED.match(path.stem):
        attack = f"{numbered[1].upper()}{int(numbered[2])}"
        if "def solution(" not in source:
            like = fields.get("like", path.stem.removesuffix("_on_gpus").replace(path.stem, "honest"))
            change = fields.get("change", " -> ").split(" -> ")
            source += "\n\n" + path.with_stem(like).read_text(encoding="utf-8").replace(*change)
    expect = fields.get("expect", "PASS" if attack == TWIN else "")
    given: dict[str, object] = {"problem": "allreduce", "twin": "honest" if numbered else "", **fields}
    given |= {"name": path.stem, "attack": attack, "source": source, "not_faster": "not_faster" in fields}
    given["expect"] = [each.strip() for each in expect.split("|")]
    try:
        return msgspec.convert(given, AttackKernel, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from None


def with_backend(kernel: AttackKernel, backend: str) -> AttackKernel:
    """The kernel, with code that sets up the backend's memory below its header, before its first line."""
    header, quotes, rest = kernel.source.partition('"""')
    return msgspec.structs.replace(kernel, source=f"{header}{BACKEND_SETUPS[backend]}\n{quotes}{rest}", device="cuda")


class AttackOutcome(msgspec.Struct, frozen=True):
    """The outcome of one kernel."""

    kernel: str
    attack: str
    expected: str
    verdict: str
    """The verdict, or `not applicable`."""
    surprise: str = ""
    """Why it is not as expected; empty if it is."""
    harm: tuple[str, ...] = ()
    """Traces of it found outside the jail afterwards."""

    @property
    def as_expected(self) -> bool:
        return not self.surprise and not self.harm


def expected_text(kernel: AttackKernel) -> str:
    """The verdicts that a kernel may get, for a table."""
    return " or ".join(verdict.value for verdict in kernel.expect)


def table(catalogue: list[Attack], outcomes: Iterable[AttackOutcome]) -> list[str]:
    """Attacks x verdicts as Markdown lines, one row per kernel; the twins are in a table of their own."""
    outcomes = list(outcomes)
    rows = [
        (attack.id, attack.what, f"`{each.kernel}`", each.expected, each.verdict, _sign(each))
        for attack in catalogue
        for each in outcomes
        if each.attack == attack.id
    ]
    twins = [(f"`{each.kernel}`", each.verdict, _sign(each)) for each in outcomes if each.attack == TWIN]
    lines = markdown_table(("id", "attack", "kernel", "expected", "verdict", ""), rows)
    return [*lines, "", *markdown_table(("honest twin", "verdict", ""), twins)]


def _sign(outcome: AttackOutcome) -> str:
    if outcome.as_expected:
        return "–" if outcome.verdict == "not applicable" else "✓"
    return "✗ " + "; ".join(filter(None, (outcome.surprise, *outcome.harm))).replace("\n", " ")


def summary(catalogue: list[Attack], outcomes: Iterable[AttackOutcome]) -> str:
    """One line: how many attacks ended as expected, and how many honest kernels were rejected."""
    outcomes = list(outcomes)
    by_id = {attack.id: [each for each in outcomes if each.attack == attack.id] for attack in catalogue}
    held = sum(bool(found) and all(each.as_expected for each in found) for found in by_id.values())
    absent = sum(bool(found) and all(each.verdict == "not applicable" for each in found) for found in by_id.values())
    twins = [each for each in outcomes if each.attack == TWIN]
    rejected = sum(not each.as_expected for each in twins)
    return (
        f"{held} of {len(catalogue)} attacks as expected ({absent} of them not applicable on this machine); "
        f"{rejected} of {len(twins)} honest twins rejected"
    )
