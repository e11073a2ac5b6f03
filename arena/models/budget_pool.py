"""The money of a campaign: answers that are being written share one limit."""

from arena.errors import UsageError
from arena.models.budget import Budget, Spent, has_prices
from arena.settings import ModelSettings


class Purse:
    """Counts what all players of a campaign spend; None is no limit."""

    def __init__(self, usd: float | None, before: Spent = Spent()) -> None:  # noqa: B008 - a frozen value
        """before: spent by earlier sessions."""
        self.usd = usd
        self._done = before
        self._open: list[PurseBudget] = []

    def open(self, model: ModelSettings) -> "PurseBudget":
        """A budget for one attempt of a model. Hand it back with `close`.

        Raises:
            UsageError: there is a limit, and the model has no prices to count dollars by.
        """
        if self.usd is not None and not has_prices(model):
            raise UsageError(
                f"{model.model} has no prices, so dollars cannot be counted",
                "set price_in and price_out of the model, or leave --budget out",
            )
        budget = PurseBudget(model, self)
        self._open.append(budget)
        return budget

    def close(self, budget: "PurseBudget") -> Spent:
        """The attempt is over. Returns what it has spent."""
        self._open.remove(budget)
        budget.end()
        self._done += budget.spent
        return budget.spent

    @property
    def spent(self) -> Spent:
        """By everybody so far, answers in progress included."""
        return sum((budget.spent for budget in self._open), self._done)

    @property
    def empty(self) -> bool:
        """The limit is reached."""
        return self.usd is not None and self.spent.usd >= self.usd


class PurseBudget(Budget):
    """One attempt's share: it ends when the whole purse is empty."""

    def __init__(self, model: ModelSettings, purse: Purse) -> None:
        super().__init__(model)
        self._purse = purse

    @property
    def reached(self) -> str:
        return f"the campaign's budget of ${self._purse.usd:g} is spent" if self._purse.empty else ""
