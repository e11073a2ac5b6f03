"""Scripts of a demo: what they may contain, and one clear message for what they may not."""

from pathlib import Path

import pytest
from forked_programs import CommandLine

from arena.demo import DEFAULT, first_sentence, load_script
from arena.duel.events import DuelEnded
from arena.duel.journal import read_duel
from arena.errors import UsageError
from problems.catalogue import load_catalogue


def test_script_that_comes_with_arena_can_be_played() -> None:
    script = load_script()
    catalogue = load_catalogue()
    kinds = {("live" if scene.problem else "recorded" if scene.recorded else "board") for scene in script.scene}
    assert kinds == {"live", "recorded", "board"}
    for scene in script.scene:
        if scene.problem is not None:
            assert catalogue.find(str(scene.problem)).house_source
            assert (scene.left, scene.right) == ("house", "baseline")
        if scene.recorded:
            assert isinstance(list(read_duel(Path(scene.recorded)))[-1], DuelEnded)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["scene"]),
        ("scene = []", ["no scene"]),
        ("[[scene]]\nboard = true\nproblem = 1", ["scene 1", "one thing"]),
        ("[[scene]]\nboard = true\npause = -1", ["scene 1", "pause is -1"]),
        ('[[scene]]\nrecorded = "nowhere.jsonl"', ["scene 1", "nowhere.jsonl"]),
        ('[[scene]]\nrecorded = "script.toml"\npace = 100', ["scene 1", "pace is 100"]),
        ("[[scene]]\nboard = true\n[[scene]]\nproblen = 1", ["scene 2: unknown key 'problen'"]),
        ("[[scene]]\npace = 'fast'", ["scene 1: pace is 'fast'; it must be a number"]),
        ("scene = 3", ["scene is 3; it must be a list"]),
        ("[[scene]\n", ["script.toml is not valid TOML"]),
    ],
)
def test_a_script_that_cannot_be_played_says_where(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "script.toml").write_text(text)
    with pytest.raises(UsageError) as refused:
        load_script(tmp_path / "script.toml")
    for word in words:
        assert word in refused.value.message


def test_recorded_duels_are_looked_for_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("")
    (tmp_path / "script.toml").write_text('[[scene]]\nrecorded = "mine.jsonl"')
    assert load_script(tmp_path / "script.toml").scene[0].recorded == str(tmp_path / "mine.jsonl")


def test_a_card_in_one_sentence() -> None:
    card = "# Title\n\nEvery rank holds a tensor\nof the same shape. It must end up with 1.5 of it.\n\nMore."
    assert first_sentence(card) == "Every rank holds a tensor of the same shape."
    for problem in load_catalogue().problems:
        assert 10 < len(first_sentence(problem.card)) < 400


def test_command_prints_its_script(pkb_arena: CommandLine) -> None:
    assert pkb_arena("demo", "--print-script").stdout == DEFAULT.read_text(encoding="utf-8")
