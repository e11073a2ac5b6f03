"""Orders to a rank of the oracle world and to one of a kernel's world, which share a process here, and their answers."""

import contextlib
import gc
import itertools
import os
import select
import socket
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from msgspec.structs import replace
from waiting import PATIENCE_S, eventually

import sandbox.rank.rank
import sandbox.rank.trusted
from problems.catalogue import HOME
from problems.setting import RankSetting
from sandbox.admission.ranks import in_gloo_ranks
from sandbox.memory import slots
from sandbox.protocol import messages
from sandbox.protocol.events import Setting
from sandbox.protocol.frames import GatePage, Kind
from sandbox.protocol.messages import Arm, ChooseBatch, CompareOutputs, Draw, Go, LookAhead, Reveal, SlotLayout
from sandbox.rank.contender import ContenderRank
from sandbox.rank.devices.device import Device
from sandbox.rank.rank import Rank
from sandbox.rank.trusted import TrustedRank
from sandbox.worlds.failures import WorldFailed
from sandbox.worlds.rank_wire import RankWire, Received

ALLREDUCE = HOME / "collective" / "allreduce"
GATHER = HOME / "collective" / "gather"
CLIPPING = HOME / "fsdp" / "clip_grad_norm_no_ep"
KERNEL = """
import torch, torch.distributed as dist
calls, late = [], []
late_on = -1
def solution(tensor):
    calls.append(tensor.clone())
    total = tensor.clone()
    dist.all_reduce(total)
    if dist.get_rank() != late_on:
        return total
    late.append((torch.zeros_like(total), total))
    return late[-1][0]
"""
PASSED = ["PASS", "PASS"]


class Asked:
    """A rank that answers in a thread of this process."""

    def __init__(self, kind: type[Rank], rank: int, world: int, folder: Path) -> None:
        self.wire, ends = RankWire.connect(rank, kind is TrustedRank)
        self.rank: Any = kind(rank, world, socket.socket(fileno=ends.sock), ends.report, folder, Device())
        self.serving = threading.Thread(target=self.rank.serve, daemon=True)
        self.serving.start()
        assert self.answer().kind is Kind.READY

    def answer(self) -> Received:
        while not self.wire.answers:
            assert select.select([self.wire.sock], [], [], PATIENCE_S)[0]
            assert self.wire.read() is not None
        if failure := self.wire.failure():
            self.wire.answers.clear()
            raise failure
        return self.wire.answers.popleft()

    def __call__(self, order: messages.Order[Any], *fds: int) -> Any:
        """Returns the reply of a trusted rank, or the kind of another's answer."""
        self.wire.send(order, fds)
        found = self.answer()
        if found.kind is Kind.MAKE_ARENAS:
            return found.fds
        return found.reply if self.wire.trusted and found.kind is order.kind else found.kind


class Run:
    """One rank of a run: the oracle's and the kernel's."""

    def __init__(self, rank: int, world: int, folder: Path, kernel: str, problem: Path, preset: str) -> None:
        own = folder / str(rank)
        own.mkdir()
        self.number, self.seeds = rank, itertools.count(100)
        self.oracle = Asked(TrustedRank, rank, world, own)
        self.kernel = Asked(ContenderRank, rank, world, own)
        setting = Setting(str(problem), preset, {"M": 16, "N": 8}, world, "cpu", "float32")
        assert [asked(messages.OpenProblem(setting)) for asked in (self.oracle, self.kernel)] == [Kind.OPENED] * 2
        found = self.oracle(messages.MeasureBaseline([*range(20)], [1 << 20], 1))
        self.layout = SlotLayout(found.in_bytes, found.out_bytes, found.room, 4, True)
        arenas = self.oracle(messages.MakeArenas(self.layout, True, 0))
        assert self.kernel(messages.MapArenas(self.layout), *arenas) is Kind.MAPPED
        assert self.kernel(messages.LoadKernel("kernel.py", kernel)) is Kind.LOADED

    @property
    def module(self) -> Any:
        return sys.modules["kernel"]

    def draw(self, count: int, timed: bool = True) -> list[int]:
        """Draws iterations. Returns the sides with late outputs."""
        drawn = self.oracle(Draw([next(self.seeds) for _ in range(count)], timed, [0]))
        self.tables = drawn.tables
        return list(drawn.touched)

    def check(self) -> None:
        """Makes two checked calls."""
        self.draw(2, timed=False)
        assert self.oracle(Reveal(0, 0, 2)) == 0.0
        assert self.kernel(Arm(self.tables, checking=True)) is Kind.ARMED
        assert (self.kernel(Go()), self.kernel.wire.calls_begun) == (Kind.DONE, 2)

    def load_and_check(self, kernel: str) -> None:
        assert self.kernel(messages.LoadKernel("kernel.py", kernel)) is Kind.LOADED
        self.check()

    def batch(self, first: int, count: int, **more: Any) -> None:
        """Makes timed calls on drawn iterations."""
        tables = self.tables[first : first + count]
        assert self.kernel(Arm(tables, batch=ChooseBatch(first, count, **more))) is Kind.CHOSEN
        self.oracle(Reveal(0, first, count))
        assert self.kernel(Go()) is Kind.DONE

    def compare(self, *slots: int, **more: Any) -> list[str]:
        return [str(found.verdict) for found in self.oracle(CompareOutputs([*slots], 0, **more))]


