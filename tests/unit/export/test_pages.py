"""Pages of attempts: their content, that every link has a target, and that foreign text is shown only as text."""

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from forked_programs import CommandLine, answer_of, fails
from stored_runs import cell_result, header, result, trace_header

from arena.errors import MachineError
from arena.export.pages import export_pages
from arena.machine.facts import Machine
from arena.models.budget import Spent
from arena.models.conversation import Conversation, Finish, Message, Text, Thought
from arena.paths import Paths
from arena.players.trace import Answered, Called, Judged, Returned, TraceRecorder
from arena.records.json_lines import Journal, append_line
from arena.records.run_record import OtherSize, RunRecord, record_of, view
from arena.records.voids import Void
from arena.sweep.journal import SweepJournal
from arena.sweep.records import NO_KERNEL, Cell, SweepPlan, SweepSession
from arena.workspace.kernels import Workspace
from problems.catalogue import load_catalogue
from sandbox.protocol import events
from sandbox.protocol.kernel_files import Files, Kernel, kernel_hash
from sandbox.protocol.verdict import Verdict

CATALOGUE = load_catalogue()
SETTING = events.Setting("", "tiny", {"M": 8}, 2, "cpu", "float32")
HERE = Machine("a small box", "", "2.9", "gloo")
FIRST, SECOND = "def solution(x):\n    return x\n", "def solution(x):\n    return x + 1\n"
EVIL = (
    "</script></style></title></pre><script>alert(1)</script><img src=x onerror=alert(1)>\" onclick='alert(1)' &amp; &#x202e;"
    "\x1b]8;;https://example.org\x07link\x1b]8;;\x07\x1b[31mred \x9b2J\x00\x08\u202edrow\u2066 <!-- ]]> javascript:alert(1)"
)


def run(
    paths: Paths, run_id: str, source: str, verdict: Verdict = Verdict.PASS, player: str = "you", files: Files | None = None,
    other_than: str = "", correctness_only: bool = False, **more: object,
) -> RunRecord:  # fmt: skip
    """Writes the journal of a finished run and returns its report."""
    begun = header(
        run_id, source, player, created=1.7e9, sha256=kernel_hash(source, files or {}), files=files or {}, setting=SETTING,
        other_than=other_than, correctness_only=correctness_only,
    )  # fmt: skip
    passed = verdict is Verdict.PASS
    known: dict[str, object] = {
        "baseline_us": events.Microseconds(call=20.0, device=None), "contender_us": events.Microseconds(call=10.0, device=None),
        "roofline": events.Roofline(bound_us=5.0, percent=50.0, limiter="link") if passed else None, "rounds": 9, "jail": "none",
        "outcome": "faster" if passed else "", "clock": "call", "told": "2.00× faster end-to-end" if passed else "",
        "seconds": events.Seconds(total=2.0),
    }  # fmt: skip
    ended = result(verdict, events.Interval(2.0, 1.9, 2.1) if passed else None, **(known | more))
    paths.runs.mkdir(parents=True, exist_ok=True)
    name = run_id if run_id.isalnum() else "evil"
    journal = Journal(paths.runs / f"{name}.jsonl", begun, pytest.fail)
    journal.append(events.Finished(run_id=run_id, sha256=begun.sha256, result=ended))
    journal.close()
    return record_of(begun, ended)


def trace(paths: Paths, trace_id: str, first: RunRecord, second: RunRecord, words: str = "") -> None:
    """Writes the trace of a model's two steps, the second with feedback."""
    begun = trace_header(trace_id, "agent:m" + words, created=1.7e9, setting=SETTING)
    recorder = TraceRecorder(begun, paths, pytest.fail, [])
    task = Message("user", "the task" + words)
    recorder.ask(1, Conversation("the system" + words, (task,)))
    recorder.piece(Thought("a thought" + words), Spent())
    recorder.emit(Called(tool="compile" + words, arguments=json.dumps({"source" + words: FIRST + words})))
    recorder.emit(Returned(tool="compile", text="it compiles" + words, error=False))
    recorder.piece(Text("an answer" + words), Spent())
    recorder.piece(Finish("stop"), Spent())
    recorder.emit(view(Answered, Kernel(FIRST + words), outcome="kernel", reason=words, spent=Spent(100, 20, 0.01)))
    recorder.emit(Judged(report=first, printed="printed", gain=True))
    told = Message("user", "the feedback" + words)
    recorder.ask(2, Conversation("the system", (task, Message("assistant", "an answer"), told)))
    recorder.emit(Called(tool="run", arguments=words or "no json"))
    recorder.emit(
        view(
            Answered,
            Kernel(SECOND + words, {"two.cuh": b"int two;\n"}),
            outcome="kernel",
            reason="",
            spent=Spent(300, 40, 0.02),
        )
    )
    recorder.emit(Judged(report=second, printed="printed", gain=True))
    recorder.ended("steps" + words, 2, Spent(400, 60, 0.03))


