"""The choice of a setting: options first, then settings that fit, then defaults of the problem and the machine."""

import msgspec
import pytest

from arena.errors import MachineError, UsageError
from arena.machine.facts import visible_gpus
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from problems.catalogue import load_catalogue
from problems.specification import Problem

CPU = Settings(device="cpu")


@pytest.fixture
def problem() -> Problem:
    return load_catalogue().find("13")


def with_worlds(problem: Problem, worlds: list[int]) -> Problem:
    return Problem(problem.folder, msgspec.structs.replace(problem.file, worlds=worlds, worlds_reason="because"))


def test_nothing_asked_takes_tiny_bfloat16_on_two_cpu_ranks(problem: Problem) -> None:
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


def test_settings_that_do_not_fit_the_problem_give_way(problem: Problem) -> None:
    only = with_worlds(problem, [1, 2])
    assert choose_setting(only, Choice(), Settings(device="cpu", world=8, dtype="int64")).world == 2
    assert choose_setting(only, Choice(), Settings(device="cpu", world=8, dtype="int64")).dtype == "bfloat16"


def test_the_default_world_communicates_where_the_problem_allows_it(problem: Problem) -> None:
    assert choose_setting(with_worlds(problem, [1, 3, 4]), Choice(), CPU).world == 3
    assert choose_setting(with_worlds(problem, [1]), Choice(), CPU).world == 1


@pytest.mark.parametrize(
    "choice",
    [Choice(world=5), Choice(dtype="float8"), Choice(preset="huge"), Choice(sizes={"Q": 1}), Choice(sizes={"M": 0})],
)
def test_what_does_not_fit_is_refused_with_what_does(problem: Problem, choice: Choice) -> None:
    with pytest.raises(UsageError) as caught:
        choose_setting(with_worlds(problem, [2, 4]), choice, CPU)
    assert caught.value.advice


@pytest.mark.skipif(visible_gpus() > 0, reason="this machine has GPUs")
def test_auto_falls_back_to_cpu_and_cuda_does_not(problem: Problem) -> None:
    assert choose_setting(problem, Choice(), Settings(device="auto")).device == "cpu"
    with pytest.raises(MachineError, match="no GPU"):
        choose_setting(problem, Choice(device="cuda"), CPU)
