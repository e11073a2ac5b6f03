"""Characters beyond U+FFFF that arrive cut in two: the border of an event may lie between their UTF-16 halves."""


class Halves:
    """One text that arrives in pieces."""

    def __init__(self) -> None:
        self._first = ""

    @property
    def cut(self) -> bool:
        """The second half of a character is due."""
        return bool(self._first)

    def feed(self, text: str) -> str:
        """The next piece in whole characters; a first half at its end is kept until the second comes.

        Raises:
            ValueError: a half without the other.
        """
        text = self._first + text
        self._first = text[-1:] if "\ud800" <= text[-1:] < "\udc00" else ""
        return joined(text.removesuffix(self._first))


def joined(text: str) -> str:
    """The text with its halves joined. Raises ValueError for a half without the other."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def readable(text: str) -> str:
    """The text with its halves joined, and U+FFFD for a half without the other."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def characters(text: str) -> int:
    """Length of a piece when a character that is cut in two counts with its first half."""
    return len(text) - sum("\udc00" <= character < "\ue000" for character in text)
