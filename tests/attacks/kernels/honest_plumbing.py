"""A pool of processes, their shared memory, an event loop on a thread, objects and the group's store; plans in the first call."""

import asyncio
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.shared_memory import SharedMemory

import torch.distributed as dist

loop, plan = asyncio.new_event_loop(), []
threading.Thread(target=loop.run_forever, daemon=True).start()


async def summed(x):
    work = dist.all_reduce(x, async_op=True)
    await asyncio.get_running_loop().run_in_executor(None, work.wait)
    return x


def solution(tensor):
    if not plan:
        plan.extend([ProcessPoolExecutor(1, multiprocessing.get_context("fork")), SharedMemory(create=True, size=4096)])
        store = dist.PrefixStore("mine", dist.distributed_c10d._get_default_store())
        store.set(f"ready-{dist.get_rank()}", "yes")
        store.wait([f"ready-{rank}" for rank in range(dist.get_world_size())])
    shapes = [None] * dist.get_world_size()
    dist.all_gather_object(shapes, {"shape": tuple(tensor.shape), "rank": dist.get_rank()})
    scale = plan[0].submit(len, shapes).result() / len(shapes)
    return asyncio.run_coroutine_threadsafe(summed(tensor * scale), loop).result()
