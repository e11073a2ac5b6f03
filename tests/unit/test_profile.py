"""Why a kernel is slow: the sentence of each rank from made spans, the trace, and real ranks."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from arena.cli.runs.profile import lane
from arena.profile.chrome_trace import chrome_trace
from arena.profile.rules import figures
from sandbox.protocol.profile import RankProfile, Span, decode_report, encode

CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]
Inner = list[tuple[str, str, float, float]]
"""(kind, name, start, length) within a call of 1000 µs."""


def rank(number: int, *calls: Inner) -> RankProfile:
    spans = []
    for at, inner in enumerate(calls):
        begin = 5_000.0 + 2_000.0 * at
        spans.append(Span("call", "solution", begin, 1_000.0))
        spans += [Span(kind, name, begin + start, length) for kind, name, start, length in inner]
    return RankProfile(number, spans)


def said(*reports: RankProfile) -> list[str]:
    return [each.diagnosis.partition(":")[0] for each in figures(reports)]


def test_a_rank_that_waits_names_the_one_that_comes_late() -> None:
    early: Inner = [("wait", "all_reduce", 50.0, 900.0)]
    late: Inner = [("op", "aten::mm", 0.0, 850.0), ("wait", "all_reduce", 860.0, 90.0)]
    found = figures([rank(0, early, early, early), rank(1, late, late, late)])
    assert found[0].diagnosis.startswith("waits for rank 1: 81 % of a call (810 µs)")
    assert found[1].diagnosis.startswith("computes: aten::mm takes 85 %")
    assert (found[0].late_rank, found[1].late_us) == (1, 0.0)


def test_collectives_with_everybody_there_are_an_exchange() -> None:
    inner: Inner = [("wait", "all_gather", 100.0, 700.0)]
    assert said(rank(0, inner), rank(1, inner)) == ["exchanges", "exchanges"]


def test_many_small_operations() -> None:
    inner: Inner = [("op", "aten::add", 40.0 * at, 10.0) for at in range(25)]
    assert said(rank(0, inner)) == ["many small operations"]


def test_time_that_torch_does_not_see() -> None:
    assert said(rank(0, [("op", "aten::add", 0.0, 100.0)])) == ["outside torch"]


def test_nothing_stands_out() -> None:
    inner: Inner = [("wait", "all_reduce", 0.0, 350.0)]
    inner += [("op", f"aten::{name}", 350.0 + 120.0 * at, 120.0) for at, name in enumerate("abc")]
    assert said(rank(0, inner), rank(1, inner)) == ["nothing stands out"] * 2


def test_one_call_that_was_disturbed_changes_nothing() -> None:
    good: Inner = [("op", "aten::mm", 0.0, 900.0)]
    bad: Inner = [("wait", "all_reduce", 0.0, 990.0)]
    assert said(rank(0, good, bad, good)) == ["computes"]


def test_ranks_whose_collectives_differ_wait_for_nobody() -> None:
    one = rank(0, [("wait", "all_reduce", 0.0, 900.0)])
    other = rank(1, [("wait", "barrier", 890.0, 10.0)])
    assert figures([one, other])[0].late_rank is None
    assert said(RankProfile(0), RankProfile(1)) == ["no call was seen"] * 2


def test_lanes_have_the_same_ends_and_the_trace_its_rows() -> None:
    early = rank(0, [("wait", "all_reduce", 0.0, 1_000.0)])
    late = rank(1, [("op", "\x1b[31mmm", 0.0, 500.0)])
    assert lane(early, [early, late], 10) == "█" * 10
    assert lane(late, [early, late], 10) == "▒▒▒▒▒·····"
    events = json.loads(chrome_trace([early, late]))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {(event["pid"], event["tid"]) for event in spans} == {(0, 0), (0, 1), (1, 0), (1, 2)}
    assert min(event["ts"] for event in spans) == 0.0
    assert "\x1b" not in "".join(event["name"] for event in spans)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"rank": "0"}', b'{"rank": 0, "spans": [["call", "x", "soon", 1]]}']
)
def test_a_report_is_parsed_strictly(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_report(text)
    assert decode_report(encode(RankProfile(3, [Span("op", "a", 1.0, 2.0)]))).rank == 3


LATE = """
import time, torch, torch.distributed as dist
def solution(tensor):
    if dist.get_rank() == 1:
        time.sleep(0.05)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
"""


@pytest.mark.slow
def test_real_ranks_are_told_apart(pkb_arena: CommandLine, tmp_path: Path, home: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    done = pkb_arena(
        "profile", "1", "late.py", "--device", "cpu", "--world", "2", "--trace", "late.json", "--json"
    )
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)["ranks"]
    assert ranks[0]["diagnosis"].startswith("waits for rank 1")
    assert ranks[1]["diagnosis"].startswith("outside torch")
    assert ranks[0]["late_us"] > 25_000
    assert json.loads((tmp_path / "late.json").read_text())["traceEvents"]
    assert not list(home.glob("data/runs/*"))  # nothing was judged


@pytest.mark.slow
def test_a_call_that_fails_is_told_with_its_line(pkb_arena: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def solution(tensor):\n    raise ValueError('no such thing')\n")
    done = pkb_arena("profile", "1", "bad.py", "--device", "cpu")
    assert done.returncode == 1
    assert "no such thing" in done.stdout
    assert "line 2" in done.stdout
