"""The queue of a sweep's workers."""

import asyncio

import pytest
from waiting import PATIENCE_S

from arena.players.player import Task
from arena.setting_choice import Choice, choose_setting
from arena.settings import Settings
from arena.sweep.queue import Jobs, Try
from problems.catalogue import load_catalogue


@pytest.fixture
def a_task() -> Task:
    problem = load_catalogue().find("1")
    return Task(problem, choose_setting(problem, Choice(world=2, device="cpu"), Settings()))


def a_try(task: Task) -> Try:
    return Try(task, "agent:a", "pass", {}, "try.py", None, asyncio.get_running_loop().create_future())


async def test_a_worker_waits_on_when_the_writer_of_the_only_try_is_gone(a_task: Task) -> None:
    jobs = Jobs(iter(()), 4)
    gone, next_one = a_try(a_task), a_try(a_task)
    waiting = asyncio.create_task(jobs.try_out(gone))
    await asyncio.sleep(0)
    waiting.cancel()  # the agent's time is up: its call and the future are cancelled
    await asyncio.wait([waiting])
    assert gone.judgement.done()
    worker = asyncio.create_task(jobs.take(""))
    writer = asyncio.create_task(jobs.try_out(next_one))
    assert await asyncio.wait_for(worker, PATIENCE_S) is next_one
    writer.cancel()


async def test_a_worker_ends_when_nobody_writes_any_more(a_task: Task) -> None:
    jobs = Jobs(iter(()), 4)
    worker = asyncio.create_task(jobs.take(""))
    await asyncio.sleep(0)
    await jobs.no_more_writing()
    assert await asyncio.wait_for(worker, PATIENCE_S) is None
