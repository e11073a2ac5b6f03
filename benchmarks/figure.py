"""One measured figure with its limit."""

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """A figure with its unit and, if there is one, its limit."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    """The value should be at most this."""
    detail: str = ""
    fault: bool = False
    """Whether an exceeded limit is a fault of pkb-arena, whatever the machine."""

    @property
    def kept(self) -> bool:
        """Whether the value is within its limit."""
        return self.limit is None or self.value <= self.limit

    def text(self) -> str:
        """ "0.41 s  (at most 0.5 s)  median of 20, slowest 0.52 s"."""
        parts = [f"{self.value:.3g} {self.unit}".rstrip()]
        if self.limit is not None:
            parts.append(f"({'at most' if self.kept else 'MORE THAN'} {self.limit:g} {self.unit})".replace(" )", ")"))
        return "  ".join([*parts, self.detail]).rstrip()
