"""Delays of the event loop while a model writes into a duel's pane as fast as models write."""

import asyncio
import time

from arena.paths import Paths
from arena.settings import ModelSettings, Settings, save_settings
from benchmarks.app.terminal import COLUMNS, LINES, lag_while, until
from benchmarks.app.token_server import token_server
from sandbox.protocol.events import AnyEvent, WorldChanged
from screens.app import ArenaApp
from screens.app_protocol import DuelPlan
from screens.duel.live import LiveDuelScreen
from screens.services import Services

TOKENS_PER_SECOND = 1000
ENOUGH = 0.9
"""Least share of the tokens that must arrive for a valid figure."""
WARM_UP_S = 1.0
PROBLEM = "1"


def lag_while_written(paths: Paths, seconds: int) -> list[float]:
    """Seconds by which the loop woke up late, sampled for `seconds`.

    Raises:
        TimeoutError: the duel did not get as far as writing, or the tokens did not arrive in time.
    """
    with token_server(TOKENS_PER_SECOND) as url:
        model = ModelSettings(provider="openai_chat", model="fast", base_url=url)
        save_settings(Settings(device="cpu", world=2, models={"fast": model}), paths)
        return asyncio.run(_sampled(paths, seconds))


async def _sampled(paths: Paths, seconds: int) -> list[float]:
    services = Services(paths)
    app = ArenaApp(services)
    worlds: dict[str, str] = {}

    def note(event: AnyEvent) -> None:
        if isinstance(event, WorldChanged):
            worlds[event.role] = event.state

    try:
        async with app.run_test(size=(COLUMNS, LINES)):
            await app.opened.wait()
            services.engine.subscribe(note)
            assert services.catalogue is not None
            app.play_duel(services.catalogue.find(PROBLEM), DuelPlan("model:fast", "baseline", None))
            await until(lambda: isinstance(app.screen, LiveDuelScreen))
            screen = app.screen
            assert isinstance(screen, LiveDuelScreen)
            left, right = screen.state.left, screen.state.right
            # Then the other side is done and the next world has started, so that only the writing is measured.
            await until(lambda: bool(left.writing and right.left and worlds.get("spare") == "ready"))
            await asyncio.sleep(WARM_UP_S)
            began, written = time.monotonic(), len(left.text.split())
            late = await lag_while(lambda: time.monotonic() - began < seconds)
            arrived = (len(left.text.split()) - written) / (time.monotonic() - began)
    finally:
        await services.close()
    if arrived < ENOUGH * TOKENS_PER_SECOND:
        raise TimeoutError(f"{arrived:.0f} of {TOKENS_PER_SECOND} tokens arrived a second")
    return late
