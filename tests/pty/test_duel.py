"""A whole duel in a real terminal: a person who saves a file against an agent that reads its verdict, on CPU ranks."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from model_server import calling, fenced, streamed
from real_terminal import Screen, descendants
from waiting import all_end

from arena.paths import Paths
from arena.settings import ModelSettings, Settings, save_settings
from arena.workspace.kernels import Workspace
from problems.catalogue import load_catalogue

pytestmark = [pytest.mark.slow, pytest.mark.further]

RIGHT = load_catalogue().find("13").baseline_source
WRONG = RIGHT.replace("def solution(", "def right(") + (
    "\n\ndef solution(A_local, B_local):\n    return right(A_local, B_local) + 1000\n"
)
SLOW = RIGHT.replace("def solution(", "def right(") + (
    "\n\ndef solution(A_local, B_local):\n    import time\n\n    time.sleep(0.05)\n    return right(A_local, B_local)\n"
)
F8 = "\x1b[19~"


@pytest.fixture
def kernel(paths: Paths, model_server: Any) -> Path:
    """The person's file, wrong at first; a model at the local server; two ranks on CPU."""
    model = ModelSettings(provider="anthropic", model="m-1", base_url=model_server.url, retries=0)
    save_settings(Settings(device="cpu", world=2, live_s=0, seconds=0.4, models={"local": model}), paths)
    return Workspace(paths.workspace).create(load_catalogue().find("13"), WRONG)


@pytest.mark.usefixtures("jail")
def test_person_and_agent_play_to_end(kernel: Path, model_server: Any) -> None:
    model_server.replies = [
        calling(("compile", json.dumps({"source": WRONG}))),
        streamed(fenced(WRONG)),
        streamed(fenced(RIGHT)),
        streamed("Enough.", finish="refusal"),  # after two refusals in a row it leaves
    ]
    with Screen("screens", "13") as app:
        app.shows("NOT RUN YET", "started)")
        app.process.send(F8)
        app.shows("Duel", "minutes", "start")
        app.process.send("\x1b[Z\x1b[Z")  # shift+tab: from the button past the minutes to the right player
        app.process.send(" ")  # enter would start the duel
        app.shows("baseline", "agent:local")
        app.process.send("\x1b[B\x1b[B\r")  # below the house and the baseline
        app.shows("agent:local", "cannot be limited")  # the list has closed, the player is described
        app.process.send("\t\t\r")
        app.shows("no kernel yet", "Hidden until the final")
        app.process.send("\x13")  # ctrl+s submits the file's text
        app.shows("✗ WRONG", "left")
        app.shows("✓ PASS", "refused")
        assert len(model_server.seen) == 5
        compiled, told, better, *_ = (seen.prompt for seen in model_server.seen[1:])
        assert "compiles and loads" in compiled
        assert "WRONG_RESULT" in told
        assert "Make it faster" in better

        other = kernel.with_suffix(".new")
        other.write_text(SLOW)
        os.replace(other, kernel)
        app.shows("1 ✗ · 2")
        app.shows("✓ PASS", times=2)
        children = descendants(app.process.pid)
        app.process.send("\x07")  # ctrl+g
        assert "★ you" not in app.shows("rematch", "played")  # on a busy machine the final may end as a draw
        app.process.send("\x11")  # ctrl+q
        assert app.ends() == 0
        all_end(children)
