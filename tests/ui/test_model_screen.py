"""A model asked from the app: real requests to a server on 127.0.0.1; the referee does what the kernels say."""

import model_server as provider
import pytest
from msgspec.structs import replace
from textual.widgets import Input, OptionList, Select

from arena.players.agent import PATIENCE
from arena.setting_choice import Choice
from arena.settings import ModelSettings, Settings, save_settings
from screens.dialogs.questions import Question
from screens.kernel.screen import KernelScreen
from screens.model import ModelScreen
from screens.model.setup import INDEPENDENT, ModelSetup

pytestmark = pytest.mark.slow


@pytest.fixture
def with_model(services, paths, model_server, monkeypatch):
    """One model in the settings file, and a simulated jail."""
    monkeypatch.setenv("PKB_SCRIPTED_JAIL", "made")
    model = ModelSettings(
        provider="openai_chat", model="m-1", base_url=model_server.url, price_in=1.0, price_out=1000.0, retries=0
    )
    save_settings(
        Settings(device="cpu", models={"local": model, "own": replace(model, price_in=0.0, price_out=0.0)}), paths
    )
    return model_server


def fenced(source: str) -> str:
    return f"Here it is.\n\n```python\n{source}\n```\n"


async def asked(app, pilot, until, *, answers="2", how=None, limit="1", sizes=None) -> ModelScreen:
    """Fills in the model dialog and starts."""
    await until(pilot, lambda: isinstance(app.screen, ModelSetup))
    dialog = app.screen
    await until(pilot, lambda: bool(dialog.query("#limit-label")) and dialog.focused is not None)
    await pilot.pause()
    dialog.query_one("#answers", Input).value = answers
    dialog.query_one("#limit", Input).value = limit
    if how is not None:
        dialog.query_one("#how", Select).value = how
        dialog.query_one("#how", Select).focus()  # enter starts from a list, too
    if sizes is not None:
        dialog.query_one("#sizes", Select).value = sizes
    await pilot.pause()
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, ModelScreen))
    return app.screen


async def test_model_reads_verdict_and_kernel_is_taken_over(
    open_app, until, go_to, screen_text, with_model, paths
) -> None:
    with_model.replies = [provider.streamed(fenced("wrong")), provider.streamed(fenced("pass"))]
    async with open_app(problem="13") as (app, pilot):
        kernel_screen = app.screen
        before = kernel_screen.editor.text
        await pilot.press("f7")
        screen = await asked(app, pilot, until)
        await until(pilot, lambda: screen.session.over)
        for words in (
            "1  ✗ WRONG",
            "2  ✓ PASS  ▲ 1.50× [1.40, 1.60] end-to-end",
            "★ ▲ 1.50× [1.40, 1.60] end-to-end · kernel 2",
            "all answers received · 2 answers",
            "300 tok · $0.10 of $1",  # 2 × (100 read + 50 written)
            "improves by verdicts · ≤ 2 answers, $1",
        ):
            await until(pilot, lambda: words in screen_text(app))  # noqa: B023
        assert "WRONG_RESULT" in with_model.seen[1].prompt  # the model got its verdict
        assert screen.query_one("#kernels", OptionList).option_count == 2
        assert screen.session.plan.player._setup.patience == PATIENCE
        await pilot.press("up")
        await until(pilot, lambda: screen.query_one("#model-source").text.strip() == "wrong")
        assert screen.query_one("#model-source").source_language == "python"
        await go_to(pilot, "<<< system >>>", "f3", "f3")
        assert screen.query_one("#model-source").source_language == "prose"
        await pilot.press("f3")
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: screen.query_one("#text-pane").size.height > 2 and "ended  all" in screen_text(app))
        await go_to(pilot, kernel_screen, "down", "t")
        assert kernel_screen.editor.text.strip() == "pass"
        assert kernel_screen.editor.dirty
        await until(pilot, lambda: kernel_screen.session.from_journal)  # the model's run of this text is shown as that
        await pilot.press("ctrl+z")
        assert kernel_screen.editor.text == before
        path = app.services.workspace.kernel_path(kernel_screen.problem, "agent:local")
        assert path.read_text().strip() == "pass"


async def test_model_is_asked_again_in_same_setting(open_app, until, with_model) -> None:
    with_model.replies = [provider.streamed(fenced("pass"))] * 2
    async with open_app() as (app, pilot):
        app.ask_model(app.services.catalogue.find("13"), Choice(world=4, dtype="float32"))
        first = await asked(app, pilot, until, answers="1")
        await until(pilot, lambda: first.session.over and app.screen is first)
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, ModelSetup) and app.screen.query("#from"))
        app.screen.query_one("#model", Select).value = "own"  # its limit is in tokens
        await until(pilot, lambda: app.screen.query_one("#limit", Input).value == "")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is first)  # its kernels are still there
        await pilot.press("m")
        again = await asked(app, pilot, until, answers="1")
        assert again is not first
        assert first not in app.screen_stack
        assert (first.session.setting.world, first.session.setting.dtype) == (4, "float32")
        assert again.session.setting == first.session.setting
        await until(pilot, lambda: again.session.over)


