"""Kernels that combine tricks at random, judged one after another until the time is up: is each verdict deserved?

A trick is a file of tests/attacks/tricks. It wraps the kernel's call; numbers replace its names in capitals
(`_filled`). Its comment `# effect:` is the effect on the kernel:

    wrong     the outputs of timed calls are wrong when they are due: the verdict must not be PASS
    hides     outputs are right; it tries to hide time, or to take it from others
    benign    what an honest kernel may do: alone, and with others like it, it must PASS

Every kernel waits DELAY_S in each of its calls, which the baseline does not. So it is slower than the baseline,
whatever else it does. A PASS with a shorter time, or one that is called faster, is undeserved. So are a HARNESS_ERROR,
a run that is refused, and any trace outside the jail.
"""

import collections
import os
import random
import re
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from arena.errors import MachineError, RunCancelled, RunRefused, UsageError
from arena.machine.facts import is_jail
from arena.runs.engine import temporary_engine
from arena.runs.judge import Judge, judge_to_end
from arena.setting_choice import Choice
from benchmarks.attacks.attack_bait import Bait
from benchmarks.rows import request_of
from sandbox.protocol.events import AnyEvent, Result
from sandbox.protocol.verdict import Verdict

EFFECTS = ("wrong", "hides", "benign")
DELAY_S = 0.004
AT_LEAST_US = 0.8 * DELAY_S * 1e6
"""Least deserved time of a call. It is below DELAY_S, because the overhead is subtracted, and is noisy itself."""
MOST_TRICKS = 4
_EFFECT = re.compile(r"^# effect: (\w+)$", re.MULTILINE)
_PREAMBLE = '''
"""Made by `python -m benchmarks attacks --fuzz`: {what}."""

import contextlib
import ctypes
import gc
import mmap
import os
import select
import signal
import threading
import time

import torch
import torch.distributed as dist

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
rest = time.sleep


def slot_of(tensor):
    """The slot of a timed call's result; None for any other call."""
    if rank.checking or not rank.iterations:
        return None
    armed = rank.iterations.armed
    return next((each.slot for each in armed if each.arguments[0].data_ptr() == tensor.data_ptr()), None)


def timed(tensor):
    return slot_of(tensor) is not None


def call(tensor):
    rest({delay})
    total = tensor.clone()
    dist.all_reduce(total)
    return total

'''


class Trick(msgspec.Struct, frozen=True):
    """One way to cheat, or an honest variation."""

    name: str
    effect: str
    source: str


class Mutant(msgspec.Struct, frozen=True):
    """A kernel made of tricks."""

    tricks: tuple[Trick, ...]
    source: str

    @property
    def effect(self) -> str:
        """The strongest effect of its tricks."""
        return min((trick.effect for trick in self.tricks), key=EFFECTS.index)

    @property
    def names(self) -> str:
        """Its tricks, the innermost first."""
        return " + ".join(trick.name for trick in self.tricks)


def read_tricks(folder: Path) -> list[Trick]:
    """The tricks of a suite, by name. Raises UsageError."""
    tricks = []
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        found = _EFFECT.search(source)
        if found is None or found[1] not in EFFECTS:
            raise UsageError(f"{path}: no `# effect: {'|'.join(EFFECTS)}`")
        tricks.append(Trick(path.stem, found[1], source))
    if not tricks:
        raise UsageError(f"there are no tricks in {folder}", "run this in a checkout of pkb-arena")
    return tricks


def mutant(tricks: Sequence[Trick], chance: random.Random) -> Mutant:
    """A kernel of one to MOST_TRICKS tricks.

    At most one makes outputs wrong. It comes last, so that no other undoes it.
    """
    chosen = chance.sample(list(tricks), chance.randint(1, MOST_TRICKS))
    chosen.sort(key=lambda trick: trick.effect == "wrong")
    wrong = [trick for trick in chosen if trick.effect == "wrong"]
    chosen = [trick for trick in chosen if trick.effect != "wrong"] + wrong[:1]
    names = " + ".join(trick.name for trick in chosen)
    source = _PREAMBLE.lstrip().format(what=names, delay=DELAY_S)
    for number, trick in enumerate(chosen):
        body = _filled(trick.source, chance).replace("def trick(", f"def trick_{number}(")
        source += f"\n{body}\n\ncall = trick_{number}(call)\n"
    source += textwrap.dedent(
        """

        def solution(tensor):
            return call(tensor)
        """
    )
    return Mutant(tuple(chosen), source)


def _filled(source: str, chance: random.Random) -> str:
    values = {
        "EVERY": chance.choice((2, 3, 5, 7)),
        "RANK": chance.randrange(8),
        "NUMBER": chance.randrange(1, 4096),
        "LEVELS": chance.choice((3, 7, 15)),
        "LATER": chance.choice((0.0002, 0.002, 0.01, 0.04)),
        "BEFORE": 78,
    }
    for name, value in values.items():
        source = re.sub(rf"\b{name}\b", str(value), source)
    return source


