"""The verdicts, their exit codes, and what to do about each."""

from enum import IntEnum, StrEnum


class Verdict(StrEnum):
    """How a run ended. Every run ends in exactly one of these."""

    PASS = "PASS"
    WRONG_RESULT = "WRONG_RESULT"
    WRONG_STRUCTURE = "WRONG_STRUCTURE"
    NONFINITE = "NONFINITE"
    MUTATED_INPUT = "MUTATED_INPUT"
    LATE_OUTPUT = "LATE_OUTPUT"
    COMPILE_ERROR = "COMPILE_ERROR"
    LOAD_ERROR = "LOAD_ERROR"
    TIMEOUT = "TIMEOUT"
    CRASH = "CRASH"
    DEVICE_ERROR = "DEVICE_ERROR"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    OUTPUT_FLOOD = "OUTPUT_FLOOD"
    PROTOCOL = "PROTOCOL"
    IMPOSSIBLE_SPEED = "IMPOSSIBLE_SPEED"
    BASELINE_DISTURBED = "BASELINE_DISTURBED"
    HARNESS_ERROR = "HARNESS_ERROR"


class ExitCode(IntEnum):
    """Exit codes of the command line. Scripts depend on them."""

    PASS = 0
    KERNEL_FAILED = 1
    USAGE = 2
    ENVIRONMENT = 3
    INTERRUPTED = 130


ADVICE: dict[Verdict, str] = {
    Verdict.PASS: "",
    Verdict.WRONG_RESULT: "Compare with the baseline on this rank: `pkb-arena show`, or F3 on the kernel screen.",
    Verdict.WRONG_STRUCTURE: "Return the same containers, shapes and dtypes as the baseline, on the same device.",
    Verdict.NONFINITE: "Look for a division by zero, an overflow in the run dtype, or memory that was never written.",
    Verdict.MUTATED_INPUT: "Clone an argument before writing to it. Inputs are read-only.",
    Verdict.LATE_OUTPUT: "Finish all work before solution() returns: join threads, synchronise streams.",
    Verdict.COMPILE_ERROR: "Fix the source at the line shown.",
    Verdict.LOAD_ERROR: "Define solution(...) with the baseline's parameters.",
    Verdict.TIMEOUT: "A rank loops, or waits for a peer that never answers. Check that all ranks make the same calls.",
    Verdict.CRASH: "SIGSEGV is usually an index outside a buffer, SIGABRT a failed assertion. The log has the rank's output.",
    Verdict.DEVICE_ERROR: "The GPU reported an error. Run compute-sanitizer on a small size.",
    Verdict.OUT_OF_MEMORY: "Allocate less, or reuse buffers between calls.",
    Verdict.OUTPUT_FLOOD: "Print less. 256 KiB of a kernel's output are kept, and the run ends at 64 MiB.",
    Verdict.PROTOCOL: "The rank sent bytes that the harness never sends. Do not use its file descriptors.",
    Verdict.IMPOSSIBLE_SPEED: "The kernel is faster than the hardware can move the bytes, so it skipped work.",
    Verdict.BASELINE_DISTURBED: "Finish all work within the call, because the baseline must be timed on a quiet machine.",
    Verdict.HARNESS_ERROR: "The kernel is not at fault. Run `pkb-arena doctor`.",
}


def exit_code(verdict: Verdict) -> ExitCode:
    """The exit code of `pkb-arena run` for this verdict."""
    if verdict is Verdict.PASS:
        return ExitCode.PASS
    if verdict is Verdict.HARNESS_ERROR:
        return ExitCode.ENVIRONMENT
    return ExitCode.KERNEL_FAILED
