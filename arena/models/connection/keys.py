"""API keys: read from the environment or the system's keyring, and put into a request's header alone."""

import importlib
import os
from typing import Any

from arena.errors import UsageError
from arena.own_modules import withhold

SERVICE = "pkb-arena"
"""The keyring's service; the entry is named like the environment variable."""
HIDDEN = "[key]"
SHORTEST = 8
"""A shorter key is some local server's dummy: hiding it would tear holes into ordinary text."""


class Key:
    """A secret that does not show itself in messages, tracebacks or encoded records."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return HIDDEN if self._text else "[no key]"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> Any:
        raise TypeError("a key cannot be pickled")

    def reveal(self) -> str:
        """The key itself, for the header of a request."""
        return self._text

    def hide_in(self, text: str) -> str:
        """`text` without the key."""
        return text.replace(self._text, HIDDEN) if len(self._text) >= SHORTEST else text


class Hiding:
    """Takes the key out of a stream, also where it is cut in two."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._rest = ""

    def feed(self, text: str) -> str:
        """As much of the text so far as cannot be the beginning of the key."""
        text = self._key.hide_in(self._rest + text)
        secret = self._key.reveal()
        for length in range(min(len(secret) - 1, len(text)), 0, -1):
            if len(secret) >= SHORTEST and secret.startswith(text[-length:]):
                self._rest = text[-length:]
                return text[:-length]
        self._rest = ""
        return text

    def end(self) -> str:
        """The text that was held back."""
        rest, self._rest = self._rest, ""
        return rest


def find_key(name: str, required: bool) -> Key:
    """The key called `name`, which no process started from now on inherits.

    Raises:
        UsageError: it is required and neither in the environment nor in the keyring, or is no key.
    """
    withhold(name)
    text = (os.environ.get(name) or _from_keyring(name) or "").strip()
    if not text and required:
        raise UsageError(
            f"there is no key {name}",
            f"export {name}=..., or `keyring set {SERVICE} {name}` with the package keyring installed",
        )
    if not text.isascii() or not text.isprintable():
        raise UsageError(f"{name} is no key: it has characters that a header cannot carry", "set it again")
    return Key(text)


def _from_keyring(name: str) -> str | None:
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        return None
    try:
        found = keyring.get_password(SERVICE, name)
    except Exception:  # every backend has errors of its own; a locked keyring is no key
        return None
    return found if isinstance(found, str) else None
