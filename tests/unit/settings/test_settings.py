"""Settings are one TOML file, written atomically. The setting of a run: options, what fits, then defaults."""

import tomllib

import msgspec
import pytest
from forked_programs import CommandLine

from arena.errors import MachineError, SettingsError, UsageError
from arena.machine.facts import visible_gpus
from arena.models.model import find_model
from arena.paths import Paths
from arena.players.program.program import find_program
from arena.setting_choice import Choice, choose_setting
from arena.settings import (
    TABLES,
    ModelSettings,
    Settings,
    check_settings,
    load_settings,
    save_settings,
    setting_fields,
    theme_names,
)
from problems.specification import Problem
from screens.themes import load_themes


def test_no_file_means_the_defaults(paths: Paths) -> None:
    assert load_settings(paths) == Settings()


def test_what_is_saved_is_loaded(paths: Paths) -> None:
    settings = Settings(
        theme="light",
        world=4,
        seconds=2.5,
        bell=True,
        editor='vim -c "set \\ft=cuda"',
        problem_dirs=["~/my problems", "/ö/ü"],
        keymap={"run": "ctrl+r", "odd.name": "f\x7f"},
        models={
            "a.b": ModelSettings(provider="gemini", model="m", price_in=3.5, extra={"a": [1, {"b": "x"}]}, omit=["x"])
        },
    )
    save_settings(settings, paths)
    assert load_settings(paths) == settings


def test_the_file_explains_itself_and_comments_out_defaults(paths: Paths) -> None:
    save_settings(Settings(world=4), paths)
    text = paths.settings_file.read_text()
    assert tomllib.loads(text) == {"world": 4, "keymap": {}}
    for field in setting_fields():
        assert f"# {field.description or 'none'}" in text


