"""The tokens and dollars that a model may use, counted while it writes."""

from dataclasses import dataclass, field

import msgspec

from arena.errors import UsageError
from arena.models.conversation import AnyPiece, CallPart, Retry, Text, Thought, Usage
from arena.settings import ModelSettings

CHARACTERS_PER_TOKEN = 3.0
"""Used for text that the provider has not counted yet. Code has about 3.3, so estimates tend to be too high."""


class Spent(msgspec.Struct, frozen=True):
    """Tokens and dollars used."""

    read: int = 0
    written: int = 0
    usd: float = 0.0
    estimated: bool = False
    """Whether a part of it is estimated from text lengths, because the provider gave no count."""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.read + other.read,
            self.written + other.written,
            self.usd + other.usd,
            self.estimated or other.estimated,
        )

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.read - other.read, self.written - other.written, self.usd - other.usd, self.estimated)

    @property
    def tokens(self) -> int:
        return self.read + self.written


def has_prices(model: ModelSettings) -> bool:
    """Whether the cost of its tokens is known."""
    return bool(model.price_in or model.price_out)


def price_words(model: ModelSettings) -> str:
    """Returns the prices as text: "$5 in, $25 out per million tokens"."""
    if not has_prices(model):
        return "costs nothing" if model.is_free else "no prices in the settings"
    return f"${model.price_in:g} in, ${model.price_out:g} out per million tokens"


class Budget:
    """Counts the cost of one player's requests at one task. The limits are those of its pool, if it has one."""

    def __init__(self, model: ModelSettings, pool: "BudgetPool | None" = None) -> None:
        self._model = model
        self._pool = pool
        self._done = Spent()
        self._request: Spent | None = None
        self._prompt = 0
        self._characters = 0.0

    def begin(self, characters: int) -> None:
        """Starts counting a request. characters: length of its prompt."""
        self.end()
        self._prompt, self._characters = characters, 0.0
        self._request = self._cost(round(characters / CHARACTERS_PER_TOKEN), 0, estimated=True)

    def count(self, piece: AnyPiece) -> None:
        """Counts a piece of the answer."""
        if self._request is None:
            return
        if isinstance(piece, Text | Thought | CallPart):
            more = piece.arguments if isinstance(piece, CallPart) else piece.text
            self._characters += len(more)
            written = round(self._characters / CHARACTERS_PER_TOKEN)
            if written > self._request.written:
                self._request = self._cost(self._request.read, written, estimated=True)
        elif isinstance(piece, Usage) and (piece.read or piece.written):
            # The provider's count replaces the estimate, which may be larger in the middle of an answer.
            self._request = self._cost(piece.read or self._request.read, piece.written, estimated=False)
            self._characters = piece.written * CHARACTERS_PER_TOKEN
        elif isinstance(piece, Retry):
            if piece.refused:
                self.refused()
            self.begin(self._prompt)  # the cost of the failed request stays counted

    def uncounted(self, most: int) -> None:
        """Counts the request at its maximum unless the provider has counted the whole answer. most: tokens of an answer."""
        if self._request is not None and self._request.estimated:
            self._request = self._cost(self._request.read, max(most, self._request.written), estimated=True)

    def refused(self) -> None:
        """Cancels the cost of a refused request, unless a part of its answer had arrived."""
        if self._request is not None and self._request.estimated and not self._request.written:
            self._request = None

    def end(self) -> Spent:
        """Stops counting the request. Returns its cost."""
        request, self._request = self._request or Spent(), None
        self._done += request
        return request

    @property
    def spent(self) -> Spent:
        """Cost of all requests, the one in progress included."""
        return self._done + self._request if self._request is not None else self._done

    @property
    def reached(self) -> str:
        """The limit that is reached, in words; empty if none is reached."""
        return self._pool.reached if self._pool is not None else ""

    def _cost(self, read: int, written: int, estimated: bool) -> Spent:
        usd = (read * self._model.price_in + written * self._model.price_out) / 1e6
        return Spent(read, written, usd, estimated)


@dataclass(eq=False)
class BudgetPool:
    """The limit that all players of a duel's side or a sweep share. None means no limit."""

    usd: float | None = None
    tokens: int | None = None
    before: Spent = field(default_factory=Spent)
    """The amount spent before the attempts that are open now, also in earlier sessions."""
    _open: list[Budget] = field(default_factory=list, init=False)

    def open(self, model: ModelSettings) -> Budget:
        """Opens a budget for one attempt of a model. The caller must `close` it.

        Raises:
            UsageError: dollars are limited, and the model has no prices to count them by.
        """
        if self.usd is not None and not has_prices(model):
            raise UsageError(
                f"{model.model} has no prices, so dollars cannot be counted",
                "set price_in and price_out of the model, or set no limit in dollars",
            )
        budget = Budget(model, self)
        self._open.append(budget)
        return budget

    def close(self, budget: Budget) -> Spent:
        """Closes the budget of an attempt. Returns the amount spent."""
        self._open.remove(budget)
        budget.end()
        self.before += budget.spent
        return budget.spent

    @property
    def spent(self) -> Spent:
        """Cost of all attempts so far, answers in progress included."""
        return sum((budget.spent for budget in self._open), self.before)

    @property
    def reached(self) -> str:
        """The limit that is reached, in words; empty if none is reached."""
        if self.usd is not None and not self.spent.usd < self.usd:  # NaN on either side counts as reached
            return f"the budget of ${self.usd:g} is spent"
        if self.tokens is not None and self.spent.tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens is spent"
        return ""
