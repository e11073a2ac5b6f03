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


def test_a_wait_keeps_its_seconds_and_the_key_before_who_is_waited_for():
    waits = [
        ("✓ load 0.15", ""), ("▸ Waiting: another run is timing 29 s", ""),
        ("(gemm_allreduce of root, process 6191, since 10:30:40)", ""), ("esc cancels", ""),
    ]  # fmt: skip
    assert fitting(waits, 160) == waits
    assert fitting(waits, 110) == waits[1:]
    assert fitting(waits, 98) == fitting(waits, 58) == [waits[1], waits[3]]


def test_what_is_going_on_stays_however_narrow_it_is():
    assert texts(5) == ["▸ time 1.2/31 s", "esc cancels"]
