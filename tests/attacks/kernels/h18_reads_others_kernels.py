# expect: PASS
# twin: honest_cpp
"""Looks for what other kernels have compiled."""

import os
from pathlib import Path

from sandbox.kit.compilers import build

folder = Path(os.environ["PKB_KERNEL_CACHE"])
own = {build.cache_dir(), build.kernel_cache.shared()}  # the second has what this program has built for all
others = [path for path in folder.rglob("*") if path.is_file() and not own & set(path.parents)]
if others:
    raise RuntimeError(f"another kernel's work: {others[0]}")
