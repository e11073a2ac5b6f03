"""The history of world offsets on disk: per machine and devices, bounded, and never believed if it is damaged."""

import json

import pytest

from arena.machine import calibration
from arena.machine.calibration import MOST_FILES, VALUES, keep_offsets, offsets_for
from sandbox.protocol.events import Setting, WorldOffsets

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
