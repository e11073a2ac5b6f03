"""Faulty ThunderKittens kernels (tests/gpu/kernels/kittens), each with its verdict and words of the failure."""

from pathlib import Path

from sandbox.protocol.verdict import Verdict

HEADERS = Path(__file__).with_name("thunderkittens")
FOLDER = Path(__file__).parent / "gpu" / "kernels" / "kittens"
FAULTS = {
    "multicast": (Verdict.COMPILE_ERROR, "multicast=True needs NVLS"),
    "barrier_for_eight": (Verdict.COMPILE_ERROR, "for 8 GPUs (num_devices), this world has 2"),
    "made_for_eight": (Verdict.COMPILE_ERROR, "for 8 GPUs (NUM_DEVICES, its line 3), this world has 2"),
    "multimem": (Verdict.COMPILE_ERROR, "barrier_t with multicast (its line 4), which needs NVLS"),
    "undefined_tile": (Verdict.COMPILE_ERROR, '"no_such_width" is undefined'),
    "wrong_elements": (Verdict.COMPILE_ERROR, "elements of different sizes"),
    "wrong_shape": (Verdict.CRASH, "ranks ask for different buffers"),
}
NEED_NVRTC = {"undefined_tile", "wrong_elements"}
"""Kernels whose fault the compiler finds, which runs only for a GPU."""


def fault(name: str) -> str:
    """The source of a kernel with a fault."""
    return (FOLDER / f"{name}.py").read_text()
