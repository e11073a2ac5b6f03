"""Texts of measured transfers: the fastest ways in words, tables that fit the terminal, and stored files."""

import json
from pathlib import Path

import msgspec
import pytest

from arena.machine import calibration, transfers
from arena.machine.calibration import MOST_FILES, VALUES, keep, keep_offsets, offsets_for, stored_as
from arena.machine.transfers import StoredTransfers
from arena.paths import Paths
from sandbox.protocol.events import Setting, TransfersTimed, WorldOffsets
from sandbox.protocol.result import PairTimes, Transfers

KB, MB = 1 << 10, 1 << 20


def made(**us: list[float]) -> Transfers:
    ways = {name.replace("_", " "): times for name, times in us.items()}
    return Transfers([2 * KB, 32 * KB, 8 * MB][: len(next(iter(us.values())))], [PairTimes((0, 1), ways)])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (made(TMA=[2, 3, 50], NCCL=[9, 9, 60]), "TMA at every size"),
        (made(stores=[2, 3, 60], NCCL=[9, 9, 50]), "stores to 32 KB, NCCL above"),
        (made(A=[1, 2, 3], B=[2, 1, 4], C=[9, 9, 2]), "A to 2 KB, B to 32 KB, C above"),
        (made(A=[1.0, 2.04, 3.0], B=[1.04, 2.0, 3.1]), "A at every size"),  # times within 5 % count as equal
        (made(A=[1.0, 2.0, 9.0], B=[1.04, 2.0, 3.0]), "B at every size"),
    ],
)
def test_fastest_ways_are_said_with_few_changes(found: Transfers, words: str) -> None:
    assert transfers.fastest_words(found) == words


def test_the_slowest_pair_decides() -> None:
    pairs = [PairTimes((0, 1), {"A": [1.0], "B": [2.0]}), PairTimes((0, 2), {"A": [5.0], "B": [2.5]})]
    found = Transfers([2 * KB], pairs)
    assert transfers.fastest_words(found) == "B at every size"
    assert transfers.pairs_table(found, len("  0-1     2.05*     1.02 ")) == [
        "ranks        A         B",
        "  0-1     2.05*     1.02",
        "  0-2     0.41      0.82*",
    ]


SEVEN = Transfers(
    [2 * KB, 512 * KB, 256 * MB],
    [
        PairTimes(
            (0, 1),
            {
                "copy engine": [9.0, 11.0, 700.0], "SM stores": [2.0, 5.0, 750.0], "SM loads": [3.0, 6.0, 800.0],
                "TMA": [3.1, 7.0, 740.0], "NCCL": [12.0, 15.0, 900.0], "NCCL device": [2.1, 5.1, 751.0],
                "NVSHMEM": [4.0, 9.0, 790.0],
            },
        )
    ],
)  # fmt: skip


def test_stored_transfers_are_told_by_doctor_and_models(paths: Paths) -> None:
    folder = paths.calibrations
    assert transfers.transfers_finding(folder).state == "limited"
    kept = keep(StoredTransfers, folder, TransfersTimed(world=2, device="cuda", transfers=SEVEN, seconds=4.0))
    assert stored_as(StoredTransfers, folder, "cuda", 2) == kept
    assert stored_as(StoredTransfers, folder, "cuda", 4) is None
    found = transfers.transfers_finding(folder)
    assert (found.state, found.advice) == ("ok", "")
    assert found.found == "2 GPUs: SM stores to 512 KB, copy engine above"
    lines = transfers.prompt_lines(kept)
    assert "| 2 KB | 9.00 | 2.00 | 3.00 | 3.10 | 12.0 | 2.10 | 4.00 |" in lines
    assert lines[-1] == "Fastest: SM stores to 512 KB, copy engine above."


PICTURES = Path(__file__).parents[3] / "benchmarks" / "2xH100"


@pytest.mark.parametrize("width", [60, 100, 160])
def test_two_h100_as_the_terminal_shows_them(width: int) -> None:
    """transfers.json was measured on two H100 GPUs; the texts beside it are what the command prints for it."""
    measured = msgspec.json.decode((PICTURES / "transfers.json").read_bytes())
    pairs = [PairTimes(tuple(pair["ranks"]), pair["us"]) for pair in measured["pairs"]]
    stored = StoredTransfers(
        transfers=Transfers(measured["sizes"], pairs, measured["absent"]),
        **{name: measured[name] for name in ("device", "world", "seconds", "date", "torch")},
    )
    assert "\n".join(transfers.report_lines(stored, width)) + "\n" == (PICTURES / f"transfers-{width}.txt").read_text(
        encoding="utf-8"
    )


SETTING = Setting("problems/collective/allreduce", "tiny", {}, 2, "cpu", "float32")
MASS = [-0.5 * place for place in range(VALUES)]


def learned(setting=SETTING, **masses):
    return WorldOffsets(setting=setting, masses={name.replace("_", " "): mass for name, mass in masses.items()})


def test_kept_offsets_return_and_other_classes_stay(tmp_path):
    keep_offsets(tmp_path, learned(call_short=MASS))
    keep_offsets(tmp_path, learned(call_long=MASS[::-1]))
    assert offsets_for(tmp_path, SETTING) == {"call short": MASS, "call long": MASS[::-1]}


def test_other_problems_share_it_unlike_world_sizes(tmp_path):
    keep_offsets(tmp_path, learned(call_short=MASS))
    assert offsets_for(tmp_path, Setting("elsewhere", "paper", {"M": 1}, 2, "cpu", "bfloat16"))
    assert offsets_for(tmp_path, Setting("elsewhere", "tiny", {}, 4, "cpu", "float32")) == {}


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[" * 100_000, json.dumps({"masses": {"call short": MASS[1:]}}),
        json.dumps({"masses": {"call short": [1.0] * VALUES}}), json.dumps({"masses": {"call short": [-1e9] * VALUES}}),
        '{"masses": {"call short": [' + ",".join(["1e999"] * VALUES) + "]}}",
    ],
    ids=["empty", "cut", "deep", "short", "positive", "low", "not finite"],
)  # fmt: skip
def test_damaged_file_is_no_history_and_is_replaced(tmp_path, text):
    keep_offsets(tmp_path, learned(call_short=MASS))
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    assert offsets_for(tmp_path, SETTING) == {}
    keep_offsets(tmp_path, learned(call_short=MASS))
    assert offsets_for(tmp_path, SETTING) == {"call short": MASS}


def test_the_files_are_bounded(tmp_path, monkeypatch):
    for number in range(MOST_FILES + 3):
        monkeypatch.setattr(
            calibration, "_offsets_file", lambda folder, _, number=number: folder / f"offsets-{number}.json"
        )
        keep_offsets(tmp_path, learned(call_short=MASS))
    assert len(list(tmp_path.iterdir())) == MOST_FILES
