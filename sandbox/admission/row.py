"""A row of the admission table: the findings on a problem in one world and dtype, and the objections.

It imports no torch, because the command line reads rows, too.
"""

import msgspec
from msgspec import UNSET, UnsetType

from problems.specification import Problem
from sandbox.protocol.verdict import Verdict

HONEST = ("rounded_once", "float32", "other_order")
"""Honest variants, which must pass. Each is a field of `AdmissionRow`."""
CHEATS = (
    *("zeros", "constant", "input", "other_trial", "fp8", "wrong_dtype", "one_wrong", "one_stale"),
    *("bits6", "drop_small", "zero_input", "average", "int8_wire", "int16_wire", "silent"),
)
"""Cheats, which must not pass, in the order of the table. Each is a field of `AdmissionRow`."""
NOT_APPLICABLE = "N/A"
SETTINGS = ("tiny", "paper", "larger", "largest")
"""The sizes that are tried: two presets, and two between tiny and production."""

Tried = tuple[str, str]
"""(verdict or NOT_APPLICABLE, reason)"""


class AdmissionRow(msgspec.Struct):
    """The findings. A field is unset if the examination ended before, or found nothing."""

    id: int = 0
    stem: str = ""
    world: int = 0
    dtype: str = ""
    against: list[str] = []
    preset: str = "tiny"
    """One of SETTINGS."""
    sizes: dict[str, int] = {}
    error: str | UnsetType = UNSET
    """The traceback of a rank that raised or died."""
    refused: str | UnsetType = UNSET
    """The message of inputs.py, which refused the sizes."""
    problem: str | UnsetType = UNSET
    """A mismatch of baseline and oracle, or of two draws with one seed."""
    first_ms: float | UnsetType = UNSET
    call_ms: float | UnsetType = UNSET
    mutated: list[str] | UnsetType = UNSET
    """Drawn tensors that the baseline wrote to."""
    alias: str | UnsetType = UNSET
    """An output of the baseline that shares memory with an argument."""
    structure: str | UnsetType = UNSET
    narrow: str | UnsetType = UNSET
    """An output that the oracle computed in less than float64."""
    own_rms: float | UnsetType = UNSET
    own_max: float | UnsetType = UNSET
    """The baseline's largest error against the oracle, over outputs and ranks."""
    dead: list[str] | UnsetType = UNSET
    """Outputs whose values are all the same on rank 0."""
    baseline: Tried | UnsetType = UNSET
    zeros: Tried | UnsetType = UNSET
    constant: Tried | UnsetType = UNSET
    input: Tried | UnsetType = UNSET
    other_trial: Tried | UnsetType = UNSET
    fp8: Tried | UnsetType = UNSET
    wrong_dtype: Tried | UnsetType = UNSET
    one_wrong: Tried | UnsetType = UNSET
    one_stale: Tried | UnsetType = UNSET
    silent: Tried | UnsetType = UNSET
    int8_wire: Tried | UnsetType = UNSET
    int16_wire: Tried | UnsetType = UNSET
    bits6: Tried | UnsetType = UNSET
    drop_small: Tried | UnsetType = UNSET
    zero_input: Tried | UnsetType = UNSET
    average: Tried | UnsetType = UNSET
    rounded_once: Tried | UnsetType = UNSET
    float32: Tried | UnsetType = UNSET
    other_order: Tried | UnsetType = UNSET
    peak_mib: int | UnsetType = UNSET
    """Largest resident memory of rank 0, in MiB."""

    def tried(self, name: str) -> str | None:
        """The verdict on the baseline or a cheat; None if it was not tried or does not apply."""
        found: Tried | UnsetType = getattr(self, name)
        return None if found is UNSET or found[0] == NOT_APPLICABLE else found[0]


def objections(problem: Problem, row: AdmissionRow) -> list[str]:
    """The objections that are not excused; empty: the problem is admitted."""
    if row.error is not UNSET:
        return [row.error.strip().splitlines()[-1]]
    if row.refused is not UNSET:
        return [f"inputs.py refuses the sizes: {row.refused}"]
    found = [] if row.problem is UNSET else [row.problem]
    if row.mutated:
        found.append(f"baseline writes to {row.mutated}: list them in `mutates` or clone")
    if row.alias is not UNSET:
        found.append(f"output {row.alias} aliases an argument: clone it or set check.may_alias")
    if row.narrow is not UNSET:
        found.append(f"{row.narrow}: the baseline narrows (use torch.promote_types(x.dtype, torch.float32))")
    if row.dead:
        found.append(f"outputs without variance: {row.dead}")
    if row.tried("baseline") not in (None, Verdict.PASS):
        found.append(f"baseline: {row.baseline}")
    excused = problem.check.excused
    for honest in HONEST:
        excuses = {honest, f"{honest}@{row.preset}"}
        if row.tried(honest) not in (None, Verdict.PASS) and not excuses & excused.keys():
            found.append(f"{honest}: {getattr(row, honest)}")
    for cheat in CHEATS:
        excuses = {cheat, *(f"{cheat}@{where}" for where in (row.world, row.dtype, row.preset))}
        if row.tried(cheat) == Verdict.PASS and not excuses & excused.keys():
            found.append(f"{cheat} passes")
    return found
