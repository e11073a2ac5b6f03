# expect: PASS
# problem: allreduce
# attack: twin
"""Goes through a distributed tensor, and compiles a part: both ask who runs them, and want a place for their caches.

The backend that generates C++ takes more memory than a CPU rank has.
"""

import getpass
import os
import pwd

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate


@torch.compile(backend="inductor" if torch.cuda.is_available() else "eager", dynamic=False)
def doubled(x):
    return x + x


assert getpass.getuser() == pwd.getpwuid(os.getuid()).pw_name
assert doubled(torch.ones(4)).sum() == 8


def solution(tensor):
    kept = solution.__dict__
    if "mesh" not in kept:
        kept["mesh"] = DeviceMesh(tensor.device.type, range(dist.get_world_size()))
    return (
        DTensor.from_local(tensor, kept["mesh"], [Partial()]).redistribute(placements=[Replicate()]).to_local().clone()
    )
