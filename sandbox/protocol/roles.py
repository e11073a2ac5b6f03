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
