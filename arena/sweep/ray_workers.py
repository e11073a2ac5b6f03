"""Workers on the hosts of a Ray cluster (the extra `ray`): one actor per host, which owns that host's engine.

A host receives only a kernel's text and its setting, and sends events back. The driver keeps the journals, the index of
results and the keys. If a host's actor dies, its run ends with a harness error; Ray starts the actor again.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from arena.errors import ArenaError, MachineError, require_extra
from arena.machine.facts import Machine, this_machine
from arena.paths import ROOT, Paths, make_folder, module_environment, paths_in
from arena.records.json_lines import Journal
from arena.records.run_record import view
from arena.runs.engine import Engine, ResultRecorder
from arena.runs.judge import SWEEP, RunInProgress, RunRequest, header_of
from arena.sweep.queue import Worker
from arena.sweep.records import version_of
from problems.catalogue import UnknownProblem, load_catalogue
from sandbox.machine.devices import kind_of
from sandbox.protocol import events

RESTARTS = 2
"""Restarts of one actor by Ray. The sweep repeats its interrupted run."""
OPEN_S = 180.0
"""Longest time for an actor and its engine to start."""
HOST_HOME = "PKB_ARENA_RAY_HOME"
"""Environment variable on a host: its own folder for caches and journals. [default: a temporary one]"""


class RayJob(events.RunTerms, frozen=True, kw_only=True):
    """A run as it is sent to a host."""

    slug: str
    version: str
    """Version of the problem; a host whose files differ refuses the run."""
    player: str


HostFacts = tuple[str, Machine]
"""The jail and the machine of a host."""


class RayHost:
    """The actor: an engine on its host. Its event loop is not in the main thread, and it installs no signal handler."""

    def __init__(self) -> None:
        home = os.environ.get(HOST_HOME)
        self._temporary = None if home else tempfile.TemporaryDirectory(prefix="pkb-worker-")
        self._paths = paths_in(Path(home or self._temporary.name))  # type: ignore[union-attr]
        self._engine: Engine | None = None
        self._catalogue = load_catalogue()

    async def open(self, device: str) -> bytes:
        """Starts the engine. Returns `HostFacts` as JSON."""
        return msgspec.json.encode(((await self._living()).jail, this_machine(device)))

    async def judge(self, job_text: bytes) -> AsyncIterator[bytes]:
        """Judges a `RayJob`; yields its events as JSON, the last one is Finished, Cancelled or Refused."""
        job = msgspec.json.decode(job_text, type=RayJob)
        try:
            problem = self._catalogue.find(job.slug)
            if (own := version_of(problem)) != job.version:
                raise UnknownProblem(f"this host has another version of {job.slug} ({own}, not {job.version})")
        except UnknownProblem as error:
            advice = "install the same pkb-arena on all hosts"
            yield events.encode(events.Refused(run_id="", message=str(error), advice=advice))
            return
        setting = msgspec.structs.replace(job.setting, problem_dir=str(problem.folder.resolve()))
        request = view(RunRequest, job, problem=problem, setting=setting, urgency=SWEEP)
        run = await (await self._living()).judge(request)
        try:
            async for event in run.events():
                yield events.encode(event)
        finally:
            await run.cancel()

    async def close(self) -> None:
        """Ends the engine and all its processes."""
        if self._engine is not None:
            await self._engine.close()

    async def _living(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self._paths)
        await self._engine.start()
        return self._engine


class RemoteJudge:
    """Implements `arena.runs.judge.Judge` with an actor. The driver keeps journals and results."""

    def __init__(self, actor: Any, paths: Paths, jail: str, machine: Machine) -> None:
        self.jail, self._machine = jail, machine.digest
        self._actor = actor
        self._paths = paths
        self._recorder = ResultRecorder(
            paths, None, lambda notice: logging.getLogger(__name__).warning("pkb-arena: %s", notice.message)
        )
        self._pumps: set[asyncio.Task[None]] = set()

    async def start(self, setting: events.Setting | None = None) -> None:
        """Does nothing: the host's engine is running already."""

    async def judge(self, request: RunRequest) -> RunInProgress:
        """As `Judge.judge`."""
        await asyncio.to_thread(make_folder, self._paths.runs)
        header = header_of(request, self._machine)
        journal = Journal(self._paths.runs / f"{header.run_id}.jsonl", header, lambda error: None)
        setting = msgspec.structs.replace(request.setting, problem_dir="")
        job = view(RayJob, request, request.problem, version=version_of(request.problem), setting=setting)
        stream = self._actor.judge.options(num_returns="streaming").remote(msgspec.json.encode(job))

        async def cancel(run: RunInProgress) -> None:
            pump.cancel()
            await asyncio.wait([pump])
            if not run.ended:
                run.finish(run.cancelled)

        run = RunInProgress(header, journal, cancel)
        pump = asyncio.create_task(self._pump(stream, run))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return run

    async def _pump(self, stream: Any, run: RunInProgress) -> None:
        ray = importlib.import_module("ray")
        try:
            async for reference in stream:
                event: events.AnyEvent = events.decode_event(await reference)
                if hasattr(event, "run_id"):
                    event = msgspec.structs.replace(event, run_id=run.run_id)
                if isinstance(event, events.Finished | events.Cancelled | events.Refused):
                    if isinstance(event, events.Finished):
                        self._recorder.start(run.header, event.result)
                        await self._recorder.recorded(run.run_id)
                    run.finish(event)
                    return
                run.record(event)
            self._lost(run, "its host ended the run without a verdict")
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                ray.cancel(stream)
            raise
        except (ray.exceptions.RayError, ArenaError, OSError, ValueError) as error:
            # A ValueError is an event that this version cannot decode.
            first = str(error).strip().splitlines() or [type(error).__name__]
            self._lost(run, f"the host's process is gone: {first[0]}")

    def _lost(self, run: RunInProgress, why: str) -> None:
        if not run.ended:
            run.finish(run.failed(why))

    async def close(self) -> None:
        """Closes the index."""
        await self._recorder.close()


