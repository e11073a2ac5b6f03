# expect: OUT_OF_MEMORY | WRONG_STRUCTURE
"""Asks for a tebibyte, which a system that lends addresses freely even gives; then it is larger than what was asked for."""

import torch


def solution(tensor):
    assert open("/proc/self/oom_score_adj").read() == "1000\n", "the system would end other programs first"
    return torch.empty(1 << 40, dtype=torch.uint8)