def swept(paths: Paths, trace_id: str, found: RunRecord, words: str = "", name: str = "spring") -> None:
    """Writes a sweep with a result that has a trace, and one without a kernel."""
    journal = SweepJournal(paths.sweeps / f"{name}.jsonl", "spring")
    machine = msgspec.structs.replace(HERE, devices=HERE.devices + words)
    journal.append(
        SweepSession(at=1.0, plan=SweepPlan(players=["agent:m"], problems=["allreduce"]), machines=[machine], arena="0")
    )
    for attempt, verdict, detail in ((1, found.verdict.value, ""), (2, NO_KERNEL, "prose" + words)):
        cell = Cell(slug="allreduce" + words, setting=SETTING, player="agent:m" + words, attempt=attempt, catalogue="v")
        here = {"report": found, "sha256": found.sha256, "trace_id": trace_id} if attempt == 1 else {}
        known = {
            "at": 1.7e9,
            "key": f"key{attempt}{words}",
            "machine": machine.digest,
            "detail": detail,
            "seconds": 3.0,
        }
        journal.append(cell_result(cell, verdict, spent=Spent(400, 60, 0.03), **known, **here))
    journal.close()


class Page(HTMLParser):
    """A parsed page. Fails if an element is not closed, or is none of those that these pages use."""

    TAGS = "html head meta title style body main h1 h2 h3 p a bdi strong span div table thead tbody tr th td details summary pre"
    ATTRIBUTES = "lang charset http-equiv content name class href data-label open"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.links, self.words, self.style = path, [], "", ""
        self.metas: list[dict[str, str | None]] = []
        self._open: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.TAGS.split()
        assert {name for name, _ in attrs} <= set(self.ATTRIBUTES.split())
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag == "meta":
            self.metas.append(dict(attrs))
        else:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["style"]:
            self.style += data
        else:
            self.words += data

    def handle_comment(self, data: str) -> None:
        pytest.fail("no page has comments")


def pages_in(folder: Path) -> dict[str, Page]:
    """Returns all pages by name, after checks that hold for each page."""
    pages = {path.stem: Page(path) for path in (folder / "index.html", *sorted((folder / "attempts").iterdir()))}
    for page in pages.values():
        policy = next(meta["content"] for meta in page.metas if meta.get("http-equiv") == "Content-Security-Policy")
        digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
        assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        for link in page.links:
            assert "://" not in link
            assert (page.path.parent / link).is_file()
        unseen = [c for c in page.source if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c in "\u202e\u2066"]
        assert unseen == []
    assert sorted(pages["index"].links) == sorted(f"attempts/{name}.html" for name in pages if name != "index")
    return pages


def test_pages_have_all_that_is_known_of_attempts(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: object
) -> None:
    """A sweep whose model left a trace, a model's work outside of sweeps, and the runs of users."""
    monkeypatch.setattr("arena.export.pages.installed_version", lambda package: "1.0")
    monkeypatch.setattr("arena.export.attempts.this_machine", lambda device: HERE)
    speedup = events.Speedup(call=events.Interval(1.5, 1.4, 1.6), device=None)
    other = OtherSize(
        sizes={"M": 16}, dtype="float32", world=2, verdict=Verdict.PASS, run_id="m3", outcome="faster", clock="call",
        speedup=speedup,
    )  # fmt: skip
    wrong = run(paths, "m1", FIRST, Verdict.WRONG_RESULT, "agent:m")
    right = run(paths, "m2", SECOND, player="agent:m")
    run(paths, "m3", SECOND, player="agent:m")
    right = msgspec.structs.replace(right, other_sizes=[other], holds_at_other_sizes="all")
    trace(paths, "t1", wrong, right)
    trace(paths, "t2", wrong, right)
    swept(paths, "t1", right)
    run(paths, "r1", FIRST)
    failure = events.Failure(phase="time", message="it broke", advice="mend it", text="a traceback")
    run(paths, "r2", FIRST, Verdict.CRASH, detail="time: it broke. mend it", failure=failure)
    run(paths, "r3", SECOND, files={"two.cuh": b"int two;\n", "data.bin": b"\xff\xfe"})
    run(paths, "r4", SECOND, player="guest")
    run(paths, "r5", SECOND, other_than="r3")  # at another size, so it is no attempt of its own
    run(paths, "r6", SECOND, correctness_only=True)  # a `compile` call
    append_line(paths.voids, Void(at=1.0, note="reads the answer", by="anna", run="r1"))
    assert export_pages(paths, CATALOGUE, tmp_path / "site") == (7, [])
    bodies = (page.source.partition("</head>")[2] for page in pages_in(tmp_path / "site").values())
    assert "\n".join(bodies).replace("><", ">\n<") == snapshot


