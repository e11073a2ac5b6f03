"""Reads the machine's GPUs from the driver through NVML, without torch or a CUDA context.

A value that the driver does not support is None or "". A call takes microseconds to milliseconds. All functions raise NvmlMissing
if the driver does not answer.
"""

import contextlib
import math
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ALL_LINKS = 0xFFFFFFFF
"""The scope of a field value that sums up all NVLinks of a GPU."""

_CORE_WORDS = 16
"""Words of 64 cores each."""
_FIELD_ROOM = 16
"""Field values for which a read of one has room: driver 580.159.04 at times writes the times of one more, over other objects."""
_RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, which older packages do not name."""
_VOLATILE_UNCORRECTED = (1, 0)
"""nvmlMemoryErrorType_t and nvmlEccCounterType_t: uncorrected, since the driver was loaded."""


class NvmlMissing(Exception):
    """NVML is not available (package, library or driver), or a call failed."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. index: the driver's order; minor: N of /dev/nvidiaN; uuid: "GPU-..."."""

    index: int
    minor: int
    uuid: str
    name: str
    memory_mib: int


_lock = threading.Lock()
_started = False


def gpus() -> list[Gpu]:
    """All GPUs that this process may use, whatever CUDA_VISIBLE_DEVICES says, in the driver's order.

    Raises:
        NvmlMissing: NVML is not available, or one of the GPUs is lost.
    """
    found = []
    for index in range(int(call("nvmlDeviceGetCount"))):
        # The count includes GPUs that a container may not use.
        if ask("nvmlDeviceGetHandleByIndex", index) is None:
            continue
        device = handle(index)
        found.append(
            Gpu(
                index=index,
                minor=int(call("nvmlDeviceGetMinorNumber", device)),
                uuid=str(call("nvmlDeviceGetUUID", device)),
                name=str(call("nvmlDeviceGetName", device)),
                memory_mib=int(call("nvmlDeviceGetMemoryInfo", device).total) >> 20,
            )
        )
    return found


def visible(gpus: Sequence[Gpu], allowed: str | None) -> list[Gpu]:
    """The GPUs that CUDA uses with CUDA_VISIBLE_DEVICES set to `allowed`, in CUDA's order; None: not set.

    The list has indices or prefixes of UUIDs; its first entry decides which. It ends at the first entry that names no
    GPU or several. If a GPU is named twice, none is left, as in CUDA. A slice of a GPU (MIG) counts as none.
    """
    if allowed is None:
        return list(gpus)
    by_uuid = allowed.startswith("GPU-")
    seen: list[Gpu] = []
    for entry in allowed.split(","):
        gpu = _by_uuid(gpus, entry.strip()) if by_uuid else _by_place(gpus, entry.strip())
        if gpu is None:
            break
        if gpu in seen:
            return []
        seen.append(gpu)
    return seen


def _by_uuid(gpus: Sequence[Gpu], prefix: str) -> Gpu | None:
    matches = [gpu for gpu in gpus if prefix.startswith("GPU-") and gpu.uuid.startswith(prefix)]
    return matches[0] if len(matches) == 1 else None


def _by_place(gpus: Sequence[Gpu], number: str) -> Gpu | None:
    # CUDA reads the leading digits of an entry: "1st" is 1.
    digits = re.match(r"\+?([0-9]{1,9})", number)
    return gpus[int(digits[1])] if digits and int(digits[1]) < len(gpus) else None


def compute_pids(gpu: Gpu) -> set[int]:
    """Processes with a CUDA context on it; in a container at most the container's own."""
    processes = ask("nvmlDeviceGetComputeRunningProcesses", handle(gpu.index))
    return {int(process.pid) for process in processes or ()}


def memory_used_mib(gpu: Gpu) -> int:
    """MiB of its memory in use by any process."""
    return int(call("nvmlDeviceGetMemoryInfo", handle(gpu.index)).used) >> 20


def near_cores(gpu: Gpu) -> set[int]:
    """Cores near the GPU; empty if the driver has no value."""
    words = ask("nvmlDeviceGetCpuAffinity", handle(gpu.index), _CORE_WORDS) or ()
    return {64 * at + bit for at, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1}


def recovery(gpu: Gpu) -> str:
    """The fault of a GPU and the recovery that the driver asks for; "" if there is none.

    Raises:
        NvmlMissing: the driver did not answer, and did not report the GPU as lost.
    """
    pynvml = _package()
    try:
        device = handle(gpu.index)
        wanted = field(gpu, _RECOVERY_ACTION)
        uncorrected = ask("nvmlDeviceGetTotalEccErrors", device, *_VOLATILE_UNCORRECTED)
        rows = ask("nvmlDeviceGetRemappedRows", device)
    except NvmlMissing as missing:
        match _code(missing):
            case pynvml.NVML_ERROR_GPU_IS_LOST:
                return "the driver has lost it"
            case pynvml.NVML_ERROR_RESET_REQUIRED:
                return "the driver asks for a reset of the GPU"
        raise
    _, _, pending, failed = rows or (0, 0, 0, 0)
    faults = [
        _action(wanted) if wanted else "",
        f"uncorrectable memory errors: {uncorrected}" if uncorrected else "",
        "memory rows wait for a reset to be remapped" if pending else "",
        "memory rows could not be remapped" if failed else "",
    ]
    return "; ".join(filter(None, faults))


