"""`duel`, `duels` and `replay` of a duel as users run them, on real ranks."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from model_server import KEY, ModelServer, streamed

from sandbox.worlds.deadlines import LEASE

pytestmark = pytest.mark.slow

CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]  # type: ignore[name-defined]  # noqa: F821
SETTING = ("--device", "cpu", "--preset", "tiny", "--world", "2")
WRONG = "```python\ndef solution(tensor):\n    return tensor.clone()\n```\n"
RIGHT = """The peers were missing.

```python
from sandbox.kit import symm


def solution(tensor):
    peers = symm.peers(symm.stage(tensor))
    symm.barrier()
    return sum(peer.float() for peer in peers).to(tensor.dtype)
```
"""


@pytest.mark.usefixtures("small_budget")
@pytest.mark.timeout(4 * LEASE)
@pytest.mark.further
def test_the_house_against_the_baseline(pkb_arena: CommandLine, pkb_arena_warm: CommandLine, tmp_path: Path) -> None:
    card = tmp_path / "card.svg"
    players = ("--left", "house", "--right", "baseline")
    # Each of the three measurements may wait for another arena of this machine, and ranks may lack a core for long.
    done = pkb_arena(
        "duel", "1", *players, "--svg", str(card), "--json", *SETTING, timeout=3.5 * LEASE, PKB_DEADLINE_SCALE="5"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    duel = json.loads(done.stdout)
    for name in ("left", "right"):
        assert duel[name]["verdict"] == "PASS"
        if (speed := duel[name]["attempts"][0]["speedup"]) is not None:  # None: a busy machine, so nothing is claimed
            assert speed["low"] <= speed["high"]
        assert duel[name]["us"] > 0
    speed = duel["speedup"]
    says = "draw" if speed is None else "left" if speed["low"] > 1 else "right" if speed["high"] < 1 else "draw"
    assert duel["winner"] == says
    assert card.read_text().startswith("<svg")

    told = pkb_arena_warm("replay", duel["duel_id"], "--json").stdout.splitlines()
    assert json.loads(told[0])["duel_id"] == duel["duel_id"]
    assert json.loads(told[-1])["winner"] == duel["winner"]
    refused = pkb_arena_warm("replay", duel["duel_id"], "--source")
    assert (refused.returncode, refused.stdout) == (2, "")
    board = json.loads(pkb_arena_warm("duels", "--json").stdout)
    assert {rating["player"] for rating in board["ratings"]} == {"house", "baseline"}
    assert len(board["duels"]) == 1
    assert "house" in pkb_arena_warm("duels").stdout
    # The run of a submission can be replayed, too.
    assert pkb_arena_warm("replay", duel["left"]["attempts"][0]["run_id"]).returncode == 0


@pytest.mark.parametrize("player", ["agent:m", "model:m"])
def test_only_agents_read_verdicts_in_duels(
    pkb_arena_warm: CommandLine,
    home: Path,
    model_server: ModelServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    player: str,
) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "settings.toml").write_text(
        'budget_s = 0.1\n[models.m]\nprovider = "openai_chat"\nmodel = "m-1"\n'
        f'base_url = "{model_server.url}"\nkey_env = "MY_SECRET"\n'
    )
    monkeypatch.setenv("MY_SECRET", KEY)
    model_server.replies += [streamed(WRONG), streamed(RIGHT)]
    kernel = tmp_path / "mine.py"
    kernel.write_text("def solution(tensor):\n    return tensor * 2\n")
    done = pkb_arena_warm(
        "duel", "1", "--left", str(kernel), "--right", player, "--rounds", "2", "--unsafe", "--json", *SETTING
    )
    assert done.returncode == 0, done.stderr
    duel = json.loads(done.stdout)
    assert [attempt["verdict"] for attempt in duel["right"]["attempts"]] == ["WRONG_RESULT", "PASS"]
    assert (duel["winner"], duel["right"]["attempt"], duel["right"]["player"]) == ("right", 2, player)
    assert ("WRONG_RESULT" in model_server.seen[1].prompt) is (player == "agent:m")
    journal = home / "data" / "duels" / f"{duel['duel_id']}.jsonl"
    assert '"type":"wrote"' in journal.read_text()
    for path in home.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--left", "house"), "--right"),
        (("--left", "nowhere.py", "--right", "house"), "nowhere.py"),
        (("--left", "model:none", "--right", "house"), "none"),
        (("--left", "house", "--right", "baseline", "--minutes", "0"), "minutes"),
        (("--left", "house", "--right", "baseline", "--budget", "0"), "budget"),
        (("--left", "house", "--right", "baseline", "--budget", "2"), "neither player spends anything"),
        (("--left", "agent:nobody", "--right", "house"), "no model 'nobody'"),
    ],
)
def test_unplayable_duel_is_refused_before_anything_runs(
    pkb_arena_warm: CommandLine, home: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = pkb_arena_warm("duel", "1", *arguments, *SETTING)
    assert done.returncode == 2
    assert words in done.stderr
    assert not (home / "data" / "duels").exists()


@pytest.mark.further
def test_a_model_stops_at_its_dollars(
    pkb_arena_warm: CommandLine, home: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "settings.toml").write_text(
        'budget_s = 0.1\n[models.m]\nprovider = "openai_chat"\nmodel = "m-1"\n'
        f'base_url = "{model_server.url}"\nkey_env = "MY_SECRET"\nprice_in = 1.0\nprice_out = 1.0\n'
    )
    monkeypatch.setenv("MY_SECRET", KEY)
    model_server.replies = [streamed(WRONG, usage=(600_000, 600_000))]
    sides = ("--left", "model:m", "--right", "baseline")
    done = pkb_arena_warm("duel", "1", *sides, "--budget", "2", "--rounds", "9", "--unsafe", "--json", *SETTING)
    assert done.returncode == 0, done.stderr
    assert "model:m (left) leaves: the budget of $2 is spent" in done.stderr
    duel = json.loads(done.stdout)
    assert (duel["budget_usd"], duel["left"]["left"]) == (2.0, "the budget of $2 is spent")
    assert duel["left"]["usd"] == pytest.approx(2.4)
    assert len(model_server.seen) == 2
    card = pkb_arena_warm("replay", duel["duel_id"]).stdout
    assert "$2.40 of $2   the budget of $2 is spent" in card


def test_two_wrong_files_draw_with_exit_code_1(pkb_arena_warm: CommandLine, tmp_path: Path) -> None:
    kernel = tmp_path / "mine.py"
    kernel.write_text("def solution(tensor):\n    return tensor * 2\n")
    done = pkb_arena_warm("duel", "1", "--left", str(kernel), "--right", str(kernel), *SETTING)
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
