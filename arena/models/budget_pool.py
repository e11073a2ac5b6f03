"""The money of a sweep: answers that are being written share one limit."""

from arena.errors import UsageError
from arena.models.budget import Budget, Spent, has_prices
from arena.settings import ModelSettings


class BudgetPool:
    """Counts what all players of a sweep spend; None is no limit."""

    def __init__(self, usd: float | None, before: Spent = Spent()) -> None:  # noqa: B008 - a frozen value
        """before: spent by earlier sessions."""
        self.usd = usd
        self._done = before
        self._open: list[PooledBudget] = []

    def open(self, model: ModelSettings) -> "PooledBudget":
        """A budget for one attempt of a model. Hand it back with `close`.

        Raises:
            UsageError: there is a limit, and the model has no prices to count dollars by.
        """
        if self.usd is not None and not has_prices(model):
            raise UsageError(
                f"{model.model} has no prices, so dollars cannot be counted",
                "set price_in and price_out of the model, or leave --budget out",
            )
        budget = PooledBudget(model, self)
        self._open.append(budget)
        return budget

    def close(self, budget: "PooledBudget") -> Spent:
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


class PooledBudget(Budget):
    """One attempt's share: it ends when the whole pool is empty."""

    def __init__(self, model: ModelSettings, pool: BudgetPool) -> None:
        super().__init__(model)
        self._pool = pool

    @property
    def reached(self) -> str:
        return f"the sweep's budget of ${self._pool.usd:g} is spent" if self._pool.empty else ""
