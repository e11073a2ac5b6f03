"""The admission test of a problem: its baseline must pass, and cheats must not.

    python -m sandbox.admission.admission 13 --world 2
    python -m sandbox.admission.admission DIR --world 1,2,4

It tests whether the problem detects wrong outputs. It runs W ranks over gloo, without the judge's clock and arenas.
`pkb-arena check-problem` runs it in a process of its own.
"""

import argparse
import json
import os
import resource
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch

from problems.catalogue import load_catalogue
from problems.setting import SizesRefused
from problems.specification import Problem, ProblemError, load_problem
from sandbox.admission.examination import Examination
from sandbox.admission.ranks import RankFailed, in_gloo_ranks
from sandbox.admission.row import SETTINGS, AdmissionRow, objections
from sandbox.protocol.verdict import ExitCode
from sandbox.rank.problem_code import ProblemCode

MOST_FLOPS, MOST_BYTES = 2**29, 2**24
"""Least work of a call on a rank, by the problem's cost, that the largest sizes may have. The test makes a hundred calls."""


def sizes_of(problem: Problem, name: str, world: int, dtype: str) -> dict[str, int]:
    """The sizes of one of SETTINGS.

    largest: the sizes that grow from tiny to production, times the largest power of two whose cost is within the limits, but no
    larger than production's. larger: with half of that power.
    """
    if name in problem.presets:
        return problem.sizes(name)
    tiny, production = problem.sizes("tiny"), problem.sizes("production")

    def times(factor: int) -> dict[str, int]:
        return {size: max(n, min(n * factor, production[size])) for size, n in tiny.items()}

    factor = 1
    while factor < 64:
        cost = problem.cost(times(2 * factor), world, dtype)
        moved = cost.local_bytes + cost.sent_bytes + cost.received_bytes
        if cost.flops > MOST_FLOPS or moved > MOST_BYTES:
            break
        factor *= 2
    return times(factor if name == "largest" else max(1, factor // 2))


def admit(problem: Problem, world: int, dtype: str, timeout: float, preset: str = "tiny") -> AdmissionRow:
    """Examines a problem on W forked ranks. The row has the error of a failed rank.

    timeout: seconds. preset: one of SETTINGS.
    """
    sizes = sizes_of(problem, preset, world, dtype)

    def examined(rank: int, world: int) -> AdmissionRow:
        code = ProblemCode(problem)
        try:
            setting = code.setting(sizes, preset, dtype, torch.device("cpu"))
            row = Examination(code, setting, preset).run()
        except SizesRefused as error:
            return AdmissionRow(refused=str(error))
        row.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return row

    try:
        row = in_gloo_ranks(world, examined, timeout)[0]
    except RankFailed as failed:
        row = AdmissionRow(error=str(failed))
    row.id, row.stem, row.world, row.dtype = problem.id, problem.stem, world, dtype
    row.preset, row.sizes = preset, sizes
    row.against = objections(problem, row)
    return row


def require_code(problem: Problem) -> None:
    """Imports inputs.py and baseline.py once, so that errors in them are found before any rank runs.

    Raises:
        ProblemError: a file is invalid; the message has file and line.
    """
    try:
        code = ProblemCode(problem)
        if not hasattr(code.inputs, "draw"):
            raise ProblemError(f"{problem.folder / 'inputs.py'} defines no draw(...)")
        if not callable(code.baseline):
            raise ProblemError(f"{problem.folder / 'baseline.py'} defines no solution(...)")
    except ProblemError:
        raise
    except SyntaxError as error:
        raise ProblemError(f"{error.filename}:{error.lineno}: {error.msg}") from None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{each.filename}:{each.lineno}" for each in frames if Path(each.filename).parent == problem.folder]
        where = places[-1] if places else str(problem.folder)
        raise ProblemError(f"{where}: {type(error).__name__}: {error}") from None


def main() -> None:
    """Prints a row for each world and dtype: one JSON object a line.

    Exit codes: 1 if there is an objection; 2 with one line on stderr if the folder is invalid.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="+", help="ids, names or folders; `all` for the whole catalogue")
    parser.add_argument("--world", default="1,2,3,4,8")
    parser.add_argument("--preset", default=",".join(SETTINGS))
    options = parser.parse_args()
    rows = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of the problem's code must not mix with the rows
    bad = False
    try:
        problems = _named(options.problems)
        for problem in problems:
            require_code(problem)
    except ProblemError as error:
        print(error, file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    worlds = list(map(int, options.world.split(",")))
    for problem in problems:
        for world, preset in _tried(problem, worlds, options.preset.split(",")):
            for dtype in problem.dtypes[:2]:
                row = admit(problem, world, dtype, 120 if preset == "tiny" else 1200, preset)
                bad |= bool(row.against)
                print(json.dumps(msgspec.to_builtins(row)), file=rows, flush=True)
    sys.exit(ExitCode.KERNEL_FAILED if bad else ExitCode.PASS)


def _tried(problem: Problem, worlds: list[int], presets: list[str]) -> Iterator[tuple[int, str]]:
    """Yields world sizes and settings: tiny in every world, the others in the first world with messages."""
    allowed = [world for world in worlds if world in problem.worlds]
    tiny, dtype = problem.sizes("tiny"), problem.dtypes[0]
    first = sorted(allowed, key=lambda world: (not problem.cost(tiny, world, dtype).sent_bytes, world == 1, world))[:1]
    for preset in presets:
        for world in allowed if preset == "tiny" else first:
            yield world, preset


def _named(names: list[str]) -> list[Problem]:
    if names == ["all"]:
        return load_catalogue().problems
    return [load_problem(Path(name)) if Path(name).is_dir() else load_catalogue().find(name) for name in names]


if __name__ == "__main__":
    main()
