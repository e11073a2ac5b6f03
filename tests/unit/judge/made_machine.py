"""A machine of simulated worlds: starts them, keeps the emitted events, and builds the parts of the judge on them."""

import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from made_clock import MadeClock, MadeSelector
from made_kernels import Fault, MadeKernel, MadeOracle
from made_trusted import TrustedRanks
from made_worlds import MadeGate, MadeProcesses, MadeRanks

import problems
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import NONE
from sandbox.machine.devices import Cpu
from sandbox.machine.devices.kind import Pace
from sandbox.machine.placement import RankGpu
from sandbox.machine.scheduling import Share
from sandbox.protocol.events import Run, Setting
from sandbox.protocol.frames import GatePage, Kind
from sandbox.protocol.messages import LoadKernel, Order
from sandbox.referee.awaiting import Awaiting
from sandbox.referee.main import Referee
from sandbox.timing.clocks import CALL_LENGTHS
from sandbox.timing.probes import Due
from sandbox.timing.roofline import Peaks
from sandbox.timing.rounds import Rounds
from sandbox.timing.turns import Observations, TimedSide, Turns
from sandbox.worlds.contenders import Contenders
from sandbox.worlds.exchange import REFERENCE, RIVAL, Exchange, PreparedSetting
from sandbox.worlds.first_process import WorldSpec
from sandbox.worlds.oracle_world import OracleWorld
from sandbox.worlds.references import References
from sandbox.worlds.starter import WorldStarter
from sandbox.worlds.wires import Wires
from sandbox.worlds.world import World
from sandbox.worlds.world_process import WorldProcess

JAIL = Jail(NONE, None, {})
PROBLEM = Path(problems.__file__).parent / "collective" / "allgather"
SIZES = {"M": 128, "N": 256}
"""A call moves 65536 bytes to the other rank."""


class MadeCpu(Cpu):
    """A kind of device without a gate; its ranks have cores of their own."""

    name = "made-cpu"
    pace = Pace(batch_s=0.006, slower_s=0.030, calls=32, slots=128, pairs=4, gated_pairs=0, references=2)

    def __init__(self) -> None:
        self.settled: list[int] = []
        self.share_of: Callable[[int], Share] = lambda pid: Share("group nice 10")

    def gpus(self, world: int) -> tuple[RankGpu, ...]:
        return tuple(RankGpu(rank, cores=(4 * rank, 4 * rank + 1)) for rank in range(world))

    def lease_names(self, world: int) -> list[str]:
        return []

    def settle_threads(self, ranks: Iterable[int]) -> None:
        self.settled += ranks

    def settle_helper(self, pid: int) -> None:
        self.settled.append(pid)

    def share_of_cores(self, pid: int) -> Share:
        return self.share_of(pid)


class MadeGpu(MadeCpu):
    """A kind of device with a gate; foreign work is detected, and a killed kernel can leave a GPU fault."""

    name = "made-gpu"
    pace = Pace(batch_s=0.010, slower_s=0.040, calls=128, slots=512, pairs=4, gated_pairs=2, references=4)
    arena_bytes, unsealed_arena_bytes = (1 << 30,), 1 << 28
    has_gate = sees_foreign_work = outlives_kernels = True

    def __init__(self) -> None:
        super().__init__()
        self.complaint = ""

    def gpu_fault(self, gpus: Sequence[RankGpu], killed: Any) -> str:
        assert len(gpus) == len(killed)
        return self.complaint


class Pool:
    """The groups of worlds that a referee keeps, simulated."""

    def __init__(self, starter: WorldStarter) -> None:
        self.oracle = OracleWorld(starter)
        self.references = References(starter)
        self.contenders = Contenders(starter)

    def prepare(self, setting: Setting, references: int) -> PreparedSetting:
        """Prepares a setting and starts the reference worlds and a spare."""
        self.oracle.start(setting)
        self.contenders.prepare_spare(setting)
        self.references.start(setting, references)
        self.references.leave_other_problems(setting)
        return self.oracle.prepare(setting)

    def end_run(self) -> None:
        """Ends the contenders and examines their worlds, as the referee does after a run."""
        for world in self.contenders.end():
            self.oracle.examine(world)


