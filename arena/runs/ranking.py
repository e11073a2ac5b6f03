"""Ranks kernels by their speed: all measurements of the same code in one setting count as one.

Repeating a measurement therefore never raises a kernel's figure by luck. Whatever ranks or remembers speedups uses this module.
"""

import functools
import hashlib
import io
import tokenize
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from sandbox.protocol.events import Interval
from sandbox.protocol.kernel_files import Files, kernel_hash
from sandbox.timing.interval import outcome

Item = TypeVar("Item")

SHORT = 0.5
"""Measurements with less than this share of the longest one's rounds are replaced by it."""
_NO_CODE = (tokenize.COMMENT, tokenize.NL)
_LAYOUT = (tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.ENDMARKER)
"""Tokens whose kind alone matters: how deep an indentation is does not change the code."""


class Measurement(NamedTuple):
    """One measurement of a kernel."""

    code: Hashable
    """Equal for measurements that can be pooled: the hash of the code, and the setting where that varies."""
    speedup: Interval
    clock: str = ""
    """Of the headline: "call", "device", or empty for results of older versions."""
    rounds: int = 0


@dataclass(frozen=True)
class Ranked(Generic[Item]):
    """All measurements of one kernel."""

    item: Item
    """The longest measurement, the earliest of equals."""
    items: tuple[Item, ...]
    """All that were pooled or replaced, in the order they came."""
    speedup: Interval
    """The medians of the pooled measurements' middles and ends: repeating does not narrow an interval."""
    clock: str

    @property
    def outcome(self) -> str:
        """ "faster", "slower", "even" or "too noisy", by the pooled interval."""
        return outcome(self.speedup)


def code_hash(source: str, files: Files | None = None) -> str:
    """Names a kernel's code: equal for files that differ only in comments, blank lines and layout.

    files: the others of a kernel of several files. Of these only Python is compared so.
    """
    if not files:
        return _code_of(source)
    texts = {name: data.decode(errors="replace") for name, data in files.items() if name.endswith(".py")}
    return kernel_hash(_code_of(source), files | {name: _code_of(text).encode() for name, text in texts.items()})


@functools.lru_cache(maxsize=512)
def _code_of(source: str) -> str:
    try:
        tokens = [
            (token.type, "" if token.type in _LAYOUT else token.string)
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type not in _NO_CODE
        ]
    except (tokenize.TokenError, SyntaxError):
        return hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()
    return hashlib.sha256(repr(tokens).encode()).hexdigest()


def ranked(items: Iterable[Item], measured: Callable[[Item], Measurement | None]) -> list[Ranked[Item]]:
    """The kernels in `items`, the one with the highest low end first, the earliest of equals.

    measured: the measurement of an item; None where nothing was timed, which leaves the item out.
    """
    groups: dict[Hashable, list[tuple[Item, Measurement]]] = {}
    for item in items:
        if (found := measured(item)) is not None:
            groups.setdefault(found.code, []).append((item, found))
    return sorted(map(_pooled, groups.values()), key=lambda kernel: -kernel.speedup.low)


def _pooled(group: list[tuple[Item, Measurement]]) -> Ranked[Item]:
    item, longest = max(group, key=lambda pair: pair[1].rounds)
    kept = [
        found.speedup for _, found in group if found.clock == longest.clock and found.rounds >= SHORT * longest.rounds
    ]
    middle, low, high = (median(getattr(each, end) for each in kept) for end in Interval.__struct_fields__)
    return Ranked(item, tuple(each for each, _ in group), Interval(middle, low, high), longest.clock)
