"""The strip of live GPU figures: what fits, when it is shown, and when it stops for timing."""

import threading
from collections.abc import Callable

import pytest
from textual.content import Content

import arena.machine.gpu_sampler
import arena.setting_choice
import screens.kernel.gpu_strip
from arena.machine.gpu_sampler import GpuReading, GpuSampler
from arena.settings import Settings
from screens.kernel.gpu_strip import GpuStrip, curve, gpu_line, gpu_rows


def reading(rank: int = 0, *slowed: str) -> GpuReading:
    return GpuReading(
        used_mib=4096 * (rank + 1),
        total_mib=143771,
        busy=61 + rank,
        sm_mhz=1980,
        celsius=65,
        watts=652.3,
        nvlink_gb_s=212.4,
        slowed=slowed,
    )


def text(parts: list[tuple[str, str]]) -> str:
    return "".join(words for words, _ in parts)


@pytest.mark.parametrize("width", [58, 98, 158])
@pytest.mark.parametrize("gpus", range(1, 9))
def test_everything_fits_and_nothing_moves(width: int, gpus: int) -> None:
    calm = [[reading(rank) for rank in range(gpus)]] * 8
    unknown = [[GpuReading(used_mib=0, total_mib=81559) for _ in range(gpus)]]
    hot = [[reading(rank, "power cap") for rank in range(gpus)]] * 8
    for samples in (calm, unknown, hot):
        row, line = text(gpu_rows(samples, width, False)[0]), text(gpu_line(samples, width, False))
        assert Content(row.rstrip()).cell_length <= width
        assert Content(line.rstrip()).cell_length <= width
        assert row.index("GB/s") == text(gpu_rows(calm, width, False)[0]).index("GB/s")
        assert line.index("GB/s") == text(gpu_line(calm, width, False)).index("GB/s")
    assert "! power cap" in text(gpu_line(hot, width, False))
    assert all("! power cap" in text(row) for row in gpu_rows(hot, width, False))


def test_rows_say_more_where_there_is_room() -> None:
    samples = [[reading(0), reading(1, "thermal", "power cap")]]
    assert [text(row).rstrip() for row in gpu_rows(samples, 158, False)] == [
        "GPU 0       ▅  61 %  NVLink  212.4 GB/s   65 °C  652 W  1980 MHz    4.0 / 140 GiB",
        "GPU 1       ▅  62 %  NVLink  212.4 GB/s   65 °C  652 W  1980 MHz    8.0 / 140 GiB  ! thermal, power cap",
    ]
    assert text(gpu_rows(samples, 58, False)[0]).rstrip() == "GPU 0       ▅  61 %  NVLink  212.4 GB/s"


def test_one_line_takes_fullest_form_that_fits() -> None:
    world = [[reading(rank, *(("power cap",) if rank == 2 else ())) for rank in range(4)]]
    assert text(gpu_line(world, 98, False)).rstrip() == (
        "GPU  0 ▅  61 %  1 ▅  62 %  2 ▆  63 %  3 ▆  64 %  NVLink  212.4 GB/s  ! 2 power cap"
    )
    assert text(gpu_line(world, 58, False)).rstrip() == "GPU  ▅▅▆▆   62 %  NVLink  212.4 GB/s  ! 2 power cap"
    assert text(gpu_line([world[0][:1]], 98, False)).rstrip() == (
        "GPU  0 ▅  61 %   65 °C  652 W  1980 MHz  NVLink  212.4 GB/s"
    )


def test_a_curve_keeps_the_newest_and_its_width() -> None:
    assert curve([0, 12, 50, 100], 6) == "  ▁▁▅█"
    assert curve(range(0, 110, 10), 6) == "▅▅▆▇██"
    assert curve([None, None], 2) == "  "


@pytest.fixture
def gpus(services, monkeypatch: pytest.MonkeyPatch) -> Callable[[object], list[GpuSampler]]:
    """gpus(read): simulates four GPUs with readings from `read`. Returns the samplers that the strip makes."""

    def given(read: object) -> list[GpuSampler]:
        made: list[GpuSampler] = []

        def sampler(world: int) -> GpuSampler:
            made.append(GpuSampler(world, read))
            return made[-1]

        monkeypatch.setattr(arena.setting_choice, "choose_device", lambda asked: "cpu" if asked == "cpu" else "cuda")
        monkeypatch.setattr(arena.setting_choice, "visible_gpus", lambda: 4)
        monkeypatch.setattr(arena.machine.gpu_sampler, "PERIOD_S", 0.01)
        monkeypatch.setattr(screens.kernel.gpu_strip, "REDRAW_S", 0.05)
        monkeypatch.setattr(screens.kernel.gpu_strip, "GpuSampler", sampler)
        services.settings = Settings(device="auto")
        return made

    return given


def readers() -> int:
    return sum(thread.name == "gpu-sampler" for thread in threading.enumerate())


@pytest.mark.slow
async def test_the_strip_lives_with_the_screen(gpus, open_app, until, screen_text) -> None:
    made = gpus(lambda: [reading(rank) for rank in range(4)])
    async with open_app(problem="13") as (app, pilot):
        await until(pilot, lambda: "1980 MHz" in screen_text(app))
        strip = app.screen.query_one(GpuStrip)
        assert strip.size.height == 4
        await until(pilot, lambda: screen_text(app).count("NVLink  212.4 GB/s") == 4)
        app.screen.session.choice = arena.setting_choice.Choice(device="cpu")
        app.screen.draw(force=True)
        await until(pilot, lambda: not strip.display and readers() == 0)
        app.screen.session.choice = arena.setting_choice.Choice(world=2)
        app.screen.draw(force=True)
        await until(pilot, lambda: strip.size.height == 2 and len(made) == 2)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: readers() == 0)


@pytest.mark.slow
async def test_nothing_is_read_while_a_run_is_timed(gpus, open_app, until, events, screen_text) -> None:
    count = [0]

    def read() -> list[GpuReading]:
        count[0] += 1
        return [reading(rank) for rank in range(4)]

    gpus(read)
    async with open_app(problem="13") as (app, pilot):
        await until(pilot, lambda: count[0] > 2)
        run = events("pass")
        timed = next(place for place, event in enumerate(run) if getattr(event, "phase", "") == "time")
        for event in run[: timed + 1]:
            app.screen.apply(event)
        await until(pilot, lambda: "held: timing" in screen_text(app))
        held = count[0]
        for _ in range(10):
            await pilot.pause(0.05)
        assert count[0] <= held + 1  # one read had already begun
        for event in run[timed + 1 :]:
            app.screen.apply(event)
        await until(pilot, lambda: count[0] > held + 1 and "held: timing" not in screen_text(app))


@pytest.mark.slow
async def test_a_machine_without_nvml_has_no_strip(gpus, open_app, until) -> None:
    made = gpus(list)
    async with open_app(problem="13") as (app, pilot):
        strip = app.screen.query_one(GpuStrip)
        await until(pilot, lambda: bool(made) and made[0].absent and not strip.display and readers() == 0)
        assert (made[0].samples, made[0].trouble) == ((), "")