def _action(wanted: int) -> str:
    words = {
        1: "a reset of the GPU",
        2: "a reboot of the machine",
        3: "its peer traffic to be drained",
        4: "its work to be drained and a reset",
        5: "the IMEX domain to be recovered",
        6: "a reset of its bus",
        7: "a reboot of the whole system",
    }
    return f"the driver asks for {words.get(wanted, f'recovery action {wanted}')}"


def says_lost(missing: NvmlMissing) -> bool:
    """Whether the reason is a GPU that is lost or needs a reset, and not that NVML is missing."""
    if isinstance(missing.__cause__, ImportError):
        return False
    pynvml = _package()
    return _code(missing) in {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED}


def field(gpu: Gpu, number: int, scope: int = 0) -> int | None:
    """An integer field value (NVML_FI_...); None if the driver or GPU does not have it. scope: a link, or ALL_LINKS."""
    value = ask("nvmlDeviceGetFieldValues", handle(gpu.index), number, scope)
    if value is None or value.nvmlReturn != 0:
        return None
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    kind = int(value.valueType)
    return int(getattr(value.value, members[kind])) if kind < len(members) else None


def _field_value(device: Any, number: int, scope: int) -> Any:
    """One field value, read with room behind it. pynvml's own function leaves none."""
    pynvml = _package()
    values = (pynvml.c_nvmlFieldValue_t * _FIELD_ROOM)(pynvml.c_nvmlFieldValue_t(number, scope))
    if status := pynvml.nvmlLib.nvmlDeviceGetFieldValues(device, 1, values):
        raise pynvml.NVMLError(status)
    return values[0]


_OURS = {"nvmlDeviceGetFieldValues": _field_value}  # what `call` calls instead of pynvml's


class GpmSample:
    """The counters of a GPU's performance monitor (GPM) at one moment. It owns NVML's memory of them."""

    def __init__(self, sample: Any) -> None:
        self.sample = sample

    def __del__(self) -> None:
        with contextlib.suppress(NvmlMissing):
            call("nvmlGpmSampleFree", self.sample)


def gpm_sample(gpu: Gpu) -> GpmSample | None:
    """The counters now; None if this driver, GPU or user does not have them."""
    device = handle(gpu.index)
    support = ask("nvmlGpmQueryDeviceSupport", device)
    if support is None or not support.isSupportedDevice:
        return None
    sample = GpmSample(call("nvmlGpmSampleAlloc"))
    return None if ask("nvmlGpmSampleGet", device, sample.sample) is None else sample


def gpm_metrics(first: GpmSample, second: GpmSample, numbers: Sequence[int]) -> list[float | None]:
    """Metrics (NVML_GPM_METRIC_...) between two samples; None for those that this GPU does not have."""
    pynvml = _package()
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(numbers)
    request.sample1, request.sample2 = first.sample, second.sample
    for place, number in enumerate(numbers):
        request.metrics[place].metricId = number
    found = call("nvmlGpmMetricsGet", request).metrics
    answers = [found[place] for place in range(len(numbers))]
    good = [answer.nvmlReturn == 0 and math.isfinite(answer.value) for answer in answers]
    return [float(answer.value) if fine else None for answer, fine in zip(answers, good, strict=True)]


def handle(index: int) -> Any:
    """NVML's handle of the GPU with this driver index. It stays valid while the process runs.

    Raises:
        NvmlMissing: there is no such GPU, or it is lost.
    """
    return call("nvmlDeviceGetHandleByIndex", index)


def ask(name: str, *arguments: Any) -> Any:
    """Calls a function as `call` does; None if this driver, GPU or user does not have it."""
    pynvml = _package()
    try:
        return call(name, *arguments)
    except NvmlMissing as missing:
        if _code(missing) in {
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_NO_PERMISSION,
            pynvml.NVML_ERROR_INVALID_ARGUMENT,  # an older driver returns it for a newer field
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            pynvml.NVML_ERROR_DEPRECATED,
        }:
            return None
        raise


def call(name: str, *arguments: Any) -> Any:
    """Calls pynvml's function of this name, or ours, and starts NVML first if needed. Thread-safe.

    Raises:
        NvmlMissing: the call failed; its cause is pynvml's error.
    """
    pynvml = _package()
    function = _OURS.get(name) or getattr(pynvml, name, None)
    if function is None:
        raise NvmlMissing(f"the package nvidia-ml-py has no {name} (pip install --upgrade nvidia-ml-py)")
    try:
        _start(pynvml)
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlMissing(f"{_named(name, arguments)}: {error}") from error


def _package() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise NvmlMissing("the package nvidia-ml-py is not installed (pip install nvidia-ml-py)") from error
    return pynvml


def _code(missing: NvmlMissing) -> int | None:
    """NVML's error number."""
    return getattr(missing.__cause__, "value", None)


def _start(pynvml: Any) -> None:
    global _started
    with _lock:
        if not _started:
            pynvml.nvmlInit()
            _started = True


def _named(name: str, arguments: tuple[Any, ...]) -> str:
    """The name of a call for messages, with the GPU's index if it is known."""
    if not _started:
        return "nvmlInit"
    return f"{name}({arguments[0]})" if arguments and isinstance(arguments[0], int) else name
