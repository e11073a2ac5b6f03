"""The GPUs of the world: one row per GPU if there is room, else one row for all."""

from collections.abc import Sequence

from textual.content import Content

from arena.machine.gpu_sampler import GpuReading, GpuSampler
from screens.widgets.text_lines import PlainStatic

REDRAW_S = 0.5
MOST = 8
"""Largest number of GPUs that are shown."""

Samples = Sequence[Sequence[GpuReading]]
Part = tuple[str, str]

_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 6
_GAP = "  "
_NOTE = 14
"""Cells reserved for the reason of a low clock, so that nothing moves when it appears."""
_HELD = "held: timing"
_ROWS_FOR_THE_REST = 24
_ROWS_FOR_A_GPU = 4
"""Rows of the screen per GPU, beyond `_ROWS_FOR_THE_REST`, from which each GPU gets its own row."""


def gpu_rows(samples: Samples, width: int, held: bool) -> list[list[Part]]:
    """Returns one row per GPU, as (text, theme colour). Leaves out the least important columns beyond `width` cells."""
    rows = []
    for rank, now in enumerate(samples[-1][:MOST]):
        columns = [
            [(f"GPU {rank}", "$muted")],
            [
                (curve([reading[rank].busy for reading in samples]), "$accent"),
                (f" {_percent(now.busy)}", "$foreground"),
            ],
        ]
        room = width - sum(map(_cells, columns)) - len(columns) * len(_GAP) - _NOTE
        memory = [(f"{now.used_mib / 1024:>5.1f} / {now.total_mib / 1024:.0f} GiB", "$foreground")]
        for column in (_nvlink(now.nvlink_gb_s), _heat(now), _clock(now), memory):
            room -= _cells(column) + len(_GAP)
            if room < 0:
                break
            columns.append(column)
        columns.append(_note(now.slowed, held and rank == 0))
        rows.append(_dimmed(_joined(columns), held))
    return rows


def gpu_line(samples: Samples, width: int, held: bool) -> list[Part]:
    """Returns all GPUs in one row of `width` cells, in the most detailed form that fits."""
    latest = samples[-1][:MOST]
    rates = [reading.nvlink_gb_s for reading in latest if reading.nvlink_gb_s is not None]
    mean = sum(rates) / len(rates) if rates else None
    tail = [_nvlink(mean), _line_note(latest, held)]
    room = width - len("GPU") - len(_GAP) - _cells(tail[0]) - len(_GAP) - _NOTE - len(_GAP)
    for most in (3, 2, 1):
        cells = [_cell(rank, now, most) for rank, now in enumerate(latest)]
        if sum(_cells(cell) + len(_GAP) for cell in cells) <= room:
            break
    else:
        busy = [reading.busy for reading in latest]
        known = [percent for percent in busy if percent is not None]
        total = round(sum(known) / len(known)) if known else None
        cells = [[(curve(busy, len(busy)), "$accent")], [(_percent(total), "$foreground")]]
    return _dimmed(_joined([[("GPU", "$muted")], *cells, *tail]), held)


def curve(percents: Sequence[int | None], cells: int = _CURVE) -> str:
    """Returns the newest percentages as bars, the newest last; an unknown one is blank."""
    bars = "".join(" " if percent is None else _BARS[min(percent, 99) * 8 // 100] for percent in percents)
    return bars[-cells:].rjust(cells)


def _cell(rank: int, now: GpuReading, most: int) -> list[Part]:
    """Returns how busy one GPU is, its temperature and its clock: the first `most` of them."""
    busy = [(f"{rank} ", "$muted"), (curve([now.busy], 1), "$accent"), (f" {_percent(now.busy)}", "$foreground")]
    return _joined([busy, _heat(now), _clock(now)][:most])[:-1]


def _percent(percent: int | None) -> str:
    return f"{_whole(percent, 3)} %"


def _nvlink(gb_s: float | None) -> list[Part]:
    return [("NVLink", "$muted"), (f" {'–' if gb_s is None else f'{gb_s:.1f}':>6} GB/s", "$foreground")]


def _heat(now: GpuReading) -> list[Part]:
    return [(f"{_whole(now.celsius, 3)} °C {_whole(now.watts, 4)} W", "$foreground")]


def _clock(now: GpuReading) -> list[Part]:
    return [(f"{_whole(now.sm_mhz, 4)} MHz", "$foreground")]


def _whole(number: float | None, cells: int) -> str:
    return f"{'–' if number is None else f'{number:.0f}':>{cells}}"


def _note(slowed: Sequence[str], held: bool) -> list[Part]:
    if held:
        return [(_HELD, "$muted")]
    return [(f"! {', '.join(slowed)}", "$warning")] if slowed else []


def _line_note(latest: Sequence[GpuReading], held: bool) -> list[Part]:
    """Returns the reasons for low clocks of all GPUs; names the GPU if it is the only slow one of several."""
    slow = [rank for rank, reading in enumerate(latest) if reading.slowed]
    words = list(dict.fromkeys(word for rank in slow for word in latest[rank].slowed))
    if len(slow) == 1 and len(latest) > 1:
        words[0] = f"{slow[0]} {words[0]}"
    return _note(words, held)


def _cells(parts: Sequence[Part]) -> int:
    return sum(len(text) for text, _ in parts)


def _joined(columns: Sequence[Sequence[Part]]) -> list[Part]:
    return [part for column in columns if column for part in (*column, (_GAP, ""))]


def _dimmed(parts: Sequence[Part], held: bool) -> list[Part]:
    """Mutes the figures while `held`: they are not updated during timing, so they are old."""
    return [(text, "$muted") for text, _ in parts] if held else list(parts)


class GpuStrip(PlainStatic):
    """The strip above the phases; hidden for CPU ranks and without NVML."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sampler: GpuSampler | None = None
        self._world = 0
        self._timing = False
        self.display = False

    def follow(self, world: int) -> None:
        """Shows the GPUs of a world of this size; 0: none."""
        if world != self._world:
            self._world = world
            self._stop()
            if world:
                self.sampler = GpuSampler(world)
                self.sampler.start()
            self._draw()

    def hold(self, timing: bool) -> None:
        """Stops reading the GPUs while a run is timed, or another screen is in front."""
        self._timing = timing
        if self.sampler is not None:
            self.sampler.hold(timing or not self.screen.is_current)

    def on_mount(self) -> None:
        self.set_interval(REDRAW_S, self._draw)

    def on_unmount(self) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.sampler is not None:
            self.sampler.stop()
        self.sampler = None

    def _draw(self) -> None:
        sampler = self.sampler
        self.display = sampler is not None and not sampler.absent
        if sampler is None or sampler.absent:
            return
        self.hold(self._timing)  # another screen may have come in front
        gpus = min(self._world, MOST)
        room = self.screen.size
        each = room.height >= _ROWS_FOR_THE_REST + _ROWS_FOR_A_GPU * gpus
        self.styles.height = gpus if each else 1  # reserved before the first figures arrive
        rows: list[list[Part]] = []
        if sampler.trouble:
            rows = [[(f"GPUs: {sampler.trouble} · `pkb-arena doctor` says more", "$warning")]]
        elif sampler.samples:
            width = room.width - 2
            samples, timing = sampler.samples, self._timing
            rows = gpu_rows(samples, width, timing) if each else [gpu_line(samples, width, timing)]
        self.update_if_new(Content("\n").join(Content.assemble(*row) for row in rows))
