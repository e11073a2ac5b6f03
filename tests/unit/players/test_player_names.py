"""How players are named."""

import pytest

from arena.errors import UsageError
from arena.players.player import PlayerKind, PlayerName, parse_player


@pytest.mark.parametrize(
    ("word", "kind", "name"),
    [
        ("baseline", PlayerKind.NAMED, "baseline"),
        ("baseline-graph", PlayerKind.NAMED, "baseline-graph"),
        (" house ", PlayerKind.NAMED, "house"),
        ("model:opus", PlayerKind.MODEL, "opus"),
        ("model:anthropic:claude", PlayerKind.MODEL, "anthropic:claude"),
        ("agent:claude-code", PlayerKind.AGENT, "claude-code"),
        ("file:./mine/", PlayerKind.FILE, "./mine/"),
    ],
)
def test_a_word_names_a_player_and_is_its_name(word: str, kind: PlayerKind, name: str) -> None:
    player = parse_player(word)
    assert player == PlayerName(kind, name)
    assert str(player) == word.strip()


@pytest.mark.parametrize("word", ["", "nobody", "model:", "named:house", "house:1", "you", ":x", "mode:opus"])
def test_any_other_word_is_refused_with_the_forms(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_player(word)
    assert "agent:NAME" in refused.value.advice
