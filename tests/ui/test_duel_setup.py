"""The dialog before a duel: agent programs, models and their budgets."""

import importlib.util
import os
from pathlib import Path

import pytest
from no_jail import no_jail
from textual.widgets import Input, Select

from arena.players.program import jailed
from arena.settings import AgentSettings, ModelSettings, Settings, save_settings
from sandbox.jail.choice import Jail, choose
from sandbox.jail.profiles import NONE, WITH_AGENTS
from screens.duel.live import GUEST, LiveDuelScreen
from screens.duel.setup import PROGRAM, DuelSetup

pytestmark = pytest.mark.slow
if importlib.util.find_spec("mcp") is None and not os.environ.get("CI"):
    pytest.skip("the MCP SDK is not installed: pip install 'pkb-arena[mcp]'", allow_module_level=True)

LOCAL = "http://127.0.0.1:9/v1"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "my_agent.py"
    path.write_text("import sys\nsys.exit()\n")
    return path


@pytest.fixture
def settings(services, paths, program: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Two models, and agent programs of which some cannot play."""
    if choose().name not in WITH_AGENTS:
        no_jail(choose().rejected.values())
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    given = Settings(
        device="cpu",
        models={
            "opus": ModelSettings(provider="openai_chat", model="dear", base_url=LOCAL, price_in=5.0, price_out=25.0),
            "local": ModelSettings(provider="openai_chat", model="free", base_url=LOCAL),
            "stand-in": ModelSettings(provider="openai_chat", model="stand-in", base_url=LOCAL),
            "locked": ModelSettings(provider="anthropic", model="x", key_env="NO_SUCH_KEY"),
        },
        agents={
            "mine": AgentSettings(command=[str(program)], model="opus", minutes=5),
            "alone": AgentSettings(command=[str(program)]),
            "gone": AgentSettings(command=["no-such-program"]),
            "claude-code": AgentSettings(),
        },
    )
    save_settings(given, paths)
    return given


async def asked(app, pilot, until) -> DuelSetup:
    app.plan_duel(app.services.catalogue.find("13"))
    await until(pilot, lambda: isinstance(app.screen, DuelSetup) and bool(app.screen.query("#player-right #label")))
    screen = app.screen
    assert isinstance(screen, DuelSetup)
    return screen


async def choose_player(screen: DuelSetup, pilot, until, side: str, player: str) -> str:
    """Chooses a player. Returns the sentence below it, once its facts are known."""
    screen.query_one(f"#player-{side}", Select).value = player
    row = screen.query_one(f"#row-{side}")
    await pilot.pause()
    await until(pilot, lambda: row.known or row.trouble)
    await pilot.pause()
    return str(row.query_one(".player-facts").content)


def limit(screen: DuelSetup) -> tuple[str, bool, str]:
    """The value of the dollar limit, whether its input is disabled, and the sentence below it."""
    row = screen.query_one("#dollars", Input)
    facts = screen.query_one("#limit-facts")
    return row.value, row.disabled, str(facts.content) if facts.display else ""


@pytest.mark.usefixtures("settings")
async def test_players_say_limits_and_what_forbids_them(open_app, until) -> None:
    async with open_app() as (app, pilot):
        screen = await asked(app, pilot, until)
        assert limit(screen) == ("", True, "")
        await pilot.press("space")
        assert screen.query_one("#player-right", Select).expanded
        await pilot.press(*"lock", "space")  # searched anywhere in a word; a space chooses
        assert str(screen.query_one("#player-right", Select).value).endswith(":locked")
        await pilot.press("space")
        await pilot.press("escape", "down", "2")  # the keys of a list of fields; dollars cannot be typed
        assert screen.query_one("#minutes", Input).value.endswith("2")
        await choose_player(screen, pilot, until, "right", "agent:mine")
        assert limit(screen) == ("1", False, "agent:mine stops once this is spent")
        await choose_player(screen, pilot, until, "left", "model:opus")
        assert limit(screen)[2] == "model:opus and agent:mine each stop once this is spent"
        screen.query_one("#dollars", Input).value = ""
        await pilot.pause()
        assert limit(screen)[2] == "! no limit: model:opus and agent:mine can spend any amount"
        await choose_player(screen, pilot, until, "left", "model:local")
        assert limit(screen)[:2] == ("", False)
        screen.query_one("#dollars", Input).value = "2"
        screen.query_one("#start").press()
        await until(pilot, lambda: "model:local has no prices" in str(screen.query_one("#report").content))
        await choose_player(screen, pilot, until, "left", "you")
        await choose_player(screen, pilot, until, "right", "model:stand-in")
        assert limit(screen) == ("", True, "")
        words = {
            "agent:mine": "in a jail of its own, 5 min · dear · $5 in, $25 out per million tokens",
            "agent:alone": "reaches no model, costs nothing",
            "agent:gone": "✗ agent:gone: there is no program 'no-such-program' → install it",
            "agent:claude-code": "✗ agent:claude-code has no model → add it to the settings",
            "agent:opus": "gets its verdicts · dear",
            "model:opus": "independent answers · dear · openai_chat · $5 in, $25 out per million tokens",
            "model:local": "no prices in the settings",
            "model:stand-in": "costs nothing",
            "model:locked": "NO_SUCH_KEY",
        }
        for player, said in words.items():
            assert said in await choose_player(screen, pilot, until, "right", player), player
        screen.query_one("#start").press()
        await until(pilot, lambda: "cannot play" in str(screen.query_one("#report").content))
        assert app.screen is screen


@pytest.mark.usefixtures("settings")
async def test_no_program_is_offered_without_jail_or_sdk(open_app, until, monkeypatch: pytest.MonkeyPatch) -> None:
    from arena.errors import MachineError

    def missing() -> None:
        raise MachineError("the tool server needs the MCP SDK, which is not installed", "pip install 'pkb-arena[mcp]'")

    async with open_app() as (app, pilot):
        screen = await asked(app, pilot, until)
        with monkeypatch.context() as patched:
            patched.setattr(jailed, "choose", lambda: Jail(NONE, None, {}))
            assert "needs a jail" in await choose_player(screen, pilot, until, "right", "agent:mine")
        with monkeypatch.context() as patched:
            patched.setattr(jailed, "require_sdk", missing)
            assert "pkb-arena[mcp]" in await choose_player(screen, pilot, until, "right", "agent:alone")


@pytest.mark.usefixtures("settings")
async def test_program_by_its_path_plays_within_its_limit(open_app, until, screen_text, program: Path) -> None:
    async with open_app() as (app, pilot):
        screen = await asked(app, pilot, until)
        screen.query_one("#player-left", Select).value = "model:opus"
        screen.query_one("#player-right", Select).value = PROGRAM
        await until(pilot, lambda: "a path, or a command" in screen_text(app))
        screen.query_one("#start").press()
        await until(pilot, lambda: "cannot play" in str(screen.query_one("#report").content))
        with screen.prevent(Input.Changed):
            screen.query_one("#dollars", Input).value = screen._could_limit = ""
        screen._player_known()  # late on a busy machine: the proposed limit solves no error
        await pilot.pause()
        assert "cannot play" in str(screen.query_one("#report").content)
        path = screen.query_one("#program-right", Input)
        assert path.parent.display
        path.value = str(program)
        screen.query_one("#dollars", Input).value = "0.5"
        screen.query_one("#start").press()
        await until(pilot, lambda: isinstance(app.screen, LiveDuelScreen))
        header = app.screen.state.header
        assert (header.right.name, header.budget_usd) == (f"agent:{program}", 0.5)
        await until(pilot, lambda: "$0.5 each" in screen_text(app))


async def test_a_duel_has_the_kernel_on_the_screen(open_app, services, until, go_to, save_kernel, screen_text) -> None:
    async with open_app(problem="13") as (app, pilot):
        await save_kernel(pilot, "pass")
        ring = app.screen.session.path.with_name("ring.py")
        app.services.workspace.save(ring, "pass\n# ring")
        problem = app.screen.problem
        app.open_problem(problem, ring)
        await until(pilot, lambda: getattr(app.screen, "editor", None) and app.screen.editor.text == "pass\n# ring")
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, DuelSetup) and bool(app.screen.query("#player-right #label")))
        assert app.screen.query_one("#player-left", Select).value == "you: ring"
        rivals = [str(value) for _, value in app.screen.query_one("#player-right", Select)._options]
        assert {"file: kernel", "file: ring"} <= set(rivals)
        await choose_player(app.screen, pilot, until, "right", "file: ring")
        await go_to(pilot, "choose two different players", "enter")
        facts = await choose_player(app.screen, pilot, until, "right", "guest")
        assert str(services.workspace.kernel_path(problem, "guest")) in facts.replace("\n", "")
        await go_to(pilot, LiveDuelScreen, "enter")
        duel = app.screen
        await until(pilot, lambda: "Plays in" in duel.panes["right"].text)
        duel.action_submit()
        await until(pilot, lambda: duel.state.left.last is not None and duel.state.left.last.judged)
        assert duel.state.left.last.kernel.source == "pass\n# ring"
        assert not duel.state.right.attempts  # the starter is not submitted
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.screen is not duel)
        await go_to(pilot, app.picker, "f10")
        app.open_problem(problem)
        await until(pilot, lambda: getattr(app.screen, "editor", None) and app.screen.editor.text == "pass\n# ring")
        app.play_duel(problem, type(duel.plan)(GUEST, "house", 10.0))
        await until(pilot, lambda: "Plays in" in app.screen.panes["left"].text)
        await until(pilot, lambda: app.screen.state.right.attempts)
        assert not app.screen.state.left.attempts
