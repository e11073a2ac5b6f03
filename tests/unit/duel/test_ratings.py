"""Ratings from stored duels, and the journals that they come from."""

import msgspec
from stored_runs import duel_header

from arena.duel.card import text_card
from arena.duel.events import Abandoned, DuelEnded, Finalist, Winner
from arena.duel.journal import ALL, DuelRecord, Rating, open_duel_journal, ratings, read_duel, read_duels
from arena.paths import Paths
from sandbox.protocol.verdict import Verdict

NOBODY = Finalist(None, None, None, "", None, None)


def record(number: int, left: str, right: str, winner: Winner, category: str = "tensor") -> DuelRecord:
    header = duel_header(left, right, f"duel-{number:03}", created=float(number), category=category)
    ended = DuelEnded(at=1.0, winner=winner, reason="", speedup=None, rounds=0, left=NOBODY, right=NOBODY)
    return DuelRecord(header, ended)


def standing(found: list[Rating], player: str, category: str = ALL) -> Rating:
    return next(rating for rating in found if (rating.player, rating.category) == (player, category))


def test_who_beats_a_strong_player_stands_above() -> None:
    played = [record(n, "house", "baseline", "left") for n in range(6)]
    played += [record(6 + n, "you", "house", "left") for n in range(4)]
    found = ratings(played)
    overall = [rating.player for rating in found if rating.category == ALL]
    assert overall == ["you", "house", "baseline"]
    assert (standing(found, "house").won, standing(found, "house").lost) == (6, 4)


def test_draw_between_newcomers_moves_nobody_and_makes_surer() -> None:
    first, second = ratings([record(0, "a", "b", "draw")])[:2]
    assert first.rating == second.rating == 1500.0
    assert first.drawn == 1
    after_many = standing(ratings([record(n, "a", "b", "draw") for n in range(20)]), "a")
    assert after_many.plus_minus < first.plus_minus


def test_sides_and_order_of_files_do_not_matter() -> None:
    assert ratings([record(0, "a", "a", "left")]) == []
    played = [record(0, "a", "b", "left"), record(1, "b", "c", "left"), record(2, "c", "a", "left")]
    assert ratings(played) == ratings(reversed(played))
    found = [ratings([record(0, *sides)]) for sides in (("a", "b", "left"), ("b", "a", "right"))]
    assert standing(found[0], "a") == standing(found[1], "a")


def test_categories_are_rated_by_themselves() -> None:
    found = ratings([record(0, "a", "b", "left"), record(1, "a", "b", "right", "moe")])
    assert standing(found, "a", "tensor").rating > 1500.0 > standing(found, "a", "moe").rating
    assert standing(found, "a").duels == 2


def test_duel_without_kernel_from_provider_is_not_rated() -> None:
    played = record(0, "house", "model:fake", "left")
    failed = msgspec.structs.replace(NOBODY, stopped="failed: cannot connect to 127.0.0.1:9")
    silent = msgspec.structs.replace(played.ended, right=failed)
    assert ratings([DuelRecord(played.header, silent)]) == []
    assert "not rated: model:fake failed before it submitted a kernel" in text_card(played.header, silent)
    wrong = msgspec.structs.replace(played.ended, right=msgspec.structs.replace(failed, verdict=Verdict.WRONG_RESULT))
    assert standing(ratings([DuelRecord(played.header, wrong)]), "model:fake").lost == 1
    assert "not rated" not in text_card(played.header, wrong)


def test_only_decided_duels_are_found_again(paths: Paths) -> None:
    for number in range(3):
        duel = record(number, "a", "b", "left")
        journal = open_duel_journal(paths, duel.header, lambda error: None)
        if number == 1:
            journal.append(Abandoned(at=1.0, reason="it was left"))
        elif number == 2:
            journal.append(duel.ended)
        journal.close()
    (paths.duels / "other.jsonl").write_text("no journal\n")
    found = read_duels(paths.duels)[0]
    assert [duel.header.duel_id for duel in found] == ["duel-002"]
    assert found[0].path == paths.duels / "duel-002.jsonl"
    assert list(read_duel(found[0].path)) == [found[0].ended]
    found[0].path.rename(paths.duels / "one-to-keep.jsonl")
    assert [duel.path for duel in read_duels(paths.duels)[0]] == [paths.duels / "one-to-keep.jsonl"]
