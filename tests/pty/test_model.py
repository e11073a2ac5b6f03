"""A model in a real terminal, on CPU ranks: asked by a key, told its verdict, right at last, its kernel taken over."""

from pathlib import Path
from typing import Any

import pytest
from model_server import fenced, streamed
from real_terminal import Screen, descendants
from waiting import all_end

from arena.paths import Paths
from arena.settings import ModelSettings, Settings, save_settings
from arena.workspace.kernels import Workspace
from problems.catalogue import load_catalogue

pytestmark = [pytest.mark.slow, pytest.mark.further]

RIGHT = load_catalogue().find("13").baseline_source
WRONG = RIGHT.replace("return product", "return product + 1000")
F7 = "\x1b[18~"


@pytest.fixture
def kernel(paths: Paths, model_server: Any) -> Path:
    """The person's file; a model at the local server; two ranks on CPU."""
    model = ModelSettings(
        provider="openai_chat",
        model="m-1",
        base_url=model_server.url,
        retries=0,
        tools=False,
        price_in=1.0,
        price_out=1.0,
    )
    save_settings(Settings(device="cpu", world=2, live_s=0, seconds=0.1, models={"local": model}), paths)
    return Workspace(paths.workspace).create(load_catalogue().find("13"), RIGHT)


@pytest.mark.usefixtures("jail")
def test_model_is_asked_told_verdict_and_taken_over(kernel: Path, model_server: Any) -> None:
    model_server.replies = [
        streamed(fenced(WRONG)),
        streamed(fenced(f"{RIGHT}# by a model\n")),
        streamed("Enough.", finish="refusal"),  # after two refusals in a row it ends
    ]
    with Screen("screens", "13") as app:
        app.shows("NOT RUN YET", "started)")
        app.process.send(F7)
        app.shows("Ask a model · 13", "improve by the verdicts", "enter starts")
        app.process.send("\r")
        app.shows("1  ✗ WRONG")
        picture = app.shows("2  ✓ PASS", "the model declined twice", "m ask again")
        assert "stop" not in picture.splitlines()[-1]
        told = model_server.seen[1].prompt
        assert "WRONG_RESULT" in told
        assert len(model_server.seen) == 4
        app.process.send("t")
        app.shows("kernel ● unsaved", "# by a model")
        assert "# by a model" not in kernel.read_text()  # taken over, not saved
        children = descendants(app.process.pid)
        app.process.send("\x11")  # ctrl+q
        assert app.ends() == 0
        all_end(children)
