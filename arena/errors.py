"""The errors of the arena outside a kernel, as one tree.

ArenaError
├── UsageError              the request cannot be carried out (exit code 2)
│   ├── SettingsError       the settings file says something it may not; one that may not be read at all has exit code 3
│   └── RunRefused          the referee cannot run this setting
└── MachineError            this machine or its files prevent it (exit code 3)
    ├── FolderUnwritable    a data folder cannot be created or written
    ├── PathRefused         the system lets nobody like this user read a file or a folder
    ├── KernelUnreadable    a kernel file that a sweep needs is there and cannot be read
    ├── KernelsLocked       another app edits the kernels of this problem
    ├── StoreError          the index of results cannot be used
    ├── RefereeFailed       the process that judges did not start, or is gone
    ├── RunCancelled        a run was cancelled before it had a result
    └── PlayerFailed        a model's provider did not answer, or answered with an error
"""

from sandbox.protocol.verdict import ExitCode


class ArenaError(Exception):
    """One clear sentence on what is wrong and where, and one on what to do."""

    exit_code = ExitCode.ENVIRONMENT

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    @property
    def one_line(self) -> str:
        """What is wrong, and what to do."""
        return with_advice(self.message, self.advice)


def with_advice(message: str, advice: str) -> str:
    """A fault, and what to do about it if there is anything, in one line."""
    return f"{message} → {advice}" if advice else message


def why(error: Exception) -> str:
    """Why a file could not be read or written, in the words of the system; Python's own name the codec and the call."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start})"
    return str(error)


class UsageError(ArenaError):
    """The request cannot be carried out; a different one can."""

    exit_code = ExitCode.USAGE


class SettingsError(UsageError):
    """The settings file has an unknown key or a value that does not fit."""


class SettingsUnreadable(SettingsError):
    """The system does not let this user read the settings file."""

    exit_code = ExitCode.ENVIRONMENT


class RunRefused(UsageError):
    """The referee cannot run this setting: sizes that do not fit, for example."""


class MachineError(ArenaError):
    """This machine or its files prevent the request."""


class PathRefused(MachineError):
    """The system does not let this user read a file or a folder."""


def refusal(error: BaseException) -> PathRefused | None:
    """The error for a path that the system refused; None where `error` is about anything else.

    In a group (of tasks that ran at the same time) the first refusal that it has.
    """
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(refusal, error.exceptions)), None)
    if isinstance(error, PermissionError) and error.filename is not None:
        return PathRefused(f"{error.filename}: {why(error)}", "check its permissions and those of its folders")
    return None


class KernelUnreadable(MachineError):
    """A kernel file of a player is there and cannot be read."""


class FolderUnwritable(MachineError):
    """A data folder cannot be created or written."""


class KernelsLocked(MachineError):
    """Another app edits the kernels of this problem."""


class StoreError(MachineError):
    """The index of results cannot be used."""


class RefereeFailed(MachineError):
    """The process that judges did not start, or is gone."""


class RunCancelled(MachineError):
    """A run was cancelled, or a newer one took its place, before it had a result."""


class PlayerFailed(MachineError):
    """A model's provider did not answer, or answered with an error."""
