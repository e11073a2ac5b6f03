"""Errors of the kit. Each message has the fact, the place, and what to do."""

from collections.abc import Sequence


class KitError(RuntimeError):
    """Base of all errors of the kit."""


class CompileError(KitError):
    """A kernel's C++ or CUDA source did not compile, or there is no compiler.

    message: one line. line: 1-based line in the user's own kernel file, None if unknown. text: the
    compiler's output.
    """

    def __init__(self, message: str, line: int | None = None, text: str = "") -> None:
        super().__init__(message, line, text)
        self.message = message
        self.line = line
        self.text = text

    def __str__(self) -> str:
        return f"{self.message}\n{self.text}" if self.text else self.message


class ArgumentError(KitError, TypeError):
    """A compiled function was called with arguments that do not fit its C signature."""


class KernelError(KitError):
    """A compiled function failed: a C++ exception, an invalid slot, or a cooperative launch that does not fit."""


class SymmetricMemoryError(KitError):
    """The symmetric heap could not be set up, is full, or was used differently by different ranks."""


class BackendError(KitError):
    """The library of a backend refused a call, or cannot be used here."""


class BarrierTimeout(KitError):
    """Peers did not arrive in time. `missing` holds their global ranks."""

    def __init__(self, message: str, missing: Sequence[int]) -> None:
        super().__init__(message, tuple(missing))
        self.missing = tuple(missing)

    def __str__(self) -> str:
        return str(self.args[0])


def ranks_text(ranks: Sequence[int]) -> str:
    """ "rank 2" or "ranks 1, 2": how messages name ranks."""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(str(rank) for rank in ranks)
