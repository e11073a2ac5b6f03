"""Why a kernel is slow: each rank's sentence from written spans, lanes, the trace, and real ranks."""

import asyncio
import json
import os
from pathlib import Path

import msgspec
import pytest
from forked_programs import CommandLine, answer_of
from stored_runs import ALL_REDUCE
from waiting import comes_true

from arena.cli.profile import lane
from arena.errors import MachineError
from arena.profile.profile_process import ProfileRequest, profile
from arena.profile.rules import BUSY, figures, first_failure, under_profiler
from arena.profile.timeline import LanePiece, cells, chrome_trace, typical_call
from sandbox.machine.processes import children, runs, tree
from sandbox.protocol.profile import RankProfile, Span, decode_report, encode
from sandbox.referee.lease import Lease

Inner = list[tuple[str, str, float, float]]
"""(kind, name, start, length) within a call of 1000 µs."""


def rank(number: int, *calls: Inner) -> RankProfile:
    spans = []
    for at, inner in enumerate(calls):
        begin = 5_000.0 + 2_000.0 * at
        spans.append(Span("call", "solution", begin, 1_000.0))
        spans += [Span(kind, name, begin + start, length) for kind, name, start, length in inner]
    return RankProfile(number, spans)


MIXED = [("op", f"aten::{name}", 350.0 + 120.0 * at, 120.0) for at, name in enumerate("abc")]
WORKS: Inner = [("op", "aten::mm", 0.0, 900.0)]
ARRIVES: Inner = [("wait", "all_reduce", 50.0, 900.0)]
COMES: Inner = [("op", "aten::mm", 0.0, 850.0), ("wait", "all_reduce", 860.0, 90.0)]
SCENES = {
    "a late rank": [rank(0, ARRIVES, ARRIVES, ARRIVES), rank(1, COMES, COMES, COMES)],
    "a rank that is less late": [rank(0, ARRIVES), rank(1, [("wait", "all_reduce", 200.0, 750.0)])],
    "collectives": [rank(number, [("wait", "all_gather", 100.0, 700.0)]) for number in (0, 1)],
    "small operations": [rank(0, [("op", "aten::add", 40.0 * at, 10.0) for at in range(25)])],
    "one short operation": [rank(0, [("op", "aten::add", 0.0, 100.0)])],
    "one operation just long enough": [rank(0, [("op", "aten::mm", 0.0, 1_000.0 * BUSY)])],
    "a little of each": [rank(number, [("wait", "all_reduce", 0.0, 350.0), *MIXED]) for number in (0, 1)],
    "a call that was disturbed": [rank(0, WORKS, [("wait", "all_reduce", 0.0, 990.0)], WORKS)],
    "other collectives": [rank(0, [("wait", "all_reduce", 0.0, 900.0)]), rank(1, [("wait", "barrier", 890.0, 10.0)])],
    "no call": [RankProfile(0), RankProfile(1)],
}


def test_what_ranks_mostly_do_is_said(snapshot: object) -> None:
    found = [(name, each) for name, reports in SCENES.items() for each in figures(reports)]
    told = [f"{name}: {each.diagnosis} (late: {each.late_rank}, {each.late_us:.0f} µs)" for name, each in found]
    assert "\n".join(told) == snapshot


def test_lanes_have_same_ends_and_trace_its_rows() -> None:
    early = rank(0, [("wait", "all_reduce", 0.0, 1_000.0)])
    late = rank(1, [("op", "\x1b[31mmm", 0.0, 500.0)])
    timeline = typical_call([early, late])
    assert lane(timeline.lanes[0], timeline.us, 10) == "█" * 10
    assert lane(timeline.lanes[1], timeline.us, 10) == "░░░░░·····"
    events = json.loads(chrome_trace([early, late]))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {(event["pid"], event["tid"]) for event in spans} == {(0, 0), (0, 1), (1, 0), (1, 2)}
    assert min(event["ts"] for event in spans) == 0.0
    assert "\x1b" not in "".join(event["name"] for event in spans)


def test_how_much_profiler_slows_call_down_is_said() -> None:
    slow = msgspec.structs.replace(figures([rank(0)])[0], call_us=2500.0, plain_us=250.0)
    quick = msgspec.structs.replace(slow, call_us=2000.0, plain_us=200.0)
    assert under_profiler([quick, slow]) == (
        "a call takes 2,500 µs under the profiler, 10.0× as long as without it (250 µs);"
        " times and shares below are of the profiled call"
    )
    assert "as long as" not in under_profiler([msgspec.structs.replace(slow, plain_us=0.0)])


