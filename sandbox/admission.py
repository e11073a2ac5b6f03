"""The admission test of a problem: its baseline passes, and what must not pass does not.

    python -m sandbox.admission 13 --world 2 --dtype bfloat16        one row
    python -m sandbox.admission DIR --world 1,2,4

Forks W ranks with a gloo process group, without the judge's clock and arenas: it asks whether the problem can tell right
from wrong, not how fast anything is. `pkb-arena check-problem` runs it in a process of its own.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from problems import gloo
from problems.catalogue import load_catalogue
from problems.setting import Setting, SizesRefused
from problems.specification import Problem, load_problem
from sandbox.cheats import (
    NoCommunication,
    Output,
    changed,
    differs_anywhere,
    eight_bits,
    one_wrong,
    other_dtype,
    raw_bytes,
    returns_input,
    without_variance,
)
from sandbox.checks import OwnError, compare, errors, limits
from sandbox.problem_code import ProblemCode
from sandbox.trees import flatten
from sandbox.verdict import Verdict


class Judge:
    """Compares outputs on all ranks alike (collective)."""

    def __init__(self, problem: Problem, dtype: torch.dtype) -> None:
        self.problem = problem
        self.dtype = str(dtype).removeprefix("torch.")

    def own_errors(self, baseline: Output, oracle: Output) -> list[OwnError]:
        """The baseline's error per output, the largest over the ranks; ranks may have different outputs."""
        found = [
            errors(b, o)
            if b.shape == o.shape and b.dtype.is_floating_point | b.dtype.is_complex
            else OwnError()
            for (_, b), (_, o) in zip(baseline[1], oracle[1], strict=True)
        ]
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, [(e.rms, e.max) for e in found])
        return [
            max((OwnError(*theirs[i]) for theirs in everyone if i < len(theirs)), key=lambda e: e.rms)
            for i in range(len(found))
        ]

    def held(self, name: str, tensor: torch.Tensor, own: OwnError) -> Any:
        """The limits of one output."""
        check = self.problem.check
        exact = "*" in check.exact or name in check.exact
        return limits(tensor.dtype, own, *check.floor(self.dtype), exact)

    def verdict(
        self, got: Output | None, baseline: Output, oracle: Output, own: list[OwnError]
    ) -> tuple[str, str]:
        """(verdict, note), the worst over the ranks."""
        mine = self._mine(got, baseline, oracle, own)
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        failed = [(v, f"rank {r}: {n}") for r, (v, n) in enumerate(everyone) if v != Verdict.PASS]
        return failed[0] if failed else (Verdict.PASS.value, "")

    def _mine(
        self, got: Output | None, baseline: Output, oracle: Output, own: list[OwnError]
    ) -> tuple[str, str]:
        if got is None or got[0] != baseline[0]:
            return Verdict.WRONG_STRUCTURE.value, "structure"
        for i, ((name, g), (_, b), (_, o)) in enumerate(zip(got[1], baseline[1], oracle[1], strict=True)):
            if g.shape != b.shape or g.dtype != b.dtype:
                return Verdict.WRONG_STRUCTURE.value, f"{name}: {tuple(g.shape)} {g.dtype}"
            figures, verdict = compare(name, g, b, o, own[i], self.held(name, b, own[i]))
            if verdict is not Verdict.PASS:
                limit = f"rms {figures.rms:.2e} of {figures.rms_limit:.2e}, max {figures.max:.2e} of {figures.max_limit:.2e}"
                note = f"{name}: {limit}"
                return verdict.value, note
        return Verdict.PASS.value, ""


