"""The sweep screen: it follows a journal that another process writes, filters it, and opens a cell as a replay."""

import threading
import time

import msgspec
import pytest
from stored_runs import cell_result, header
from textual.widgets import DataTable, Input
from waiting import PATIENCE_S

import screens.sweep
from arena.machine.facts import Machine
from arena.models.budget import Spent
from arena.paths import Paths
from arena.records.json_lines import Journal
from arena.records.run_record import record_of
from arena.sweep.journal import SweepJournal
from arena.sweep.records import Cell, CellResult, SweepPlan, SweepSession, Written
from sandbox.protocol.events import AnyEvent, Finished, Setting
from screens.dialogs import machine
from screens.sweep import SweepScreen

pytestmark = pytest.mark.slow
SETTING = Setting("", "tiny", {"M": 8}, 2, "cpu", "float32")
PLAYERS = ["house", "model:opus"]


def result(player: str, slug: str, number: int, verdict: str, attempt: int = 1) -> CellResult:
    cell = Cell(slug=slug, setting=SETTING, player=player, attempt=attempt, catalogue="v")
    return cell_result(cell, verdict, at=time.time(), problem_id=number, detail="off by one")


@pytest.fixture
def journal(paths: Paths) -> SweepJournal:
    """The journal of a sweep that has begun."""
    journal = SweepJournal(paths.sweeps / "spring.jsonl", "spring")
    plan = SweepPlan(players=PLAYERS, problems=["allreduce", "allgather"], attempts=2)
    journal.append(SweepSession(at=time.time(), plan=plan, machines=[Machine("m", "", "", "")], arena="0"))
    return journal


async def test_cells_fill_while_somebody_writes(
    open_app, until, go_to, screen_text, journal: SweepJournal, paths: Paths
) -> None:
    async with open_app() as (app, pilot):
        await go_to(pilot, "model:opus", "c")
        paths.runs.mkdir(parents=True, exist_ok=True)
        begun = header("r1", "", "house", setting=SETTING)
        run = Journal(paths.runs / "r1.jsonl", begun, lambda error: pytest.fail(str(error)))
        await until(pilot, lambda: screen_text(app).count("▸ running") == 1)  # this process writes both journals
        journal.append(result("house", "allreduce", 1, "PASS"))
        await until(pilot, lambda: "✓ pass" in screen_text(app) and "▸ running" not in screen_text(app))
        run.close()
        cell = result("model:opus", "allgather", 2, "WRONG_RESULT").cell
        journal.append(Written(cell=cell, source="x", file_name="k.py", reason="", spent=Spent(usd=0.5), trace_id=""))
        await until(pilot, lambda: "✓ pass" in screen_text(app) and "…" in screen_text(app))
        journal.append(result("model:opus", "allgather", 2, "WRONG_RESULT"))
        journal.append(result("model:opus", "allgather", 2, "PASS", attempt=2))
        await until(pilot, lambda: "3 of 6 results · 2 pass" in screen_text(app) and "$0.50" in screen_text(app))

        await pilot.press("slash", *"unsolved")
        await until(pilot, lambda: "All-gather" not in screen_text(app))
        await go_to(pilot, "No problem matches this filter. esc clears it.", *"x")
        assert "allreduce" not in screen_text(app)
        await pilot.press("enter", "up", "enter", "escape")  # a table without rows puts its cursor above the first
        await until(pilot, lambda: "All-gather" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, SweepScreen))
    journal.close()


async def test_damaged_line_is_named_after_what_came_before(
    open_app, until, screen_text, journal: SweepJournal
) -> None:
    journal.append(result("house", "allreduce", 1, "PASS"))
    journal.close()
    with journal.path.open("ab") as file:
        file.write(b"{}\n")
    async with open_app() as (app, pilot):
        await pilot.press("c")
        await until(pilot, lambda: "✓ pass" in screen_text(app) and "is no line of a sweep" in told(app))
        assert f"{journal.path}: line 4 is no line of a sweep's journal" in told(app)
        assert "remove that line, or move the file elsewhere" in told(app)


def told(app) -> str:
    """The text of the app's notifications."""
    return " ".join(" ".join(note.message for note in app._notifications).split())


