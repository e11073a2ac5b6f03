"""Who runs while something is timed: the two worlds' turns, who is stopped meanwhile, and what a kernel did out of its turn."""

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sandbox import processes, scheduling
from sandbox.clocks import FOREIGN_US, Looks, Wait
from sandbox.events import Setting
from sandbox.exchange import Exchange, Failed
from sandbox.frames import Kind
from sandbox.roofline import Peaks, bound_us
from sandbox.verdict import Verdict
from sandbox.world import World

LATE_SECONDS = 0.05
DISTURBED_SHARE, DISTURBED_SECONDS = 0.2, 0.05
"""CPU time out of turn that is too much: both a share of the other's batches and more than the grain of the system's count."""

Found = TypeVar("Found")


@dataclass
class Account:
    """What one kernel did in its turns, and out of them."""

    exchange: Exchange
    stolen: float = 0.0
    """CPU seconds that it used while the other world was timed."""
    others_seconds: float = 0.0
    """How long the other world was timed."""
    quickest: float = math.inf
    """Shortest time per call of any batch in microseconds, nothing subtracted."""
    looks: Looks = field(default_factory=Looks)
    """Work on the devices when it had to be at rest."""

    @property
    def world(self) -> World:
        """Where it runs."""
        return self.exchange.contender


class Turns:
    """The turns of a timed run between a baseline and a contender, or between a rival in the baseline's place and a contender.

    Whoever is not trusted rests while another world's batch runs. Both sides' inputs are complete only at the start of a batch.
    """

    def __init__(self, setting: Setting, exchange: Exchange, rival: Exchange | None = None) -> None:
        """rival: the arenas of a kernel on the same stage that is timed instead of the baseline."""
        self.setting = setting
        self.exchange = exchange
        self.limits = exchange.stage.limits
        self.contender = exchange.contender
        self.baseline = rival.contender if rival else exchange.baseline
        """The baseline's world, or who is in its place."""
        self.accounts = [Account(each) for each in (exchange, rival) if each]
        self.waits = {self.baseline: Wait(), self.contender: Wait()}
        self.baseline_first = True
        self.random = random.SystemRandom()
        self._frozen: dict[World, list[int]] = {}
        self._left_over = False

    @property
    def worlds(self) -> set[World]:
        """All that run: the baseline's own, which draws and compares, also where a rival is in its place."""
        return {self.exchange.baseline, self.baseline, self.contender}

    def in_random_order(self, batch: Callable[[World], Found]) -> tuple[Found, Found]:
        """Has both worlds run a batch, in either order; returns (baseline's, contender's)."""
        self.baseline_first = self.random.random() < 0.5
        if self.baseline_first:
            base = batch(self.baseline)
            return base, batch(self.contender)
        theirs = batch(self.contender)
        return batch(self.baseline), theirs

    # --- who may run -----------------------------------------------------------------------------------------

    def settle_threads(self) -> None:
        """On CPU ranks polling threads give way to those that they wait for; once all groups of ranks have been made."""
        if self.setting.device == "cpu" and scheduling.sessions_are_groups():
            for world in self.worlds:
                scheduling.polling_gives_way(world.rank_pids)

    def rest(self) -> None:
        """Stops every process of every kernel. Who is stopped cannot fork: so each is looked through only once."""
        for account in self.accounts:
            if account.world not in self._frozen:
                self._frozen[account.world] = processes.pause_tree(account.world.process.pid)

    def let(self, world: World) -> None:
        """A world may run, and every kernel in another rests."""
        self.rest()
        if world.trusted:
            return
        if len(self.accounts) > 1 and self.setting.device == "cuda":
            # Both rest: what runs on the GPUs now is not of the one whose turn comes.
            self._left_over = self.exchange.foreign_us() > FOREIGN_US
        processes.resume(self._frozen.pop(world))

    def let_all(self) -> None:
        """Nobody rests any more."""
        for frozen in self._frozen.values():
            processes.resume(frozen)
        self._frozen.clear()

    # --- inputs ----------------------------------------------------------------------------------------------

    def draw(self, count: int, expect_poison: bool = True) -> None:
        """Fresh iterations for both worlds, while every kernel rests."""
        self.rest()
        self.exchange.draw(count, expect_poison)

    def check_memory(self) -> None:
        """Looks up every kernel's memory while it rests: 25 ms for a process with a CUDA context."""
        self.rest()
        for account in self.accounts:
            account.world.check_memory()

    def reveal_to_paused(self, world: World, clock: str) -> list[int]:
        """Completes a world's inputs while none of its processes runs: nobody can work on them before GO.

        clock: "call" or "device". The baseline's ranks complete inputs themselves, so they are stopped afterwards, for as long:
        what continuing on cores that have idled costs, it costs both sides (half a millisecond a batch of four ranks).
        Returns whom to continue.
        """
        if world.trusted:
            started = time.perf_counter()
            foreign_us = self.reveal_to(world)
            took = time.perf_counter() - started
            paused = processes.pause_tree(world.process.pid)
            time.sleep(took)
        else:
            paused = processes.pause_tree(world.process.pid)
            foreign_us = self.reveal_to(world)
        self._note_look(world, clock, foreign_us)
        return paused

    def reveal_to(self, world: World, watch: bool = True) -> float:
        """Completes a world's inputs; microseconds as `Exchange.reveal` says."""
        if world.trusted:
            return self.exchange.reveal(own=True, watch=watch)
        return self.exchange.reveal(self._side_of(world), watch=watch)

    def hand_over(self, world: World) -> None:
        """Without sealed memory a world copies its inputs by itself, before GO: what it does with them then nobody sees."""
        self.reveal_to(world, watch=False)
        self.exchange.wake(world)

    def _side_of(self, world: World) -> int:
        return next(account.exchange.side for account in self.accounts if account.world is world)

    def _note_look(self, world: World, clock: str, foreign_us: float) -> None:
        """Whatever else ran on the devices right before a batch is laid at a kernel's door, if it can be known whose."""
        if len(self.accounts) == 1:
            before = f"{'baseline' if world.trusted else 'contender'}, {clock}"
            self.accounts[0].looks.note(before, foreign_us)
        elif not world.trusted:
            mine = self._side_of(world)
            culprit = 1 - mine if self._left_over else mine
            before = f"{'its' if culprit == mine else 'the other'}, {clock}"
            self.accounts[culprit].looks.note(before, foreign_us)

    # --- one batch, by its call time -------------------------------------------------------------------------

    def timed(self, world: World) -> float:
        """Seconds of a world's batch, with every kernel but its own at rest and its CPU use watched."""
        self.let(world)
        self.exchange.arm(world)
        resting = [account for account in self.accounts if account.world is not world]
        before = [processes.cpu_seconds(self._frozen[account.world]) for account in resting]
        seconds = self._watched(world)
        for account, used in zip(resting, before, strict=True):
            account.stolen += processes.cpu_seconds(self._frozen[account.world]) - used
            account.others_seconds += seconds
        return seconds

    def note_quickest(self, base: float, theirs: float) -> None:
        """Keeps each kernel's shortest time per call, given in seconds."""
        seconds = {self.baseline: base, self.contender: theirs}
        for account in self.accounts:
            account.quickest = min(account.quickest, seconds[account.world] * 1e6)

    def _watched(self, world: World) -> float:
        """Times a batch and notes how long its ranks waited for a core.

        More ranks than cores wait for each other in both worlds alike; that is no disturbance.
        """
        enough = world.ranks <= len(os.sched_getaffinity(0))
        before = processes.waited_seconds(world.rank_pids) if enough else 0.0
        seconds = self.clocked(world)
        wait = self.waits[world]
        if enough:
            wait.waited += processes.waited_seconds(world.rank_pids) - before
        wait.seconds += seconds * world.ranks
        return seconds

    def clocked(self, world: World) -> float:
        """Seconds from GO until the last rank is done, on the referee's clock."""
        paused: list[int] = []
        if self.exchange.sealed:
            self.exchange.wake(world)
            paused = self.reveal_to_paused(world, "call")
        else:
            self.hand_over(world)
        started = world.go(paused)
        limit = self.limits.own if world.trusted else self.limits.batch
        return (self.exchange.await_done(world, limit) - started) / 1e9

    def empty_batch(self) -> float:
        """Seconds that GO and DONE take by themselves (the smallest of a few, in the baseline's own world)."""
        world = self.exchange.baseline
        world.tell(Kind.ARM, {"slots": [], "checking": False})
        self.exchange.await_all(world, Kind.ARMED, self.limits.own)
        return min(self.clocked(world) for _ in range(5))

    # --- afterwards ------------------------------------------------------------------------------------------

    def compare_one(self, count: int) -> None:
        """A random one of the iterations that were just timed is compared, of every kernel and on every rank."""
        self.rest()
        picked = [self.random.randrange(count)]
        for account in self.accounts:
            verdict, failure = account.exchange.compare(picked, ran=self.baseline.trusted)
            if failure is not None:
                raise Failed(verdict, failure, account.exchange.side)

    def look_back(self, peaks: Peaks) -> None:
        """Late writers get one last chance to be seen; a disturbed opponent or an impossible time ends the run.

        Raises:
            Failed: with the side whose fault it is.
        """
        self.let_all()
        time.sleep(LATE_SECONDS)
        self.exchange.require_untouched()
        floor, limiter = bound_us(self.setting, peaks.impossible())
        other = "baseline" if self.baseline.trusted else "other kernel"
        for account in self.accounts:
            fault = ""
            verdict = Verdict.BASELINE_DISTURBED
            if account.stolen > max(DISTURBED_SHARE * account.others_seconds, DISTURBED_SECONDS):
                fault = (
                    f"the kernel's processes used {account.stolen:.2f} s of CPU while the {other} was timed"
                )
            elif account.looks.fault:
                fault = account.looks.fault
            elif account.quickest < floor:
                verdict = Verdict.IMPOSSIBLE_SPEED
                fault = f"{account.quickest:.3f} us a call, but {limiter} alone needs {floor:.3f} us"
            if fault:
                raise Failed(verdict, account.exchange.failure(fault, verdict), account.exchange.side)