def examine(code: ProblemCode, setting: Setting) -> dict[str, Any]:
    """One row of the admission table, on every rank (rank 0's is kept)."""
    problem = code.problem
    judge = Judge(problem, setting.dtype)
    row: dict[str, Any] = {}

    def judged(outputs: Any) -> Output:
        return flatten(code.canonical(outputs, setting))

    tensors = code.draw(setting, 12345)
    again = code.draw(setting, 12345)
    if any(not torch.equal(raw_bytes(tensors[k]), raw_bytes(again[k])) for k in tensors):
        row["problem"] = "draw() gives different tensors for the same seed"
    other = code.draw(setting, 67890)
    before = {name: t.clone() for name, t in tensors.items()}
    started = time.perf_counter()
    raw = code.call(code.baseline, tensors, setting)
    row["first_ms"] = round((time.perf_counter() - started) * 1e3, 2)
    started = time.perf_counter()
    code.call(code.baseline, tensors, setting)
    row["call_ms"] = round((time.perf_counter() - started) * 1e3, 2)
    written = [k for k in tensors if not torch.equal(raw_bytes(tensors[k]), raw_bytes(before[k]))]
    row["mutated"] = written
    if not problem.check.may_alias:
        spans = {
            (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors.values() if t.numel()
        }
        returned = raw["returned"] if problem.mutates else raw
        for name, t in flatten(returned)[1]:
            if t.numel() and any(a <= t.data_ptr() < b for a, b in spans):
                row["alias"] = name
    baseline = judged(raw)
    oracle = judged(code.oracle(tensors, setting))
    row["structure"] = baseline[0]
    if baseline[0] != oracle[0]:
        row["problem"] = f"baseline returns {baseline[0]}, the oracle {oracle[0]}"
        return row
    for (name, b), (_, o) in zip(baseline[1], oracle[1], strict=True):
        if b.shape != o.shape:
            row["problem"] = f"output {name}: baseline {tuple(b.shape)}, oracle {tuple(o.shape)}"
            return row
        if problem.check.oracle == "float64" and b.dtype.is_floating_point and o.dtype != torch.float64:
            row["narrow"] = f"output {name}: the oracle ran in {o.dtype}"
    own = judge.own_errors(baseline, oracle)
    row["own_rms"] = max((e.rms for e in own), default=0.0)
    row["own_max"] = max((e.max for e in own), default=0.0)
    row["dead"] = without_variance(baseline)
    row["baseline"] = judge.verdict(baseline, baseline, oracle, own)
    theirs = judged(code.call(code.baseline, other, setting))
    cheats: dict[str, Callable[[], Output | None]] = {
        "zeros": lambda: changed(baseline, torch.zeros_like),
        "constant": lambda: changed(baseline, torch.ones_like),
        "input": lambda: returns_input(baseline, tensors),
        "other_trial": lambda: theirs,
        "fp8": lambda: changed(baseline, eight_bits),
        "wrong_dtype": lambda: changed(baseline, other_dtype),
        "one_wrong": lambda: one_wrong(baseline),
    }
    for name, cheat in cheats.items():
        cheated = cheat()
        row[name] = judge.verdict(cheated, baseline, oracle, own)
        if name == "fp8" and row[name][0] == Verdict.PASS and not differs_anywhere(cheated, baseline):
            row[name] = ("N/A", "rounding to fp8 changes nothing: no output is floating-point")
    if setting.world > 1:
        with NoCommunication():
            try:
                alone: Output | None = judged(code.call(code.baseline, tensors, setting))
            except Exception:
                alone = None
        dist.barrier()
        row["silent"] = judge.verdict(alone, baseline, oracle, own)
    return row


def _rank(
    rank: int,
    world: int,
    store: str,
    problem: Problem,
    preset: str,
    sizes: dict[str, int],
    dtype: str,
    out: Any,
) -> None:
    try:
        torch.set_num_threads(1)
        os.sched_setscheduler(
            0, os.SCHED_BATCH, os.sched_param(0)
        )  # as the ranks of a world: see sandbox.launcher
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        gloo.install()
        code = ProblemCode(problem)
        setting = code.setting(sizes, preset, getattr(torch, dtype), torch.device("cpu"))
        row = examine(code, setting)
        row["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    except SizesRefused as error:
        row = {"refused": str(error)}
    except Exception:
        row = {"error": traceback.format_exc()}
    out.put((rank, row))
    out.close()
    out.join_thread()
    os._exit(0)


def admit(
    problem: Problem,
    world: int,
    dtype: str,
    preset: str = "tiny",
    sizes: dict[str, int] | None = None,
    timeout: float = 120,
) -> dict[str, Any]:
    """Examines a problem in W forked ranks; returns rank 0's row, or {"error": text} of the first rank that failed."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    chosen = problem.sizes(preset, sizes)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(
                target=_rank,
                args=(rank, world, f"{folder}/store", problem, preset, chosen, dtype, queue),
                daemon=True,
            )
            for rank in range(world)
        ]
        for process in ranks:
            process.start()
        rows: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + timeout
        try:
            while len(rows) < world:
                try:
                    answer: tuple[int, dict[str, Any]] = queue.get(timeout=0.5)
                except Exception:
                    dead = [r for r, p in enumerate(ranks) if not p.is_alive() and r not in rows]
                    if dead or time.monotonic() > deadline:
                        return {"error": f"rank {dead[0]} died" if dead else f"no answer after {timeout} s"}
                    continue
                rank, row = answer
                rows[rank] = row
                if "error" in row:
                    return row
        finally:
            for process in ranks:
                process.kill()
                process.join()
    return rows[0]


CHEATS = ("zeros", "constant", "input", "other_trial", "fp8", "wrong_dtype", "one_wrong", "silent")


def complaints(problem: Problem, row: dict[str, Any], world: int) -> list[str]:
    """What speaks against admission and is not excused; empty when nothing does."""
    if "error" in row:
        return [row["error"].strip().splitlines()[-1]]
    found = [row["problem"]] if "problem" in row else []
    if row.get("mutated"):
        found.append(f"baseline writes to {row['mutated']}: list them in `mutates` or clone")
    if "alias" in row:
        found.append(f"output {row['alias']} aliases an argument: clone it or set check.may_alias")
    if "narrow" in row:
        found.append(
            f"{row['narrow']}: the baseline narrows (use torch.promote_types(x.dtype, torch.float32))"
        )
    if row.get("dead"):
        found.append(f"outputs without variance: {row['dead']}")
    if row.get("baseline", ("", ""))[0] != Verdict.PASS:
        found.append(f"baseline: {row.get('baseline')}")
    excused = problem.check.excused
    for cheat in CHEATS:
        passes = cheat in row and row[cheat][0] == Verdict.PASS
        if passes and cheat not in excused and f"{cheat}@{world}" not in excused:
            found.append(f"{cheat} passes")
    return found


def main() -> None:
    """One line per (world, dtype), or one JSON object with --json; exit 1 when something speaks against admission."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problems", nargs="+", help="ids, names or folders; `all` for the whole catalogue")
    parser.add_argument("--world", default="1,2,3,4,8")
    parser.add_argument("--dtype", default="")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bad = False
    for problem in _named(options.problems):
        for world in map(int, options.world.split(",")):
            if world not in problem.worlds:
                continue
            for dtype in options.dtype.split(",") if options.dtype else problem.dtypes[:2]:
                row = admit(problem, world, dtype, options.preset)
                against = complaints(problem, row, world)
                bad |= bool(against)
                if options.json:
                    named = {"id": problem.id, "stem": problem.stem, "world": world, "dtype": dtype}
                    print(json.dumps({**named, "against": against, **row}), flush=True)
                    continue
                print(
                    f"{problem.stem} W={world} {dtype}: {'ok' if not against else '; '.join(against)}",
                    flush=True,
                )
                if options.verbose or "error" in row:
                    print(row["error"] if "error" in row else json.dumps(row, indent=1))
    sys.exit(bad)


def _named(names: list[str]) -> list[Problem]:
    if names == ["all"]:
        return load_catalogue().problems
    return [
        load_problem(Path(name)) if Path(name).is_dir() else load_catalogue().find(name) for name in names
    ]


if __name__ == "__main__":
    main()
