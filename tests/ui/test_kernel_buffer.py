"""The kernel's text and its file, without the screen around them."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from msgspec.structs import replace
from textual.app import App
from waiting import comes_true

from arena.errors import UsageError
from arena.records.header import read_events
from arena.records.run_record import fields_of
from arena.runs.judge import RunInProgress
from arena.setting_choice import Choice
from arena.workspace.kernels import content_hash, read_kernel
from problems.specification import Problem
from sandbox.protocol import events
from sandbox.protocol.kernel_files import MAIN, Kernel
from sandbox.protocol.verdict import Verdict
from screens import kernel_buffer
from screens.kernel.kernel_session import KernelSession
from screens.kernel_buffer import KernelBuffer
from screens.services import Services
from screens.widgets.editor import Editor


@pytest.fixture
def problem(services: Services) -> Problem:
    return services.read_catalogue().find("13")


@asynccontextmanager
async def opened(
    services: Services, problem: Problem, template: str = "", path: Path | None = None
) -> AsyncIterator[tuple[KernelBuffer, str | None]]:
    buffer = KernelBuffer(KernelSession(services, problem, path), Editor())
    page: App[None] = App()
    page.compose = lambda: iter([buffer.editor])
    async with page.run_test():
        await buffer.open(template)
        yield buffer, buffer.draft(MAIN)
        buffer.session.stop_watching()
        buffer.keep_drafts()


def test_session_holds_what_its_run_has_told(services, problem) -> None:
    session = KernelSession(services, problem)
    started, *_, finished = read_events(Path(__file__).with_name("recordings") / "pass.jsonl")
    run, failure = started.run_id, events.Failure(phase="compile", message="no such type", advice="", rank=0)
    checked = events.Checked(run_id=run, verdict=Verdict.COMPILE_ERROR, seconds=0.3, failure=failure)
    ended = events.PhaseEnded(run_id=run, phase="compile", seconds=0.2)
    broken = replace(finished, result=replace(finished.result, **fields_of(checked, "verdict failure")))
    texts = []
    cancelled = events.Cancelled(run_id="r", phase="check")
    for told in ([started, ended, checked, ended, broken], [cancelled], [started, checked, finished]):
        session.queue()
        for event in told:
            session.apply(event)
        assert (session.waiting_since, session.changed) == (None, True)
        texts += [line.text.partition(" ")[0] for line in session.take_update(with_keys=False).lines]
    once = ["no", "COMPILE"]  # each end is told once, and another verdict at the end
    assert texts == ["run", "compile", *once, "cancelled", "not", "run", *once, "finished:"]
    assert session.result_of(finished.sha256, started.setting) is session.state.told is not None
    assert session.result_of("another", started.setting) is None
    assert session.result_of(finished.sha256, replace(started.setting, world=8)) is None


async def test_a_session_judges_measures_and_cancels(services, problem) -> None:
    """What each of its runs is called, while it goes on and afterwards."""
    await services.read()
    services.make_engine(pytest.fail)
    session, mine, other, waits = KernelSession(services, problem), Kernel("budget"), Kernel("wrong"), Kernel("wait")
    services.engine.subscribe(session.apply)
    assert (session.can_measure_on, session.judges(mine), session.last_run) == (False, False, None)

    async def ended(kernel: Kernel, name: str) -> None:
        await comes_true(lambda: not session.busy)
        assert session.verdict_of(kernel) == name.replace("...", session.state.sha256[:8])

    await session.run(mine)
    runs = [session.last_run]
    await ended(mine, "")
    for budget in (10.0, 40.0, 40.0):
        assert session.can_measure_on
        assert await session.measure_on() == session.most_s == budget
        runs.append(session.last_run)
        await ended(other, "revision ...")
    assert len({run.run_id for run in runs}) == 4
    await session.run(other, events.Contender("two-shot.py", "pass"))
    await ended(other, "... against two-shot")
    await ended(mine, "revision ... against two-shot")
    assert (session.can_measure_on, session.most_s, session.place) == (False, 2.5, None)
    await session.run_baseline()
    await ended(mine, "the baseline against itself")
    session.queue()
    await session.cancel()  # before the engine has the run
    await session.run(waits, queued=True)
    await ended(waits, "")
    assert session.state.cancelled_in is not None
    for rival in (events.Contender("a.py", "pass"), None):
        await session.run(Kernel("wait", {"ops.py": b"1"}), rival)
        run = session.last_run.run_id
        await comes_true(lambda: (session.state.run_id, session.state.phase) == (run, "check"))  # noqa: B023
        assert (session.judging, session.judges(session._request.kernel)) == (True, rival is None)
        assert not session.judges(waits)
    session.choice = Choice(world=4)
    assert not session.judges(session._request.kernel)  # it does in the other setting
    again = KernelSession(services, problem)
    again.take_up(session.last_run)
    assert (again.state.run_id, again.busy) == (run, True)
    await again.cancel()
    queued = RunInProgress(session.last_run.header, session.last_run._journal, AsyncMock())  # no event of it has come
    services.last_runs[again.path] = again._request, queued
    again = KernelSession(services, problem)
    again.take_up(queued)
    assert (again.busy, again.state.running, again.waited is None) == (True, False, False)
    await comes_true(lambda: not session.busy)
    await services.close()


async def test_a_template_is_typed_over_it_unsaved(services, problem) -> None:
    async with opened(services, problem, "torch") as (buffer, _):
        assert buffer.editor.text != problem.baseline_source
        assert buffer.session.path.read_text() == problem.baseline_source
        buffer.editor.undo()
        assert buffer.editor.text == problem.baseline_source


@pytest.mark.parametrize("restore", [False, True])
async def test_draft_is_offered_until_discarded_or_undone(services, problem, restore) -> None:
    async with opened(services, problem) as (buffer, _):
        buffer.replace("half a thought")
    async with opened(services, problem) as (buffer, draft):
        assert draft == "half a thought"
        await buffer.settle_draft(draft, restore=restore)
        assert (buffer.editor.text == draft) is restore
        if restore:
            buffer.editor.undo()
        assert services.workspace.kernel(content_hash(draft)) == Kernel(draft)
    async with opened(services, problem) as (_, draft):
        assert draft is None


async def test_a_draft_outlives_its_kernel_file(services, problem) -> None:
    async with opened(services, problem) as (buffer, _):
        buffer.replace("half a thought")
    buffer.session.path.unlink()
    async with opened(services, problem) as (buffer, draft):
        assert buffer.editor.text == problem.baseline_source
        assert draft == services.workspace.draft(buffer.session.path) == "half a thought"


async def test_draft_is_due_when_typing_stops(services, problem, until, monkeypatch) -> None:
    monkeypatch.setattr(kernel_buffer, "DRAFT_AFTER_S", 0.05)
    due = []
    async with opened(services, problem) as (buffer, _):
        buffer.replace("typed")
        for _ in range(5):
            buffer.edited(lambda: due.append(True))
        await until(None, lambda: bool(due))
        assert due == [True]


async def test_what_is_undone_leaves_no_draft(services, problem, until, monkeypatch) -> None:
    monkeypatch.setattr(kernel_buffer, "DRAFT_AFTER_S", 0.05)
    async with opened(services, problem) as (buffer, _):
        buffer.replace("restored from the history")
        await buffer.keep_draft()
        assert services.workspace.draft(buffer.session.path) is not None
        buffer.editor.undo()
        due = []
        buffer.edited(lambda: due.append(True))
        await until(None, lambda: bool(due))
        await buffer.keep_draft()
        assert services.workspace.draft(buffer.session.path) is None
        buffer.replace("and once more")
        await buffer.keep_draft()
        buffer.editor.undo()
        # the screen is left while a thread deletes the draft
        discard, left = services.workspace.discard_draft, iter([lambda: buffer.keep_drafts({}), lambda: None])
        monkeypatch.setattr(services.workspace, "discard_draft", lambda path: (discard(path), next(left)()))
    async with opened(services, problem) as (_, draft):
        assert draft is None


async def test_save_from_outside_replaces_unsaved_text_within_undo(services, problem) -> None:
    async with opened(services, problem) as (buffer, _):
        buffer.replace("typed here")
        saves = buffer.outside_saves(Mock())
        other = buffer.session.path.with_suffix(".new")
        other.write_text("from elsewhere")
        os.replace(other, buffer.session.path)
        await anext(saves)
        assert buffer.editor.text == "from elsewhere"
        assert services.workspace.kernel(content_hash("typed here")) == Kernel("typed here")
        buffer.editor.undo()
        assert buffer.editor.text == "typed here"


@pytest.mark.parametrize("text", ["a = 1\nb = 2\r\nc = 3\n", "a = 1\r\nb = 2\r\n", "a = 1\n\x0c\nb = 2"])
async def test_line_ends_stay_and_are_no_unsaved_change(services, problem, text) -> None:
    services.workspace.save(services.workspace.kernel_path(problem), text)
    async with opened(services, problem) as (buffer, _):
        assert not buffer.editor.dirty
        buffer.editor.insert("#", (1, 0))
        assert buffer.editor.dirty
        await buffer.save()
        lines = text.splitlines(keepends=True)
        assert buffer.session.path.read_bytes().decode() == "".join([lines[0], "#", *lines[1:]])
        assert not buffer.editor.dirty


async def test_line_ends_changed_outside_are_no_unsaved_change(services, problem) -> None:
    async with opened(services, problem) as (buffer, _):
        await buffer.session.save("a\nb\n")
        buffer.editor.show_saved("a\nb\n")
        saves = buffer.outside_saves(screen := Mock())
        buffer.session.path.write_bytes(b"a\r\nb\r\n")
        await anext(saves)
        assert not screen.say.called
        assert not buffer.editor.dirty
        assert buffer.editor.file_text == "a\r\nb\r\n"


async def test_binary_file_is_kept_and_replaced_on_request(services, problem, until) -> None:
    async with opened(services, problem) as (buffer, _):
        path, before = buffer.session.path, buffer.editor.text
        watch = asyncio.create_task(anext(buffer.outside_saves(screen := Mock())))
        path.write_bytes("é".encode("latin-1"))
        await until(None, lambda: screen.complain.called)
        watch.cancel()
        assert "is not UTF-8 text" in screen.complain.call_args[0][0]
        assert buffer.editor.text == before
        (copy,) = path.parent.glob("kernel.py.unreadable-*")
        assert copy.read_bytes() == b"\xe9"
        with pytest.raises(UsageError):
            await buffer.save()
        assert path.read_bytes() == b"\xe9"
        await buffer.save(replace=True)
        assert path.read_text() == before


async def test_deleted_file_makes_text_unsaved_until_written_again(services, problem) -> None:
    async with opened(services, problem) as (buffer, _):
        path, text = buffer.session.path, buffer.editor.text
        assert not buffer.notices_deletion()
        path.unlink()
        assert [buffer.notices_deletion() for _ in range(3)] == [False, True, False]
        assert buffer.editor.dirty
        assert buffer.editor.file_text == text
        path.write_text(text)
        buffer.notices_deletion()
        assert not buffer.editor.dirty
        path.unlink()
        assert [buffer.notices_deletion() for _ in range(2)] == [False, True]
        await buffer.save()
        assert path.read_text() == text
        assert not buffer.editor.dirty
        buffer.replace("mine")
        await buffer.save()
        path.unlink()
        assert [buffer.notices_deletion() for _ in range(2)] == [False, True]
    async with opened(services, problem) as (buffer, draft):
        assert draft == "mine"


async def test_deleted_folder_is_written_as_folder_again(services, problem) -> None:
    kernel = Kernel("import part", {"part.py": b"x = 1"})
    folder = services.workspace.put_beside(services.workspace.create(problem, "first"), kernel)
    async with opened(services, problem, path=folder) as (buffer, _):
        shutil.rmtree(folder)
        assert [buffer.notices_deletion() for _ in range(2)] == [False, True]
        await buffer.save()
        assert read_kernel(folder).kernel == kernel
