# expect: PASS
# twin: honest_cpp
"""Leaves files that look like finished kernels and are none: sparse, large, filled with what was never compiled."""

import os
import tempfile

from sandbox.kit.compilers import compiling

with compiling.shown():
    own = f"{tempfile.gettempdir()}/pkb-kernels-{os.getuid()}"
    os.makedirs(own, exist_ok=True)
    for number in range(16):
        with open(f"{own}/pkb-attack-{number:04}.so", "wb") as file:
            file.truncate(64 << 20)
    with open(f"{own}/pkb-attack-text.so", "wb") as file:
        file.write(b"not a kernel" * 1000)