@pytest.fixture
def on_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """on_ranks(work, kernel): what work(run) returns on each of two ranks."""
    monkeypatch.setattr(sandbox.rank.rank, "leave", lambda status: sys.exit())

    def called(
        work: Callable[[Run], Any], kernel: str = KERNEL, problem: Path = ALLREDUCE, preset: str = "tiny"
    ) -> list[Any]:
        return in_gloo_ranks(2, lambda *ranks: work(Run(*ranks, tmp_path, kernel, problem, preset)), PATIENCE_S)

    return called


def test_results_that_come_late_are_right_then(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.module.late_on = 1
        run.check()
        found = [run.compare(0, 1)]
        for returned, total in run.module.late:
            returned.copy_(total)
        assert run.kernel(messages.Recopy()) is Kind.RECOPIED
        return [*found, run.compare(0, 1)]

    assert on_ranks(work) == [[PASSED, PASSED], [["WRONG_RESULT"], PASSED]]


@pytest.mark.parametrize(("late_on", "found"), [(-1, [["PASS"], ["PASS"]]), (1, [PASSED, ["WRONG_RESULT"]])])
def test_far_outputs_beside_others_are_compared(on_ranks: Callable[..., list[Any]], late_on: int, found: Any) -> None:
    def work(run: Run) -> list[str]:
        run.module.late_on = late_on
        run.check()
        return run.compare(0, beside=[1])

    assert on_ranks(work) == found


def test_large_outputs_are_compared_one_by_one(
    on_ranks: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        rank, parts = run.oracle.rank, []
        compare = rank.findings
        rank.findings = lambda part, expected: parts.append(len(part)) or compare(part, expected)
        return [*run.compare(0, 1), *parts]

    monkeypatch.setattr(sandbox.rank.trusted, "EXPECTED_BYTES", 1)
    assert on_ranks(work) == [[*PASSED, 1, 1]] * 2


@pytest.mark.parametrize(("change", "differ", "constant"), [([1], [], True), ([], [], False), ([1], [0], False)])
def test_ranks_agree_on_constant_inputs(
    on_ranks: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch, change: Any, differ: Any, constant: bool
) -> None:
    def changing(rank: TrustedRank, setting: RankSetting, seeds: list[int]) -> tuple[set[str], object]:
        own = setting is not rank.setting
        return ({"tensor"} if own and rank.rank in change else set()), own and rank.rank in differ

    monkeypatch.setattr(TrustedRank, "changing", changing)
    assert on_ranks(lambda run: run.oracle.rank.constant, preset="paper") == [constant] * 2


def test_a_batch_gets_inputs_and_is_looked_at(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        run.compare(0, 1)
        checked, warmed = len(run.module.calls), []
        assert run.draw(4) == []
        copies = run.kernel.rank.output_copies
        copies.warm_up, copies.start = lambda slot, result: warmed.append(slot), lambda *given: warmed.append(given)
        run.batch(1, 2, warm=3)
        assert warmed == [run.kernel.rank.iterations.slots[1], (2, False)]
        assert gc.isenabled()
        drawn = [run.oracle.rank.arenas.inputs_of(slot)["tensor"] for slot in (1, 2)]
        assert all(map(torch.equal, run.module.calls[-2:], drawn))
        found = [len(run.module.calls) - checked, run.kernel.wire.calls_begun]
        found += [run.oracle(LookAhead(0, 1, *each, [2, 2])) for each in ((3, 1), (2, 2), (0, 1), (0, 0))]
        run.oracle(messages.TakeOutputs(1, 2, 0))
        run.batch(3, 1, noop=True, reuses=True)
        assert (copies.reuses, warmed[-1]) == (True, (1, True))
        found += [len(run.module.calls) - checked, run.compare(1, 2)]
        assert run.draw(1) == []
        run.kernel.rank.outputs[run.layout.out_bytes :] = run.number  # after the comparison
        return [*found, run.draw(2), run.oracle(messages.CheckPoison([0]))]

    assert on_ranks(work) == [[5, 2, False, True, False, False, 5, PASSED, [0], [0]]] * 2


def test_constant_inputs_of_upstream_are_not_timed(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        found: list[Any] = [run.compare(0, 1)]
        run.draw(2)
        run.batch(0, 2)
        found += [torch.equal(*run.module.calls[:2]), torch.equal(*run.module.calls[-2:]), run.compare(0, 1)]
        return [*found, run.oracle.rank.comparison_of(0) is run.oracle.rank.comparison]

    assert on_ranks(work, preset="paper") == [[PASSED, True, False, PASSED, False]] * 2


def test_inputs_of_one_rank_alone_are_completed(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        run.compare(0, 1)
        run.draw(2)
        assert run.kernel(Arm(run.tables, batch=ChooseBatch(0, 2))) is Kind.CHOSEN
        assert run.oracle(Reveal(None, watch=True)) == 0.0
        run.oracle(Reveal(0, 0, 1, rank=1))
        theirs, own = run.kernel.rank.iterations.armed, run.oracle.rank.arenas
        return [torch.equal(theirs[slot].arguments[0], own.inputs_of(slot)["tensor"]) for slot in (0, 1)]

    assert on_ranks(work) == [[False, False], [True, False]]


def test_arguments_changed_in_place_come_with_go(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        found = [run.compare(0, 1)]
        run.draw(2)
        for _ in range(2):  # of two worlds with the same arenas
            assert run.kernel(Arm(run.tables, batch=ChooseBatch(0, 2))) is Kind.CHOSEN
            assert run.oracle(Reveal(0, 0, 2)) == 0.0
            armed, own = run.kernel.rank.iterations.armed, run.oracle.rank.arenas.inputs_of
            both = [(armed[slot].given[name], tensor) for slot in (0, 1) for name, tensor in own(slot).items()]
            found.append(all(itertools.starmap(torch.equal, both)))
            assert run.kernel(Go()) is Kind.DONE
            found.append(all(itertools.starmap(torch.equal, both)))
        return [*found, run.compare(0, 1)]

    text = (CLIPPING / "baseline.py").read_text()
    assert on_ranks(work, text, CLIPPING) == [[PASSED, True, False, True, False, PASSED]] * 2


def test_outputs_that_change_after_their_batch_are_late(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        run.compare(0, 1)
        assert run.oracle.rank.arenas.filled == 16 * 8 * 4
        page = GatePage(2)
        assert run.oracle(messages.MapGate(), os.dup(page.fd)) is Kind.GATED
        run.draw(1)
        run.oracle(Reveal(0, 0, 1, epoch=page.shut()))
        assert run.oracle(messages.Sync(7)) == 7  # ends the wait for the end of a batch that has failed
        assert (run.oracle.rank.arenas.at_end, page.finished()) == (None, False)
        found = []
        for late, taken in ((False, True), (False, False), (True, True)):
            run.draw(3)
            assert run.kernel(Arm(run.tables[1:], batch=ChooseBatch(1, 2))) is Kind.CHOSEN
            run.oracle(Reveal(0, 1, 2, epoch=page.shut()))
            assert run.kernel(Go()) is Kind.DONE
            page.open()
            eventually(lambda: int.from_bytes(page.page[64 * (run.number + 1) :][:4], "little") == page.epoch)
            if late:
                run.kernel.rank.outputs.view(run.layout.slots, -1)[1 + run.number] += 1
            if taken:
                run.oracle(messages.TakeOutputs(1, 2, 0))
                run.oracle(CompareOutputs([], 0))
            found.append(run.oracle(messages.CheckPoison([0])))
        return found

    assert on_ranks(work) == [[[], [0], [0]]] * 2


def test_gated_batch_is_queued_between_shut_and_mark(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        run.compare(0, 1)
        page, told = GatePage(2), []

        def gate(mapped: Any, rank: int) -> SimpleNamespace:
            mapped[-1] = 7  # of the page that was sent
            events = (lambda epoch, name=name: told.append((name, rank, epoch)) for name in ("shut", "mark"))
            return SimpleNamespace(**dict(zip(("shut", "mark"), events, strict=True)))

        run.kernel.rank.device.gate = gate
        run.kernel.rank.device.synchronize = lambda: told.append("synchronized")
        assert run.kernel(messages.MapGate(), os.dup(page.fd)) is Kind.GATED
        run.module.called = lambda _: told.append(run.kernel.wire.calls_begun)
        run.draw(3)
        spark = float(run.kernel.rank.spark)
        run.batch(2, 1)
        told.append(float(run.kernel.rank.spark) - spark)
        assert run.kernel(Arm(run.tables[:2], batch=ChooseBatch(0, 2, epoch=page.shut()))) is Kind.CHOSEN
        run.oracle(Reveal(0, 0, 2))
        answers = [run.kernel(Go()), run.kernel(messages.FinishBatch())]
        assert (answers, page.page[-1]) == ([Kind.QUEUED, Kind.DONE], 7)
        return [*told, run.compare(0, 1, 2)]

    text = KERNEL.replace("    calls.append", "    called(0)\n    calls.append") + "called = print\n"
    done = "synchronized"
    found = [[done, 1, done, 1.0, done, ("shut", rank, 1), 1, 2, ("mark", rank, 1), done] for rank in range(2)]
    assert on_ranks(work, text) == [[*each, ["PASS"] * 3] for each in found]


def test_late_tables_are_armed_without_an_answer(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        run.compare(0, 1)
        run.draw(2)
        assert run.kernel(Arm([], batch=ChooseBatch(0, 2))) is Kind.CHOSEN
        run.oracle(Reveal(0, 0, 2))
        run.kernel.wire.send(Arm(run.tables, timed=True), ())
        return [run.kernel(Go()), run.kernel.wire.calls_begun, run.compare(0, 1)]

    assert on_ranks(work) == [[Kind.DONE, 2, PASSED]] * 2


def memory_files() -> set[tuple[str, int]]:
    """The open descriptors of memory files: name and inode."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:pkb" in os.readlink(path):
                found.add((path.name, path.stat().st_ino))
    return found


def test_kernel_ranks_keep_no_descriptor_of_arenas(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> int:
        page, arenas = GatePage(2), run.oracle(messages.MakeArenas(run.layout, False, 0))
        before = memory_files()
        assert run.kernel(messages.MapArenas(run.layout), *arenas) is Kind.MAPPED
        assert run.oracle(messages.MapGate(), page.fd) is Kind.GATED
        return len(memory_files() - before)

    assert on_ranks(work) == [1, 1]  # an mmap object has a descriptor of its own


def test_outputs_of_ended_calls_that_change_are_late(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        found = [run.compare(0, 1)]
        for late in range(3):
            run.draw(3)
            run.batch(1, 2)
            for stop in range(3):
                run.kernel.rank.outputs.view(run.layout.slots, -1)[1, -1] += late == stop
                run.oracle(LookAhead(0, 1, 3, 0, [stop, 1 + stop]) if stop < 2 else messages.TakeOutputs(1, 2, 0))
            run.oracle(CompareOutputs([], 0))
            found.append(run.oracle(messages.CheckPoison([0])))
            run.oracle.rank.arenas.late.clear()
        return found

    assert on_ranks(work) == [[PASSED, [], [], [0]], [PASSED, [], [0], [0]]]


OTHER = "from sandbox.kit.errors import CompileError\ndef compiles(x):\n    raise CompileError('no such type', 7)\n"


@pytest.mark.parametrize(("own", "line"), [(True, 7), (False, 2)])
def test_line_of_compile_error_is_of_kernel(
    on_ranks: Callable[..., list[Any]], tmp_path: Path, own: bool, line: int
) -> None:
    (tmp_path / "other.py").write_text(OTHER)
    kernel = (
        OTHER.replace("compiles", "solution")
        if own
        else "from other import compiles\nsolution = lambda x: compiles(x)\n"
    )
    (tmp_path / "kernel.py").write_text(kernel)

    def work(run: Run) -> Any:
        assert run.kernel(messages.LoadKernel("kernel.py", kernel, folder=str(tmp_path))) is Kind.LOADED
        with pytest.raises(WorldFailed) as failed:
            run.check()
        return failed.value.kind, failed.value.line

    assert on_ranks(work) == [("COMPILE_FAILED", line)] * 2


def test_unsealed_arenas_are_received_and_delivered(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        layout, rank, told = replace(run.layout, sealed=False), run.kernel.rank, []
        arenas = run.oracle(messages.MakeArenas(layout, True, 0))
        assert run.kernel(messages.MapArenas(layout), *arenas) is Kind.MAPPED
        rank.device.receive = lambda size: told.append(size // layout.in_bytes)
        rank.device.deliver = lambda size: told.append(size // layout.out_bytes)
        run.draw(2, timed=False)
        run.oracle(Reveal(0, 0, 2))
        rank.outputs.zero_()
        gc.collect = told.append
        assert run.kernel(Arm(run.tables, checking=True)) is Kind.ARMED
        told.append(int(rank.outputs.min()))
        answers = [run.kernel(Go()), run.kernel.answer().kind, run.compare(0, 1)]
        assert run.kernel(Arm(run.tables, batch=ChooseBatch(0, 2))) is Kind.CHOSEN  # its inputs come again
        return [*told, *answers]

    assert on_ranks(work) == [[2, 0, slots.POISON, 2, 2, 0, 2, Kind.DONE, Kind.DELIVERED, PASSED]] * 2


def test_results_may_be_inputs_where_allowed(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        run.check()
        found = run.compare(0, 1)
        run.draw(2)
        run.batch(0, 2)
        return found + run.compare(0, 1)

    assert on_ranks(work, (GATHER / "baseline.py").read_text(), GATHER) == [PASSED * 2] * 2


FAILING = {
    "def solution(": ("SYNTAX", 1),
    "def solution(x):\n    x.zero_()\n    return 1 * x": ("MUTATED", 0),
    "def solution(x):\n    return x": ("BAD_STRUCTURE", 0),
    "from operator import index as solution": ("RAISED", 0),
    OTHER.replace("compiles", "solution"): ("COMPILE_FAILED", 7),
    "class Odd(ValueError):\n    def __str__(self): 1 / 0\ndef solution(x):\n    raise Odd": ("RAISED", 4),
}


def test_failures_are_told_and_leave_nothing_behind(on_ranks: Callable[..., list[Any]]) -> None:
    def work(run: Run) -> list[Any]:
        found: list[Any] = []
        copies = [run.kernel.rank.output_copies]
        assert run.kernel.rank.kernel_path == f"{run.kernel.rank.folder}/kernel.py"
        for text in FAILING:
            with pytest.raises(WorldFailed) as failed:
                run.load_and_check(text)
            found.append((failed.value.kind, failed.value.line))
            copies.append(run.kernel.rank.output_copies)
        assert len(set(map(id, copies))) == len(copies)  # what a kernel has shown is not the next one's
        run.load_and_check("aliases = []\ndef solution(x):\n    return x if aliases else 2 * x")
        run.module.aliases.append(run.draw(1))
        with pytest.raises(WorldFailed, match=r"BAD_STRUCTURE.*shares memory with an argument"):
            run.batch(0, 1)
        with pytest.raises(WorldFailed, match=r"BROKEN.*KeyError: 7"):
            run.oracle(messages.TakeOutputs(0, 1, 7))
        run.oracle.rank.arenas.in_bytes -= 64
        with pytest.raises(WorldFailed) as failed:
            run.draw(1)
        found.append((failed.value.kind, failed.value.text.partition(";")[0]))
        for text, kind in (("can't allocate memory", "REFUSED"), ("no such thing", "BROKEN")):
            run.oracle.rank.code.draw = Mock(side_effect=RuntimeError(text))
            with pytest.raises(WorldFailed, match=f"{kind}.*{text}"):
                run.oracle(messages.MeasureBaseline([1], [1 << 20], 1))
        assert run.oracle(messages.Sync(7)) == 7
        assert run.kernel(messages.Wake()) is Kind.AWAKE  # it has forgotten the exceptions
        module = weakref.ref(run.module)
        for asked in (run.kernel, run.oracle):
            with pytest.raises(WorldFailed, match="/nowhere"):
                asked(messages.OpenProblem(Setting("/nowhere", "tiny", {}, 2, "cpu", "float32")))
            assert not hasattr(asked.rank, "code")
        left = {"problem_inputs_allreduce", "problem_baseline_allreduce", "kernel"} & sys.modules.keys()
        return [*found, left, module(), run.oracle.rank.arenas.sides]

    refused = ("REFUSED", "inputs of 512 bytes do not fit the slot of 448")
    assert on_ranks(work) == [[*FAILING.values(), refused, set(), None, {}]] * 2
