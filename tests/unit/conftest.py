"""Scripted agents and a fake GPU driver, as fixtures."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import forked_programs
import model_server as provider
import pytest
import scripted_agents
from forked_programs import CommandLine
from scripted_referee import COMMAND

from arena.models import stream as streaming
from arena.paths import Paths
from arena.runs.engine import Engine
from arena.settings import ModelSettings, Settings, save_settings
from problems.catalogue import load_catalogue
from problems.specification import Problem


@pytest.fixture
async def engine(paths: Paths) -> AsyncIterator[Engine]:
    """An engine with the scripted referee."""
    async with Engine(paths, command=COMMAND) as engine:
        yield engine


@pytest.fixture
def problem() -> Problem:
    """The problem that most tests take."""
    return load_catalogue().find("13")


@pytest.fixture
def bench() -> Any:
    """A judge and a compiler that record what they get."""
    return scripted_agents.Bench()


@pytest.fixture
def made(model_server: Any, bench: Any, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """made(protocol, steps=3, usd=None, ...): an agent at the server, as `scripted_agents.make_agent`."""
    monkeypatch.setattr(streaming, "FIRST_WAIT_S", 0.02)
    monkeypatch.setenv("TEST_KEY", provider.KEY)
    return partial(scripted_agents.make_agent, model_server, bench, paths)


@pytest.fixture
def pkb_arena_scripted(pkb_arena: CommandLine) -> CommandLine:
    """As `pkb_arena`, with the scripted referee, which says that it has a jail."""
    return partial(pkb_arena, PKB_TEST_REFEREE=json.dumps(COMMAND), PKB_SCRIPTED_JAIL="full")


@pytest.fixture
def models(model_server: Any, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The server, with settings that have a model of every protocol at it. The key is in the environment."""
    models = {
        name: ModelSettings(
            provider=name, model="m-1", base_url=model_server.url, key_env="MY_SECRET", price_in=1.0, price_out=10.0, retries=1
        )
        for name in provider.PROTOCOLS
    }  # fmt: skip
    save_settings(Settings(seconds=0.1, live_s=0, models=models), paths)
    monkeypatch.setenv("MY_SECRET", provider.KEY)
    return model_server


WithDriver = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def driven(fake_driver: Path) -> Iterator[Any]:
    """A process that forks programs with the fake driver, because LD_LIBRARY_PATH is read when a process starts."""
    modules = ("arena.cli.machine", "arena.machine.gpu_sampler", "sandbox.machine.placement", "pynvml")
    programs = forked_programs.Forked(modules, os.environ | {"LD_LIBRARY_PATH": str(fake_driver)})
    yield programs
    programs.close()


@pytest.fixture
def with_driver(driven: Any) -> WithDriver:
    """with_driver(program, NAME=1...): runs it in a process of its own with the fake driver and FAKE_NAME=1."""

    def run(
        program: str, environment: Mapping[str, str] | None = None, **knobs: object
    ) -> "subprocess.CompletedProcess[str]":
        outside = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        fakes = {f"FAKE_{name}": str(value) for name, value in knobs.items()}
        done: subprocess.CompletedProcess[str] = driven.run(
            program, (), Path.cwd(), outside | (environment or {}) | fakes, 100
        )
        return done

    return run


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for LD_LIBRARY_PATH, with a libnvidia-ml.so.1 whose answers are set by variables FAKE_..."""
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("fake_nvml.c")
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", folder / "libnvidia-ml.so.1", source]
    subprocess.run(command, check=True)
    return folder