def test_the_typical_call_is_drawn() -> None:
    reports = [
        RankProfile(0, [Span("call", "solution", at * 1e4, us) for at, us in enumerate((900.0, 100.0, 400.0))]),
        RankProfile(1, [Span("call", "solution", at * 1e4 + 50.0, us) for at, us in enumerate((900.0, 100.0, 500.0, 1.0))]),
    ]  # fmt: skip
    timeline = typical_call(reports)
    assert (timeline.call, timeline.calls, timeline.us) == (2, 3, 550.0)
    assert timeline.lanes == [[LanePiece("code", 0.0, 400.0)], [LanePiece("code", 50.0, 500.0)]]
    assert typical_call([RankProfile(0), reports[1]]) is None
    waits: Inner = [("wait", "all_reduce", 0.0, 900.0)]
    assert typical_call([rank(0, waits, WORKS, WORKS)]).call == 1  # all are equally long


def test_collective_waits_for_last_rank_and_then_exchanges() -> None:
    early = rank(0, [("wait", "all_reduce", 100.0, 900.0)])
    late = rank(
        1, [("op", "aten::copy_", 0.0, 300.0), ("op", "aten::mm", 300.0, 400.0), ("wait", "all_reduce", 700.0, 300.0)]
    )
    assert figures([early, late])[1].largest_op == "aten::mm"
    timeline = typical_call([early, late])
    assert timeline.lanes[0][1:] == [LanePiece("waiting", 100.0, 600.0), LanePiece("exchange", 700.0, 300.0)]
    assert [piece.sort for piece in timeline.lanes[1]] == ["code", "copy", "operation", "waiting", "exchange"]
    assert [lane(timeline.lanes[at], timeline.us, 10) for at in range(2)] == ["·▒▒▒▒▒▒███", "▓▓▓░░░░███"]
    other = rank(1, [("wait", "barrier", 700.0, 300.0)])
    unmatched = typical_call([early, other])
    assert lane(unmatched.lanes[0], unmatched.us, 10) == "·█████████"


@pytest.mark.parametrize("width", [1, 7, 54, 154])
def test_lanes_fill_every_width_with_largest_parts(width: int) -> None:
    whole = [LanePiece("code", 0.0, 1_000.0), LanePiece("operation", 0.0, 333.0), LanePiece("exchange", 333.0, 667.0)]
    drawn = cells(whole, 1_000.0, width)
    assert len(drawn) == width
    assert set(drawn) <= {"operation", "exchange"}
    assert abs(drawn.count("exchange") - 0.667 * width) <= 0.5
    part = cells([LanePiece("code", 500.0, 500.0)], 1_000.0, width)
    assert part.count("code") + part.count(None) == width
    assert abs(part.count("code") - width / 2) <= 0.5
    assert cells(whole, 0.0, width) == [None] * width


def test_many_pieces_shorter_than_cell_are_counted_together() -> None:
    small = [LanePiece("operation", 10.0 * at, 6.0) for at in range(100)]
    assert cells([LanePiece("code", 0.0, 1_000.0), *small], 1_000.0, 10) == ["operation"] * 10
    smaller = [LanePiece("operation", 10.0 * at, 4.0) for at in range(100)]
    assert cells([LanePiece("code", 0.0, 1_000.0), *smaller], 1_000.0, 10) == ["code"] * 10


def test_the_first_failure_is_the_cause() -> None:
    consequence = RankProfile(0, failed="connection closed by peer", failed_at=10.2)
    cause = RankProfile(1, failed="ValueError", failed_at=10.1)
    assert first_failure([consequence, cause, RankProfile(2)]) is cause
    assert first_failure([RankProfile(0)]) is None


