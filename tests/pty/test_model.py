"""A model asked from the app in a real terminal, on CPU ranks; then the board, which knows its kernel."""

from pathlib import Path
from typing import Any

import pytest
from model_server import streamed
from real_terminal import Screen, descendants, gone

from arena.paths import Paths
from arena.settings import ModelSettings, Settings, save_settings
from arena.workspace.kernels import Workspace
from problems.catalogue import load_catalogue

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RIGHT = load_catalogue().find("13").baseline_source
WRONG = RIGHT.replace("def solution(", "def right(") + (
    "\n\ndef solution(A_local, B_local):\n    return right(A_local, B_local) + 1000\n"
)
F7, ESC = "\x1b[18~", "\x1b"


@pytest.fixture
def kernel(paths: Paths, model_server: Any) -> Path:
    """The person's file; a model at the local server; two ranks on CPU."""
    model = ModelSettings(provider="openai_chat", model="m-1", base_url=model_server.url, retries=0)
    save_settings(Settings(device="cpu", world=2, budget_s=0.5, models={"local": model}), paths)
    return Workspace(paths.workspace).create(load_catalogue().find("13"), RIGHT)


def fenced(source: str) -> str:
    return f"Here it is.\n\n```python\n{source}```\n"


@pytest.mark.usefixtures("walls")
def test_a_model_works_its_kernel_is_taken_over_and_stands_on_the_board(
    kernel: Path, model_server: Any
) -> None:
    model_server.replies = [
        streamed(fenced(WRONG)),
        streamed(fenced(RIGHT + "# by the model\n")),
        streamed("Enough.", finish="refusal"),
    ]
    app = Screen("screens", "13")
    try:
        app.shows("NOT RUN YET", "spare ready")
        app.process.send(F7)
        app.shows("Ask a model · 13", "answers", "start")
        app.process.send("\r")
        app.shows("1  ✗ WRONG", "2  ✓ PASS", "by calls · kernel 2")
        app.process.send("\x0f")  # ctrl+o
        app.shows("t text", "v verdict", "esc stays")
        app.process.send("t")
        app.process.send("\x06")  # ctrl+f
        app.shows("enter next")
        app.process.send("by the model")
        app.shows("1 of 1")
        app.process.send(ESC)
        app.process.send("\x0f")
        app.shows("esc stays")
        app.process.send("kt")
        app.shows("unsaved", "# by the model")
        app.process.send(ESC)
        app.shows("esc again")
        app.process.send(ESC)
        app.shows("Parallelism", "Row-parallel")
        app.process.send("b")
        app.shows("Board", "model:local", "13", "✓")
        children = descendants(app.process.pid)
        app.process.send("\x11")  # ctrl+q
        assert app.ends() == 0
        assert gone(children)
    finally:
        app.close()
