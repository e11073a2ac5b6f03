"""The phase line where not all phases fit."""

from screens.kernel.phase_line import fitting

PHASES = [("✓ load 0.08", ""), ("· compile", ""), ("✓ check 0.19", ""), ("▸ time 1.2/31 s", ""), ("esc cancels", "")]


def texts(width: int) -> list[str]:
    return [text for text, _ in fitting(PHASES, width)]


def test_all_of_them_where_there_is_room():
    assert texts(80) == [text for text, _ in PHASES]


def test_what_never_came_goes_first_then_what_is_longest_done():
    assert texts(64) == ["✓ load 0.08", "✓ check 0.19", "▸ time 1.2/31 s", "esc cancels"]
    assert texts(50) == ["✓ check 0.19", "▸ time 1.2/31 s", "esc cancels"]
    assert texts(35) == ["▸ time 1.2/31 s", "esc cancels"]


def test_what_is_going_on_stays_however_narrow_it_is():
    assert texts(5) == ["▸ time 1.2/31 s", "esc cancels"]
