"""The stored transfer times of this machine, and their output as tables or one line."""

import operator
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from arena.machine.calibration import Stored, read_stored
from arena.machine.finding import MachineFinding, limited, ok
from arena.words.headline import factor
from arena.words.table import Column, TextTable, markdown_table
from sandbox.machine.devices import kind_of
from sandbox.protocol.result import Transfers, gigabytes_per_second

COMMAND = "pkb-arena transfers"
NEAR = 1.05
"""Times whose ratio is at most this count as equal."""


class StoredTransfers(Stored, frozen=True, kw_only=True):
    """One stored measurement, beside the calibration."""

    SUFFIX = "-transfers"
    transfers: Transfers


def size_words(nbytes: int) -> str:
    """Formats a size in powers of 1024: "2 KB", "256 MB"."""
    return f"{nbytes >> 20} MB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KB"


def fastest_words(found: Transfers) -> str:
    """ "SM stores to 32 KB, TMA to 2 MB, copy engine above": the fastest way by size, between the slowest two ranks.

    Times within 5 % count as equal, so that the text changes ways as rarely as possible. Of equal ways, it names the
    first.
    """
    us = {way: found.us(way) for way in found.ways}
    words: list[str] = []
    begin, count = 0, len(found.sizes)
    while begin < count:
        ends = {way: begin + _length_near_best(us, way, begin) for way in us}
        way = max(us, key=lambda way: ends[way])
        begin = ends[way]
        words.append(f"{way} to {size_words(found.sizes[begin - 1])}" if begin < count else way)
    return ", ".join(words) + (" above" if len(words) > 1 else " at every size")


def _length_near_best(us: dict[str, list[float]], way: str, begin: int) -> int:
    """Counts the sizes, from index `begin` on without gaps, for which a way is about as fast as the fastest."""
    best = [min(times) for times in zip(*us.values(), strict=True)]
    near = [own <= NEAR * least for own, least in zip(us[way][begin:], best[begin:], strict=True)]
    return (near.index(False)) if False in near else len(near)


def transfers_finding(folder: Path) -> MachineFinding:
    """Returns a doctor's finding with the fastest ways in the latest measurement on each kind of device."""
    last: dict[str, StoredTransfers] = {}
    try:
        paths = sorted(folder.glob("*-transfers.json"))
    except OSError as error:
        return limited("transfers", f"cannot read {folder}: {error.strerror}", "check the permissions of its folders")
    for path in paths:
        found = read_stored(path, StoredTransfers)
        if found is not None and (found.device not in last or found.date > last[found.device].date):
            last[found.device] = found
    if not last:
        return limited("transfers", "not measured", f"`{COMMAND}` says which way to move data is fastest", COMMAND)
    words = [
        f"{each.world} {kind_of(each.device).ranks_name}: {fastest_words(each.transfers)}" for each in last.values()
    ]
    return ok("transfers", "; ".join(words))


def prompt_lines(found: StoredTransfers) -> list[str]:
    """Returns a compact table for a model's prompt: microseconds by size and way."""
    transfers = found.transfers
    us = {way: transfers.us(way) for way in transfers.ways}
    rows = ([size_words(size), *map(factor, times)] for size, *times in zip(transfers.sizes, *us.values(), strict=True))
    return [
        "Measured here: microseconds of one block from rank to rank, one direction, with its signal:",
        *("", *markdown_table(["block", *us], rows), ""),
        f"Fastest: {fastest_words(transfers)}.",
    ]


def report_lines(found: StoredTransfers, width: int) -> list[str]:
    """Returns the whole measurement as text for a terminal of `width` columns."""
    transfers = found.transfers
    several = len(transfers.pairs) > 1
    lines = [
        f"{found.world} {kind_of(found.device).ranks_name}: one block in one direction, with its signal",
        *(["The slowest two ranks"] if several else []),
        f"Fastest: {fastest_words(transfers)}",
        "",
        *table(transfers, width),
        "",
    ]
    if several:
        lines += ["GB/s of the largest blocks, each two ranks alone:", *pairs_table(transfers, width), ""]
    for way, reason in transfers.absent.items():
        lines += textwrap.wrap(f"No {way}: {reason}", width)
    return [*lines, f"Measured in {found.seconds:.1f} s, {found.date}"]


def table(found: Transfers, width: int) -> list[str]:
    """Returns µs and GB/s by size and way, for the slowest two ranks. * marks the fastest way of a size."""
    us = {way: found.us(way) for way in found.ways}
    rows = [
        [(us[way][at], gigabytes_per_second(size, us[way][at])) for way in found.ways]
        for at, size in enumerate(found.sizes)
    ]
    names = [size_words(size) for size in found.sizes]
    lines: list[str] = []
    for unit, place, best in (("µs", 0, min), ("GB/s", 1, max)):
        marked = [_marked([cell[place] for cell in row], best) for row in rows]
        lines += [*_grid(unit, found.ways, names, marked, width), ""]
    return lines[:-1]


def pairs_table(found: Transfers, width: int) -> list[str]:
    """Returns GB/s of the largest blocks by pair of ranks and way."""
    names = [f"{first}-{second}" for first, second in (pair.ranks for pair in found.pairs)]
    rows = [
        _marked([gigabytes_per_second(found.sizes[-1], pair.us[way][-1]) for way in found.ways], max)
        for pair in found.pairs
    ]
    return _grid("ranks", found.ways, names, rows, width)


def _marked(cells: Sequence[float], best: Callable[[Sequence[float]], float]) -> list[str]:
    return [f"{factor(cell)}{'*' if cell == best(cells) else ' '}" for cell in cells]


def _grid(corner: str, heads: Sequence[str], names: Sequence[str], rows: Sequence[list[str]], width: int) -> list[str]:
    """Lays out right-aligned columns. Columns that do not fit into `width` follow in further blocks below."""
    left = max(map(len, [corner, *names]))
    blocks: list[list[Column[list[str]]]] = [[]]
    for at, head in enumerate(heads, 1):
        column = Column[list[str]](f"{head} ", operator.itemgetter(at), max(8, len(head) + 1), right=True)
        if blocks[-1] and left + sum(2 + each.width for each in (*blocks[-1], column)) > width:
            blocks.append([])
        blocks[-1].append(column)
    cells = [[name, *row] for name, row in zip(names, rows, strict=True)]
    first = Column[list[str]](corner.ljust(left), operator.itemgetter(0), right=True)
    return [line for block in blocks for line in ("", *TextTable((first, *block)).lines(cells))][1:]
