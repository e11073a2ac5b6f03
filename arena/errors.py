"""The arena's errors except those of kernels."""

import errno
import importlib
from types import ModuleType

from sandbox.protocol.verdict import ExitCode


class ArenaError(Exception):
    """An error with two sentences: `message` states what is wrong and where, `advice` what to do."""

    exit_code = ExitCode.ENVIRONMENT

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        if advice:
            self.add_note(advice)  # a traceback shows it, too

    @property
    def one_line(self) -> str:
        """Message and advice in one line."""
        return with_advice(self.message, self.advice)


def with_advice(message: str, advice: str) -> str:
    """Joins a message and its advice, if there is any, in one line."""
    return f"{message} → {advice}" if advice else message


def why(error: Exception) -> str:
    """Returns why a file could not be read or written, without the call and codec in Python's own messages."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start})"
    return str(error)


class UsageError(ArenaError):
    """The request cannot be carried out; a different one can."""

    exit_code = ExitCode.USAGE


class SettingsError(UsageError):
    """The settings file has an unknown key or an invalid value."""


class RunRefused(UsageError):
    """The referee cannot run this setting: sizes that do not fit, for example."""


class MachineError(ArenaError):
    """This machine or its files prevent the request."""


def refusal(error: BaseException) -> MachineError | None:
    """Returns the error for a denied path, a deleted working folder, or no more threads, files or memory; else None.

    For an exception group (of concurrent tasks): the first such error in it.
    """
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(refusal, error.exceptions)), None)
    if isinstance(error, PermissionError) and error.filename is not None:
        return MachineError(f"{error.filename}: {why(error)}", "check its permissions and those of its folders")
    if isinstance(error, FileNotFoundError) and "usable temporary directory" in str(error):
        return MachineError("no folder for temporary files can be written", "make room in /tmp, or set TMPDIR")
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of os.getcwd
        return MachineError("the working folder was deleted", "change to a folder that exists, such as with cd ~")
    full = isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    if full or isinstance(error, MemoryError) or "can't start new thread" in str(error):
        from sandbox.machine.processes import low_limits

        reason = f"this machine gives no more: {str(error) or 'no memory'}"
        return MachineError(reason, low_limits() or "end programs, and try again")
    return None


def require_extra(extra: str, module: str, what: str) -> ModuleType:
    """Imports a module of one of this package's extras. what: begins the message, as "--ray needs Ray".

    Raises:
        MachineError: it is not installed; the advice has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        from sandbox.machine.backends import python_install

        raise MachineError(f"{what}, which is not installed", python_install(f"pkb-arena[{extra}]")) from None


class KernelUnreadable(MachineError):
    """A kernel file of a player exists but cannot be read."""


class FolderUnwritable(MachineError):
    """A data folder cannot be created or written."""


class KernelsLocked(MachineError):
    """Another app edits the kernels of this problem."""


class StoreError(MachineError):
    """The index of results cannot be used."""


class RefereeFailed(MachineError):
    """The referee process did not start, or has ended."""


class RunCancelled(MachineError):
    """A run was cancelled or replaced by a newer one before it had a result."""


class PlayerFailed(MachineError):
    """A model's provider did not answer, or answered with an error."""
