"""`pkb-arena serve` as a process, seen through its websockets."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_programs import fails
from stored_runs import header as run_header

from arena.paths import Paths
from arena.records.json_lines import Journal
from arena.settings import Settings, save_settings
from problems.catalogue import load_catalogue
from sandbox.protocol.events import RunStarted, decode_event

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HELP = "Keys in the list of problems"
RECORDED = Path(__file__).parent.parent / "ui" / "recordings" / "pass.jsonl"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--host", "0.0.0.0"), "--i-know"),
        (("--read-only", "--spectators", "0"), "at least one"),
        (("--read-only", "13"), "leave PROBLEM out"),
    ],
)
def test_what_may_not_be_is_refused(
    pkb_arena: Callable[..., "subprocess.CompletedProcess[str]"], arguments: tuple[str, ...], says: str
) -> None:
    fails(pkb_arena("serve", *arguments), 2, says)


async def test_reload_returns_to_app_and_tabs_take_over(
    paths: Paths, serve: Any, open_tab: Any, wait_until: Any
) -> None:
    save_settings(Settings(device="cpu"), paths)
    async with serve("--spectators", "0") as served:
        (owner,) = served.links
        async with open_tab(owner) as tab:
            await tab.shows("Sum all-reduce")
            (app,) = served.apps("owner")
            assert app.environ()["PKB_ARENA_HOME"] == os.environ["PKB_ARENA_HOME"]
            await tab.press("\x1bOP")  # F1
            await tab.shows(HELP)
        async with open_tab(owner) as tab:
            await tab.shows(HELP)  # the help is still open
            async with open_tab(owner) as newer:
                await newer.shows(HELP)
                while not (await tab.socket.receive()).type.name.startswith("CLOS"):
                    pass
                assert served.apps("owner") == [app]
                await newer.press("\x11")  # ctrl+q
                while not (await newer.socket.receive()).type.name.startswith("CLOS"):
                    pass
                await wait_until(lambda: not served.apps("owner"))


async def test_spectator_follows_a_run_and_touches_nothing(
    paths: Paths, serve: Any, open_tab: Any, wait_until: Any
) -> None:
    save_settings(Settings(device="cpu"), paths)
    paths.runs.mkdir(parents=True)
    events = [decode_event(line) for line in RECORDED.read_bytes().splitlines()]
    started = next(event for event in events if isinstance(event, RunStarted))
    problem = load_catalogue().find("13")
    header = run_header(
        "20261101-r1",
        "# the kernel that is watched\n" + problem.baseline_source,
        problem_id=problem.id,
        slug=problem.slug,
        category=problem.category,
        setting=started.setting,
    )
    async with serve("--read-only", "--spectators", "1") as served:
        (link,) = served.links
        async with open_tab(link) as tab:
            await tab.shows("No runs yet")
            async with open_tab(link) as second:
                assert "too many" in (await second.socket.receive()).extra
            assert {app.nice() for app in served.apps("spectator")} == {19}
            journal = Journal(paths.runs / "20261101-r1.jsonl", header, lambda error: None)
            half = 4  # up to the event that the kernel is loaded
            for event in events[:half]:
                journal.append(event)
            await tab.shows("the kernel that is watched")
            assert "PASS" not in tab.picture
            await tab.press("x\r\t\x1f\x13\x1b[15~")  # a letter, enter, tab, ctrl+/, ctrl+s, F5
            for event in events[half:]:
                journal.append(event)
            journal.close()
            await tab.shows("PASS")
            await tab.shows("spectator")
            await tab.shows(f" 1  {header.source.splitlines()[0]} ")
            assert len(served.apps("spectator")) == 1
        await wait_until(lambda: not served.apps("spectator"))
    assert [path.name for path in paths.runs.iterdir()] == ["20261101-r1.jsonl"]
    assert not paths.workspace.exists()
