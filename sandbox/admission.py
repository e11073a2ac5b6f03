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
from sandbox.checks import OwnError, compare, errors, limits
from sandbox.problem_code import Leaves, ProblemCode
from sandbox.trees import flatten
from sandbox.verdict import Verdict

SANE_ERROR = {torch.bfloat16: 0.1, torch.float16: 0.05, torch.float32: 1e-2, torch.float64: 1e-6}
Output = tuple[str, list[tuple[str, torch.Tensor]]]


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
                note = f"{name} rms {figures.rms:.2e} (limit {figures.rms_limit:.2e}) max {figures.max:.2e} (limit {figures.max_limit:.2e})"
                return verdict.value, note
        return Verdict.PASS.value, ""


def _changed(output: Output, change: Callable[[torch.Tensor], torch.Tensor]) -> Output:
    return output[0], [(name, change(tensor)) for name, tensor in output[1]]


def _one_wrong(output: Output) -> Output:
    """The last element of the largest output, on the last rank, replaced by a clearly different value."""
    if dist.get_rank() != dist.get_world_size() - 1:
        return output
    tensors = [(name, tensor.clone()) for name, tensor in output[1]]
    largest = max(range(len(tensors)), key=lambda i: tensors[i][1].numel())
    tensor = tensors[largest][1]
    if tensor.numel():
        flat = tensor.reshape(-1)
        if tensor.dtype == torch.bool:
            flat[-1] = ~flat[-1]
        elif tensor.dtype.is_floating_point and tensor.element_size() == 1:
            flat[-1] = -1.0 if float(flat[-1]) > 0 else 1.0
        elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            real = flat.abs().to(torch.float32) if not tensor.dtype.is_complex else flat.abs()
            scale = float(real[torch.isfinite(real)].max()) if real.numel() else 1.0
            flat[-1] = flat[-1] + (scale or 1.0) if bool(torch.isfinite(flat[-1].abs().float())) else 0.0
        else:
            flat[-1] += 1
        tensors[largest] = (tensors[largest][0], flat.view(tensor.shape))
    return output[0], tensors


def _other_dtype(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128 if tensor.dtype != torch.complex128 else torch.complex64)
    return tensor.to(torch.float64 if tensor.dtype != torch.float64 else torch.float32)


