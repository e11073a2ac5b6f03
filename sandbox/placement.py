"""Where the ranks of a world run: cores, and the device files of its GPUs."""

import os


def gpu_device_files(gpus: tuple[int, ...]) -> tuple[str, ...]:
    """What a world needs of /dev to use these GPUs, and nothing of the others."""
    if not gpus:
        return ()
    shared = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps")
    return (*(f"/dev/nvidia{index}" for index in gpus), *shared)


def cores_of(rank: int, ranks: int) -> list[int]:
    """The cores that rank r of every world is pinned to: the same few for both worlds, at most four."""
    cores = sorted(os.sched_getaffinity(0))
    if ranks > len(cores):
        return [cores[rank % len(cores)]]
    share = min(len(cores) // ranks, 4)
    return cores[rank * share : (rank + 1) * share]
