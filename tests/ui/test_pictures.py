"""Pictures of the screens at 60, 100 and 160 columns. After an intended change run `pytest --snapshot-update`."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from screens.app import ArenaApp

pytestmark = pytest.mark.slow

SIZES = [(60, 24), (100, 30), (160, 45)]


async def _settled(pilot) -> None:
    await _listed(pilot)
    await _at_rest(pilot)


async def _listed(pilot) -> None:
    await pilot.app.opened.wait()
    while not (pilot.app.picker.query("#problems") and pilot.app.picker.table.row_count):
        await pilot.pause(0.02)


async def _at_rest(pilot) -> None:
    """Waits until the screen was the same eight times in a row. On a slow machine this takes longer."""
    same, seen = 0, None
    while same < 8:
        await pilot.pause(0.05)
        lines = pilot.app.screen._compositor.render_strips()
        now = "\n".join("".join(segment.text for segment in line) for line in lines)
        same, seen = (same + 1, seen) if now == seen else (0, now)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}")
def test_picker(snap_compare, services, size) -> None:
    assert snap_compare(ArenaApp(services), terminal_size=size, run_before=_settled)


def _kernel_screens() -> Iterator[Any]:
    """The passed run at all sizes, each other run at its most useful size. `make test-all` has the rest."""
    shown = {("told", 60), ("wrong", 100), ("error", 160)}
    for run, size in itertools.product(("pass", "told", "wrong", "error"), SIZES):
        marks = [] if run == "pass" or (run, size[0]) in shown else [pytest.mark.long]
        yield pytest.param(run, size, id=f"{run}-{size[0]}", marks=marks)


@pytest.mark.parametrize(("run", "size"), _kernel_screens())
def test_kernel_screen(snap_compare, services, events, run, size) -> None:
    async def judged(pilot) -> None:
        await _listed(pilot)
        while not getattr(pilot.app.screen, "editor", None) or not pilot.app.screen.editor.text:
            await pilot.pause(0.02)
        for event in events(run):
            pilot.app.screen.apply(event)
        if size[0] < 100:
            pilot.app.screen.show_view("result")
        await _at_rest(pilot)

    assert snap_compare(ArenaApp(services, "13"), terminal_size=size, run_before=judged)