def _fp8(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype.is_complex:
        return torch.view_as_complex(_fp8(torch.view_as_real(tensor)))
    if not tensor.dtype.is_floating_point:
        return tensor
    scale = tensor.float().abs().amax().clamp(min=1e-30) / 448 if tensor.numel() else 1.0
    return ((tensor.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(tensor.dtype)


def _alive(output: Output) -> list[str]:
    """Floating outputs (more than one element) whose values are all the same: nothing could be judged by them."""
    dead = []
    for name, tensor in output[1]:
        if tensor.numel() > 1 and tensor.dtype.is_floating_point:
            values = tensor.float()
            values = values[torch.isfinite(values)]
            if values.numel() > 1 and float(values.std()) == 0.0:
                dead.append(name)
    return dead


class _NoCommunication:
    """While active, collectives return at once and leave their outputs as they were."""

    NAMES = [
        "all_reduce",
        "all_gather",
        "all_gather_into_tensor",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all",
        "all_to_all_single",
        "broadcast",
        "reduce",
        "scatter",
        "gather",
        "send",
        "recv",
        "isend",
        "irecv",
        "P2POp",
        "batch_isend_irecv",
        "all_gather_object",
        "broadcast_object_list",
        "barrier",
    ]

    def __enter__(self) -> None:
        self.saved = {name: getattr(dist, name) for name in self.NAMES}
        for name in self.NAMES:
            setattr(dist, name, self._fake(name))

    def __exit__(self, *_: object) -> None:
        for name, original in self.saved.items():
            setattr(dist, name, original)

    @staticmethod
    def _fake(name: str) -> Callable[..., Any]:
        class Done:
            def wait(self, *_: object) -> bool:
                return True

        def local(*args: Any, **kwargs: Any) -> Any:
            # The rank's own share still moves: a fake process group is a world in which the peers send zeros.
            def copy(target: Any, source: Any) -> None:
                if isinstance(target, torch.Tensor) and isinstance(source, torch.Tensor) and target.numel():
                    count = min(target.numel(), source.numel())
                    target.zero_()
                    target.view(-1)[:count].copy_(source.reshape(-1)[:count].to(target.dtype))

            if name == "P2POp":
                return args[:2]
            if name == "batch_isend_irecv":
                return [operation(tensor) for operation, tensor in args[0]]
            if (
                name in {"all_gather_into_tensor", "all_to_all_single", "reduce_scatter_tensor"}
                and len(args) > 1
            ):
                copy(args[0], args[1])
            elif name in {"all_gather", "all_to_all"} and len(args) > 1:
                for i, target in enumerate(args[0]):
                    copy(target, args[1][i] if isinstance(args[1], list) else args[1])
            elif name == "reduce_scatter" and len(args) > 1:
                copy(args[0], args[1][0])
            elif name in {"recv", "irecv"} or (
                name == "broadcast" and _given(args, kwargs, "src") not in (None, dist.get_rank())
            ):
                args[0].zero_()
            elif name == "gather":
                for i, target in enumerate(_given(args, kwargs, "gather_list") or []):
                    copy(target, args[0] if i == dist.get_rank() else torch.zeros_like(target))
            elif name == "scatter":
                parts = _given(args, kwargs, "scatter_list")
                copy(args[0], parts[dist.get_rank()] if parts else torch.zeros_like(args[0]))
            return Done()

        return local


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    return kwargs.get(name, args[1] if len(args) > 1 else None)


def examine(code: ProblemCode, setting: Setting) -> dict[str, Any]:
    """One row of the admission table, on every rank (rank 0's is kept)."""
    problem = code.problem
    judge = Judge(problem, setting.dtype)
    row: dict[str, Any] = {}

    def judged(outputs: Any) -> Output:
        return flatten(code.canonical(outputs, setting))

    tensors = code.draw(setting, 12345)
    again = code.draw(setting, 12345)
    if any(not torch.equal(_raw(tensors[k]), _raw(again[k])) for k in tensors):
        row["problem"] = "draw() gives different tensors for the same seed"
    other = code.draw(setting, 67890)
    before = {name: t.clone() for name, t in tensors.items()}
    started = time.perf_counter()
    raw = code.call(code.baseline, tensors, setting)
    row["first_ms"] = round((time.perf_counter() - started) * 1e3, 2)
    started = time.perf_counter()
    code.call(code.baseline, tensors, setting)
    row["call_ms"] = round((time.perf_counter() - started) * 1e3, 2)
    changed = [k for k in tensors if not torch.equal(_raw(tensors[k]), _raw(before[k]))]
    row["mutated"] = changed
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
    row["dead"] = _alive(baseline)
    row["baseline"] = judge.verdict(baseline, baseline, oracle, own)
    theirs = judged(code.call(code.baseline, other, setting))
    cheats: dict[str, Callable[[], Output | None]] = {
        "zeros": lambda: _changed(baseline, torch.zeros_like),
        "constant": lambda: _changed(baseline, lambda t: torch.ones_like(t)),
        "input": lambda: _returns_input(baseline, tensors),
        "other_trial": lambda: theirs,
        "fp8": lambda: _changed(baseline, _fp8),
        "dtype": lambda: _changed(baseline, _other_dtype),
        "one_wrong": lambda: _one_wrong(baseline),
    }
    for name, cheat in cheats.items():
        cheated = cheat()
        row[name] = judge.verdict(cheated, baseline, oracle, own)
        if name == "fp8" and row[name][0] == Verdict.PASS and not _differs_anywhere(cheated, baseline):
            row[name] = ("N/A", "rounding to fp8 changes nothing: no output is floating-point")
    if setting.world > 1:
        with _NoCommunication():
            try:
                alone: Output | None = judged(code.call(code.baseline, tensors, setting))
            except Exception:
                alone = None
        dist.barrier()
        row["silent"] = judge.verdict(alone, baseline, oracle, own)
    return row


def _differs_anywhere(cheated: Output | None, baseline: Output) -> bool:
    """Whether the cheat changed a bit on any rank (collective)."""
    same = cheated is not None and all(
        torch.equal(_raw(a), _raw(b)) for (_, a), (_, b) in zip(cheated[1], baseline[1], strict=True)
    )
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, same)
    return not all(everyone)


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    # as_strided: a single element may be contiguous with any stride, which view() then refuses.
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _returns_input(baseline: Output, tensors: Leaves) -> Output | None:
    """Each output replaced by a drawn tensor of its shape and dtype, where there is one."""
    leaves = []
    for name, tensor in baseline[1]:
        same = [t for t in tensors.values() if t.shape == tensor.shape and t.dtype == tensor.dtype]
        leaves.append((name, same[0] if same else torch.zeros_like(tensor)))
    return baseline[0], leaves


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


CHEATS = ("zeros", "constant", "input", "other_trial", "fp8", "dtype", "one_wrong", "silent")


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
    """Prints one JSON row per (world, dtype); exit 1 when something speaks against admission."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problem")
    parser.add_argument("--world", default="1,2,4")
    parser.add_argument("--dtype", default="")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    folder = Path(options.problem)
    problem = load_problem(folder) if folder.is_dir() else load_catalogue().find(options.problem)
    bad = False
    for world in map(int, options.world.split(",")):
        if world not in problem.worlds:
            continue
        for dtype in options.dtype.split(",") if options.dtype else problem.dtypes[:2]:
            row = admit(problem, world, dtype, options.preset)
            against = complaints(problem, row, world)
            bad |= bool(against)
            print(f"{problem.stem} W={world} {dtype}: {'ok' if not against else '; '.join(against)}")
            if options.verbose or "error" in row:
                print(row["error"] if "error" in row else json.dumps(row, indent=1))
    sys.exit(bad)


if __name__ == "__main__":
    main()
