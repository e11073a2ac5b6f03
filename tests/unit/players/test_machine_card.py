"""The description of the GPUs in a model's prompt, with the fake driver."""

import subprocess
from collections.abc import Callable

import pytest

PROGRAM = """
import arena.machine.facts
arena.machine.facts.device_files = lambda: 8
from arena.paths import find_paths
from arena.players.prompt import machine_card
from sandbox.protocol.events import Setting
setting = Setting(problem_dir="", preset="tiny", sizes={{}}, world={world}, device="cuda", dtype="bfloat16")
print(machine_card(setting, find_paths()))
"""
Card = Callable[..., list[str]]
PEERS = "Peer memory: every rank can read and write that of every other."


@pytest.fixture
def card(with_driver: Callable[..., "subprocess.CompletedProcess[str]"]) -> Card:
    """card(world=4, visible=..., NAME=1...): the lines of a machine card, without the one that names torch."""

    def lines(world: int = 4, visible: str = "0,1,2,3,4,5,6,7", **knobs: object) -> list[str]:
        program = PROGRAM.format(world=world)
        done = with_driver(program, {"CUDA_VISIBLE_DEVICES": visible}, **{"GPUS": 8, **knobs})
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if not line.startswith("torch ")]

    return lines


def test_gpus_behind_switches(card: Card) -> None:
    assert card() == [
        "GPU ranks: 4 of 8 GPUs of one host, one rank each: NVIDIA H200, 140 GiB.",
        "NVLink: 18 links between every two ranks; a rank has 18 links up in all, to switches.",
        PEERS,
    ]


def test_pairs_are_of_ranks_not_of_the_drivers_numbers(card: Card) -> None:
    """GPUs 0-1 and 6-7 are neighbours: they are ranks 1-2 and 0-3. The fault of GPU 3 does not matter in this world."""
    found = card(visible="7,1,0,6,3", PEERED=1, P2P_READ_3=1, P2P_WRITE_7=4)
    assert found[1:] == [
        (
            "NVLink: 18 links between ranks 0-3, 1-2; no links between ranks 0-1, 0-2, 1-3, 2-3; "
            "a rank has 18 links up in all."
        ),
        "Peer memory: not between ranks 0-1, 0-2, 0-3 (reason: it is turned off in the driver).",
    ]


def test_links_that_are_down(card: Card) -> None:
    assert card(world=3, LINKS_2=16)[1:] == [
        (
            "NVLink: 18 links between ranks 0-1; 16 links between ranks 0-2, 1-2; "
            "a rank has 16 or 18 links up in all, to switches."
        ),
        PEERS,
    ]


def test_without_nvlink(card: Card) -> None:
    assert card(world=2, LINKS=-3, P2P_NVLINK=5, P2P_READ=1)[1:] == [
        "NVLink: no links between any two ranks.",
        "Peer memory: not between any two ranks (reason: the chipset does not support it).",
    ]


@pytest.mark.parametrize("knobs", [{"world": 1}, {"INIT": -9}, {"LINKS_1": -15}])
def test_nothing_is_said_where_there_is_nothing_to_say(card: Card, knobs: dict[str, int]) -> None:
    assert len(card(**knobs)) == 1
