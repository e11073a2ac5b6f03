"""The roles of worlds."""

from enum import StrEnum


class Role(StrEnum):
    """What a world is for. The value is `WorldChanged.role`, which journals keep."""

    ORACLE = "baseline"
    REFERENCE = "reference"
    SPARE = "spare"
    CONTENDER = "contender"
    RIVAL = "rival"

    @property
    def words(self) -> str:
        """The role in sentences: "oracle", "reference"."""
        return self.name.lower()


def role_words(role: str) -> str:
    """The words of a role as an event or a journal has it; one that this version does not know stays as it is."""
    return next((known.words for known in Role if known == role), role)
