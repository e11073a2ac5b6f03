"""A model's work and a sweep, from their start to their end: all that their screens say after every event."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from stored_runs import SETTING

from arena.players.trace import Answered, Judged, read_trace, read_trace_header
from arena.records.run_record import fields_of
from arena.records.voids import Void, Voids
from arena.runs.origin import Origin
from arena.runs.other_sizes import OtherSizesProgress
from arena.sweep.grid import SweepGrid, mark_words
from arena.sweep.records import decode_line
from problems.catalogue import load_catalogue
from sandbox.protocol import events
from sandbox.protocol.kernel_files import Kernel
from screens.model import model_session, words
from screens.model.model_session import ModelPlan, ModelSession
from screens.sweep import square_words, standing_words

RECORDINGS = Path(__file__).parents[2] / "ui" / "recordings"


def test_a_models_work_is_told_after_every_event(snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 1.0)
    monkeypatch.setattr(model_session, "time", clock)
    player = SimpleNamespace(name=read_trace_header(RECORDINGS / "model.jsonl").player)
    origin = Origin("mine\x1b[2J.py", Kernel("x"))
    plan = ModelPlan(player, improves=True, answers=6, limit="$2", origin=origin, other_sizes=True)
    session: Any = ModelSession(None, load_catalogue().find("1"), SETTING, plan)
    told, before = [plan.words, words.title(session).markup], set()

    def tell(what: str) -> None:
        nonlocal before
        assert session.changed
        kernels, session.changed = session.state.kernels, False
        lines = [words.phase_line(session), words.best(session), words.live_line(session)]
        lines += [words.kernel_line(session, each) for each in kernels]
        said = {line.markup: None for line in lines + [words.verdict_page(each, session.over) for each in kernels]}
        if new := [line for line in said if line not in before]:
            told.extend([f"--- {what}, {session.now:g} s", *new])
        before = set(said)

    tell("start")
    for number, event in enumerate(read_trace(RECORDINGS / "model.jsonl")):
        clock.monotonic = lambda heard=100.0 * number: heard
        session.hear(event)
        clock.monotonic = lambda told=100.0 * number + 3.0: told
        tell(type(event).__name__)
        if isinstance(event, Answered) and event.source:
            for line in (RECORDINGS / "told.jsonl").read_bytes().splitlines():
                of_run = events.decode_event(line)
                waits = [events.Waiting(**fields_of(of_run, "run_id"))] if isinstance(of_run, events.RunStarted) else []
                for happened in (of_run, *waits):
                    session._judged_on(happened)
                    if event.step == 4:
                        tell(type(happened).__name__)
            session._elsewhere(OtherSizesProgress(SETTING, 2.0))
            tell("elsewhere")
    told.append(words.conversation(session.state.system, session.state.asked))
    session.comparing = session.changed = True
    tell("comparing")
    session.over = True
    judged = [event.report for event in read_trace(RECORDINGS / "model.jsonl") if isinstance(event, Judged)]
    for compared in (None, *judged):
        session.compared, session.changed = compared, True
        tell("over")
    session.failed, session.changed = "no [key]\x1b[2J", True
    tell("failed")
    session.failed, session.plan, session.changed = "", ModelPlan(player, improves=False, answers=1), True
    session.state.ended = replace(session.state.ended, reason="odd")
    tell(f"alone: {session.plan.words}")
    session.state.ended, session.changed = None, True
    tell("stopped")
    assert "\n".join(told) == snapshot


def test_a_sweep_is_told_after_every_line(snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("screens.sweep.time.localtime", time.gmtime)
    grid = SweepGrid(Voids([Void(at=1.0, note="another\x1b program", by="anna", run="void")]))
    told = [str(SweepGrid().total)]
    for line in map(decode_line, (RECORDINGS / "sweep.jsonl").read_bytes().splitlines()):
        grid.apply(line)
        told.append(f"--- {type(line).__name__}: {standing_words(grid, grid.last_at + 4.0)}, {grid.left_s} s left")
        for (slug, player), square in grid.squares.items():
            marks = "   ".join(map(mark_words, square.marks.values()))
            told.append(f"{slug} {player}: {square_words(square, 3)} {square.waiting} waiting   {marks}")
    told += [standing_words(grid, grid.last_at + 900.0), str(square_words(None, 3))]
    assert "\n".join(told) == snapshot