@pytest.mark.parametrize("text", [b"", b"{}", b'{"rank": "0"}', b'{"rank": 0, "spans": [["call", "x", "soon", 1]]}'])
def test_a_report_is_parsed_strictly(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_report(text)
    assert decode_report(encode(RankProfile(3, [Span("op", "a", 1.0, 2.0)]))).rank == 3


LATE = """
import time, torch, torch.distributed as dist
def solution(tensor):
    if dist.get_rank() == 1:
        time.sleep(0.25)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
"""
BAD = LATE.replace("time.sleep(0.25)", 'raise ValueError("no such thing")')


@pytest.mark.slow
def test_real_ranks_are_told_apart(pkb_arena: CommandLine, tmp_path: Path, home: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    done = pkb_arena("profile", "1", "late.py", "--device", "cpu", "--world", "2", "--trace", "late.json", "--json")
    assert all(each["plain_us"] > 0 for each in answer_of(done)["ranks"])
    ranks = json.loads(done.stdout)["ranks"]
    assert ranks[0]["diagnosis"].startswith("waits for rank 1")
    assert ranks[1]["diagnosis"].startswith("outside torch")
    assert ranks[0]["late_us"] > 100_000
    assert json.loads((tmp_path / "late.json").read_text())["traceEvents"]
    assert not list(home.glob("data/runs/*"))  # nothing was judged


CPP = """
import torch
from sandbox.kit import cpp, symm

lib = cpp.compile(r'''
extern "C" void total(const Px& px, const bf16* mine, bf16* y, long n, u32 epoch) {
    px_barrier(px, 0, epoch);
    for (int turn = 0; turn < 50; ++turn)
        for (long i = 0; i < n; ++i) {
            float sum = 0;
            for (int p = 0; p < px.world; ++p) sum += to_float(px_at(px, p, mine)[i]);
            y[i] = from_float<bf16>(sum);
        }
    px_barrier(px, 1, epoch);
}
''')


def solution(tensor):
    staged, y = symm.stage(tensor), torch.empty_like(tensor)
    lib.total(symm.px, staged, y, y.numel(), symm.next_epoch())
    return y
"""


@pytest.mark.slow
def test_compiled_cpp_is_named_with_its_barriers(pkb_arena: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "cpp.py").write_text(CPP)
    done = pkb_arena("profile", "1", "cpp.py", "--device", "cpu", "--world", "2", "--trace", "cpp.json", "--json")
    for rank in answer_of(done)["ranks"]:
        assert rank["largest_op"] == "C++ total"
        assert rank["waits"] == 2
    names = {event["name"] for event in json.loads((tmp_path / "cpp.json").read_text())["traceEvents"]}
    assert {"C++ total", "px_barrier"} <= names


@pytest.mark.slow
def test_call_that_fails_is_told_with_its_line(pkb_arena: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    done = pkb_arena("profile", "1", "bad.py", "--device", "cpu")
    assert done.returncode == 1
    assert done.stdout.startswith("rank 1 failed")
    assert "no such thing" in done.stdout
    assert "line 5" in done.stdout
    assert "sandbox" not in done.stdout  # it shows only the kernel's own frames


def request(source: str, device: str = "cpu") -> ProfileRequest:
    setting = msgspec.structs.replace(ALL_REDUCE, device=device)
    return ProfileRequest(setting=setting, kernel_name="kernel.py", source=source)


@pytest.mark.slow
async def test_profile_waits_while_kernel_is_timed_on_devices() -> None:
    told: list[bool] = []
    timed = Lease(["cores"])
    await comes_true(timed.take)
    made = asyncio.create_task(profile(request(LATE), told.append))
    try:
        await comes_true(lambda: told)
        await asyncio.sleep(0.3)
        assert told == [True]
    finally:
        timed.close()
    await comes_true(lambda: len(told) > 1)
    assert told == [True, False]
    made.cancel()
    with pytest.raises(asyncio.CancelledError):
        await made


@pytest.mark.slow
async def test_process_refuses_ncu_on_cpu_ranks() -> None:
    asked = msgspec.structs.replace(request(LATE), ncu_file="report.ncu-rep")
    with pytest.raises(MachineError, match="Nsight Compute profiles kernels of GPUs"):
        await profile(asked, lambda _: None)


@pytest.mark.slow
async def test_unwanted_profile_ends_with_its_world() -> None:
    before = set(children(os.getpid()))
    told: list[bool] = []
    made = asyncio.create_task(profile(request("import time\ntime.sleep(1000)\n"), told.append))
    await comes_true(lambda: False in told)  # processes that it starts earlier end by themselves
    (process,) = set(children(os.getpid())) - before
    await comes_true(lambda: len(tree(process)) >= 4)  # the profile's process, the launcher, the ranks
    world = tree(process)
    made.cancel()
    with pytest.raises(asyncio.CancelledError):
        await made
    await comes_true(lambda: not any(map(runs, world)))  # processes that die with their parent end a moment later
