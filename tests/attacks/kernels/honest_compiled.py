"""Goes through a distributed tensor, and compiles a part: both ask who runs them, and want a place for their caches.

torch.compile writes Triton for a GPU's tensor. For a CPU's it builds C++, which takes up to minutes.
"""

import getpass
import os
import pwd

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

assert getpass.getuser()
assert pwd.getpwuid(os.getuid()).pw_name


def doubled(x):
    return x + x


def solution(tensor):
    kept = solution.__dict__
    if "mesh" not in kept:
        kept["mesh"] = DeviceMesh(tensor.device.type, range(dist.get_world_size()))
        kept["doubled"] = torch.compile(doubled, backend="inductor" if tensor.is_cuda else "eager", dynamic=False)
    summed = DTensor.from_local(kept["doubled"](tensor), kept["mesh"], [Partial()]).redistribute(
        placements=[Replicate()]
    )
    return summed.to_local() / 2