async def test_cell_is_replayed_from_journal_of_its_run(
    open_app, until, go_to, screen_text, events, paths: Paths, journal: SweepJournal
) -> None:
    recorded: list[AnyEvent] = events("told")
    finished = next(event for event in recorded if isinstance(event, Finished))
    begun = header("r1", "KERNEL_TEXT = 1\n", "house", setting=SETTING)
    paths.runs.mkdir(parents=True)
    run = Journal(paths.runs / "r1.jsonl", begun, lambda error: pytest.fail(str(error)))
    for event in recorded:
        run.append(event)
    run.close()
    found = msgspec.structs.replace(record_of(begun, finished.result), run_id="r1")
    journal.append(msgspec.structs.replace(result("house", "allreduce", 1, "PASS"), report=found))
    journal.close()
    async with open_app() as (app, pilot):
        await pilot.press("c")
        await until(pilot, lambda: "×" in screen_text(app) and "house   PASS" in screen_text(app))
        await go_to(pilot, "KERNEL_TEXT", "enter")
        await until(
            pilot, lambda: all(words in screen_text(app) for words in ("✓ PASS", "✓ check", "round", "off by one"))
        )
        app.screen.action_turn(1)  # to the only attempt
        app.screen._pace = 0.0
        await pilot.press("home")
        await until(pilot, lambda: "▸ replaying" in screen_text(app) and "next attempt" not in screen_text(app))
        assert "off by one" not in screen_text(app)  # which only the end tells
        await go_to(pilot, SweepScreen, "escape")


async def test_the_first_sweep_is_shown_when_it_begins(
    open_app, until, go_to, screen_text, request, monkeypatch
) -> None:
    found = screens.sweep.journals
    monkeypatch.setattr(screens.sweep, "FOLLOW_S", 0.02)  # shorter than a look into the folder takes
    monkeypatch.setattr(screens.sweep, "journals", lambda folder: (time.sleep(0.1), found(folder))[1])
    async with open_app() as (app, pilot):
        await go_to(pilot, "No sweep yet", "c")
        await pilot.press("enter", "n", "slash", "escape")  # no key does harm before
        begun: SweepJournal = request.getfixturevalue("journal")
        begun.append(result("house", "allreduce", 1, "PASS"))
        await until(pilot, lambda: "✓ pass" in screen_text(app) and "enter open" in screen_text(app))
        begun.close()


async def test_keys_of_sweeps_do_nothing_without_rows(open_app, until, go_to, screen_text, monkeypatch) -> None:
    read = threading.Event()
    monkeypatch.setattr(machine, "queue", lambda: [] if read.wait(PATIENCE_S) else None)
    async with open_app() as (app, pilot):
        await go_to(pilot, "reading…", "f11")
        dialog = app.screen
        await pilot.press("ctrl+end", "x", "r", "ctrl+r", "enter")
        read.set()
        await until(pilot, lambda: "No run at this moment" in screen_text(app))
        assert app.screen is dialog


async def test_this_machine_lists_sweeps_and_opens_one(
    open_app, until, go_to, screen_text, journal: SweepJournal, monkeypatch
) -> None:
    runs: list[machine.Work] = []
    monkeypatch.setattr(machine, "runs_under_way", lambda held: runs)  # others may time on this machine
    journal.append(result("house", "allreduce", 1, "PASS"))
    cell = result("model:opus", "allgather", 2, "PASS").cell
    journal.append(Written(cell=cell, source="x", file_name="k.py", reason="", spent=Spent(usd=0.5), trace_id=""))
    async with open_app(problem="13") as (app, pilot):
        await pilot.press("f11")
        await until(pilot, lambda: "1 of 6 · sweep spring" in screen_text(app) and "$0.50" in screen_text(app))
        assert app.screen.query_one(DataTable).ordered_columns[-1].label.plain == "what"  # the widest one
        runs.append(machine.Work("ann", "ddp", 0.0, "running"))
        await until(pilot, lambda: "runs: 1 running" in screen_text(app))
        await pilot.press("r")  # the cursor stays at the sweep
        await until(pilot, lambda: "This is a sweep that is running." in str([*app._notifications]))
        journal.close()
        await until(pilot, lambda: "stopped" in screen_text(app))
        await go_to(pilot, "1-8,category:expert", "n")
        await pilot.press(*"--attempts 2")
        assert app.screen.query_one(Input).value == "--players house --problems category:collective --attempts 2"
        await pilot.press("ctrl+u", *"--players nobody", "enter")
        await until(pilot, lambda: "✗" in screen_text(app) and "'nobody'" in screen_text(app))
        assert app.screen.query_one(Input).value == "--players nobody"
        resumed, begun = threading.Event(), []
        monkeypatch.setattr(
            machine, "start_sweep", lambda *given: begun.append(given) or (resumed.wait(PATIENCE_S) and "spring")
        )
        await go_to(pilot, "in progress since ", "escape", "up", "n", "enter", "enter")
        resumed.set()
        await until(pilot, lambda: not app.screen.query(Input) and app.screen.query_one(DataTable).cursor_row == 1)
        resumed.clear()
        await pilot.press("r")
        await until(pilot, lambda: "resuming spring…" in screen_text(app) and len(begun) == 2)
        resumed.set()
        await until(pilot, lambda: "runs: 1 running" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, SweepScreen) and "sweep spring" in screen_text(app))
