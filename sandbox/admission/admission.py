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
from pathlib import Path

import msgspec
import torch

from problems.catalogue import load_catalogue
from problems.setting import SizesRefused
from problems.specification import Problem, ProblemError, load_problem
from sandbox.admission.examination import Examination
from sandbox.admission.ranks import RankFailed, in_gloo_ranks
from sandbox.admission.row import AdmissionRow, objections
from sandbox.protocol.verdict import ExitCode
from sandbox.rank.problem_code import ProblemCode


def admit(problem: Problem, world: int, dtype: str, timeout: float = 120) -> AdmissionRow:
    """Examines a problem with tiny sizes on W forked ranks. The row has the error of a failed rank. timeout: seconds."""
    sizes = problem.sizes("tiny")

    def examined(rank: int, world: int) -> AdmissionRow:
        code = ProblemCode(problem)
        try:
            setting = code.setting(sizes, "tiny", getattr(torch, dtype), torch.device("cpu"))
            row = Examination(code, setting).run()
        except SizesRefused as error:
            return AdmissionRow(refused=str(error))
        row.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return row

    try:
        row = in_gloo_ranks(world, examined, timeout)[0]
    except RankFailed as failed:
        row = AdmissionRow(error=str(failed))
    row.id, row.stem, row.world, row.dtype = problem.id, problem.stem, world, dtype
    row.against = objections(problem, row)
    return row


def require_code(problem: Problem) -> None:
    """Imports inputs.py and baseline.py once, so that errors in them are found before any rank runs.

    Raises:
        ProblemError: a file is invalid; the message has file and line.
    """
    try:
        code = ProblemCode(problem)
        missing = [name for name in ("draw", "arguments") if not hasattr(code.inputs, name)]
        if missing:
            raise ProblemError(f"{problem.folder / 'inputs.py'} defines no {missing[0]}(...)")
        if not callable(code.baseline):
            raise ProblemError(f"{problem.folder / 'baseline.py'} defines no solution(...)")
    except ProblemError:
        raise
    except SyntaxError as error:
        raise ProblemError(f"{error.filename}:{error.lineno}: {error.msg}") from None
    except Exception as error:
        places = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename).parent == problem.folder
        ]
        where = f"{places[-1].filename}:{places[-1].lineno}" if places else str(problem.folder)
        raise ProblemError(f"{where}: {type(error).__name__}: {error}") from None


def main() -> None:
    """Prints a row for each world and dtype: one JSON object a line.

    Exit codes: 1 if there is an objection; 2 with one line on stderr if the folder is invalid.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="+", help="ids, names or folders; `all` for the whole catalogue")
    parser.add_argument("--world", default="1,2,3,4,8")
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
        for world in (world for world in worlds if world in problem.worlds):
            for dtype in problem.dtypes[:2]:
                row = admit(problem, world, dtype)
                bad |= bool(row.against)
                print(json.dumps(msgspec.to_builtins(row)), file=rows, flush=True)
    sys.exit(ExitCode.KERNEL_FAILED if bad else ExitCode.PASS)


def _named(names: list[str]) -> list[Problem]:
    if names == ["all"]:
        return load_catalogue().problems
    return [load_problem(Path(name)) if Path(name).is_dir() else load_catalogue().find(name) for name in names]


if __name__ == "__main__":
    main()
