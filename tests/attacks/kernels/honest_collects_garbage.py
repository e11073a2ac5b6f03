"""Counts its calls in a profile, warns once, logs to a file that turns over, and collects garbage in every call."""

import gc
import logging.handlers
import warnings

import torch
import torch.distributed as dist

log = logging.getLogger(__name__)
log.addHandler(logging.handlers.RotatingFileHandler(f"log{dist.get_rank()}", maxBytes=999, backupCount=1))


def solution(tensor):
    warnings.warn("sums in the run dtype", stacklevel=1)
    with torch.profiler.record_function("sum"):
        total = tensor.clone()
        dist.all_reduce(total)
    gc.collect()
    log.warning("summed %s", tuple(tensor.shape))
    return total