async def test_stop_ends_request_and_keeps_what_was_written(open_app, until, go_to, screen_text, with_model) -> None:
    with_model.replies = [provider.streamed(fenced("pass")), provider.dripping()]
    async with open_app() as (app, pilot):
        await pilot.press("m")
        screen = await asked(app, pilot, until, answers="5", how=INDEPENDENT, limit="")
        await until(pilot, lambda: len(with_model.seen) == 2)
        await pilot.press("t")
        assert app.screen is screen  # a model at work is not stopped by one press
        await until(pilot, lambda: screen.session.now > screen.session.state.at)
        await pilot.press("s")
        await until(pilot, lambda: screen.session.over and with_model.left.is_set())
        await until(pilot, lambda: "stopped · 1 answer" in screen_text(app))
        await go_to(pilot, KernelScreen, "t")
        await until(pilot, lambda: app.screen.editor.text.strip() == "pass")
        await pilot.press("ctrl+z")
        assert app.screen.editor.text == app.screen.problem.baseline_source


async def test_kernel_taken_over_from_list_is_beside(open_app, services, until, go_to, with_model) -> None:
    with_model.replies = [provider.streamed(fenced("pass"))]
    own = services.workspace.root / "13_gemm_allreduce" / "you" / "two-shot.py"
    services.workspace.save(own, "mine")
    async with open_app() as (app, pilot):
        services.workspace.note_open(problem := services.catalogue.find("13"), own)
        app.ask_model(problem)
        screen = await asked(app, pilot, until, answers="1")
        await until(pilot, lambda: screen.session.over)
        await go_to(pilot, KernelScreen, "t")
        await until(pilot, lambda: app.screen.editor.text.strip() == "pass")
        assert app.screen.session.path != own
        assert own.read_text() == "mine"


async def test_run_cancelled_by_taking_over_is_not_shown(open_app, until, screen_text, with_model) -> None:
    with_model.replies = [provider.streamed(fenced("wait"))]
    async with open_app(problem="13") as (app, pilot):
        kernel_screen = app.screen
        await pilot.press("f7")
        screen = await asked(app, pilot, until, answers="1")
        await until(pilot, lambda: screen.session.run.phase == "check")
        await pilot.press("t", "t")
        await until(pilot, lambda: app.screen is kernel_screen and app.services.engine.running is None)
        await pilot.pause(0.2)
        assert not kernel_screen.session.state.run_id
        assert "CANCELLED" not in screen_text(app)


async def test_without_a_model_the_settings_file_is_opened(
    open_app, until, go_to, screen_text, paths, monkeypatch
) -> None:
    opened = []

    async def edited(app, settings, path, line) -> str:
        opened.extend([path, line])
        with path.open("a", encoding="utf-8") as file:
            file.write('\n[models.mine]\nprovider = "openai_chat"\nmodel = "m"\nbase_url = "http://127.0.0.1:1"\n')
        return ""

    monkeypatch.setattr("screens.app.edit_outside", edited)
    async with open_app() as (app, pilot):
        await go_to(pilot, Question, "m")
        await until(pilot, lambda: "No model is set up" in screen_text(app))
        await go_to(pilot, ModelSetup, "enter")
    (path, line) = opened
    assert path == paths.settings_file
    assert path.read_text(encoding="utf-8").splitlines()[line - 1].startswith("# Models that write kernels")


async def test_without_jail_models_kernel_does_not_run(open_app, until, screen_text, with_model, monkeypatch) -> None:
    monkeypatch.setenv("PKB_SCRIPTED_JAIL", "none")
    with_model.replies = [provider.streamed(fenced("pass"))]
    async with open_app() as (app, pilot):
        await pilot.press("m")
        screen = await asked(app, pilot, until)
        await until(pilot, lambda: screen.session.over)
        await until(pilot, lambda: "without a jail" in screen_text(app))
        assert not with_model.seen


async def test_kernel_in_editor_is_offered_to_improve(open_app, until, type_kernel, screen_text, with_model) -> None:
    with_model.replies = [provider.streamed(fenced("pass\n# better"))]
    async with open_app(problem="13") as (app, pilot):
        type_kernel(app.screen, "pass")
        name = app.screen.session.path.name
        await pilot.press("f7")
        await until(pilot, lambda: isinstance(app.screen, ModelSetup) and app.screen.query("#from"))
        start = app.screen.query_one("#from", Select)
        assert start.value is True  # not its baseline, which it is no copy of
        screen = await asked(app, pilot, until, answers="1")
        await until(pilot, lambda: screen.session.over)
        await until(pilot, lambda: f"against {name}: ▲ 1.50×" in screen_text(app))
        assert f"Start from this kernel, `{name}`" in with_model.seen[0].prompt
