# expect: PASS
# twin: honest_cpp
"""Leaves links and strange names where finished kernels are collected: nothing is followed."""

import os
import tempfile

from sandbox.kit.compilers import compiling

with compiling.shown():  # as if it had compiled something: only then is there a collection
    own = tempfile.gettempdir()
    folder = f"{own}/pkb-kernels-{os.getuid()}"
    os.makedirs(folder, exist_ok=True)
    for number, target in enumerate(
        ("@HOME_CANARY@", "/etc/shadow", "/proc/1/environ", "../../../../root", "/dev/zero")
    ):
        try:
            os.symlink(target, f"{folder}/pkb-attack-link{number}.so")
        except FileExistsError:
            pass
    try:
        os.symlink(os.path.dirname("@HOME_CANARY@"), f"{own}/pkb-kernels-linked")
    except FileExistsError:
        pass
    try:
        os.mkfifo(f"{folder}/pkb-attack-pipe.so")
    except FileExistsError:
        pass