def test_the_command_explains_every_key_of_every_table(pkb_arena: CommandLine, paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    tables = '[models.opus]\nprovider = "anthropic"\nmodel = "m-1"\n[agents.mine]\ncommand = ["prog", "-x"]\n'
    paths.settings_file.write_text(tables)
    shown = pkb_arena("config", "show").stdout
    lines = [line.split(maxsplit=1)[0] for line in shown.splitlines() if line.startswith("  ")]
    for schema in TABLES.values():
        for field in setting_fields(schema):
            assert field.name in lines
            assert field.description in shown
    assert "[models.NAME]" in lines
    assert shown.splitlines()[-2:] == ["* models.opus: m-1 by anthropic", "* agents.mine: prog -x"]


def test_unknown_key_is_refused_with_nearest_key(paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text('them = "dark"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings(paths)
    assert str(paths.settings_file) in caught.value.message
    assert "'them'" in caught.value.message
    assert "theme" in caught.value.advice
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_number_not_finite_is_refused_by_name(number: float) -> None:
    model = {"provider": "anthropic", "model": "m-1", "price_in": number}
    for values, name in (({"seconds": number}, "seconds"), ({"models": {"m": model}}, r"price_in")):
        with pytest.raises(SettingsError, match=name):
            check_settings(values, "here")


def test_a_theme_that_is_not_there_is_refused(paths: Paths) -> None:
    assert sorted(theme.name for theme in load_themes()[0]) == theme_names(paths)
    (paths.config / "themes").mkdir(parents=True)
    (paths.config / "themes" / "mine.toml").write_text('name = "ours"\n')
    for name in ("dark", "ansi", "ours"):
        paths.settings_file.write_text(f'theme = "{name}"\n')
        assert load_settings(paths).theme == name
    paths.settings_file.write_text('theme = "pink"\n')
    with pytest.raises(SettingsError, match="there is no theme 'pink'") as caught:
        load_settings(paths)
    assert "choose from ansi, contrast, dark, light, ours" in caught.value.advice


WRONG_TABLES = """theme = "light"
[models.good]
provider = "anthropic"
model = "m-1"
[models.typo]
provider = "antropic"
model = "m-2"
since = 2026-01-02
[agents."claude-code"]
minutes = -1
"""


def test_a_wrong_table_disables_nothing_but_itself(paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text(WRONG_TABLES)
    for _ in range(2):
        settings = load_settings(paths)
        assert (settings.theme, list(settings.models)) == ("light", ["good"])
        assert find_model("good", settings).model == "m-1"
        with pytest.raises(UsageError, match=r"models\.typo: "):
            find_model("typo", settings)
        with pytest.raises(UsageError, match=r"agents\.claude-code: "):
            find_program("claude-code", settings)
        assert sorted(settings.wrong) == ["agents.claude-code", "models.typo"]
        save_settings(settings, paths)  # keeps them
    corrected = msgspec.structs.replace(settings, models={"typo": settings.models["good"]})
    save_settings(corrected, paths)
    assert list(load_settings(paths).wrong) == ["agents.claude-code"]
    save_settings(settings, paths)
    paths.settings_file.write_text(
        paths.settings_file.read_text().replace('provider = "antropic"', 'provider = "gemini"')
    )
    assert "unknown key 'since'" in load_settings(paths).wrong["models.typo"].why
    with pytest.raises(SettingsError, match="unknown key 'wrong'"):
        check_settings({"wrong": {}})


def test_broken_toml_names_the_line(paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    paths.settings_file.write_text("world = \n")
    with pytest.raises(SettingsError, match="line 1"):
        load_settings(paths)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"world": "many"}, "world is 'many'; it must be a whole number from 0 to 64"),
        ({"world": -1}, "world is -1; it must be a whole number from 0 to 64"),
        ({"device": "tpu"}, "device is 'tpu'; it must be one of "),
        ({"seconds": "2"}, "seconds is '2'; it must be a number from 0.1 to 600"),
        ({"dtype": "int9"}, "dtype is 'int9'; it must be one of float64, float32, bfloat16"),
        ({"keymap": {"run": 5}}, "keymap.run is 5; it must be a text in quotes"),
        ({"models": {"mine": {"provider": "gemini"}}}, "models.mine: model is missing"),
        (
            {"models": {"mine": {"provider": "zz", "model": "m"}}},
            "models.mine: provider is 'zz'; it must be one of anthropic, gemini, openai_chat, openai_responses",
        ),
        (
            {"models": {"mine": {"provider": "gemini", "model": "m", "price_in": -1}}},
            "models.mine: price_in is -1; it must be a number, 0 or more",
        ),
    ],
)
def test_a_message_says_what_a_value_must_be(values: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_settings(values, "here")
    assert caught.value.message.startswith(f"here: {said}")
    assert "`" not in caught.value.message


CPU = Settings(device="cpu")


def with_worlds(problem: Problem, worlds: list[int]) -> Problem:
    return msgspec.structs.replace(problem, worlds=worlds, worlds_reason="because")


def test_defaults_are_tiny_bfloat16_on_two_cpu_ranks(problem: Problem) -> None:
    setting = choose_setting(problem, Choice(), CPU)
    assert (setting.preset, setting.dtype, setting.world, setting.device) == ("tiny", "bfloat16", 2, "cpu")
    assert setting.sizes == problem.presets["tiny"]


def test_what_was_asked_beats_the_settings(problem: Problem) -> None:
    settings = Settings(device="cpu", world=4, preset="production", dtype="float16")
    assert choose_setting(problem, Choice(), settings).world == 4
    asked = Choice(preset="paper", world=3, dtype="float32", sizes={"M": 96})
    setting = choose_setting(problem, asked, settings)
    assert (setting.preset, setting.dtype, setting.world) == ("paper", "float32", 3)
    assert setting.sizes == problem.presets["paper"] | {"M": 96}


def test_settings_that_do_not_fit_problem_give_way(problem: Problem) -> None:
    only = with_worlds(problem, [1, 2])
    assert choose_setting(only, Choice(), Settings(device="cpu", world=8, dtype="int64")).world == 2
    assert choose_setting(only, Choice(), Settings(device="cpu", world=8, dtype="int64")).dtype == "bfloat16"


def test_default_world_communicates_where_problem_allows_it(problem: Problem) -> None:
    assert choose_setting(with_worlds(problem, [1, 3, 4]), Choice(), CPU).world == 3
    assert choose_setting(with_worlds(problem, [1]), Choice(), CPU).world == 1


@pytest.mark.parametrize(
    "choice",
    [Choice(world=5), Choice(dtype="float8"), Choice(preset="huge"), Choice(sizes={"Q": 1}), Choice(sizes={"M": 0})],
)
def test_misfit_is_refused_with_what_fits(problem: Problem, choice: Choice) -> None:
    with pytest.raises(UsageError) as caught:
        choose_setting(with_worlds(problem, [2, 4]), choice, CPU)
    assert caught.value.advice


@pytest.mark.skipif(visible_gpus() > 0, reason="this machine has GPUs")
def test_auto_falls_back_to_cpu_unlike_cuda(problem: Problem) -> None:
    assert choose_setting(problem, Choice(), Settings(device="auto")).device == "cpu"
    with pytest.raises(MachineError, match="no GPU"):
        choose_setting(problem, Choice(device="cuda"), CPU)
