"""`duel`, `duels` and `replay` of a duel as users run them: one on real ranks, others with the scripted referee."""

import json
from pathlib import Path

import pytest
from forked_programs import CommandLine, answer_of
from model_server import KEY, ModelServer, streamed

from sandbox.worlds.deadlines import LEASE

SETTING = ("--device", "cpu", "--preset", "tiny", "--world", "2")


@pytest.mark.slow
@pytest.mark.usefixtures("small_budget")
@pytest.mark.timeout(4 * LEASE)
@pytest.mark.further
def test_the_house_against_the_baseline(pkb_arena: CommandLine, tmp_path: Path) -> None:
    card = tmp_path / "card.svg"
    players = ("--left", "house", "--right", "baseline")
    # Each of the three measurements may wait for another arena of this machine, and ranks may lack a core for long.
    done = pkb_arena(
        "duel", "1", *players, "--svg", str(card), "--json", *SETTING, timeout=3.5 * LEASE, PKB_DEADLINE_SCALE="5"
    )  # fmt: skip
    duel = answer_of(done)
    for name in ("left", "right"):
        assert duel[name]["verdict"] == "PASS"
        if (speed := duel[name]["attempts"][0]["speedup"]) is not None:  # None: a busy machine, so nothing is claimed
            assert speed["low"] <= speed["high"]
        assert duel[name]["us"] > 0
    speed = duel["speedup"]
    says = "draw" if speed is None else "left" if speed["low"] > 1 else "right" if speed["high"] < 1 else "draw"
    assert duel["winner"] == says
    assert card.read_text().startswith("<svg")

    told = pkb_arena("replay", duel["duel_id"], "--json").stdout.splitlines()
    assert json.loads(told[0])["duel_id"] == duel["duel_id"]
    assert json.loads(told[-1])["winner"] == duel["winner"]
    refused = pkb_arena("replay", duel["duel_id"], "--source")
    assert (refused.returncode, refused.stdout) == (2, "")
    board = json.loads(pkb_arena("duels", "--json").stdout)
    assert {rating["player"] for rating in board["ratings"]} == {"house", "baseline"}
    assert len(board["duels"]) == 1
    assert "house" in pkb_arena("duels").stdout
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