def test_hostile_texts_are_text(paths: Paths, tmp_path: Path) -> None:
    failure = events.Failure(
        phase=EVIL,
        message=EVIL,
        advice=EVIL,
        output=EVIL,
        index=[1],
        expected=EVIL,
        got=EVIL,
        text=f"{EVIL}\nmore\n{EVIL}",
    )
    evil: dict[str, object] = {
        "labels": [EVIL], "beside": {EVIL: events.Microseconds(call=1.0, device=2.0)}, "told": EVIL, "advice": EVIL, "jail": EVIL,
        "paper_rule": EVIL, "roofline": events.Roofline(bound_us=1e300, percent=1.0, limiter=EVIL), "detail": EVIL,
    }  # fmt: skip
    right = run(paths, "r1", SECOND + EVIL, player=EVIL, files={EVIL: EVIL.encode()}, **evil)
    wrong = run(paths, f"../{EVIL}", FIRST + EVIL, Verdict.WRONG_RESULT, EVIL, failure=failure)
    Workspace(paths.workspace).keep_revision(SECOND + EVIL)
    trace(paths, "t1", wrong, right, EVIL)
    trace(paths, "t2", wrong, right, EVIL)
    swept(paths, "t1", right, EVIL, name="a<script>b\x1b[31m&\u202e")
    append_line(paths.voids, Void(at=1.0, note=EVIL, by=EVIL, run="r1"))
    count, left_out = export_pages(paths, CATALOGUE, tmp_path / "site")
    assert (count, left_out) == (3, [])
    pages = pages_in(tmp_path / "site")
    assert {name for name in pages if name.startswith("attempt")} == {"attempt", "attempt.2"}
    for page in pages.values():
        assert "<script>alert(1)</script>" in page.words


def test_long_text_is_cut_and_kernel_not_compared(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.words.markup.MOST_CHARACTERS", 2_600)
    run(paths, "r1", FIRST)
    run(paths, "r2", "x = 1\n" * 2100)
    export_pages(paths, CATALOGUE, tmp_path / "site")
    page = pages_in(tmp_path / "site")["r2"].words
    assert "more than 2000 lines" in page
    assert "10000 more characters" in page


def test_unreadable_trace_is_named_and_attempt_keeps_page(paths: Paths, tmp_path: Path) -> None:
    swept(paths, "t1", run(paths, "r1", FIRST))
    paths.traces.mkdir(parents=True)
    unreadable = paths.traces / "t1.jsonl"
    unreadable.symlink_to("/proc/self/mem")  # its first bytes cannot be read
    paths.voids.write_text("no void\n")
    damaged = [
        f"{paths.voids}: line 1 cannot be read; what they voided counts",
        f"{unreadable}: Input/output error; the pages are without it",
    ]
    assert export_pages(paths, CATALOGUE, tmp_path / "site") == (2, damaged)
    page = pages_in(tmp_path / "site")["key1"].words
    assert "The trace cannot be read: Input/output error" in page
    assert FIRST in page


def test_a_damaged_sweep_is_named_and_left_out(paths: Paths, tmp_path: Path) -> None:
    swept(paths, "", run(paths, "r1", FIRST))
    damaged = paths.sweeps / "damaged.jsonl"
    damaged.write_text("no line\n")
    count, left_out = export_pages(paths, CATALOGUE, tmp_path / "site")
    assert count == 2
    assert [what.startswith(f"{damaged}: ") for what in left_out] == [True]
    assert left_out[0].endswith("; the pages are without this sweep")
    with pytest.raises(MachineError, match=r"no attempt to export: .*damaged\.jsonl"):
        export_pages(paths, CATALOGUE, tmp_path / "other", ["damaged"])
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_the_command(pkb_arena: CommandLine, paths: Paths, tmp_path: Path) -> None:
    fails(pkb_arena("export", "--html", "site"), 2, "there is no attempt to export")
    assert not (tmp_path / "site").exists()
    found = run(paths, "r1", FIRST)
    swept(paths, "", found)
    run(paths, "r2", SECOND)
    assert answer_of(pkb_arena("export", "--html", "site", "--json"))["attempts"] == 3  # r1 is part of the sweep
    assert set(pages_in(tmp_path / "site")) == {"index", "key1", "key2", "r2"}
    fails(pkb_arena("export", "--html", "site"), 2, "site is not empty")
    assert pkb_arena("export", "--html", "one", "--sweep", "spring").stdout == "one/index.html: 2 attempts\n"
    assert pkb_arena("export", "--html", "x", "--format", "parquet").returncode == 2
    (paths.runs / "notes.jsonl").write_text("no run\n")
    damaged = pkb_arena("export", "--html", "two")
    fails(damaged, 3, f"{paths.runs / 'notes.jsonl'}: this is no run; the pages are without it")
    assert set(pages_in(tmp_path / "two")) == {"index", "key1", "key2", "r2"}