class MadeMachine:
    """Simulated worlds and the `kernels` that they load, by name."""

    def __init__(
        self,
        device: str = "made-cpu",
        kernel: MadeKernel | None = None,
        rival: MadeKernel | None = None,
        reference: MadeKernel | None = None,
    ) -> None:
        """kernel, rival: kernel.py and rival.py. reference: the baseline, in reference worlds and as a contender."""
        self.clock = MadeClock()
        self.selector = MadeSelector(self.clock)
        self.device = device
        self.oracle = MadeOracle()
        reference = reference or MadeKernel()
        self.kernels = {
            "kernel.py": kernel or MadeKernel(),
            "rival.py": rival or MadeKernel(),
            "baseline.py": reference,
            "baseline": reference,
        }
        self.faults: dict[str, list[list[Fault]]] = {}
        """By role, the faults of each world in the order of their starts; later worlds have none."""
        self.room = 1000
        """The number of worlds that can still be started."""
        self.started: dict[str, list[World]] = {"baseline": [], "reference": [], "spare": []}
        self.events: list[Any] = []
        self.pools: list[Pool] = []
        self.stop = False
        self.probing = False
        self.preset = "tiny"
        """Whether runs have probes, which replace some timed batches."""
        self.outside_share = 0.0
        """Share of the cores that other programs use."""
        self.await_all = Awaiting(self.poll, lambda kind: self.stop, self.clock, self.outside)
        self._loaded: dict[str, int] = {}
        self._parts: dict[World, tuple[MadeRanks, MadeProcesses]] = {}

    def outside(self) -> float:
        return self.outside_share * len(os.sched_getaffinity(0)) * self.clock.monotonic()

    def poll(self, seconds: float) -> None:
        self.selector.select(seconds)

    def start(self, spec: WorldSpec) -> World:
        """Starts a simulated world. Raises OSError if there is no room."""
        if self.room == 0:
            raise OSError("no room for a world")
        self.room -= 1
        role = "baseline" if spec.trusted else "spare" if spec.kernel else "reference"
        if role == "baseline":
            ranks: MadeRanks = TrustedRanks(self.clock, spec, self.oracle)
        else:
            faults = self.faults.get(role, [])
            ranks = MadeRanks(self.clock, spec, faults.pop(0) if faults else [], self.kernel_of)
        processes = MadeProcesses(ranks, 1 + len(self._parts))
        made = cast(WorldProcess, processes), cast(Wires, ranks)
        world = World(spec, *made, lambda count: cast(GatePage, MadeGate(ranks)), self.clock)
        self.started[role].append(world)
        self._parts[world] = (ranks, processes)
        return world

    def kernel_of(self, name: str) -> tuple[MadeKernel, float]:
        """Returns the kernel of this name, and the offset of the next world that loads it."""
        kernel = self.kernels[name]
        number = self._loaded.get(name, 0)
        self._loaded[name] = number + 1
        return kernel, kernel.offsets[number % len(kernel.offsets)]

    def ranks(self, world: World) -> MadeRanks:
        """Returns the simulated ranks of a world."""
        return self._parts[world][0]

    def processes(self, world: World) -> MadeProcesses:
        """Returns the simulated processes of a world."""
        return self._parts[world][1]

    def of(self, kind: type) -> list[Any]:
        """Returns the events of a type so far."""
        return [event for event in self.events if isinstance(event, kind)]

    # --- parts of the judge ------------------------------------------------------------------------------------

    def setting(self, **changes: Any) -> Setting:
        """Returns the setting of the smallest all-gather on two ranks."""
        given = {"problem_dir": str(PROBLEM), "preset": self.preset, "sizes": SIZES, "world": 2, "dtype": "bfloat16"}
        return Setting(**(given | {"device": self.device} | changes))

    def run(self, kernel: str = "kernel.py", **changes: Any) -> Run:
        """Returns a run of a kernel of this machine, whose worlds have differed little so far."""
        offsets = {
            f"{clock} {length}": [-0.5 * k for k in range(36)]
            for clock in ("call", "device")
            for length in CALL_LENGTHS
        }
        known = {"offsets": offsets, **changes}
        return Run(run_id="1", setting=self.setting(), kernel_name=kernel, source=f"# {kernel}\n", **known)

    def pool(self) -> Pool:
        """Returns the real worlds of a referee, on simulated processes."""
        starter = WorldStarter(JAIL, self.start, self.await_all, self.events.append, self.clock)
        self.pools.append(Pool(starter))
        return self.pools[-1]

    def referee(self) -> Referee:
        """Returns the real referee, on simulated worlds."""
        return Referee(JAIL, self.selector, self.start, self.clock)

    def exchange(self, stage: PreparedSetting, world: World, side: int = 0) -> Exchange:
        """Returns the real exchange with a simulated world, to which the arenas have been handed over."""
        found = Exchange(stage, world, self.await_all, self.events.append, self.clock, side)
        if side != REFERENCE:
            found.hand_over_arenas()
        return found

    def loaded(self, pool: Pool, stage: PreparedSetting, name: str, side: int = 0) -> TimedSide:
        """Loads a kernel into a contender world and returns its side, ready for the rounds."""
        world = pool.contenders.take(self.setting())
        exchange = self.exchange(stage, world, side)
        world.tell(LoadKernel(name, ""))
        self.await_all(world, Kind.LOADED, 10.0)
        exchange.phase = "time"
        return TimedSide(exchange, [world], Observations())

    def baseline_side(self, pool: Pool, stage: PreparedSetting, references: int) -> TimedSide:
        """Returns the side of the reference worlds."""
        worlds = pool.references.take(stage, self.setting(), references)
        return TimedSide(self.exchange(stage, worlds[0], REFERENCE), worlds)

    def rounds(
        self, run: Run | None = None, peaks: Peaks | None = None, references: int = 2, rival: str = ""
    ) -> Rounds:
        """Returns the real rounds of kernel.py against the baseline or a rival, in new worlds."""
        pool = self.pool()
        stage = pool.prepare(self.setting(), references)
        return self.rounds_on(pool, stage, references, run, peaks, rival)

    def rounds_on(
        self,
        pool: Pool,
        stage: PreparedSetting,
        references: int,
        run: Run | None = None,
        peaks: Peaks | None = None,
        rival: str = "",
    ) -> Rounds:
        """Returns the rounds on a prepared setting. Their random choices have a fixed seed."""
        setting = self.setting()
        baseline_side = self.baseline_side(pool, stage, references)
        rival_side = self.loaded(pool, stage, rival, RIVAL) if rival else baseline_side
        turns = Turns(setting, rival_side, self.loaded(pool, stage, "kernel.py"), baseline_side)
        turns.random = random.Random(1)
        rounds = Rounds(run or self.run(rounds=6), turns, peaks or Peaks(device=self.device))
        if not self.probing:
            for probes in (rounds.probes, rounds.behind_gate.probes, rounds.single_calls.probes):
                probes.due, probes.meaningful = [Due() for _ in probes.due], 0
        return rounds

    def sides_in_order(self, rounds: Rounds, gated: bool = False) -> list[bool]:
        """Returns a list that will get, for every batch behind or without a gate, whether it is the baseline's."""
        begun: list[bool] = []
        for world in rounds.turns.worlds:
            ranks = self.ranks(world)
            ranks.on_go = lambda ranks=ranks, own=world in rounds.turns.baseline_side.worlds: (
                begun.append(own) if bool(ranks.batch.epoch) == gated and not ranks.batch.noop else None
            )
        return begun

    def at_order(
        self, world: World, kind: Kind, action: Callable[[], None], after: int = 0, always: bool = False
    ) -> None:
        """Calls `action` when a world gets an order of a kind after `after` others: once, or from then on always."""
        ranks, count = self.ranks(world), 0
        take = ranks.take_order

        def noting(rank: int, order: Order[Any]) -> None:
            nonlocal count
            take(rank, order)
            if rank == 0 and order.kind is kind:
                if count == after or (always and count > after):
                    action()
                count += 1

        ranks.take_order = noting  # type: ignore[method-assign]