@asynccontextmanager
async def ray_workers(paths: Paths, device: str, address: str = "") -> AsyncIterator[list[Worker]]:
    """Yields a worker for every host of the cluster at `address`; without one, starts a cluster of this machine alone.

    Raises:
        MachineError: Ray is not installed, there is no such cluster, or no host can judge.
    """
    ray = require_extra("ray", "ray", "--ray needs Ray")
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with _without_keys():  # a cluster that is started here inherits this environment
        try:
            await asyncio.to_thread(_connect, ray, address)  # off the main thread, Ray installs no signal handler
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            first = str(error).strip().splitlines() or [type(error).__name__]
            raise MachineError(f"no Ray cluster: {first[0]}", "name the address of a running one, or none") from None
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    judges: list[RemoteJudge] = []
    actors: list[Any] = []
    try:
        workers: list[Worker] = []
        for node in (node for node in ray.nodes() if node["Alive"]):
            gpus = int(node["Resources"].get("GPU", 0))
            if kind_of(device).on_gpus and not gpus:
                continue
            host = ray.remote(RayHost).options(
                num_cpus=0.1,
                num_gpus=gpus if kind_of(device).on_gpus else 0,
                max_restarts=RESTARTS,
                max_task_retries=0,
                scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
                runtime_env={"env_vars": {"PYTHONPATH": path}},
            )
            actor = host.remote()
            actors.append(actor)
            name = node["NodeManagerHostname"]
            try:
                told = await asyncio.wait_for(_result(actor.open.remote(device)), OPEN_S)
            except (TimeoutError, ray.exceptions.RayError) as error:
                raise MachineError(f"host {name} has no engine: {error}", "see to that host, then --resume") from None
            jail, machine = msgspec.json.decode(told, type=HostFacts)
            judges.append(RemoteJudge(actor, paths, jail, machine))
            workers.append(Worker(name, judges[-1], machine))
        if not workers:
            raise MachineError(f"no host of the Ray cluster has a {device} device", "see `ray status`")
        yield workers
    finally:
        for judge in judges:
            await judge.close()
        await _end(ray, actors)


async def _result(reference: Any) -> bytes:
    told: bytes = await reference
    return told


async def _end(ray: Any, actors: Sequence[Any]) -> None:
    """Ends the engines and the actors. A cluster that already existed keeps running."""
    for actor in actors:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(_result(actor.close.remote()), 15.0)
        with contextlib.suppress(Exception):
            ray.kill(actor)
    await asyncio.to_thread(ray.shutdown)


def _connect(ray: Any, address: str) -> None:
    logging.getLogger("ray").setLevel(logging.ERROR)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address:
        ray.init(address=address, **options)
    else:
        ray.init(include_dashboard=False, **options)


@contextmanager
def _without_keys() -> Iterator[None]:
    """Removes keys from the environment while a cluster is started."""
    kept = module_environment()
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name not in kept}
    try:
        yield
    finally:
        os.environ.update(taken)
