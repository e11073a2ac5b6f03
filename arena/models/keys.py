"""API keys, read from the environment or the system's keyring. They are used only in headers of requests."""

import importlib
import os
from typing import Any

from arena.errors import UsageError
from arena.models.network import base_url, is_local
from arena.models.provider import Provider
from arena.paths import withhold
from arena.settings import ModelSettings

SERVICE = "pkb-arena"
"""Service name in the keyring. The entry has the name of the environment variable."""
HIDDEN = "[key]"
SHORTEST = 8
"""Minimum length of a key to hide. A shorter key is a local server's dummy, and could match ordinary text."""


class Key:
    """A secret. Messages, tracebacks and encoded records do not show it. It cannot be pickled."""

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
        """Returns the key itself, for the header of a request."""
        return self._text

    def hide_in(self, text: str) -> str:
        """Replaces the key in a text with HIDDEN."""
        return text.replace(self._text, HIDDEN) if len(self._text) >= SHORTEST else text


class Hiding:
    """Hides the key in a stream, also if the key is split between two pieces."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._rest = ""

    def feed(self, text: str) -> str:
        """Adds a piece. Returns the text that cannot be the beginning of the key, and holds the rest back."""
        text = self._key.hide_in(self._rest + text)
        secret = self._key.reveal()
        for length in range(min(len(secret) - 1, len(text)), 0, -1):
            if len(secret) >= SHORTEST and secret.startswith(text[-length:]):
                self._rest = text[-length:]
                return text[:-length]
        self._rest = ""
        return text

    @property
    def holds(self) -> bool:
        """Whether text is held back."""
        return bool(self._rest)

    def end(self) -> str:
        """Returns the text that was held back."""
        rest, self._rest = self._rest, ""
        return rest


def find_key(name: str) -> Key:
    """Returns the key in the variable or keyring entry `name`. Processes started later do not inherit the variable.

    Raises:
        UsageError: the key is in neither place, or has characters that a header cannot carry.
    """
    withhold(name)
    text = (os.environ.get(name) or _from_keyring(name) or "").strip()
    if not text:
        raise UsageError(
            f"there is no key {name}",
            f"export {name}=..., or `keyring set {SERVICE} {name}` with the package keyring installed",
        )
    if not text.isascii() or not text.isprintable():
        raise UsageError(f"{name} is no key: it has characters that a header cannot carry", "set it again")
    return Key(text)


def key_for(provider: Provider, model: ModelSettings) -> Key:
    """Returns the key for a model's requests. A server on this machine needs none unless the settings name one.

    Raises:
        UsageError: as `find_key` and `base_url`.
    """
    if is_local(base_url(provider, model)) and not model.key_env:
        return Key("")
    return find_key(model.key_env or provider.key_env)


def _from_keyring(name: str) -> str | None:
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        return None
    try:
        found = keyring.get_password(SERVICE, name)
    except Exception:  # every backend has its own errors; a locked keyring counts as no key
        return None
    return found if isinstance(found, str) else None
