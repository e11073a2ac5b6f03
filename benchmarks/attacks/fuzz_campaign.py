"""A fuzzing campaign: mutants judged one after another, until the time is up."""

import collections
import os
import random
import tempfile
import time
from pathlib import Path

import msgspec

from arena.errors import MachineError, RunCancelled, RunRefused
from arena.machine.facts import is_jail
from arena.runs.engine import temporary_engine
from arena.runs.judge import Judge, judge_to_end
from arena.setting_choice import Choice
from benchmarks.attacks.attack_bait import Bait
from benchmarks.attacks.fuzzing import Mutant, mutant, read_tricks, undeserved
from benchmarks.rows import request_of
from sandbox.protocol.events import AnyEvent

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