def undeserved(made: Mutant, result: Result) -> str:
    """What is undeserved about a verdict, in a line; empty if it is deserved."""
    said = f"{result.verdict.value} {result.outcome}".strip()
    if result.verdict is Verdict.HARNESS_ERROR:
        return f"{said}: {result.detail}"
    if result.verdict is not Verdict.PASS:
        return f"{said}: {result.detail}" if made.effect == "benign" else ""
    if made.effect == "wrong":
        return f"{said}, though its outputs are wrong"
    seen = result.contender_us.call if result.contender_us else None
    if seen is not None and seen < AT_LEAST_US:
        return f"{said}, timed at {seen:.0f} us a call, which takes {DELAY_S * 1e6:.0f} or more"
    return f"{said}, though every call waits {DELAY_S * 1e3:.0f} ms" if result.outcome == "faster" else ""


PROBLEM = "allreduce"
ROUNDS = 3


class Found(msgspec.Struct, frozen=True):
    """One undeserved verdict."""

    number: int
    tricks: str
    why: str
    file: str
    """The kernel's text."""


class FuzzTally(msgspec.Struct):
    """The results of a campaign."""

    seed: int
    jail: str = "none"
    world: int = 0
    judged: dict[str, int] = {}
    """Numbers of kernels by effect."""
    verdicts: dict[str, int] = {}
    """Numbers of kernels by effect and verdict."""
    undeserved: list[Found] = []

    def note(self, made: Mutant, said: str) -> None:
        """Counts one kernel."""
        self.judged[made.effect] = self.judged.get(made.effect, 0) + 1
        key = f"{made.effect}: {said}"
        self.verdicts[key] = self.verdicts.get(key, 0) + 1

    def lines(self) -> list[str]:
        """A summary as lines of text."""
        total = sum(self.judged.values())
        where = f"seed {self.seed}, {self.world} ranks, jail {self.jail}"
        lines = [f"{total} kernels judged ({where}): {len(self.undeserved)} undeserved verdicts"]
        for key, count in sorted(collections.Counter(self.verdicts).items()):
            lines.append(f"  {count:5}  {key}")
        for found in self.undeserved:
            lines += [f"✗ {found.number}: {found.tricks}", f"    {found.why}", f"    {found.file}"]
        return lines


async def fuzz(suite: Path, seconds: float, seed: int, world: int) -> FuzzTally:
    """Judges mutants for `seconds`, at least one. Raises UsageError if there are no tricks."""
    tricks = read_tricks(suite / "tricks")
    chance = random.Random(seed)
    tally = FuzzTally(seed, world=world)
    bait = Bait()
    said: list[AnyEvent] = []
    folder = Path(tempfile.mkdtemp(prefix="pkb-arena-fuzz-"))
    until = time.monotonic() + seconds
    try:
        environment = bait.environment | {"PKB_DEADLINE_SCALE": "1"}
        async with temporary_engine(environment) as engine:
            engine.subscribe(said.append)
            await engine.start()
            tally.jail = engine.jail
            if not is_jail(engine.jail):
                raise MachineError("there is no jail here, and these kernels mean harm", "pkb-arena doctor says why")
            while True:
                made = mutant(tricks, chance)
                said.clear()
                number = sum(tally.judged.values())
                if why := await _judge(engine, made, world, bait, said, tally):
                    file = folder / f"{seed}-{number}.py"
                    file.write_text(made.source)
                    tally.undeserved.append(Found(number, made.names, why, str(file)))
                if time.monotonic() > until:
                    break
        if not bait.all_gone():
            tally.undeserved.append(Found(-1, "", "processes are left after the engine's end", ""))
    finally:
        bait.close()
        if not tally.undeserved:
            os.rmdir(folder)
    return tally


async def _judge(judge: Judge, made: Mutant, world: int, bait: Bait, said: list[AnyEvent], tally: FuzzTally) -> str:
    """Judges one mutant; returns what is undeserved about its verdict, or an empty text."""
    choice = Choice(preset="tiny", device="cpu", world=world)
    request = request_of(PROBLEM, choice, "mutant.py", made.source, ROUNDS)
    try:
        result = (await judge_to_end(judge, request)).result
    except (RunRefused, RunCancelled) as error:
        tally.note(made, type(error).__name__)
        return f"{type(error).__name__}: {error.message}"
    tally.note(made, f"{result.verdict.value} {result.outcome or ''}".strip())
    harm = bait.harm(said, jailed=is_jail(result.jail))
    return "; ".join(filter(None, (undeserved(made, result), *harm)))
