"""The baseline of __PROBLEM__, replayed from CUDA graphs to remove launch overhead.

A call with new argument addresses runs the baseline as it is, and records it. A later call with the same addresses replays the
recording on their present contents.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# __BASELINE__


class CallRecorder:
    """A function and its recordings, one for each set of argument addresses."""

    KEPT = 256
    """Recordings that are kept. A batch has at most 256 calls; further calls of a round are recorded again."""
    PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size, dist.ProcessGroup)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.recordings: dict[Any, tuple[torch.cuda.CUDAGraph, Any]] = {}
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, *arguments: Any) -> Any:
        key = self.key(arguments)
        recording = self.recordings.get(key)
        if recording is None:
            # This call returns the plain result, so that arguments are written once.
            result = self.function(*arguments)
            self.recordings[key] = self.recorded(arguments)
            if len(self.recordings) > self.KEPT:
                del self.recordings[next(iter(self.recordings))]
            return result
        graph, result = recording
        graph.replay()
        return result

    def recorded(self, arguments: tuple[Any, ...]) -> tuple[torch.cuda.CUDAGraph, Any]:
        """Records a call without running it; returns the graph and the result that its replays fill.

        torch.cuda.graph would block on the device, which a batch behind the starting gate must not. A recording has
        memory of its own: in a shared pool its result may lie where an older recording, which can be replayed later in the
        same batch, has its workspace.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self.stream):
                graph.capture_begin(capture_error_mode="thread_local")
                result = self.function(*arguments)
                graph.capture_end()
        except RuntimeError as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise RuntimeError(f"cannot be captured in a CUDA graph: {reason[0]}") from None
        return graph, result

    def key(self, value: Any) -> Any:
        """The key of a recording: addresses and layouts of GPU tensors, values of other arguments."""
        if isinstance(value, torch.Tensor):
            if value.layout is torch.sparse_coo:
                return value.shape, self.key(value._indices()), self.key(value._values())
            if value.is_cuda:
                return value.data_ptr(), value.shape, value.stride(), value.dtype
            return value.shape, value.dtype, value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        if isinstance(value, torch.nn.Module):
            return repr(value), tuple(map(self.key, (*value.parameters(), *value.buffers())))
        if isinstance(value, list | tuple):
            return type(value), tuple(map(self.key, value))
        if isinstance(value, dict):
            return tuple((name, self.key(item)) for name, item in value.items())
        if isinstance(value, self.PLAIN):
            return repr(value)
        raise TypeError(f"an argument of type {type(value).__name__} cannot be recognised in a later call")


record = CallRecorder(globals()["solution"])


def solution(*arguments: Any) -> Any:
    return record(*arguments)
