"""`duel`, `duels` and `replay` of a duel as users run them, with the scripted referee."""

import json
from pathlib import Path

import pytest
from forked_programs import CommandLine, answer_of
from model_server import KEY, ModelServer, streamed

SETTING = ("--device", "cpu", "--preset", "tiny", "--world", "2")


def test_a_file_against_the_baseline(pkb_arena_scripted: CommandLine, pkb_arena: CommandLine, tmp_path: Path) -> None:
    card = tmp_path / "card.svg"
    (tmp_path / "mine.py").write_text("pass")
    players = ("--left", "mine.py", "--right", "baseline")
    duel = answer_of(pkb_arena_scripted("duel", "1", *players, "--svg", str(card), "--json", *SETTING))
    for name in ("left", "right"):
        assert duel[name]["verdict"] == "PASS"
        assert duel[name]["attempts"][0]["speedup"] == {"median": 1.5, "low": 1.4, "high": 1.6}
    assert (duel["winner"], duel["speedup"]["low"]) == ("left", 1.4)
    assert card.read_text().startswith("<svg")

    told = pkb_arena("replay", duel["duel_id"], "--json").stdout.splitlines()
    assert json.loads(told[0])["duel_id"] == duel["duel_id"]
    assert json.loads(told[-1])["winner"] == duel["winner"]
    refused = pkb_arena("replay", duel["duel_id"], "--source")
    assert (refused.returncode, refused.stdout) == (2, "")
    board = json.loads(pkb_arena("duels", "--json").stdout)
    assert {rating["player"] for rating in board["ratings"]} == {duel["left"]["player"], "baseline"}
    assert len(board["duels"]) == 1
    assert "you vs baseline: you wins" in pkb_arena("duels").stdout
    # The run of a submission can be replayed, too.
    assert pkb_arena("replay", duel["left"]["attempts"][0]["run_id"]).returncode == 0


@pytest.mark.parametrize("player", ["agent:openai_chat", "model:openai_chat"])
def test_only_agents_read_verdicts_in_duels(
    pkb_arena_scripted: CommandLine, home: Path, models: ModelServer, tmp_path: Path, player: str
) -> None:
    models.replies += [streamed(f"```python\n{word}\n\n\ndef solution(x): pass\n```") for word in ("wrong", "pass")]
    (tmp_path / "mine.py").write_text("wrong")
    done = pkb_arena_scripted("duel", "1", "--left", "mine.py", "--right", player, "--rounds", "2", "--json", *SETTING)
    duel = answer_of(done)
    assert [attempt["verdict"] for attempt in duel["right"]["attempts"]] == ["WRONG_RESULT", "PASS"]
    assert (duel["winner"], duel["right"]["attempt"], duel["right"]["player"]) == ("right", 2, player)
    assert ("WRONG_RESULT" in models.seen[1].prompt) is (player == "agent:openai_chat")
    journal = home / "data" / "duels" / f"{duel['duel_id']}.jsonl"
    assert '"type":"wrote"' in journal.read_text()
    for path in home.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_two_wrong_files_draw_with_exit_code_1(pkb_arena_scripted: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("wrong")
    done = pkb_arena_scripted("duel", "1", "--left", "mine.py", "--right", "mine.py", *SETTING)
    assert done.returncode == 1
    assert "a draw: neither player has a correct kernel" in done.stdout


def test_duels_names_damaged_journal_as_board_does(pkb_arena: CommandLine, home: Path) -> None:
    notes = home / "data" / "duels" / "notes.jsonl"
    notes.parent.mkdir(parents=True)
    notes.write_text("no duel\n")
    (notes.parent / "unfinished.jsonl").touch()
    (home / "data" / "voids.jsonl").write_text("no void\n")
    for form in ((), ("--json",)):
        done = pkb_arena("duels", *form)
        assert done.returncode == 3
        assert f"{notes}: this is no duel's journal; the ratings are without it" in done.stderr
        assert "voids.jsonl: line 1 cannot be read" in done.stderr
        assert "unfinished" not in done.stderr
        assert done.stdout
