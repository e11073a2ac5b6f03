"""Joins characters beyond U+FFFF that arrive split: their two UTF-16 halves may be in different events."""


class Halves:
    """One text that arrives in pieces."""

    def __init__(self) -> None:
        self._first = ""

    @property
    def cut(self) -> bool:
        """Whether the second half of a character is missing."""
        return bool(self._first)

    def feed(self, text: str) -> str:
        """Returns the next piece in complete characters. Holds a first half at its end back for the next call.

        Raises:
            ValueError: one half of a character comes without the other.
        """
        text = self._first + text
        self._first = text[-1:] if "\ud800" <= text[-1:] < "\udc00" else ""
        return joined(text.removesuffix(self._first))


def joined(text: str) -> str:
    """Joins the halves in a text. Raises ValueError for a half without the other."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def readable(text: str) -> str:
    """Joins the halves in a text. A half without the other becomes U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def characters(text: str) -> int:
    """Returns the length of a piece. A split character counts once, with its first half."""
    return len(text) - sum("\udc00" <= character < "\ue000" for character in text)
