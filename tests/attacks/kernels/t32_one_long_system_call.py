# expect: WRONG_RESULT | PROTOCOL | LATE_OUTPUT
# preset: paper
# device: cpu
"""Says DONE while one system call of a thread still writes all outputs of the batch, which no signal interrupts."""

import gc
import mmap
import os
import threading

import torch

rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
put = rank.output_copies.put
image = []


def places(slot):
    start = slot.memory.data_ptr() - rank.outputs.data_ptr()
    return start, slot.targets[0].data_ptr() - rank.outputs.data_ptr()


def later(slot, result):
    if not image:
        put(slot, result)
        file = os.memfd_create("image")
        os.truncate(file, rank.outputs.numel())
        memory = torch.frombuffer(mmap.mmap(file, rank.outputs.numel()), dtype=torch.uint8)
        start, data = places(slot)
        image.extend((file, memory, slot.memory[: data - start].clone(), []))
        return
    _, memory, header, waiting = image
    start, data = places(slot) if slot.targets else (slot.memory.data_ptr() - rank.outputs.data_ptr(), None)
    memory[start : start + len(header)].copy_(header)
    data = data or start + len(header)
    memory[data : data + result.nbytes].view(result.dtype).view(result.shape).copy_(result)
    waiting.append((start, start + slot.memory.numel()))


def finish():
    if image and image[3]:
        file, waiting = image[0], image[3]
        first, last = min(waiting)[0], max(waiting)[1]
        waiting.clear()
        target = memoryview(rank.outputs.numpy())[first:last]
        threading.Thread(target=os.preadv, args=(file, [target], first)).start()

rank.output_copies.put, rank.output_copies.finish = later, finish
